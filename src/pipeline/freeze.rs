//! The mode `freeze`: a scan with drift is not applied. Its pages stay in its spool, complete, and a later run commits
//! them without asking for them again, once the mode is another one or the program knows what was new.

use crate::model::{Drift, DriftMode, DriftRules, Stream};

use super::{Frozen, PipelineError, scan::CompletedScan, sync_context::SyncContext};

/// An error if the rules of the scan's stream keep it from being applied. One that some warehouse holds is applied to
/// the others in any case: warehouses do not part.
pub(super) fn check(context: &SyncContext, pulled: &CompletedScan) -> Result<(), PipelineError> {
    let stream = pulled.scan.scope.stream;
    let rules = context.drift.of(stream);
    // There is no drift in a page that is known.
    if !rules.can_freeze() || pulled.noted.is_some() {
        return Ok(());
    }
    let mut drift = Drift::default();
    pulled.buffer.for_each(&pulled.spool, |page| {
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
