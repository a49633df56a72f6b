//! The stream of responses: `responses`, the tables of the answers' parts, and the visitor snapshots.

use arrow::error::ArrowError;

use super::{
    RecordTables,
    answer::{AnswerParts, Given},
    answer_key::AnswerKey,
    attributes::append_attributes,
    drift::DriftLog,
    fields::{Fields, Unplaceable, wire_fields},
    media::without_signatures,
    meta::Meta,
    question_type::{QuestionType, note_new_type},
    snapshots::Snapshots,
    table_builder::TableBuilder,
};
use crate::{
    json::{self, Entry},
    model::{DriftRules, Stream, TableBatch},
};

wire_fields! {
    /// The fields of a response.
    ResponseField {
        CreatedAt = "createdAt",
        UpdatedAt = "updatedAt",
        DeletedAt = "deletedAt",
        ExternalUserId = "externalUserId",
        PartnerAnonymousId = "partnerAnonymousId",
        QuestionId = "questionId",
        QuestionText = "questionText",
        QuestionType = "questionType",
        Response = "response",
        ResponseGroupUid = "responseGroupUid",
        SelectedIndexes = "selectedIndexes",
        SurveyId = "surveyId",
        VisitorId = "visitorId",
        VisitorUuid = "visitorUuid",
        Url = "url",
        Meta = "meta",
        CustomMetadata = "customMetadata",
        VisitorSnapshot = "visitorSnapshot",
    }
}

use ResponseField as Wire;

#[derive(Debug)]
pub(super) struct ResponseTables<'a> {
    fields: Fields<'a, ResponseField>,
    meta: Meta<'a>,
    selected_indexes: Vec<i64>,
    responses: TableBuilder,
    parts: AnswerParts<'a>,
    snapshots: Snapshots<'a>,
    custom_metadata: TableBuilder,
    entries: Vec<Entry<'a>>,
    drift: DriftLog,
}

impl<'a> RecordTables<'a> for ResponseTables<'a> {
    fn new(records: usize, rules: DriftRules) -> Result<Self, ArrowError> {
        Ok(Self {
            fields: Fields::new(rules),
            meta: Meta::new(rules),
            selected_indexes: Vec::new(),
            responses: TableBuilder::new("responses", records)?,
            parts: AnswerParts::new()?,
            snapshots: Snapshots::new(rules),
            custom_metadata: TableBuilder::new("response_custom_metadata", 0)?,
            entries: Vec::new(),
            drift: DriftLog::new(Stream::Responses.name(), rules),
        })
    }

    fn append(&mut self, record: i64, entries: &[Entry<'a>]) -> Result<u128, Unplaceable> {
        self.fields.read(entries);
        self.drift.take(record, "", &mut self.fields);
        let fields = &mut self.fields;
        let response_group_uid = fields.key_text(Wire::ResponseGroupUid)?;
        let question_id = fields.key_bigint(Wire::QuestionId)?;
        let created_at = fields.key_timestamp(Wire::CreatedAt)?;
        let survey_id = fields.bigint(Wire::SurveyId);
        let key = AnswerKey { response_group_uid, question_id, survey_id, created_at, record };

        let row = &mut self.responses;
        row.text("response_group_uid", Some(&key.response_group_uid));
        row.bigint("question_id", Some(key.question_id));
        row.bigint("survey_id", key.survey_id);
        row.bigint("visitor_id", fields.bigint(Wire::VisitorId));
        row.text("visitor_uuid", fields.text(Wire::VisitorUuid).as_deref());
        row.text("external_user_id", fields.text(Wire::ExternalUserId).as_deref());
        row.text("partner_anonymous_id", fields.text(Wire::PartnerAnonymousId).as_deref());
        let question_type = fields.text(Wire::QuestionType);
        row.text("question_type", question_type.as_deref());
        row.text("question_text", fields.text(Wire::QuestionText).as_deref());
        row.timestamp("created_at", Some(key.created_at));
        row.timestamp("updated_at", fields.timestamp(Wire::UpdatedAt));
        row.timestamp("deleted_at", fields.timestamp(Wire::DeletedAt));
        let known_type = QuestionType::of(question_type.as_deref());
        if known_type == QuestionType::Unknown {
            note_new_type(&mut self.drift, record, "questionType", question_type.as_deref());
        }
        self.append_answer(&key, known_type);
        self.append_context(&key);
        self.responses.text("extra", self.fields.extra.write());
        self.responses.row_hash();
        self.drift.take(record, "", &mut self.fields);
        Ok(self.responses.end_row(record))
    }

    fn drift(&mut self) -> &mut DriftLog {
        &mut self.drift
    }

    fn finish_into(self, batches: &mut Vec<TableBatch>) -> Result<DriftLog, ArrowError> {
        self.responses.finish_into(batches)?;
        self.parts.finish_into(batches)?;
        self.custom_metadata.finish_into(batches)?;
        self.snapshots.finish_into(batches)?;
        Ok(self.drift)
    }
}

impl<'a> ResponseTables<'a> {
    /// The answer, its parts and the indexes of the chosen options.
    fn append_answer(&mut self, key: &AnswerKey<'a>, question_type: QuestionType) {
        let indexes = self.fields.json(Wire::SelectedIndexes);
        let has_indexes = indexes.is_some_and(|raw| json::read_integers(raw, &mut self.selected_indexes).is_some());
        if !has_indexes {
            self.selected_indexes.clear();
            if indexes.is_some() {
                self.fields.keep_clash(Wire::SelectedIndexes);
            }
        }
        let response = self.fields.raw(Wire::Response);
        let answer = self.parts.read(Given { key, question_type, response, selected_indexes: &self.selected_indexes });
        for (prefix, met) in self.parts.drift.drain(..) {
            self.drift.note_in_answer(key.record, prefix, &met);
        }
        let row = &mut self.responses;
        row.text("answer_text", answer.text.as_deref());
        row.double("answer_number", answer.number);
        row.boolean("answer_bool", answer.boolean);
        match response.filter(|_| question_type == QuestionType::VideoVoice).and_then(without_signatures) {
            Some(compared) => row.text_compared_as("answer_json", response, &compared),
            None => row.text("answer_json", response),
        }
        row.boolean("is_skipped", Some(answer.is_skipped));
        row.bigints("selected_indexes", has_indexes.then_some(&self.selected_indexes));
    }

    /// What the flags of a scan add.
    fn append_context(&mut self, key: &AnswerKey<'a>) {
        let (fields, row) = (&mut self.fields, &mut self.responses);
        row.text("url", fields.text(Wire::Url).as_deref());
        let meta = fields.json(Wire::Meta);
        let meta_object = meta.filter(|raw| json::shape(raw) == json::Shape::Object);
        if meta_object.is_none() && meta.is_some() {
            fields.keep_clash(Wire::Meta);
        }
        self.meta.append(key.record, meta_object, row, &mut self.drift);
        let metadata = fields.json(Wire::CustomMetadata);
        row.text("custom_metadata", metadata);
        append_attributes(&mut self.custom_metadata, key.record, metadata, &mut self.entries, |row| key.begin_row(row));
        if let Some(snapshot) = fields.json(Wire::VisitorSnapshot)
            && self.snapshots.add(key, snapshot, &mut self.drift).is_none()
        {
            fields.keep_clash(Wire::VisitorSnapshot);
        }
    }
}
