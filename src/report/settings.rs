//! The settings of a report.

use super::changes::ComparedTimes;

/// The settings of a report.
#[derive(Clone, Debug)]
pub struct ReportSettings {
    /// The warehouse's name, for the head of the page.
    pub warehouse: String,
    /// The time of the report, epoch milliseconds.
    pub made_ms: i64,
    /// The number of newest days in the daily chart and the maps of days; 1 to [`DAYS_MAX`](super::DAYS_MAX).
    pub days: u32,
    /// The surveys to report; empty for all.
    pub surveys: Vec<i64>,
    /// The times between which the report lists changes; `None` for a report without changes.
    pub changes: Option<ComparedTimes>,
}
