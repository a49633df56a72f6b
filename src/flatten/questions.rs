//! `survey_questions` and `survey_question_options`.

use std::borrow::Cow;

use arrow::error::ArrowError;

use super::{
    drift::{DriftLog, without_discarded},
    fields::{Fields, wire_fields},
    question_type::{QuestionType, note_new_type},
    scalar::scalar_text,
    table_builder::TableBuilder,
};
use crate::{
    json::{self, Entry, Shape},
    model::{DriftRules, TableBatch},
};

wire_fields! {
    /// The fields of a question.
    QuestionField {
        Id = "id",
        Type = "type",
        QuestionText = "questionText",
        Options = "options",
        OptionsProperties = "optionsProperties",
        RoutingOptions = "routingOptions",
    }
}

use QuestionField as Wire;

/// Fields in which an option that is an object may have its wording; the contract of the service shows no such option,
/// so the first that is a text is taken, and `option_json` has the whole.
const LABEL_FIELDS: [&str; 4] = ["label", "text", "option", "value"];

#[derive(Debug)]
pub(super) struct Questions<'a> {
    fields: Fields<'a, QuestionField>,
    questions: TableBuilder,
    options: TableBuilder,
}

/// Texts among the properties of the options. Those of another type are NULL, and `options_properties` has them.
#[derive(Debug, Default)]
struct Properties<'a> {
    intro_text: Option<Cow<'a, str>>,
    left_label: Option<Cow<'a, str>>,
    right_label: Option<Cow<'a, str>>,
}

impl<'a> Questions<'a> {
    pub(super) fn new(rules: DriftRules) -> Result<Self, ArrowError> {
        Ok(Self {
            fields: Fields::new(rules),
            questions: TableBuilder::new("survey_questions", 0)?,
            options: TableBuilder::new("survey_question_options", 0)?,
        })
    }

    /// Appends a question and its options. Ordinals are from 1. Returns what is kept of the question if that is not all
    /// of it.
    pub(super) fn append(
        &mut self,
        (survey_id, record): (i64, i64),
        ordinal: i64,
        entries: &[Entry<'a>],
        drift: &mut DriftLog,
    ) -> Option<String> {
        self.fields.read(entries);
        let (fields, row) = (&mut self.fields, &mut self.questions);
        let question_id = fields.bigint(Wire::Id);
        let properties = fields.json(Wire::OptionsProperties).map(read_properties).unwrap_or_default();
        row.bigint("survey_id", Some(survey_id));
        row.bigint("question_ordinal", Some(ordinal));
        row.bigint("question_id", question_id);
        let question_type = fields.text(Wire::Type);
        row.text("question_type", question_type.as_deref());
        if QuestionType::of(question_type.as_deref()) == QuestionType::Unknown {
            note_new_type(drift, record, "questions[].type", question_type.as_deref());
        }
        row.text("question_text", fields.text(Wire::QuestionText).as_deref());
        row.text("intro_text", properties.intro_text.as_deref());
        row.text("left_label", properties.left_label.as_deref());
        row.text("right_label", properties.right_label.as_deref());
        row.text("options", fields.json(Wire::Options));
        row.text("options_properties", fields.json(Wire::OptionsProperties));
        row.text("routing_options", fields.json(Wire::RoutingOptions));
        row.text("extra", fields.extra.write());
        row.end_row(record);

        let options = fields.json(Wire::Options).filter(|raw| json::shape(raw) == Shape::List);
        for (at, option) in options.and_then(json::read_items).unwrap_or_default().into_iter().enumerate() {
            let row = &mut self.options;
            row.bigint("survey_id", Some(survey_id));
            row.bigint("question_ordinal", Some(ordinal));
            row.bigint("option_ordinal", Some(at as i64 + 1));
            row.bigint("question_id", question_id);
            row.text("label", option_label(option).as_deref());
            row.text("option_json", Some(option));
            row.end_row(record);
        }
        let kept = without_discarded(entries, &fields.drift, fields.rules);
        drift.take(record, "questions[].", fields);
        kept
    }

    pub(super) fn finish_into(self, batches: &mut Vec<TableBatch>) -> Result<(), ArrowError> {
        self.questions.finish_into(batches)?;
        self.options.finish_into(batches)
    }
}

fn read_properties(raw: &str) -> Properties<'_> {
    let labels = member(raw, "labels");
    let text = |raw| json::read_text(raw).map(|text| text.text);
    Properties {
        intro_text: member(raw, "introText").and_then(text),
        left_label: labels.and_then(|labels| member(labels, "left")).and_then(text),
        right_label: labels.and_then(|labels| member(labels, "right")).and_then(text),
    }
}

fn option_label(raw: &str) -> Option<Cow<'_, str>> {
    if json::shape(raw) != Shape::Object {
        return scalar_text(raw);
    }
    LABEL_FIELDS.iter().find_map(|name| json::read_text(member(raw, name)?)).map(|text| text.text)
}

/// The value of a member of an object, the last one of that name.
fn member<'a>(raw: &'a str, name: &str) -> Option<&'a str> {
    let mut entries = Vec::new();
    json::read_entries(raw, &mut entries)?;
    entries.iter().rev().find(|entry| json::unescaped(entry.key).text == name).map(|entry| entry.value)
}
