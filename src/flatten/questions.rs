//! Flattens the questions of a survey: the tables `survey_questions` and `survey_question_options`.

use std::borrow::Cow;

use arrow::error::ArrowError;

use super::{
    drift::{DriftLog, without_discarded},
    enumerations::report_new_type,
    fields::{Fields, wire_fields},
    table_builder::{ColumnSet, TableBuilder},
};
use crate::{
    json::{self, Entry, Shape, scalar_text},
    model::{DriftRules, FlatPage},
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

/// Fields that may contain the label of an option that is an object. The service's contract shows no such option, so
/// the label is the first of these fields that is a text.
const LABEL_FIELDS: [&str; 4] = ["label", "text", "option", "value"];

/// The tables `survey_questions` and `survey_question_options` under construction.
#[derive(Debug)]
pub(super) struct QuestionTables<'a> {
    fields: Fields<'a, QuestionField>,
    questions: TableBuilder,
    options: TableBuilder,
}

/// The texts in `optionsProperties` that have columns. A value of another type is `None`; the column
/// `options_properties` holds the complete object.
#[derive(Debug, Default)]
struct OptionTexts<'a> {
    intro_text: Option<Cow<'a, str>>,
    left_label: Option<Cow<'a, str>>,
    right_label: Option<Cow<'a, str>>,
}

impl<'a> QuestionTables<'a> {
    pub(super) fn new(rules: DriftRules, columns: ColumnSet) -> Result<Self, ArrowError> {
        Ok(Self {
            fields: Fields::new(rules),
            questions: TableBuilder::new("survey_questions", 0, columns)?,
            options: TableBuilder::new("survey_question_options", 0, columns)?,
        })
    }

    /// Appends a question and its options. `ordinal` counts the questions of the survey from 1. If the drift rules
    /// discard a member, returns the JSON text of the question without the discarded members; otherwise `None`.
    pub(super) fn append(
        &mut self,
        record: i64,
        survey_id: i64,
        ordinal: i64,
        entries: &[Entry<'a>],
        drift: &mut DriftLog,
    ) -> Option<String> {
        self.fields.read(entries);
        let (fields, row) = (&mut self.fields, &mut self.questions);
        let question_id = fields.bigint(Wire::Id);
        let texts = fields.json(Wire::OptionsProperties).map(read_option_texts).unwrap_or_default();
        row.bigint("survey_id", Some(survey_id));
        row.bigint("question_ordinal", Some(ordinal));
        row.bigint("question_id", question_id);
        let question_type = fields.text(Wire::Type);
        row.text("question_type", question_type.as_deref());
        report_new_type(drift, record, "questions[].type", question_type.as_deref());
        row.text("question_text", fields.text(Wire::QuestionText).as_deref());
        row.text("intro_text", texts.intro_text.as_deref());
        row.text("left_label", texts.left_label.as_deref());
        row.text("right_label", texts.right_label.as_deref());
        row.json("options", fields.json(Wire::Options));
        row.json("options_properties", fields.json(Wire::OptionsProperties));
        row.json("routing_options", fields.json(Wire::RoutingOptions));
        row.json("extra", fields.extra.write());
        row.end_row(record);

        let options = fields.json(Wire::Options).and_then(json::read_items).unwrap_or_default();
        for (option_ordinal, option) in (1_i64..).zip(options) {
            let row = &mut self.options;
            row.bigint("survey_id", Some(survey_id));
            row.bigint("question_ordinal", Some(ordinal));
            row.bigint("option_ordinal", Some(option_ordinal));
            row.bigint("question_id", question_id);
            row.text("label", option_label(option).as_deref());
            row.json("option_json", Some(option));
            row.end_row(record);
        }
        let stored = without_discarded(entries, &fields.drift, fields.rules);
        drift.drain_fields(record, "questions[].", fields);
        stored
    }

    pub(super) fn finish_into(self, page: &mut FlatPage) -> Result<(), ArrowError> {
        self.questions.finish_into(page)?;
        self.options.finish_into(page)
    }
}

/// Reads the texts that have columns from `optionsProperties`.
fn read_option_texts(raw: &str) -> OptionTexts<'_> {
    let labels = member(raw, "labels");
    let text = |raw| json::read_text(raw).map(|text| text.text);
    OptionTexts {
        intro_text: member(raw, "introText").and_then(text),
        left_label: labels.and_then(|labels| member(labels, "left")).and_then(text),
        right_label: labels.and_then(|labels| member(labels, "right")).and_then(text),
    }
}

/// Returns the label of an option: a text, a number as sent, or the first label field of an object. `None` for other
/// values.
fn option_label(raw: &str) -> Option<Cow<'_, str>> {
    if json::shape(raw) != Shape::Object {
        return scalar_text(raw);
    }
    LABEL_FIELDS.iter().find_map(|name| json::read_text(member(raw, name)?)).map(|text| text.text)
}

/// Returns the value of the last member with this name; `None` if `raw` is not an object.
fn member<'a>(raw: &'a str, name: &str) -> Option<&'a str> {
    let mut entries = Vec::new();
    json::read_entries(raw, &mut entries)?;
    entries.iter().rev().find(|entry| json::unescaped(entry.key).text == name).map(|entry| entry.value)
}
