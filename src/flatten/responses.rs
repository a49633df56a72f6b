//! Flattens the stream of responses: the table `responses`, the child tables of answers, custom metadata and visitor
//! snapshots.

use arrow::error::ArrowError;

use super::{
    answer::{AnswerInput, AnswerTables},
    child_rows::{AnswerKey, append_attributes},
    drift::DriftLog,
    enumerations::{QuestionType, report_new_type},
    fields::{Fields, KeyError, wire_fields},
    meta::MetaColumns,
    snapshots::SnapshotTables,
    table_builder::{ColumnSet, RecordTables, TableBuilder},
};
use crate::{
    json::{self, Entry},
    model::{DriftRules, FlatPage, Stream},
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

/// The tables of the stream of responses under construction.
#[derive(Debug)]
pub(super) struct ResponseTables<'a> {
    fields: Fields<'a, ResponseField>,
    meta: MetaColumns<'a>,
    selected_indexes: Vec<i64>,
    responses: TableBuilder,
    answers: AnswerTables<'a>,
    snapshots: SnapshotTables<'a>,
    custom_metadata: TableBuilder,
    /// The hash of the answer of each row.
    answer_hashes: Vec<i64>,
    /// The canonical spelling of the last answer; a buffer.
    spelled: Vec<u8>,
    entries: Vec<Entry<'a>>,
    drift: DriftLog,
}

impl<'a> RecordTables<'a> for ResponseTables<'a> {
    fn new(records: usize, rules: DriftRules, columns: ColumnSet) -> Result<Self, ArrowError> {
        Ok(Self {
            fields: Fields::new(rules),
            meta: MetaColumns::new(rules),
            selected_indexes: Vec::new(),
            responses: TableBuilder::new("responses", records, columns)?,
            answers: AnswerTables::new(columns)?,
            snapshots: SnapshotTables::new(rules, columns),
            custom_metadata: TableBuilder::new("response_custom_metadata", 0, columns)?,
            answer_hashes: Vec::with_capacity(records),
            spelled: Vec::new(),
            entries: Vec::new(),
            drift: DriftLog::new(Stream::Responses.name(), rules),
        })
    }

    /// Appends the row of a response, the rows of its answer, and its custom metadata and snapshot.
    fn append(&mut self, record: i64, entries: &[Entry<'a>]) -> Result<u128, KeyError> {
        self.fields.read(entries);
        self.drift.drain_fields(record, "", &mut self.fields);
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
        report_new_type(&mut self.drift, record, "questionType", question_type.as_deref());
        self.append_answer(&key, QuestionType::of(question_type.as_deref()));
        self.append_context(&key);
        self.responses.json("extra", self.fields.extra.write());
        self.responses.row_hash();
        self.drift.drain_fields(record, "", &mut self.fields);
        Ok(self.responses.end_row(record))
    }

    fn drift(&mut self) -> &mut DriftLog {
        &mut self.drift
    }

    fn finish_into(self, page: &mut FlatPage) -> Result<DriftLog, ArrowError> {
        page.answer_hashes = self.answer_hashes;
        self.responses.finish_into(page)?;
        self.answers.finish_into(page)?;
        self.custom_metadata.finish_into(page)?;
        self.snapshots.finish_into(page)?;
        Ok(self.drift)
    }
}

impl<'a> ResponseTables<'a> {
    /// Appends the cells of the answer, its rows in the child tables, and the indexes of the chosen options.
    fn append_answer(&mut self, key: &AnswerKey<'a>, question_type: QuestionType) {
        let indexes = self.fields.json(Wire::SelectedIndexes);
        let has_indexes = indexes.is_some_and(|raw| json::read_integers(raw, &mut self.selected_indexes).is_some());
        if !has_indexes {
            self.selected_indexes.clear();
            if indexes.is_some() {
                self.fields.add_clash_to_extra(Wire::SelectedIndexes);
            }
        }
        let response = self.fields.raw(Wire::Response);
        let answer =
            self.answers.append(AnswerInput { key, question_type, response, selected_indexes: &self.selected_indexes });
        for (prefix, field) in self.answers.drift.drain(..) {
            self.drift.add_in_answer(key.record, prefix, &field);
        }
        let row = &mut self.responses;
        row.text("answer_text", answer.text.as_deref());
        row.double("answer_number", answer.number);
        row.boolean("answer_bool", answer.boolean);
        row.json("answer_json", response);
        let answer_hash = response.map(|response| json::canonical_hash(response, &mut self.spelled));
        self.answer_hashes.push(answer_hash.unwrap_or(0));
        row.boolean("is_skipped", Some(answer.is_skipped));
        row.bigints("selected_indexes", has_indexes.then_some(&self.selected_indexes));
    }

    /// Appends the URL, `meta`, custom metadata and the visitor snapshot, which the service sends only if a scan
    /// requests them. A URL, `meta` or snapshot of a wrong shape goes to `extra`, unless the drift rules discard it.
    /// The column `custom_metadata` stores a value of any shape.
    fn append_context(&mut self, key: &AnswerKey<'a>) {
        let (fields, row) = (&mut self.fields, &mut self.responses);
        row.text("url", fields.text(Wire::Url).as_deref());
        if !self.meta.append(key.record, fields.json(Wire::Meta), row, &mut self.drift) {
            fields.add_clash_to_extra(Wire::Meta);
        }
        let metadata = fields.json(Wire::CustomMetadata);
        row.json("custom_metadata", metadata);
        append_attributes(&mut self.custom_metadata, key.record, metadata, &mut self.entries, |row| key.begin_row(row));
        if let Some(snapshot) = fields.json(Wire::VisitorSnapshot)
            && self.snapshots.add(key, snapshot, &mut self.drift).is_none()
        {
            fields.add_clash_to_extra(Wire::VisitorSnapshot);
        }
    }
}
