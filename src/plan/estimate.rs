//! Estimates the cost of a plan: windows, requests, minutes.

use serde::Serialize;

use crate::model::Ties;

use super::{Cutter, Due, page_boundaries::SAMPLE_EVERY};

/// The cost of a plan. A number that cannot be estimated is `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Estimate {
    /// The windows, cut by the row density that is known now.
    pub windows: Vec<PlannedWindow>,
    /// Expected number of records.
    pub rows: Option<u64>,
    /// Number of requests for pages and tie probes.
    pub requests: Option<u64>,
    /// Duration in minutes at the learned rate; `None` if no rate was learned.
    pub minutes: Option<f64>,
}

/// One window of a plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlannedWindow {
    #[serde(flatten)]
    pub due: Due,
    /// Expected number of records; `None` if no row density is known.
    pub rows: Option<u64>,
    /// Number of requests for pages and tie probes; `None` if `rows` is unknown.
    pub requests: Option<u64>,
}

/// Cuts all due intervals into windows as a run does whose scans find the expected rows, and estimates rows and
/// requests. `ties` decides whether all page boundaries are probed, or a sample.
pub fn estimate(mut cutter: Cutter, page_rows: u32, ties: Ties) -> Estimate {
    let mut windows = Vec::new();
    while let Some(due) = cutter.next_window() {
        let rows = cutter.rows_expected(due.window);
        // Every window needs at least one request, even if it is empty.
        let pages = rows.map(|rows| rows.div_ceil(u64::from(page_rows.max(1))).max(1));
        // If `ties` is unknown, the run measures it, and then probes all boundaries or few. Half of them is a
        // compromise.
        let probes = |pages: u64| match ties {
            Ties::Unknown => (pages - 1).div_ceil(2),
            ties if ties.may_lose() => pages - 1,
            _ => (pages - 1).div_ceil(SAMPLE_EVERY),
        };
        let requests = pages.map(|pages| pages + probes(pages));
        // A run learns from each scan, and cuts longer windows afterwards.
        if let Some(rows) = rows {
            cutter.learn(due.window, rows);
        }
        windows.push(PlannedWindow { due, rows, requests });
    }
    let total = |of: fn(&PlannedWindow) -> Option<u64>| windows.iter().map(of).sum::<Option<u64>>();
    let (rows, requests) = (total(|window| window.rows), total(|window| window.requests));
    Estimate { windows, rows, requests, minutes: None }
}

impl Estimate {
    /// Returns the estimate with the duration at this rate; without a duration if the rate is `None`.
    #[must_use]
    pub fn at_rate(self, requests_per_sec: Option<f64>) -> Estimate {
        Estimate { minutes: self.requests.and_then(|requests| minutes(requests, requests_per_sec)), ..self }
    }
}

/// Returns the minutes that the requests take at a rate; `None` if no rate is known.
pub fn minutes(requests: u64, requests_per_sec: Option<f64>) -> Option<f64> {
    requests_per_sec.filter(|rate| *rate > 0.0).map(|rate| requests as f64 / rate / 60.0)
}
