//! Drift in the report of a run, for programs and for people. Nothing in it says anything of a person.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::{Drift, DriftFate, DriftKind, Stream};

/// Lines of drift that people are shown; the run's JSON has the rest.
const LINES_MAX: usize = 20;

/// Drift of one kind at one place, as the run's JSON tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriftReport {
    pub stream: String,
    pub kind: DriftKind,
    /// Path of the field: `responses.meta.battery`; `?` stands for a name that does not look like one.
    #[serde(rename = "where")]
    pub place: String,
    /// Records of this run in which it was met; one that was read twice counts twice, as in `rows_read`.
    pub records: u64,
    /// A type, a length, a word of an enumeration; never a text that a person could have typed.
    pub example: String,
    pub fate: DriftFate,
}

/// The lists of all streams as one, and how often drift was met that is in none.
pub(super) fn reports(streams: &BTreeMap<Stream, Drift>) -> (Vec<DriftReport>, u64) {
    let report = |stream: Stream, entry: &crate::model::DriftEntry| DriftReport {
        stream: stream.name().to_owned(),
        kind: entry.kind,
        place: entry.place.clone(),
        records: entry.records,
        example: entry.example.clone(),
        fate: entry.fate,
    };
    let listed = streams.iter().flat_map(|(stream, drift)| drift.entries().map(|entry| report(*stream, entry)));
    (listed.collect(), streams.values().map(Drift::unlisted_count).sum())
}

/// One line for each place, without an end of line.
pub fn drift_lines(drift: &[DriftReport], unlisted: u64) -> Vec<String> {
    let line = |report: &DriftReport| {
        let DriftReport { kind, place, records, example, fate, .. } = report;
        format!("{} {place} ({example}) in {records} records: {fate}", kind.title())
    };
    let more = drift.len().saturating_sub(LINES_MAX);
    let rest = match (more, unlisted) {
        (0, 0) => None,
        (more, 0) => Some(format!("and at {more} more places: --json lists them")),
        (0, unlisted) => Some(format!("and {unlisted} times at places that are not listed")),
        (more, unlisted) => Some(format!(
            "and at {more} more places (--json lists them), and {unlisted} times at places that are not listed"
        )),
    };
    drift.iter().take(LINES_MAX).map(line).chain(rest).collect()
}
