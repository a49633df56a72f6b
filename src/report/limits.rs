//! How much a report shows. Each limit that leaves something out is told on the page.

/// Days that the daily chart and the maps of days show unless asked otherwise.
pub const DAYS_DEFAULT: u32 = 366;
/// Days that they show at most.
pub const DAYS_MAX: u32 = 1830;
/// Weeks of the NPS charts.
pub(super) const WEEKS_MAX: usize = 104;
/// Weeks of a theme's trend.
pub(super) const TREND_WEEKS_MAX: usize = 26;
/// Surveys, by how much they are answered.
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
/// Scopes whose days are shown: whole streams come first.
pub(super) const SCOPES_MAX: usize = 12;
/// Stretches in the table of one scope.
pub(super) const INTERVALS_MAX: usize = 60;
/// Letters of a name, a question or a label. The rest of a longer one is cut off in the warehouse already.
pub(super) const TEXT_CHARS_MAX: usize = 160;
/// Rows that one question to the warehouse may have: more than the limits above, or a ledger of many years, can make.
pub(super) const ROWS_MAX: usize = 1_000_000;
