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
    /// When the warehouse had its first load, if that was later than `since`: then the changes are those since then,
    /// because all rows of the first load would count as new. RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warehouse_began: Option<String>,
    /// The surveys in which a row changed.
    pub rows: Vec<RowChange>,
    /// All figures, also unchanged ones, ordered by survey, question, figure and label.
    pub figures: Vec<FigureChange>,
}

/// Defines [`RowChange`] with its counts: columns of the macro `row_changes`.
macro_rules! row_change {
    ($($count:ident),+ $(,)?) => {
        /// The changed rows of a survey. The columns of the macro `row_changes` describe the counts.
        #[derive(Clone, Debug, Default, Serialize)]
        pub struct RowChange {
            /// `None` for answers that name no survey.
            pub survey_id: Option<i64>,
            pub survey_name: Option<String>,
            $(pub $count: i64,)+
            pub status_before: Option<String>,
            pub status_after: Option<String>,
        }

        /// The names of the counts.
        const ROW_COUNTS: &[&str] = &[$(stringify!($count)),+];

        impl RowChange {
            /// Adds the counts of another survey.
            fn add(&mut self, other: &Self) {
                $(self.$count += other.$count;)+
            }

            /// Reads a row of the macro `row_changes`.
            fn of(row: Row<'_>) -> Self {
                Self {
                    survey_id: row.integer("survey_id"),
                    survey_name: row.text("survey_name"),
                    $($count: row.count(stringify!($count)),)+
                    status_before: row.text("status_before"),
                    status_after: row.text("status_after"),
                }
            }
        }
    };
}

row_change!(
    answers_before,
    new_answers,
    returned,
    deleted,
    vanished,
    answers_after,
    edited,
    themes_before,
    new_themes,
    returned_themes,
    vanished_themes,
    themes_after,
    changed_themes,
    changed_questions,
    surveys_before,
    new_surveys,
    returned_surveys,
    vanished_surveys,
    surveys_after,
    changed_surveys,
);

/// A figure of a question at both times.
#[derive(Clone, Debug, Serialize)]
pub struct FigureChange {
    /// `None` for answers that name no survey.
    pub survey_id: Option<i64>,
    pub survey_name: Option<String>,
    pub question_id: i64,
    pub question_text: Option<String>,
    /// `nps`, `top_two_share` or `choice_share`.
    pub figure: String,
    /// The option of a choice share; `None` for other figures.
    pub label: Option<String>,
    /// The index of the option as sent; only if its label is not known.
    pub selected_index: Option<i64>,
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

impl RowChange {
    /// Returns the changes besides the number of answers: what changed, and the counts that are not 0, each with how.
    pub fn other_changes(&self) -> Vec<(&'static str, Vec<(i64, &'static str)>)> {
        let all = [
            ("answers", vec![(self.edited, "edited")]),
            (
                "themes",
                vec![
                    (self.new_themes, "new"),
                    (self.changed_themes, "changed"),
                    (self.vanished_themes, "vanished"),
                    (self.returned_themes, "returned"),
                ],
            ),
            ("questions", vec![(self.changed_questions, "changed")]),
            (
                "surveys",
                vec![
                    (self.new_surveys, "new"),
                    (self.changed_surveys, "changed"),
                    (self.vanished_surveys, "vanished"),
                    (self.returned_surveys, "returned"),
                ],
            ),
        ];
        let some = all.into_iter().map(|(what, mut counts)| {
            counts.retain(|(count, _)| *count != 0);
            (what, counts)
        });
        some.filter(|(_, counts)| !counts.is_empty()).collect()
    }
}

impl Changes {
    /// Returns the sums over all surveys.
    pub fn total(&self) -> RowChange {
        let mut total = RowChange::default();
        self.rows.iter().for_each(|row| total.add(row));
        total
    }
}

/// Queries the changes of these surveys, or of all surveys if the list is empty.
///
/// # Errors
/// The warehouse cannot be read, or lacks the macros. The next run adds them to a warehouse of an earlier version.
pub fn changes(reader: &mut Reader, surveys: &[i64], between: ComparedTimes) -> Result<Changes, LoadError> {
    let of = survey_filter(surveys);
    let began_ms = warehouse_began_ms(reader)?.filter(|began_ms| *began_ms > between.since_ms);
    let since_ms = began_ms.unwrap_or(between.since_ms).min(between.until_ms);
    let moments = [since_ms, between.until_ms].map(|at_ms| format!("make_timestamp({at_ms} * 1000)")).join(", ");
    let rows = format!(
        "SELECT survey_id, {} AS survey_name, {}, status_before, status_after
         FROM row_changes({moments}) WHERE {of} ORDER BY survey_id NULLS LAST",
        shortened("survey_name"),
        ROW_COUNTS.join(", ")
    );
    let figures = format!(
        "SELECT survey_id, {} AS survey_name, question_id, {} AS question_text, figure, {} AS label, selected_index,
             answers_before, before, before_error, answers_after, after, after_error, change
         FROM figure_changes({moments}) WHERE {of}
         ORDER BY survey_id NULLS LAST, question_id, figure, label NULLS LAST, selected_index",
        shortened("survey_name"),
        shortened("question_text"),
        shortened("label")
    );
    Ok(Changes {
        since: format_ms(between.since_ms),
        until: format_ms(between.now_ms.unwrap_or(between.until_ms)),
        warehouse_began: began_ms.map(format_ms),
        rows: query(reader, &rows, RowChange::of)?,
        figures: query(reader, &figures, figure_change)?,
    })
}

/// Returns the start of the last scan that belongs to the first load of the warehouse, rounded up to a millisecond. The
/// first load is the first run that read answers and was done, and the runs before it. If no run was done, it is the
/// first run that failed, because a stream that always fails must not hide the changes of the others. Returns `None` if
/// the warehouse has no scan.
fn warehouse_began_ms(reader: &mut Reader) -> Result<Option<i64>, LoadError> {
    let sql = "WITH first AS (
            SELECT coalesce(
                min(run.run_id) FILTER (run.exit_code IN (0, 3)), min(run.run_id) FILTER (run.exit_code = 1)
            ) AS run_id
            FROM sync_runs AS run
            SEMI JOIN sync_windows AS scan ON scan._run_id = run.run_id AND scan.stream = 'responses'
        )
        SELECT ((max(epoch_us(scan.scanned_at)) + 999) // 1000)::BIGINT AS began FROM sync_windows AS scan CROSS JOIN first
        WHERE first.run_id IS NULL OR scan._run_id <= first.run_id";
    Ok(query(reader, sql, |row| row.integer("began"))?.into_iter().flatten().next())
}

/// Reads a row of the macro `figure_changes`.
fn figure_change(row: Row<'_>) -> FigureChange {
    FigureChange {
        survey_id: row.integer("survey_id"),
        survey_name: row.text("survey_name"),
        question_id: row.count("question_id"),
        question_text: row.text("question_text"),
        figure: row.text("figure").unwrap_or_default(),
        label: row.text("label"),
        selected_index: row.integer("selected_index"),
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
