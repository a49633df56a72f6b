//! Builds the rows of `webhook_events` and `webhook_questions`.
//!
//! Values are parsed leniently: the service sends ids as strings and as numbers, and lists and objects also as JSON
//! inside a string. A value that fits no column is drift and goes to `extra`, as in every other table.

use std::borrow::Cow;

use arrow::error::ArrowError;
use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::{
    super::{
        drift::DriftLog,
        enumerations::{QuestionType, report_new_type},
        fields::{Fields, KEY_TEXT_BYTES_MAX, WireField, wire_fields},
        table_builder::{ColumnSet, TableBuilder},
    },
    body::{WebhookBody, body_hash, read_bigint, read_indexes, read_moment},
};
use crate::{
    json::{self, Entry, Shape, scalar_text, unwrap_json},
    model::{Drift, DriftRules, EventKind, FlatEvents, FlatPage, uuid_in_normal_form},
};

/// The prefix of the paths of drift in webhooks; the paths of a stream's drift begin with the stream's name.
const SOURCE: &str = "webhooks";

wire_fields! {
    /// The fields of all kinds of bodies.
    EventField {
        Id = "id",
        EnvironmentId = "environmentId",
        CreatedAt = "createdAt",
        ResponseGroupUid = "responseGroupUid",
        Response = "response",
        SurveyId = "surveyId",
        SurveyName = "surveyName",
        Question = "question",
        QuestionType = "questionType",
        VisitorId = "visitorId",
        OldVisitorId = "oldVisitorId",
        UserId = "userId",
        AnonymousId = "anonymousId",
        TriggeringEvent = "triggeringEvent",
        Timestamp = "timestamp",
        Email = "email",
        Attributes = "attributes",
        Href = "href",
        Os = "os",
        Browser = "browser",
        UserAgent = "userAgent",
        CustomMetadata = "customMetadata",
        SelectedIndexes = "selectedIndexes",
        EventType = "eventType",
        EventName = "eventName",
        EventProperties = "eventProperties",
        ThemeName = "themename",
        UpdatedAt = "updatedAt",
        ProductId = "productId",
        ProductName = "productName",
        QuestionText = "questionText",
        Platform = "platform",
        EventDate = "eventDate",
        RecordType = "recordType",
        Action = "action",
        Questions = "questions",
        OldStatus = "oldStatus",
        Status = "status",
        IsUserInterviews = "isUserInterviews",
        TeamId = "teamId",
    }
}

wire_fields! {
    /// The fields of a question in a body.
    QuestionField {
        Question = "question",
        Response = "response",
        Order = "order",
        QuestionTypeId = "questionTypeId",
    }
}

use EventField as Wire;

/// Flattened deliveries.
#[derive(Debug)]
pub struct FlatDeliveries {
    pub flat: FlatEvents,
    /// The fields and values of the deliveries that no contract knows.
    pub drift: Drift,
}

/// The tables under construction.
pub(super) struct EventTables<'a> {
    events: TableBuilder,
    questions: TableBuilder,
    fields: Fields<'a, EventField>,
    drift: DriftLog,
}

/// The columns of an event that do not come from its body.
pub(super) struct EventHeader<'k> {
    pub key: &'k str,
    /// The name of the kind.
    pub kind: &'k str,
    /// The time of receipt, in microseconds.
    pub received_us: i64,
    /// The index of the delivery, from 0.
    pub record: i64,
}

impl<'a> EventTables<'a> {
    pub(super) fn new(deliveries: usize) -> Result<Self, ArrowError> {
        let rules = DriftRules::default();
        Ok(Self {
            events: TableBuilder::new("webhook_events", deliveries, ColumnSet::All)?,
            questions: TableBuilder::new("webhook_questions", 0, ColumnSet::All)?,
            fields: Fields::new(rules),
            drift: DriftLog::new(SOURCE, rules),
        })
    }

    /// Appends the row of an event to `webhook_events`, and the rows of its questions.
    pub(super) fn append(&mut self, header: &EventHeader<'_>, body: &WebhookBody<'a>) {
        self.fields.read(body.entries.as_deref().unwrap_or_default());
        self.append_event(header, body);
        // A test body can contain anything; its unknown fields are no drift.
        if header.kind != EventKind::Test.name() {
            self.drift.drain_fields(header.record, "", &mut self.fields);
        }
        self.append_questions(header);
    }

    /// Appends the row of an event, column by column in the order of the contract.
    fn append_event(&mut self, header: &EventHeader<'_>, body: &WebhookBody<'a>) {
        let (row, fields) = (&mut self.events, &mut self.fields);
        row.text("event_key", Some(header.key));
        row.text("kind", Some(header.kind));
        row.timestamp("received_at", Some(header.received_us));
        row.timestamp("occurred_at", body.occurred_at());
        for (column, field) in
            [("created_at", Wire::CreatedAt), ("updated_at", Wire::UpdatedAt), ("event_date", Wire::EventDate)]
        {
            row.timestamp(column, fields.parse_or_extra(field, read_moment));
        }
        // A readable `timestamp` is already in `occurred_at`; an unreadable one goes to `extra`.
        fields.parse_or_extra(Wire::Timestamp, read_moment);
        row.text("body_hash", Some(&format!("{:032x}", body_hash(body.bytes()))));
        row.bigint("webhook_id", fields.parse_or_extra(Wire::Id, read_bigint));
        row.text("environment_id", id(fields, Wire::EnvironmentId).as_deref());
        for (column, field) in [
            ("product_id", Wire::ProductId),
            ("product_name", Wire::ProductName),
            ("event_type", Wire::EventType),
            ("event_name", Wire::EventName),
            ("action", Wire::Action),
            ("record_type", Wire::RecordType),
        ] {
            row.text(column, text(fields, field).as_deref());
        }
        row.boolean("is_user_interviews", fields.parse_or_extra(Wire::IsUserInterviews, json::read_boolean));
        row.bigint("team_id", fields.parse_or_extra(Wire::TeamId, read_bigint));
        row.bigint("survey_id", fields.parse_or_extra(Wire::SurveyId, read_bigint));
        for (column, field) in
            [("survey_name", Wire::SurveyName), ("old_status", Wire::OldStatus), ("status", Wire::Status)]
        {
            row.text(column, text(fields, field).as_deref());
        }
        row.text("response_group_uid", id(fields, Wire::ResponseGroupUid).as_deref());
        self.append_answer(header.record);
        self.append_visitor();
        let (row, fields) = (&mut self.events, &mut self.fields);
        row.json("extra", fields.extra.write());
        row.text("raw", body.text.ok());
        let base64 = body.text.err().map(|bytes| STANDARD.encode(bytes));
        row.text("raw_base64", base64.as_deref());
        row.end_row(header.record);
    }

    fn append_answer(&mut self, record: i64) {
        let (row, fields) = (&mut self.events, &mut self.fields);
        // A body usually has either `question` or `questionText`. If it has both, `questionText` goes to `extra`.
        let question = text(fields, Wire::Question);
        if question.is_some() {
            fields.add_to_extra(Wire::QuestionText);
        }
        let question = question.or_else(|| text(fields, Wire::QuestionText));
        row.text("question_text", question.as_deref());
        let question_type = text(fields, Wire::QuestionType);
        append_question_type(row, &mut self.drift, record, "questionType", question_type.as_deref());
        append_response(row, fields.json(Wire::Response), question_type.as_deref());
        row.bigints("selected_indexes", fields.parse_or_extra(Wire::SelectedIndexes, read_indexes).as_deref());
        row.text("theme_name", text(fields, Wire::ThemeName).as_deref());
    }

    /// Appends the columns of the visitor and of the event's properties.
    fn append_visitor(&mut self) {
        let (row, fields) = (&mut self.events, &mut self.fields);
        row.text("visitor_id", id(fields, Wire::VisitorId).as_deref());
        row.bigint("old_visitor_id", fields.parse_or_extra(Wire::OldVisitorId, read_bigint));
        for (column, field) in [
            ("user_id", Wire::UserId),
            ("anonymous_id", Wire::AnonymousId),
            ("email", Wire::Email),
            ("triggering_event", Wire::TriggeringEvent),
            ("platform", Wire::Platform),
            ("href", Wire::Href),
            ("os", Wire::Os),
            ("browser", Wire::Browser),
            ("user_agent", Wire::UserAgent),
        ] {
            row.text(column, text(fields, field).as_deref());
        }
        for (column, field) in [
            ("attributes", Wire::Attributes),
            ("event_properties", Wire::EventProperties),
            ("custom_metadata", Wire::CustomMetadata),
            ("questions", Wire::Questions),
        ] {
            row.json(column, fields.json(field).map(unwrap_json).as_deref());
        }
    }

    /// Appends a row for each object in the list of questions. The column `questions` holds the complete list.
    fn append_questions(&mut self, header: &EventHeader<'_>) {
        let Some(sent) = self.fields.json(Wire::Questions) else { return };
        let list = unwrap_json(sent);
        let mut entries = Vec::new();
        for (ordinal, item) in (1_i64..).zip(json::read_items(&list).unwrap_or_default()) {
            entries.clear();
            if !self.questions.is_full() && json::read_entries(item, &mut entries).is_some() {
                self.append_question(header, ordinal, &entries);
            }
        }
    }

    /// Appends a row of `webhook_questions` from the members of a question. `ordinal` counts the questions of the body
    /// from 1.
    fn append_question(&mut self, header: &EventHeader<'_>, ordinal: i64, entries: &[Entry<'_>]) {
        let mut fields = Fields::<QuestionField>::new(DriftRules::default());
        fields.read(entries);
        let row = &mut self.questions;
        row.text("event_key", Some(header.key));
        row.timestamp("received_at", Some(header.received_us));
        row.bigint("question_ordinal", Some(ordinal));
        row.bigint("survey_id", self.fields.json(Wire::SurveyId).and_then(read_bigint));
        // Every question of the body repeats the session. A text too long for a key of `responses` could repeat until
        // memory runs out, so only `webhook_events` has it.
        let session = self.fields.json(Wire::ResponseGroupUid).and_then(json::read_text);
        let session = session.filter(|session| session.text.len() <= KEY_TEXT_BYTES_MAX);
        row.text("response_group_uid", session.map(|session| uuid_in_normal_form(session.text)).as_deref());
        row.text("question_text", text(&mut fields, QuestionField::Question).as_deref());
        row.bigint("question_order", fields.parse_or_extra(QuestionField::Order, read_bigint));
        let question_type = text(&mut fields, QuestionField::QuestionTypeId);
        append_question_type(
            row,
            &mut self.drift,
            header.record,
            "questions[].questionTypeId",
            question_type.as_deref(),
        );
        append_response(row, fields.json(QuestionField::Response), question_type.as_deref());
        row.json("extra", fields.extra.write());
        row.end_row(header.record);
        self.drift.drain_fields(header.record, "questions[].", &mut fields);
    }

    /// Returns the rows of both tables and the drift. Fails if no delivery was appended.
    pub(super) fn finish(self) -> Result<FlatDeliveries, ArrowError> {
        let mut tables = FlatPage::default();
        self.events.finish_into(&mut tables)?;
        self.questions.finish_into(&mut tables)?;
        let rows = |name| tables.table(name).cloned();
        let empty = || ArrowError::SchemaError("no delivery to flatten".to_owned());
        let (drift, _) = self.drift.finish();
        let flat =
            FlatEvents { events: rows("webhook_events").ok_or_else(empty)?, questions: rows("webhook_questions") };
        Ok(FlatDeliveries { flat, drift })
    }
}

/// Returns the content of a string, or the JSON text of a number or boolean. A list or an object is a type clash.
/// Returns `None` for a missing field and null.
fn text<'a, F: WireField>(fields: &mut Fields<'a, F>, field: F) -> Option<Cow<'a, str>> {
    let raw = fields.json(field)?;
    match json::shape(raw) {
        Shape::List | Shape::Object => {
            fields.add_clash_to_extra(field);
            None
        }
        _ => Some(json::read_text(raw).map_or(Cow::Borrowed(raw), |text| text.text)),
    }
}

/// Returns the value of a field with an id: a UUID in its normal form, as the streams send it, any other value as
/// [`text`] does.
fn id<'a, F: WireField>(fields: &mut Fields<'a, F>, field: F) -> Option<Cow<'a, str>> {
    text(fields, field).map(uuid_in_normal_form)
}

/// Appends the type of a question twice: as sent, and in the spelling of the streams.
fn append_question_type(
    row: &mut TableBuilder,
    drift: &mut DriftLog,
    record: i64,
    path: &'static str,
    question_type: Option<&str>,
) {
    row.text("question_type", question_type);
    row.text("export_question_type", question_type.map(str::to_uppercase).as_deref());
    report_new_type(drift, record, path, question_type);
}

/// Appends an answer to four columns. `response_json` has it exactly as sent. Another column has its value: a list or
/// object (also one inside a string), a text, or a number. The answer to a question whose answers are texts stays a
/// text, whatever the text looks like.
fn append_response(row: &mut TableBuilder, response: Option<&str>, question_type: Option<&str>) {
    let question_type = QuestionType::of(question_type.map(str::to_uppercase).as_deref());
    let is_text = matches!(question_type, QuestionType::Open | QuestionType::MultipleChoice);
    let text = response.filter(|_| is_text).and_then(scalar_text);
    let parsed = response.filter(|_| text.is_none()).map(unwrap_json);
    let parsed = parsed.filter(|json| matches!(json::shape(json), Shape::List | Shape::Object));
    row.json("response_json", response);
    row.json("response_parsed_json", parsed.as_deref());
    let other_text = || response.and_then(json::read_text).filter(|_| parsed.is_none()).map(|text| text.text);
    row.text("response_text", text.or_else(other_text).as_deref());
    row.double("response_number", response.and_then(json::read_number));
}
