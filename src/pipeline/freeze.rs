//! The drift mode `freeze`: a scan with drift is not applied. Its spool stays, and a later run commits it without a
//! request, after the mode was changed or a newer program knows the new fields.

use crate::model::{Drift, DriftMode, DriftRules, Stream};

use super::{Frozen, PipelineError, scan::CompletedScan, sync_context::SyncContext};

/// Checks that the drift rules allow a scan. A scan that any warehouse has already is always allowed, so that all
/// warehouses get it.
///
/// # Errors
/// `Frozen` if the scan has drift and its stream is frozen.
pub(super) fn check(context: &SyncContext, pulled: &CompletedScan) -> Result<(), PipelineError> {
    let stream = pulled.scan.scope.stream;
    let rules = context.drift.of(stream);
    // A scan with a note was checked before its first commit.
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

/// Checks that the drift rules allow this drift.
pub(super) fn check_drift(stream: Stream, rules: DriftRules, drift: &Drift) -> Result<(), PipelineError> {
    match drift.has(rules, DriftMode::Freeze) {
        true => Err(PipelineError::Frozen(Box::new(Frozen { stream, drift: drift.clone() }))),
        false => Ok(()),
    }
}
