//! The drift mode `freeze`: a scan with drift is not applied, and its spool stays. After the mode was changed, or with
//! a newer program that knows the new fields, a later run commits the scan without a request.

use crate::model::{Drift, DriftMode, DriftRules, Stream};

use super::{Frozen, PipelineError, scan::CompletedScan, sync_context::SyncContext};

/// Checks that the drift rules allow a scan. A scan whose commit was begun is always allowed, so that all warehouses
/// get the scan.
///
/// # Errors
/// `Frozen` if the scan has drift and its stream is frozen.
pub(super) fn check(context: &SyncContext, pulled: &CompletedScan) -> Result<(), PipelineError> {
    let stream = pulled.scan.scope.stream;
    let rules = context.drift.of(stream);
    // A scan with a commit note was checked before the note was written.
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

/// Checks that the drift rules of a stream allow this drift.
///
/// # Errors
/// `Frozen` if the rules freeze any of the drift.
pub(super) fn check_drift(stream: Stream, rules: DriftRules, drift: &Drift) -> Result<(), PipelineError> {
    match drift.has(rules, DriftMode::Freeze) {
        true => Err(PipelineError::Frozen(Box::new(Frozen { stream, drift: drift.clone() }))),
        false => Ok(()),
    }
}
