//! The typed parts of one answer: the columns `answer_*` and `is_skipped`, and the rows of the tables of its parts.
//!
//! The rules are stated where they are applied. Common to all of them: a number alone is also `answer_number` whatever
//! the type, and an answer is skipped when it is missing, null, blank, empty or all null, except under TEXTURLPROMPT,
//! which asks nothing. An answer whose shape does not fit its type has no parts: `answer_json`, which this file does
//! not write, holds it as it was sent, and the misfit is noted as drift.

use std::borrow::Cow;

use arrow::error::ArrowError;

use super::{
    answer_key::AnswerKey,
    choices::Choices,
    labelled::{MatrixCells, Ranks},
    max_diff::MaxDiffItems,
    media::Media,
    met::Met,
    question_type::QuestionType,
    scalar::{label, scalar_text},
};
use crate::{
    json::{self, Entry, Shape},
    model::TableBatch,
};

/// The columns derived from one answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Answer<'a> {
    pub text: Option<Cow<'a, str>>,
    pub number: Option<f64>,
    pub boolean: Option<bool>,
    pub is_skipped: bool,
}

/// The tables of the parts of answers.
#[derive(Debug)]
pub(super) struct AnswerParts<'a> {
    choices: Choices,
    matrix_cells: MatrixCells,
    ranks: Ranks,
    max_diff_items: MaxDiffItems,
    media: Media<'a>,
    entries: Vec<Entry<'a>>,
    /// What no contract knows of the answer, with what stands before it in its path; for the caller to take.
    pub drift: Vec<(&'static str, Met<'a>)>,
}

/// An answer and what decides how it is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Given<'a, 'k> {
    pub key: &'k AnswerKey<'a>,
    pub question_type: QuestionType,
    /// The exact text of `response`; `None` when the field is missing.
    pub response: Option<&'a str>,
    /// `selectedIndexes`; empty when there are none.
    pub selected_indexes: &'k [i64],
}

impl<'a> AnswerParts<'a> {
    pub(super) fn new() -> Result<Self, ArrowError> {
        Ok(Self {
            choices: Choices::new()?,
            matrix_cells: MatrixCells::new()?,
            ranks: Ranks::new()?,
            max_diff_items: MaxDiffItems::new()?,
            media: Media::new()?,
            entries: Vec::new(),
            drift: Vec::new(),
        })
    }

    /// Reads an answer and appends the rows of its parts.
    pub(super) fn read(&mut self, given: Given<'a, '_>) -> Answer<'a> {
        let asks_nothing = given.question_type == QuestionType::TextUrlPrompt;
        let Some(response) = given.response else {
            return Answer { is_skipped: !asks_nothing, ..Answer::default() };
        };
        let mut answer = Answer {
            number: json::read_number(response),
            is_skipped: !asks_nothing && is_nothing(response),
            ..Answer::default()
        };
        let mut fits = true;
        match given.question_type {
            QuestionType::Open => {
                answer.text = scalar_text(response);
                fits = answer.text.is_some();
            }
            QuestionType::MultipleChoice => {
                self.read_choice(given, response, &mut answer);
                fits = answer.text.is_some();
            }
            QuestionType::MultipleSelect => {
                self.read_choices(given, response, &mut answer);
                fits = answer.text.is_some();
            }
            QuestionType::Likert | QuestionType::Nps => {
                answer.number = answer.number.or_else(|| number_in_text(response));
                fits = answer.number.is_some();
            }
            QuestionType::ConsentLegal => {
                self.read_consent(response, &mut answer);
                fits = answer.boolean.is_some();
            }
            QuestionType::Matrix => {
                fits = self.read_object(response);
                if fits {
                    answer.is_skipped |= self.matrix_cells.append(given.key, &self.entries);
                }
            }
            QuestionType::RankOrder => {
                fits = self.read_object(response);
                if fits {
                    answer.is_skipped |= self.ranks.append(given.key, &self.entries, &mut self.drift);
                }
            }
            QuestionType::MaxDiff => {
                fits = json::shape(response) == Shape::List;
                answer.is_skipped |= self.max_diff_items.append(given.key, response, &mut self.drift);
            }
            QuestionType::VideoVoice => {
                fits = self.read_object(response);
                if fits && self.entries.iter().any(|entry| entry.value != "null") {
                    answer.text = self.media.append(given.key, &self.entries, &mut self.drift);
                } else {
                    answer.is_skipped |= fits;
                }
            }
            QuestionType::TextUrlPrompt => fits = is_nothing(response),
            QuestionType::Unknown => {
                answer.text = json::read_text(response).map(|text| text.text);
                answer.boolean = json::read_boolean(response);
            }
        }
        if !fits && !answer.is_skipped {
            self.drift.push(("", Met::clash("response", response)));
        }
        answer
    }

    /// The text of the chosen option; a number stands for its digits.
    fn read_choice(&mut self, given: Given<'a, '_>, response: &'a str, answer: &mut Answer<'a>) {
        answer.text = scalar_text(response);
        if let (Some(label), false) = (&answer.text, answer.is_skipped) {
            self.choices.append(given.key, &[Some(Cow::Borrowed(label))], given.selected_indexes);
        }
    }

    /// Three spellings are seen: the text of one option, a JSON list inside a string, and a list.
    fn read_choices(&mut self, given: Given<'a, '_>, response: &'a str, answer: &mut Answer<'a>) {
        let text = match json::shape(response) {
            Shape::List => Some(Cow::Borrowed(response)),
            _ => scalar_text(response),
        };
        if let Some(text) = &text {
            let labels = labels(text);
            // True of an empty list too, also of one inside a string.
            answer.is_skipped |= labels.iter().all(Option::is_none);
            if !answer.is_skipped {
                self.choices.append(given.key, &labels, given.selected_indexes);
            }
        }
        answer.text = text;
    }

    /// `submitted: false` is an answer, and it is no. A boolean alone means the same.
    fn read_consent(&mut self, response: &'a str, answer: &mut Answer<'a>) {
        answer.boolean = json::read_boolean(response);
        if self.read_object(response) {
            let submitted = self.entries.iter().rev().find(|entry| json::unescaped(entry.key).text == "submitted");
            answer.boolean = submitted.and_then(|entry| json::read_boolean(entry.value));
            answer.is_skipped |= submitted.is_none_or(|entry| entry.value == "null");
            let known = usize::from(submitted.is_some());
            if self.entries.len() > known {
                self.note_unknown("submitted");
            }
        }
    }

    /// Notes the members of an object that has one known field.
    fn note_unknown(&mut self, known: &str) {
        for entry in &self.entries {
            let name = json::unescaped(entry.key).text;
            if name != known {
                self.drift.push(("response.", Met::new_field(name, entry.value)));
            }
        }
    }

    /// Takes the members of an object into `entries`; false for another shape.
    fn read_object(&mut self, response: &'a str) -> bool {
        self.entries.clear();
        json::shape(response) == Shape::Object && json::read_entries(response, &mut self.entries).is_some()
    }

    pub(super) fn finish_into(self, batches: &mut Vec<TableBatch>) -> Result<(), ArrowError> {
        self.choices.finish_into(batches)?;
        self.matrix_cells.finish_into(batches)?;
        self.ranks.finish_into(batches)?;
        self.max_diff_items.finish_into(batches)?;
        self.media.finish_into(batches)
    }
}

/// A null, a blank text, an empty list or object.
fn is_nothing(response: &str) -> bool {
    match json::shape(response) {
        Shape::Null => true,
        Shape::Text => json::read_text(response).is_some_and(|text| text.text.trim().is_empty()),
        _ => json::is_empty_container(response),
    }
}

/// The labels in a MULTIPLESELECT answer: the items of a list, or else the text itself.
fn labels(text: &str) -> Vec<Option<Cow<'_, str>>> {
    let items = text.trim_ascii_start().starts_with('[').then(|| json::read_items(text)).flatten();
    match items {
        Some(items) => items.into_iter().map(label).collect(),
        None => vec![Some(Cow::Borrowed(text))],
    }
}

/// A scale answer that was sent as text (`"9"`).
fn number_in_text(response: &str) -> Option<f64> {
    json::read_number(json::read_text(response)?.text.trim())
}
