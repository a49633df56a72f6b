//! Streams as `status` shows them.

use serde::Serialize;

/// How far a stream, or a survey of it, is read.
#[derive(Serialize)]
pub(super) struct StreamStatus {
    pub stream: &'static str,
    pub survey_id: Option<i64>,
    /// Stretches proven complete.
    pub complete: Vec<TimeRangeJson>,
    /// Stretches between them that never were.
    pub missing: Vec<TimeRangeJson>,
    /// Stretches whose last scan left a doubt:
    /// rows that seem to be gone and were not believed, or that a page's edge may hide.
    pub in_doubt: Vec<TimeRangeJson>,
    /// Rows of its table, or those of its survey; absent where the warehouse cannot be read now.
    pub rows: Option<u64>,
    /// How far the newest complete moment lies back.
    pub lag_secs: i64,
    /// The oldest of the last scans of all intervals.
    pub oldest_scan: String,
}

/// A range of creation time.
#[derive(Serialize)]
pub(super) struct TimeRangeJson {
    pub start: String,
    pub end: String,
    /// Since when all of it is proven complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complete_since: Option<String>,
}
