//! `response_media`: recordings of VIDEOVOICE answers.

use std::borrow::Cow;

use arrow::error::ArrowError;

use super::{
    answer_key::AnswerKey,
    fields::{Fields, wire_fields},
    met::Met,
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

/// A recording without what is new in its links whenever they are handed out: signatures and times stand behind the `?`
/// of a link that ages, and a new link is no edit of an answer. `None` if no link has such.
pub(super) fn without_signatures(response: &str) -> Option<String> {
    let mut entries = Vec::new();
    json::read_entries(response, &mut entries)?;
    let is_link = |entry: &Entry<'_>| ["downloadUrl", "videoUrl"].contains(&entry.key);
    let signed = |entry: &Entry<'_>| entry.value.find('?').filter(|_| is_link(entry));
    if !entries.iter().any(|entry| signed(entry).is_some()) {
        return None;
    }
    let bare = |entry: &Entry<'_>| match signed(entry) {
        Some(at) => format!("{}:{}", entry.key, entry.value.get(..at).unwrap_or(entry.value)),
        None => format!("{}:{}", entry.key, entry.value),
    };
    Some(entries.iter().map(bare).collect::<Vec<_>>().join(","))
}

#[derive(Debug)]
pub(super) struct Media<'a> {
    table: TableBuilder,
    fields: Fields<'a, MediaField>,
}

impl<'a> Media<'a> {
    pub(super) fn new() -> Result<Self, ArrowError> {
        Ok(Self { table: TableBuilder::new("response_media", 0)?, fields: Fields::new(DriftRules::default()) })
    }

    /// Appends the recording and returns what was said in it. What has no column or does not fit it is NULL here:
    /// unlike a record's, a recording's misfits are noted and not collected, because `answer_json` has the whole of it.
    pub(super) fn append(
        &mut self,
        key: &AnswerKey,
        entries: &[Entry<'a>],
        drift: &mut Vec<(&'static str, Met<'a>)>,
    ) -> Option<Cow<'a, str>> {
        self.fields.read(entries);
        let transcription = self.fields.text(MediaField::Transcription);
        if !self.table.is_full() {
            self.append_row(key, transcription.as_deref());
        }
        drift.extend(self.fields.drift.drain(..).map(|met| ("response.", met)));
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
    fn a_new_signature_is_no_edit_and_anything_else_is() {
        let recording = |link: &str, said: &str| {
            format!(r#"{{"downloadUrl":"{link}","transcription":"{said}","uploadId":"u","videoUrl":"https://m/v"}}"#)
        };
        let compared = |link: &str, said: &str| without_signatures(&recording(link, said));
        let signed = compared("https://m/d?sig=1", "what?");
        assert!(signed.is_some());
        assert_eq!(signed, compared("https://m/d?sig=2&at=9", "what?"));
        assert_ne!(signed, compared("https://m/e?sig=1", "what?"));
        assert_ne!(signed, compared("https://m/d?sig=1", "what? 2"));
        assert_eq!(compared("https://m/d", "what?"), None, "what is compared as it is stays so");
        assert_eq!(without_signatures("[1]"), None);
        assert_eq!(without_signatures(r#"{"downloadUrl":null}"#), None);
    }
}
