//! Drift in the report of a run, as JSON and as lines of text, and in the error of a scan that the drift mode `freeze`
//! refuses. The report contains no data of a person.

use std::collections::{BTreeMap, HashSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    flatten::reject_hash,
    model::{Drift, DriftEntry, DriftFate, DriftKind, FlatPage, Stream},
    wording::counted,
};

/// The maximum number of records of a scan that are recognized when they are read again. Further records count twice.
const SEEN_MAX: usize = 1_000_000;

/// The maximum number of fields that the error names.
const PLACES_NAMED_MAX: usize = 3;

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

/// Drift of one kind at one field, in the run JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DriftReport {
    /// The stream, or `webhooks`.
    pub stream: String,
    /// What differs from the contract.
    pub kind: DriftKind,
    /// Path of the field: `responses.meta.battery`, `webhooks.battery`. `?` replaces a name that may be data of a
    /// person.
    #[serde(rename = "where")]
    pub place: String,
    /// Records with this drift. A record that a scan read twice counts once.
    pub records: u64,
    /// A type, a length, or a word of an enumeration; never a text that a person may have typed.
    pub example: String,
    /// What the program did with the value.
    pub fate: DriftFate,
}

/// Returns the drift of all sources, and the number of records with drift that no list has room for. A record counts
/// once per field.
pub(super) fn reports(sources: &BTreeMap<DriftSource, Drift>) -> (Vec<DriftReport>, u64) {
    let report = |source: DriftSource, entry: &DriftEntry| DriftReport {
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

/// The drift of one scan. A record that is read several times counts once.
#[derive(Debug, Default)]
pub(super) struct ScanDrift {
    drift: Drift,
    /// Hashes of the records on pages with drift: of the key, or of the value for a record without a key.
    seen: HashSet<u128>,
}

impl ScanDrift {
    /// Adds the drift of a page.
    pub fn add(&mut self, page: &FlatPage) {
        if page.drift.is_empty() {
            return;
        }
        let rejected = page.rejects.iter().map(reject_hash);
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

/// Returns one line of text for each place, at most `lines_max`, and a line about the other places. `unlisted` is the
/// number of records with drift that is not in `drift`.
pub fn drift_lines(drift: &[DriftReport], unlisted: u64, lines_max: usize) -> Vec<String> {
    let line = |report: &DriftReport| {
        let DriftReport { kind, place, records, example, fate, .. } = report;
        format!("{} {place} ({example}) in {}: {fate}", kind.title(), counted(*records, "record"))
    };
    let more = drift.len().saturating_sub(lines_max);
    let more = (more > 0).then(|| format!("at {} (--json lists them)", counted(more as u64, "more place")));
    let unlisted = (unlisted > 0).then(|| format!("{} at places that are not listed", counted(unlisted, "time")));
    let rest: Vec<String> = more.into_iter().chain(unlisted).collect();
    let rest = (!rest.is_empty()).then(|| format!("and {}", rest.join(", and ")));
    drift.iter().take(lines_max).map(line).chain(rest).collect()
}

/// A scan was not applied, because it has drift and its stream is frozen.
#[derive(Debug, thiserror::Error)]
#[error(
    "the service sent data that the contract does not know, and [streams.{stream}.drift] freezes it: {}. The scan was not \
     applied; its pages are stored. Use a version of studysync that knows the data, or set another mode, and run the same \
     command again: it applies these pages",
    named(drift)
)]
pub struct Frozen {
    /// The stream. The run starts no further scan of it.
    pub stream: Stream,
    /// The drift of the scan.
    pub drift: Drift,
}

/// Returns the first fields with frozen drift, in words.
fn named(drift: &Drift) -> String {
    let frozen: Vec<&DriftEntry> = drift.entries().filter(|entry| entry.fate == DriftFate::Frozen).collect();
    let named = frozen.iter().take(PLACES_NAMED_MAX).map(|entry| {
        format!("{} {} ({}) in {}", entry.kind.title(), entry.place, entry.example, counted(entry.records, "record"))
    });
    let more = frozen.len().saturating_sub(PLACES_NAMED_MAX);
    let more = (more > 0 || drift.unlisted_count() > 0).then(|| "and more".to_owned());
    named.chain(more).collect::<Vec<_>>().join(", ")
}
