//! What a report is of.

use super::changes::Between;

/// What the report is of.
#[derive(Clone, Debug)]
pub struct ReportSettings {
    /// The warehouse's name, for the head of the page.
    pub warehouse: String,
    /// When it is made; epoch milliseconds. Nothing else depends on the time.
    pub made_ms: i64,
    /// Days that the daily chart and the maps of days show, back from the last; 1 to [`DAYS_MAX`](super::DAYS_MAX).
    pub days: u32,
    /// Only these surveys; empty for all.
    pub surveys: Vec<i64>,
    /// Whether it tells what changed, and between which moments.
    pub changes: Option<Between>,
}
