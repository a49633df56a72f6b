//! Drift in the report of a run, for programs and for people. Nothing in it says anything of a person.

use std::collections::{BTreeMap, HashSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use crate::model::{Drift, DriftFate, DriftKind, FlatPage, Stream};

/// Lines of drift that people are shown; the run's JSON has the rest.
const LINES_MAX: usize = 20;
/// Records of a scan that are told apart; beyond them, one that is read twice may count twice.
const SEEN_MAX: usize = 1_000_000;

/// Where records with drift come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DriftSource {
    List(Stream),
    Webhooks,
}

impl DriftSource {
    fn name(self) -> &'static str {
        match self {
            DriftSource::List(stream) => stream.name(),
            DriftSource::Webhooks => "webhooks",
        }
    }
}

/// Drift of one kind at one place, as the run's JSON tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DriftReport {
    /// The stream; `webhooks` for what webhooks told.
    pub stream: String,
    /// What is new about it.
    pub kind: DriftKind,
    /// Path of the field: `responses.meta.battery`, `webhooks.battery`;
    /// `?` stands for a name that does not look like one.
    #[serde(rename = "where")]
    pub place: String,
    /// Records in which it was met; one that a scan read twice, for a look at the boundary of a page, counts once.
    pub records: u64,
    /// A type, a length, a word of an enumeration; never a text that a person could have typed.
    pub example: String,
    /// What became of it.
    pub fate: DriftFate,
}

/// The lists of all sources as one, and how often drift was met that is in none.
pub(super) fn reports(sources: &BTreeMap<DriftSource, Drift>) -> (Vec<DriftReport>, u64) {
    let report = |source: DriftSource, entry: &crate::model::DriftEntry| DriftReport {
        stream: source.name().to_owned(),
        kind: entry.kind,
        place: entry.place.clone(),
        records: entry.records,
        example: entry.example.clone(),
        fate: entry.fate,
    };
    let listed = sources.iter().flat_map(|(source, drift)| drift.entries().map(|entry| report(*source, entry)));
    (listed.collect(), sources.values().map(Drift::unlisted_count).sum())
}

/// The drift of one scan, each record once, however often it was read.
#[derive(Debug, Default)]
pub(super) struct ScanDrift {
    drift: Drift,
    /// Keys of records on pages with drift; of records without one, their texts.
    seen: HashSet<u128>,
}

impl ScanDrift {
    /// Takes in a page.
    pub fn add(&mut self, page: &FlatPage) {
        if page.drift.is_empty() {
            return;
        }
        let rejected = page.rejects.iter().map(|reject| xxh3_128(reject.raw.as_bytes()));
        let mut new_records = 0;
        for record in page.key_hashes.iter().copied().chain(rejected) {
            let is_new = match self.seen.len() < SEEN_MAX {
                true => self.seen.insert(record),
                false => !self.seen.contains(&record),
            };
            new_records += u64::from(is_new);
        }
        self.drift.merge_new(&page.drift, new_records);
    }

    pub fn finish(self) -> Drift {
        self.drift
    }
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
