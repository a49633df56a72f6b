//! The answers to one question, by its type, and the queries that read the first items of a list for each question.

use std::collections::BTreeMap;

use super::{
    limits::OPTIONS_MAX,
    nps::NpsPeriods,
    rows::{Key, Row, count, key, query},
};
use crate::load::{LoadError, Reader};

/// The answers to a question. Only the fields of the question's type are filled.
#[derive(Default)]
pub(super) struct Answers {
    /// OPEN, and recordings with a transcription.
    pub open: Option<OpenAnswers>,
    /// The figures of the answers by segment.
    pub segments: TopItems<SegmentRow>,
    /// The figures of the period before.
    pub before: Vec<BeforeFigure>,
    /// LIKERT: lowest and highest value of the scale in the period before.
    pub scale_before: Option<(i64, i64)>,
    /// NPS: pairs of score and number of answers.
    pub scores: Vec<(i64, i64)>,
    pub nps: Option<Nps>,
    pub nps_periods: NpsPeriods,
    /// LIKERT.
    pub scale: Option<Scale>,
    /// MULTIPLECHOICE, MULTIPLESELECT.
    pub options: TopItems<Choice>,
    /// MATRIX.
    pub cells: Vec<Cell>,
    pub rows_left_out: i64,
    pub columns_left_out: i64,
    /// RANKORDER, best first.
    pub ranks: TopItems<Rank>,
    /// MAXDIFF, best first.
    pub items: TopItems<Item>,
}

/// The NPS of a question over all its answers.
pub(super) struct Nps {
    pub responses: i64,
    /// Promoters, passives and detractors: the number of answers and their share.
    pub groups: [(i64, f64); 3],
    pub nps: f64,
    /// The 95 % band; `None` for a single answer.
    pub band: Option<(f64, f64)>,
}

/// The first items of a list, and the number of the others.
pub(super) struct TopItems<T> {
    pub shown: Vec<T>,
    pub left_out: i64,
}

impl<T> Default for TopItems<T> {
    fn default() -> Self {
        TopItems { shown: Vec::new(), left_out: 0 }
    }
}

pub(super) struct Scale {
    pub min: i64,
    pub max: i64,
    pub mean: f64,
    pub top_two_share: Option<f64>,
    /// Answers that are no point of the scale.
    pub not_rated: i64,
    /// For each value that was chosen: value, number of answers, share.
    pub values: Vec<(i64, i64, f64)>,
}

pub(super) struct Choice {
    pub label: Option<String>,
    pub index: Option<i64>,
    pub chosen: i64,
    pub share: f64,
}

pub(super) struct Cell {
    pub row: Option<String>,
    pub column: Option<String>,
    /// The positions of the row and the column, from 1.
    pub row_index: i64,
    pub column_index: i64,
    pub answers: i64,
    pub answered: i64,
    pub share: f64,
}

pub(super) struct Rank {
    pub option: Option<String>,
    pub answers: i64,
    pub mean_rank: f64,
    pub first_place_share: f64,
}

pub(super) struct Item {
    pub item: Option<String>,
    pub shown: i64,
    pub chosen_left: i64,
    pub chosen_right: i64,
    /// `None` if the labels do not say which side is best.
    pub score: Option<f64>,
}

/// The answers to an open question.
#[derive(Default)]
pub(super) struct OpenAnswers {
    pub texts: i64,
    pub empty: i64,
    pub with_link: i64,
    /// Each theme with the number of its answers, most frequent first.
    pub themes: TopItems<(Option<String>, i64)>,
    /// The newest answers, newest first.
    pub verbatims: Vec<Verbatim>,
}

/// An answer in a person's own words.
pub(super) struct Verbatim {
    /// The day of the answer, in days since 1970.
    pub day: i64,
    pub answer: String,
}

/// A figure of one segment.
pub(super) struct SegmentRow {
    /// `None` if the segment of the answers is not known.
    pub segment: Option<String>,
    /// The option; `None` for questions without options.
    pub option: Option<String>,
    pub answers: i64,
    /// The figure as text; `None` if the segment has too few answers.
    pub figure: Option<String>,
}

/// A figure of the period before.
pub(super) struct BeforeFigure {
    /// `nps`, `top_two_share` or `choice_share`.
    pub figure: String,
    /// The option of a choice share.
    pub label: Option<String>,
    /// The index of the option, if its label is not known.
    pub index: Option<i64>,
    pub answers: i64,
    pub value: f64,
}

impl Answers {
    /// Returns a figure of the period before; `label` and `index` are those of an option.
    pub fn before(&self, figure: &str, label: Option<&str>, index: Option<i64>) -> Option<&BeforeFigure> {
        let is_wanted =
            |one: &&BeforeFigure| one.figure == figure && one.label.as_deref() == label && one.index == index;
        self.before.iter().find(is_wanted)
    }
}

/// The answers to each question.
pub(super) type ByQuestion = BTreeMap<Key, Answers>;

/// Returns SQL for the first [`OPTIONS_MAX`] rows of each question by `order`. Column `listed` is the number of all
/// rows of the question.
pub(super) fn first_rows(view: &str, columns: &str, of: &str, order: &str) -> String {
    format!(
        "SELECT survey_id, question_id, {columns}, count(*) OVER (PARTITION BY survey_id, question_id) AS listed
         FROM {view} AS view WHERE {of}
         QUALIFY row_number() OVER (PARTITION BY survey_id, question_id ORDER BY {order}) <= {OPTIONS_MAX}
         ORDER BY survey_id, question_id, {order}"
    )
}

/// Runs a query of [`first_rows`] and adds each row to the list that `target` selects in its question's answers.
pub(super) fn fill_list<T>(
    reader: &mut Reader,
    sql: &str,
    make: impl Fn(Row<'_>) -> T,
    target: impl Fn(&mut Answers) -> &mut TopItems<T>,
    found: &mut ByQuestion,
) -> Result<(), LoadError> {
    for (key, value, listed) in query(reader, sql, |row| (key(row), make(row), row.count("listed")))? {
        let list = target(found.entry(key).or_default());
        list.shown.push(value);
        list.left_out = listed - count(list.shown.len());
    }
    Ok(())
}
