//! The limits of the report. The page says what a limit left out.

use crate::load::Reader;

/// Days in the daily chart and in the maps of days, by default.
pub const DAYS_DEFAULT: u32 = 366;
/// Days in the daily chart and in the maps of days, at most.
pub const DAYS_MAX: u32 = 1830;
/// Weeks or months of the NPS charts.
pub(super) const PERIODS_MAX: usize = 104;
/// Weeks of a theme's trend.
pub(super) const TREND_WEEKS_MAX: usize = 26;
/// Surveys, those with most answers first.
pub(super) const SURVEYS_MAX: usize = 8;
/// Questions of a survey.
pub(super) const QUESTIONS_MAX: usize = 30;
/// Options, items, or rows of the table of one question.
pub(super) const OPTIONS_MAX: usize = 15;
/// Columns of a matrix.
pub(super) const MATRIX_COLUMNS_MAX: usize = 11;
/// Themes.
pub(super) const THEMES_MAX: usize = 20;
/// Figures that changed.
pub(super) const CHANGES_MAX: usize = 100;
/// Runs.
pub(super) const RUNS_MAX: usize = 12;
/// Scopes with a map of days; scopes of all surveys come first.
pub(super) const SCOPES_MAX: usize = 12;
/// Intervals in the table of one scope.
pub(super) const INTERVALS_MAX: usize = 60;
/// Characters of a name, a question or a label. The warehouse cuts off the rest.
pub(super) const TEXT_CHARS_MAX: usize = 160;
/// Characters of an answer in a person's own words. The warehouse cuts off the rest.
pub(super) const VERBATIM_CHARS_MAX: usize = 600;
/// Answers to each open question that `--verbatims` can ask for.
pub const VERBATIMS_MAX: u32 = 200;
/// Rows of one query: more than the limits above, or a ledger of many years, can produce.
const ROWS_MAX: usize = 1_000_000;
/// Memory of a row of a query that may have [`ROWS_MAX`] rows: a scan of the ledger, in a list that grows.
const ROW_BYTES: usize = 128;

/// Returns the rows of one query, at most: fewer than [`ROWS_MAX`] if the memory limit is small.
pub(super) fn rows_max(reader: &Reader) -> usize {
    reader.rows_max(ROW_BYTES).min(ROWS_MAX)
}
