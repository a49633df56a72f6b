//! The mode `freeze`: a scan with drift is not applied. Its pages stay in its spool, complete, and a later run commits them without
//! asking for them again, once the mode is another one or the program knows what was new.

use crate::model::{Drift, DriftEntry, DriftMode, DriftRules, Stream};

use super::{
    PipelineError,
    pull::{Pulled, Shared},
};

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

/// An error if the rules of the scan's stream keep it from being applied. One that some warehouse holds is applied to the others
/// in any case: warehouses do not part.
pub(super) fn check(shared: &Shared, pulled: &Pulled) -> Result<(), PipelineError> {
    let stream = pulled.scan.scope.stream;
    let rules = shared.drift.of(stream);
    // There is no drift in a page that is known.
    if !rules.can_freeze() || pulled.noted.is_some() {
        return Ok(());
    }
    let mut drift = Drift::default();
    pulled.held.for_each(&pulled.spool, |page| {
        drift.merge(&page.drift);
        Ok::<(), PipelineError>(())
    })?;
    check_drift(stream, rules, &drift)
}

/// The same for drift that was gathered already.
pub(super) fn check_drift(stream: Stream, rules: DriftRules, drift: &Drift) -> Result<(), PipelineError> {
    match drift.has(rules, DriftMode::Freeze) {
        true => Err(PipelineError::Frozen(Box::new(Frozen { stream, drift: drift.clone() }))),
        false => Ok(()),
    }
}

fn named(drift: &Drift) -> String {
    let frozen: Vec<&DriftEntry> =
        drift.entries().filter(|entry| entry.fate == crate::model::DriftFate::Frozen).collect();
    let named = frozen.iter().take(PLACES_NAMED_MAX).map(|entry| {
        format!("{} {} ({}) in {} records", entry.kind.title(), entry.place, entry.example, entry.records)
    });
    let more = frozen.len().saturating_sub(PLACES_NAMED_MAX);
    let more = (more > 0 || drift.unlisted_count() > 0).then(|| "and more".to_owned());
    named.chain(more).collect::<Vec<_>>().join(", ")
}
