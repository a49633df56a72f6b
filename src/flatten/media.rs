//! `response_media`: recordings of VIDEOVOICE answers.

use std::borrow::Cow;

use arrow::error::ArrowError;

use super::{
    answer_key::AnswerKey,
    field_drift::AnswerDrift,
    fields::{Fields, wire_fields},
    table_builder::TableBuilder,
};
use crate::{
    json::{self, Entry},
    model::{DriftRules, TableBatch},
};

wire_fields! {
    /// The fields of a recording.
    MediaField {
        UploadId = "uploadId",
        MediaType = "mediaType",
        Duration = "duration",
        Transcription = "transcription",
        DownloadUrl = "downloadUrl",
        VideoUrl = "videoUrl",
        UpdatedAt = "updatedAt",
    }
}

/// Returns a text for the content hash: the members of a recording without the query strings of its links. `None` if no
/// link has a query string, or if `response` is not an object. The service signs the links anew for every scan, and a
/// new signature must not count as an edit of the answer.
pub(super) fn without_signatures(response: &str) -> Option<String> {
    let mut entries = Vec::new();
    json::read_entries(response, &mut entries)?;
    let is_link = |entry: &Entry<'_>| ["downloadUrl", "videoUrl"].contains(&entry.key);
    let query_start = |entry: &Entry<'_>| entry.value.find('?').filter(|_| is_link(entry));
    if !entries.iter().any(|entry| query_start(entry).is_some()) {
        return None;
    }
    let without_query = |entry: &Entry<'_>| {
        let value = query_start(entry).and_then(|query_start| entry.value.get(..query_start)).unwrap_or(entry.value);
        format!("{}:{value}", entry.key)
    };
    Some(entries.iter().map(without_query).collect::<Vec<_>>().join(","))
}

/// The rows of `response_media`.
#[derive(Debug)]
pub(super) struct MediaTable<'a> {
    table: TableBuilder,
    fields: Fields<'a, MediaField>,
}

impl<'a> MediaTable<'a> {
    pub(super) fn new() -> Result<Self, ArrowError> {
        Ok(Self { table: TableBuilder::new("response_media", 0)?, fields: Fields::new(DriftRules::default()) })
    }

    /// Appends a row for the recording, and returns its transcription. Unknown fields and type clashes go to `drift`.
    /// The table has no column `extra`, because `answer_json` contains the complete recording.
    pub(super) fn append(
        &mut self,
        key: &AnswerKey,
        entries: &[Entry<'a>],
        drift: &mut Vec<AnswerDrift<'a>>,
    ) -> Option<Cow<'a, str>> {
        self.fields.read(entries);
        let transcription = self.fields.text(MediaField::Transcription);
        if !self.table.is_full() {
            self.append_row(key, transcription.as_deref());
        }
        drift.extend(self.fields.drift.drain(..).map(|field| ("response.", field)));
        transcription
    }

    fn append_row(&mut self, key: &AnswerKey, transcription: Option<&str>) {
        key.begin_row(&mut self.table);
        self.table.text("upload_id", self.fields.text(MediaField::UploadId).as_deref());
        self.table.text("media_type", self.fields.text(MediaField::MediaType).as_deref());
        self.table.double("duration_secs", self.fields.double(MediaField::Duration));
        self.table.text("transcription", transcription);
        self.table.text("download_url", self.fields.text(MediaField::DownloadUrl).as_deref());
        self.table.text("video_url", self.fields.text(MediaField::VideoUrl).as_deref());
        self.table.timestamp("media_updated_at", self.fields.timestamp(MediaField::UpdatedAt));
        self.table.end_row(key.record);
    }

    pub(super) fn finish_into(self, batches: &mut Vec<TableBatch>) -> Result<(), ArrowError> {
        self.table.finish_into(batches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_new_signature_of_a_link_is_no_edit() {
        let recording = |link: &str, transcription: &str| {
            format!(
                r#"{{"downloadUrl":"{link}","transcription":"{transcription}","uploadId":"u","videoUrl":"https://m/v"}}"#
            )
        };
        let compared = |link: &str, transcription: &str| without_signatures(&recording(link, transcription));
        let signed = compared("https://m/d?sig=1", "what?");
        assert!(signed.is_some());
        assert_eq!(signed, compared("https://m/d?sig=2&at=9", "what?"));
        assert_ne!(signed, compared("https://m/e?sig=1", "what?"));
        assert_ne!(signed, compared("https://m/d?sig=1", "what? 2"));
        assert_eq!(compared("https://m/d", "what?"), None, "the exact text is compared");
        assert_eq!(without_signatures("[1]"), None);
        assert_eq!(without_signatures(r#"{"downloadUrl":null}"#), None);
    }
}
