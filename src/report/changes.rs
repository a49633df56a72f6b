//! The changes between two times, in rows and in figures, as the macros `row_changes` and `figure_changes` compute
//! them.

use serde::Serialize;

use super::{
    format::{decimal, percent},
    rows::{Row, query, shortened, survey_filter},
};
use crate::{
    load::{LoadError, Reader},
    model::{DAY_MS, format_ms},
};

/// The two times to compare, epoch milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ComparedTimes {
    pub since_ms: i64,
    pub until_ms: i64,
    /// This machine's time if the later time is now; otherwise `None`. If it is set, `until_ms` is a day later, because
    /// scans are dated by the service's clock, which may be ahead.
    pub now_ms: Option<i64>,
}

impl ComparedTimes {
    /// Compares a time with now, including every scan.
    pub fn until_now(since_ms: i64, now_ms: i64) -> Self {
        Self { since_ms, until_ms: now_ms.saturating_add(DAY_MS), now_ms: Some(now_ms) }
    }
}

/// The changes between two times.
#[derive(Clone, Debug, Serialize)]
pub struct Changes {
    /// RFC 3339.
    pub since: String,
    /// RFC 3339.
    pub until: String,
    /// The surveys in which a row changed.
    pub rows: Vec<RowChange>,
    /// All figures, also unchanged ones, ordered by survey, question, figure and label.
    pub figures: Vec<FigureChange>,
}

/// The changed rows of a survey.
#[derive(Clone, Debug, Serialize)]
pub struct RowChange {
    /// `None` for answers that name no survey.
    pub survey_id: Option<i64>,
    pub survey_name: Option<String>,
    pub new_answers: i64,
    pub edited: i64,
    pub deleted: i64,
    pub vanished: i64,
    pub new_themes: i64,
    pub changed_questions: i64,
    pub status_before: Option<String>,
    pub status_after: Option<String>,
}

/// A figure of a question at both times.
#[derive(Clone, Debug, Serialize)]
pub struct FigureChange {
    pub survey_id: i64,
    pub survey_name: Option<String>,
    pub question_id: i64,
    pub question_text: Option<String>,
    /// `nps`, `top_two_share` or `choice_share`.
    pub figure: String,
    /// The option of a choice share; `None` for other figures.
    pub label: Option<String>,
    pub before: Figure,
    pub after: Figure,
    /// `None` if the figure exists at only one of the times.
    pub change: Option<f64>,
}

/// A figure at one time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figure {
    pub answers: i64,
    pub value: Option<f64>,
    pub standard_error: Option<f64>,
}

/// Formats a value of the named figure: NPS as points, shares as percent.
pub fn shown_value(figure: &str, value: f64) -> String {
    if figure == "nps" { decimal(value) } else { percent(value) }
}

impl Figure {
    /// Formats the value of the named figure with its standard error, if it has one.
    pub fn shown(&self, figure: &str) -> String {
        match (self.value, self.standard_error) {
            (Some(value), Some(error)) => format!("{} ± {}", shown_value(figure, value), shown_value(figure, error)),
            (Some(value), None) => shown_value(figure, value),
            (None, _) => "none".to_owned(),
        }
    }
}

impl FigureChange {
    /// Returns true if the value changed, or exists at only one of the times.
    pub fn is_change(&self) -> bool {
        self.before.value != self.after.value
    }
}

impl Changes {
    /// Returns the sums over all surveys.
    pub fn total(&self) -> RowChange {
        let sum = |of: fn(&RowChange) -> i64| self.rows.iter().map(of).sum();
        RowChange {
            survey_id: None,
            survey_name: None,
            new_answers: sum(|row| row.new_answers),
            edited: sum(|row| row.edited),
            deleted: sum(|row| row.deleted),
            vanished: sum(|row| row.vanished),
            new_themes: sum(|row| row.new_themes),
            changed_questions: sum(|row| row.changed_questions),
            status_before: None,
            status_after: None,
        }
    }
}

/// Queries the changes of these surveys, or of all surveys if the list is empty.
///
/// # Errors
/// The warehouse cannot be read, or lacks the macros. The next run adds them to a warehouse of an earlier version.
pub fn changes(reader: &mut Reader, surveys: &[i64], between: ComparedTimes) -> Result<Changes, LoadError> {
    let of = survey_filter(surveys);
    let moments =
        [between.since_ms, between.until_ms].map(|at_ms| format!("make_timestamp({at_ms} * 1000)")).join(", ");
    let rows = format!(
        "SELECT survey_id, {} AS survey_name, new_answers, edited, deleted, vanished, new_themes, changed_questions,
             status_before, status_after FROM row_changes({moments}) WHERE {of} ORDER BY survey_id NULLS LAST",
        shortened("survey_name")
    );
    let figures = format!(
        "SELECT survey_id, {} AS survey_name, question_id, {} AS question_text, figure, {} AS label, answers_before, before,
             before_error, answers_after, after, after_error, change
         FROM figure_changes({moments}) WHERE {of} ORDER BY survey_id, question_id, figure, label",
        shortened("survey_name"),
        shortened("question_text"),
        shortened("label")
    );
    Ok(Changes {
        since: format_ms(between.since_ms),
        until: format_ms(between.now_ms.unwrap_or(between.until_ms)),
        rows: query(reader, &rows, row_change)?,
        figures: query(reader, &figures, figure_change)?,
    })
}

/// Reads a row of the macro `row_changes`.
fn row_change(row: Row<'_>) -> RowChange {
    RowChange {
        survey_id: row.integer("survey_id"),
        survey_name: row.text("survey_name"),
        new_answers: row.count("new_answers"),
        edited: row.count("edited"),
        deleted: row.count("deleted"),
        vanished: row.count("vanished"),
        new_themes: row.count("new_themes"),
        changed_questions: row.count("changed_questions"),
        status_before: row.text("status_before"),
        status_after: row.text("status_after"),
    }
}

/// Reads a row of the macro `figure_changes`.
fn figure_change(row: Row<'_>) -> FigureChange {
    FigureChange {
        survey_id: row.count("survey_id"),
        survey_name: row.text("survey_name"),
        question_id: row.count("question_id"),
        question_text: row.text("question_text"),
        figure: row.text("figure").unwrap_or_default(),
        label: row.text("label"),
        before: Figure {
            answers: row.count("answers_before"),
            value: row.number("before"),
            standard_error: row.number("before_error"),
        },
        after: Figure {
            answers: row.count("answers_after"),
            value: row.number("after"),
            standard_error: row.number("after_error"),
        },
        change: row.number("change"),
    }
}
