//! The error of a scan that the drift mode `freeze` refuses.

use crate::model::{Drift, DriftEntry, DriftFate, Stream};

/// The maximum number of fields that the error names.
const PLACES_NAMED_MAX: usize = 3;

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
        format!("{} {} ({}) in {} records", entry.kind.title(), entry.place, entry.example, entry.records)
    });
    let more = frozen.len().saturating_sub(PLACES_NAMED_MAX);
    let more = (more > 0 || drift.unlisted_count() > 0).then(|| "and more".to_owned());
    named.chain(more).collect::<Vec<_>>().join(", ")
}
