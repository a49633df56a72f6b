//! Reads an answer: fills the columns `answer_*` and `is_skipped` of its response, and the child tables with the
//! answer's choices, cells, ranks, items and recordings.
//!
//! The type of the question decides how its answer is read. Two rules hold for every type. An answer that is a number
//! also fills `answer_number`. An answer is skipped if it is missing, null, a blank text, an empty list or an empty
//! object. TEXTURLPROMPT asks nothing, so its answers are never skipped. Where a type expects a list or an object, an
//! answer with only null values is skipped too.
//!
//! An answer whose shape does not fit the type of its question is drift and has no rows in the child tables. The caller
//! stores the exact text of every answer in `answer_json`.

use std::borrow::Cow;

use arrow::error::ArrowError;

use super::{
    child_rows::{AnswerKey, MediaTable, append_choices, append_matrix_cells, append_max_diff_items, append_ranks},
    enumerations::QuestionType,
    fields::{AnswerDrift, FieldDrift},
    table_builder::{ColumnSet, TableBuilder},
};
use crate::{
    json::{self, Entry, Shape, scalar_text, text_or_json},
    model::FlatPage,
};

/// The columns of a response that are derived from its answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct AnswerColumns<'a> {
    pub text: Option<Cow<'a, str>>,
    pub number: Option<f64>,
    pub boolean: Option<bool>,
    pub is_skipped: bool,
}

/// The child tables of answers, under construction.
#[derive(Debug)]
pub(super) struct AnswerTables<'a> {
    choices: TableBuilder,
    matrix_cells: TableBuilder,
    ranks: TableBuilder,
    max_diff_items: TableBuilder,
    media: MediaTable<'a>,
    /// The members of the last answer that is an object; a buffer.
    entries: Vec<Entry<'a>>,
    /// The drift of the last answer. The caller drains this list after each answer.
    pub drift: Vec<AnswerDrift<'a>>,
}

/// An answer, and the fields of its response that decide how it is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnswerInput<'a, 'k> {
    pub key: &'k AnswerKey<'a>,
    pub question_type: QuestionType,
    /// The exact text of `response`; `None` if the field is missing.
    pub response: Option<&'a str>,
    /// `selectedIndexes`; empty if the field is missing or unreadable.
    pub selected_indexes: &'k [i64],
}

impl<'a> AnswerTables<'a> {
    pub(super) fn new(columns: ColumnSet) -> Result<Self, ArrowError> {
        Ok(Self {
            choices: TableBuilder::new("response_choices", 0, columns)?,
            matrix_cells: TableBuilder::new("response_matrix_cells", 0, columns)?,
            ranks: TableBuilder::new("response_ranks", 0, columns)?,
            max_diff_items: TableBuilder::new("response_maxdiff_items", 0, columns)?,
            media: MediaTable::new(columns)?,
            entries: Vec::new(),
            drift: Vec::new(),
        })
    }

    /// Appends the rows of an answer to the child tables, and returns the columns `answer_*` and `is_skipped` of its
    /// response. A missing answer has no rows. An answer that does not fit its question type is recorded in `drift`,
    /// unless it is skipped.
    pub(super) fn append(&mut self, input: AnswerInput<'a, '_>) -> AnswerColumns<'a> {
        let asks_nothing = input.question_type == QuestionType::TextUrlPrompt;
        let Some(response) = input.response else {
            return AnswerColumns { is_skipped: !asks_nothing, ..AnswerColumns::default() };
        };
        let mut columns = AnswerColumns {
            number: json::read_number(response),
            is_skipped: !asks_nothing && is_blank(response),
            ..AnswerColumns::default()
        };
        let fits = match input.question_type {
            QuestionType::Open => {
                columns.text = scalar_text(response);
                columns.text.is_some()
            }
            QuestionType::MultipleChoice => self.append_single_choice(input, response, &mut columns),
            QuestionType::MultipleSelect => self.append_multiple_choices(input, response, &mut columns),
            QuestionType::Likert | QuestionType::Nps => {
                columns.number = columns.number.or_else(|| number_in_text(response));
                columns.number.is_some()
            }
            QuestionType::ConsentLegal => self.read_consent(response, &mut columns),
            QuestionType::Matrix => {
                let is_object = self.read_object(response);
                columns.is_skipped |=
                    is_object && append_matrix_cells(&mut self.matrix_cells, input.key, &self.entries);
                is_object
            }
            QuestionType::RankOrder => {
                let is_object = self.read_object(response);
                columns.is_skipped |=
                    is_object && append_ranks(&mut self.ranks, input.key, &self.entries, &mut self.drift);
                is_object
            }
            QuestionType::MaxDiff => {
                columns.is_skipped |=
                    append_max_diff_items(&mut self.max_diff_items, input.key, response, &mut self.drift);
                json::shape(response) == Shape::List
            }
            QuestionType::VideoVoice => {
                let is_object = self.read_object(response);
                if is_object && self.entries.iter().any(|entry| entry.value != "null") {
                    columns.text = self.media.append(input.key, &self.entries, &mut self.drift);
                } else {
                    columns.is_skipped |= is_object;
                }
                is_object
            }
            QuestionType::TextUrlPrompt => is_blank(response),
            QuestionType::Unknown => {
                columns.text = json::read_text(response).map(|text| text.text);
                columns.boolean = json::read_boolean(response);
                true
            }
        };
        if !fits && !columns.is_skipped {
            self.drift.push(("", FieldDrift::type_clash("response", response)));
        }
        columns
    }

    /// Appends a choice, and sets `columns.text` to the text of the chosen option. A number counts as text. Returns
    /// true if the answer fits its question type.
    fn append_single_choice(
        &mut self,
        input: AnswerInput<'a, '_>,
        response: &'a str,
        columns: &mut AnswerColumns<'a>,
    ) -> bool {
        columns.text = scalar_text(response);
        if let (Some(label), false) = (&columns.text, columns.is_skipped) {
            append_choices(&mut self.choices, input.key, &[Some(Cow::Borrowed(label))], input.selected_indexes);
        }
        columns.text.is_some()
    }

    /// Appends the choices, and sets `columns.text` to the answer. The answer is the text of one option, a JSON list
    /// inside a string, or a list. Returns true if the answer fits its question type.
    fn append_multiple_choices(
        &mut self,
        input: AnswerInput<'a, '_>,
        response: &'a str,
        columns: &mut AnswerColumns<'a>,
    ) -> bool {
        columns.text = match json::shape(response) {
            Shape::List => Some(Cow::Borrowed(response)),
            _ => scalar_text(response),
        };
        let Some(text) = &columns.text else { return false };
        let labels = match json::read_items(text) {
            Some(items) => items.into_iter().map(text_or_json).collect(),
            None => vec![Some(Cow::Borrowed(text.as_ref()))],
        };
        // `all` is true for an empty list too, so an empty list is skipped.
        columns.is_skipped |= labels.iter().all(Option::is_none);
        if !columns.is_skipped {
            append_choices(&mut self.choices, input.key, &labels, input.selected_indexes);
        }
        true
    }

    /// Sets `columns.boolean` from `{"submitted": ...}` or a boolean alone; `false` is an answer, not a skip. Other
    /// members of the object are drift. Returns true if the answer fits its question type.
    fn read_consent(&mut self, response: &'a str, columns: &mut AnswerColumns<'a>) -> bool {
        columns.boolean = json::read_boolean(response);
        if self.read_object(response) {
            let mut submitted = None;
            for entry in &self.entries {
                match json::unescaped(entry.key).text {
                    name if name == "submitted" => submitted = Some(entry.value),
                    name => self.drift.push(("response.", FieldDrift::new_field(name, entry.value))),
                }
            }
            columns.boolean = submitted.and_then(json::read_boolean);
            columns.is_skipped |= submitted.is_none_or(|value| value == "null");
        }
        columns.boolean.is_some()
    }

    /// Reads the members of an object into `entries`. Returns false if the answer is not an object.
    fn read_object(&mut self, response: &'a str) -> bool {
        self.entries.clear();
        json::read_entries(response, &mut self.entries).is_some()
    }

    /// Appends a batch for each child table that has rows.
    pub(super) fn finish_into(self, page: &mut FlatPage) -> Result<(), ArrowError> {
        self.choices.finish_into(page)?;
        self.matrix_cells.finish_into(page)?;
        self.ranks.finish_into(page)?;
        self.max_diff_items.finish_into(page)?;
        self.media.finish_into(page)
    }
}

/// Returns true for a null, a blank text, and an empty list or object.
fn is_blank(response: &str) -> bool {
    match json::shape(response) {
        Shape::Null => true,
        Shape::Text => json::read_text(response).is_some_and(|text| text.text.trim().is_empty()),
        _ => json::is_empty_container(response),
    }
}

/// Reads a number that was sent as text (`"9"`). `None` if the answer is no such text.
fn number_in_text(response: &str) -> Option<f64> {
    json::read_number(json::read_text(response)?.text.trim())
}
