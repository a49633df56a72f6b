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
    json::Entry,
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
