//! The settings of a report.

use super::changes::ComparedTimes;
use crate::load::AnswerRange;

/// The settings of a report.
#[derive(Clone, Debug)]
pub struct ReportSettings {
    /// The warehouse's name, for the head of the page.
    pub warehouse: String,
    /// The title; `None` for the name of the warehouse.
    pub title: Option<String>,
    /// The time of the report, epoch milliseconds.
    pub made_ms: i64,
    /// The number of newest days in the daily chart and the maps of days; 1 to [`DAYS_MAX`](super::DAYS_MAX).
    pub days: u32,
    /// The answers to report. If the range has a beginning, figures of the period before are shown with them.
    pub answers: AnswerRange,
    /// The surveys to report; empty for all.
    pub surveys: Vec<i64>,
    /// True if every survey is shown; otherwise, without `surveys`, only those with most answers.
    pub shows_all_surveys: bool,
    /// The number of newest answers to each open question to show.
    pub verbatims: u32,
    /// The segments to divide answers into, as the macro `answer_segments` takes them; `None` for no segments.
    pub segment: Option<String>,
    /// The times between which the report lists changes; `None` for a report without changes.
    pub changes: Option<ComparedTimes>,
}

/// What the report shows, and what is known of it.
pub(super) struct Shown<'a> {
    pub report: &'a ReportSettings,
    /// The range in which all answers are known, in local times of the report time zone: epoch milliseconds as if the
    /// clock showed UTC.
    pub known: AnswerRange,
    /// The period before; `None` for a report without a beginning.
    pub before: Option<AnswerRange>,
}
