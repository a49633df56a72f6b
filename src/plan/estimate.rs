//! What a plan will cost: windows, requests, minutes.

use serde::Serialize;

use crate::model::Ties;

use super::{Cutter, Due, edges::SAMPLE_EVERY};

/// The cost of a plan. A number that nothing is known about is `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Estimate {
    /// The windows, as they would be cut with what is known now.
    pub windows: Vec<PlannedWindow>,
    /// Records.
    pub rows: Option<u64>,
    /// List calls.
    pub requests: Option<u64>,
    /// At the learned rate, where one was learned.
    pub minutes: Option<f64>,
}

/// One window of a plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlannedWindow {
    #[serde(flatten)]
    pub due: Due,
    pub rows: Option<u64>,
    pub requests: Option<u64>,
}

/// Cuts all that is due with what is known now. By `ties` the edges of pages are looked at, each of them or a sample.
pub fn estimate(mut cutter: Cutter, page_rows: u32, ties: Ties) -> Estimate {
    let mut windows = Vec::new();
    while let Some(due) = cutter.next_window() {
        let rows = cutter.rows_expected(due.window);
        // Every window costs one call even when it is empty.
        let pages = rows.map(|rows| rows.div_ceil(u64::from(page_rows.max(1))).max(1));
        // Each edge of a page is probed, or a sample.
        // Where nobody knows which, half of them lies within two times of either.
        let looks = |pages: u64| match ties {
            Ties::Unknown => (pages - 1).div_ceil(2),
            ties if ties.may_lose() => pages - 1,
            _ => (pages - 1).div_ceil(SAMPLE_EVERY),
        };
        let requests = pages.map(|pages| pages + looks(pages));
        windows.push(PlannedWindow { due, rows, requests });
    }
    let total = |of: fn(&PlannedWindow) -> Option<u64>| windows.iter().map(of).sum::<Option<u64>>();
    let (rows, requests) = (total(|window| window.rows), total(|window| window.requests));
    Estimate { windows, rows, requests, minutes: None }
}

impl Estimate {
    /// The same with its minutes at this rate.
    #[must_use]
    pub fn at_rate(self, requests_per_sec: Option<f64>) -> Estimate {
        Estimate { minutes: self.requests.and_then(|requests| minutes(requests, requests_per_sec)), ..self }
    }
}

/// The minutes that so many requests take at a rate; `None` where no rate is known.
pub fn minutes(requests: u64, requests_per_sec: Option<f64>) -> Option<f64> {
    requests_per_sec.filter(|rate| *rate > 0.0).map(|rate| requests as f64 / rate / 60.0)
}
