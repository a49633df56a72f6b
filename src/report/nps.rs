//! Rows of the views of NPS by week.

use super::rows::{Row, day_number};

/// The NPS of one week, of all questions or of one question.
pub(super) struct NpsWeek {
    /// The Monday of the week, in days since 1970.
    pub week: i64,
    pub responses: i64,
    pub promoters: i64,
    pub passives: i64,
    pub detractors: i64,
    pub nps: f64,
    /// The lower end of the 95 % band; `None` for a single answer.
    pub low: Option<f64>,
    pub high: Option<f64>,
}

/// The newest weeks with answers, in order.
#[derive(Default)]
pub(super) struct NpsWeeks {
    pub weeks: Vec<NpsWeek>,
    /// The number of earlier weeks with answers.
    pub earlier: i64,
}

/// Returns the columns of a view of NPS by week that [`nps_week`] reads.
pub(super) fn nps_columns() -> String {
    format!("{} AS week, responses, promoters, passives, detractors, nps, nps_low, nps_high", day_number("week"))
}

/// Reads a row of a query with the columns of [`nps_columns`].
pub(super) fn nps_week(row: Row<'_>) -> NpsWeek {
    NpsWeek {
        week: row.count("week"),
        responses: row.count("responses"),
        promoters: row.count("promoters"),
        passives: row.count("passives"),
        detractors: row.count("detractors"),
        nps: row.number("nps").unwrap_or(0.0),
        low: row.number("nps_low"),
        high: row.number("nps_high"),
    }
}
