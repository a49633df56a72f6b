//! Rows of `webhook_events` and `webhook_questions`, cell by cell.
//!
//! Texts are read leniently: the service sends ids as texts and as numbers, and lists and objects also as JSON inside a
//! text. What fits no column is drift and goes to `extra`, as in every other table.

use std::borrow::Cow;

use arrow::error::ArrowError;
use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::{
    super::{
        drift::DriftLog,
        fields::{Fields, WireField, wire_fields},
        question_type::{QuestionType, note_new_type},
        table_builder::TableBuilder,
    },
    body::{Body, body_hash, indexes, inner_json, read_bigint, read_moment, sent_json},
};
use crate::{
    json::{self, Entry, Shape},
    model::{Drift, DriftRules, EventKind, FlatEvents, TableBatch},
};

/// How drift of webhooks is named, where that of a list has the name of its stream.
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

/// Deliveries as rows.
#[derive(Debug)]
pub struct FlatDeliveries {
    pub flat: FlatEvents,
    /// What no contract knows of them.
    pub drift: Drift,
}

/// The tables under construction.
pub(super) struct EventTables<'a> {
    events: TableBuilder,
    questions: TableBuilder,
    fields: Fields<'a, EventField>,
    drift: DriftLog,
}

/// What is known of an event beside its body.
pub(super) struct Event<'k> {
    pub key: &'k str,
    /// The name of its kind.
    pub kind: &'k str,
    /// Microseconds.
    pub received_us: i64,
    /// The place of its delivery.
    pub record: i64,
}

impl<'a> EventTables<'a> {
    pub(super) fn new(deliveries: usize) -> Result<Self, ArrowError> {
        let rules = DriftRules::default();
        Ok(Self {
            events: TableBuilder::new("webhook_events", deliveries)?,
            questions: TableBuilder::new("webhook_questions", 0)?,
            fields: Fields::new(rules),
            drift: DriftLog::new(SOURCE, rules),
        })
    }

    /// Appends the rows of an event.
    pub(super) fn append(&mut self, event: &Event<'_>, body: &Body<'a>) {
        self.fields.read(body.entries.as_deref().unwrap_or_default());
        self.event(event, body);
        // A test body is whatever somebody typed.
        if event.kind != EventKind::Test.name() {
            self.drift.take(event.record, "", &mut self.fields);
        }
        self.append_questions(event);
    }

    fn event(&mut self, event: &Event<'_>, body: &Body<'a>) {
        let (row, fields) = (&mut self.events, &mut self.fields);
        row.text("event_key", Some(event.key));
        row.text("kind", Some(event.kind));
        row.timestamp("received_at", Some(event.received_us));
        row.timestamp("occurred_at", body.moment());
        for (column, field) in
            [("created_at", Wire::CreatedAt), ("updated_at", Wire::UpdatedAt), ("event_date", Wire::EventDate)]
        {
            row.timestamp(column, read_or_keep(fields, field, read_moment));
        }
        // Where it can be read, it is `occurred_at`.
        read_or_keep(fields, Wire::Timestamp, read_moment);
        row.text("body_hash", Some(&format!("{:032x}", body_hash(body.bytes()))));
        row.bigint("webhook_id", read_or_keep(fields, Wire::Id, read_bigint));
        for (column, field) in [
            ("environment_id", Wire::EnvironmentId),
            ("product_id", Wire::ProductId),
            ("product_name", Wire::ProductName),
            ("event_type", Wire::EventType),
            ("event_name", Wire::EventName),
            ("action", Wire::Action),
            ("record_type", Wire::RecordType),
        ] {
            row.text(column, text(fields, field).as_deref());
        }
        row.boolean("is_user_interviews", read_or_keep(fields, Wire::IsUserInterviews, json::read_boolean));
        row.bigint("team_id", read_or_keep(fields, Wire::TeamId, read_bigint));
        row.bigint("survey_id", read_or_keep(fields, Wire::SurveyId, read_bigint));
        for (column, field) in [
            ("survey_name", Wire::SurveyName),
            ("old_status", Wire::OldStatus),
            ("status", Wire::Status),
            ("response_group_uid", Wire::ResponseGroupUid),
        ] {
            row.text(column, text(fields, field).as_deref());
        }
        self.asked_and_answered(event.record);
        self.visitor();
        let (row, fields) = (&mut self.events, &mut self.fields);
        row.text("extra", fields.extra.write());
        row.text("raw", body.text.ok());
        let base64 = body.text.err().map(|bytes| STANDARD.encode(bytes));
        row.text("raw_base64", base64.as_deref());
        row.end_row(event.record);
    }

    fn asked_and_answered(&mut self, record: i64) {
        let (row, fields) = (&mut self.events, &mut self.fields);
        // A body has one of them; of one with both, the other is kept.
        let question = text(fields, Wire::Question);
        if question.is_some() {
            fields.keep(Wire::QuestionText);
        }
        let question = question.or_else(|| text(fields, Wire::QuestionText));
        row.text("question_text", question.as_deref());
        let question_type = text(fields, Wire::QuestionType);
        write_type(row, &mut self.drift, record, "questionType", question_type.as_deref());
        write_response(row, fields.json(Wire::Response));
        row.bigints("selected_indexes", read_or_keep(fields, Wire::SelectedIndexes, indexes).as_deref());
        row.text("theme_name", text(fields, Wire::ThemeName).as_deref());
    }

    fn visitor(&mut self) {
        let (row, fields) = (&mut self.events, &mut self.fields);
        row.text("visitor_id", text(fields, Wire::VisitorId).as_deref());
        row.bigint("old_visitor_id", read_or_keep(fields, Wire::OldVisitorId, read_bigint));
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
            row.text(column, fields.json(field).map(sent_json).as_deref());
        }
    }

    /// A row for each question of the event's list. The column `questions` has the whole list, whatever it holds.
    fn append_questions(&mut self, event: &Event<'_>) {
        let Some(sent) = self.fields.json(Wire::Questions) else { return };
        let list = sent_json(sent);
        let items = (json::shape(&list) == Shape::List).then(|| json::read_items(&list)).flatten();
        let mut entries = Vec::new();
        for (ordinal, item) in (1_i64..).zip(items.unwrap_or_default()) {
            entries.clear();
            if json::shape(item) == Shape::Object && json::read_entries(item, &mut entries).is_some() {
                self.append_question(event, ordinal, &entries);
            }
        }
    }

    fn append_question(&mut self, event: &Event<'_>, ordinal: i64, entries: &[Entry<'_>]) {
        let mut fields = Fields::<QuestionField>::new(DriftRules::default());
        fields.read(entries);
        let row = &mut self.questions;
        row.text("event_key", Some(event.key));
        row.timestamp("received_at", Some(event.received_us));
        row.bigint("question_ordinal", Some(ordinal));
        row.bigint("survey_id", self.fields.json(Wire::SurveyId).and_then(read_bigint));
        let session = self.fields.json(Wire::ResponseGroupUid).and_then(json::read_text);
        row.text("response_group_uid", session.as_ref().map(|session| session.text.as_ref()));
        row.text("question_text", text(&mut fields, QuestionField::Question).as_deref());
        row.bigint("question_order", read_or_keep(&mut fields, QuestionField::Order, read_bigint));
        let question_type = text(&mut fields, QuestionField::QuestionTypeId);
        write_type(row, &mut self.drift, event.record, "questions[].questionTypeId", question_type.as_deref());
        write_response(row, fields.json(QuestionField::Response));
        row.text("extra", fields.extra.write());
        row.end_row(event.record);
        self.drift.take(event.record, "questions[].", &mut fields);
    }

    pub(super) fn finish(self) -> Result<FlatDeliveries, ArrowError> {
        let (mut events, mut questions) = (Vec::new(), Vec::new());
        self.events.finish_into(&mut events)?;
        self.questions.finish_into(&mut questions)?;
        let rows = |batches: &mut Vec<TableBatch>| batches.pop().map(|batch| batch.rows);
        let empty = || ArrowError::SchemaError("no delivery to flatten".to_owned());
        let (drift, _) = self.drift.finish();
        let flat = FlatEvents { events: rows(&mut events).ok_or_else(empty)?, questions: rows(&mut questions) };
        Ok(FlatDeliveries { flat, drift })
    }
}

/// A text; of a number or a truth value, its JSON. A list or an object is no text.
fn text<'a, F: WireField>(fields: &mut Fields<'a, F>, field: F) -> Option<Cow<'a, str>> {
    let raw = fields.json(field)?;
    match json::shape(raw) {
        Shape::List | Shape::Object => {
            fields.keep_clash(field);
            None
        }
        _ => Some(json::read_text(raw).map_or(Cow::Borrowed(raw), |text| text.text)),
    }
}

fn read_or_keep<'a, F: WireField, T>(
    fields: &mut Fields<'a, F>,
    field: F,
    read: impl Fn(&'a str) -> Option<T>,
) -> Option<T> {
    let value = read(fields.json(field)?);
    if value.is_none() {
        fields.keep_clash(field);
    }
    value
}

/// The type of a question, as it was sent and as the lists write it.
fn write_type(
    row: &mut TableBuilder,
    drift: &mut DriftLog,
    record: i64,
    place: &'static str,
    question_type: Option<&str>,
) {
    row.text("question_type", question_type);
    row.text("export_question_type", question_type.map(str::to_uppercase).as_deref());
    if QuestionType::of(question_type) == QuestionType::Unknown {
        note_new_type(drift, record, place, question_type);
    }
}

/// The four columns of an answer.
fn write_response(row: &mut TableBuilder, response: Option<&str>) {
    let is_container = |raw: &&str| matches!(json::shape(raw), Shape::List | Shape::Object);
    let parsed =
        response.and_then(|raw| inner_json(raw).map(Cow::Owned).or(response.filter(is_container).map(Cow::Borrowed)));
    row.text("response_json", response);
    row.text("response_parsed_json", parsed.as_deref());
    let text = response.and_then(json::read_text).filter(|_| parsed.is_none());
    row.text("response_text", text.as_ref().map(|text| text.text.as_ref()));
    row.double("response_number", response.and_then(json::read_number));
}
