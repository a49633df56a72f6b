//! Why a scan of a frozen stream was not applied.

use crate::model::{Drift, DriftEntry, DriftFate, Stream};

/// Places that an error names.
const PLACES_NAMED_MAX: usize = 3;

/// Why a scan was not applied: its stream is frozen, and what was met in it no contract knows.
#[derive(Debug, thiserror::Error)]
#[error(
    "the service sent what the contract does not know, and [streams.{stream}.drift] freezes it: {}. Nothing of it was applied; \
     its pages are kept. Use a version of studysync that knows it, or set another mode there, and run the same command again: \
     it goes on from those pages",
    named(drift)
)]
pub struct Frozen {
    /// The stream; nothing more of it is pulled in this run.
    pub stream: Stream,
    /// All that was met in the scan.
    pub drift: Drift,
}

fn named(drift: &Drift) -> String {
    let frozen: Vec<&DriftEntry> = drift.entries().filter(|entry| entry.fate == DriftFate::Frozen).collect();
    let named = frozen.iter().take(PLACES_NAMED_MAX).map(|entry| {
        format!("{} {} ({}) in {} records", entry.kind.title(), entry.place, entry.example, entry.records)
    });
    let more = frozen.len().saturating_sub(PLACES_NAMED_MAX);
    let more = (more > 0 || drift.unlisted_count() > 0).then(|| "and more".to_owned());
    named.chain(more).collect::<Vec<_>>().join(", ")
}
