//! What the lanes of a push have in common.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::{
    person::Suppression,
    source::{Source, Stop},
};

use super::{
    super::PipelineError,
    ledger::Ledger,
    report::PushRows,
    request::PushRequest,
    results::{Results, RowResult},
};

/// What the lanes share.
pub(super) struct PushContext {
    pub request: PushRequest,
    pub source: Source,
    pub ledger: Ledger,
    pub suppression: Suppression,
    pub results: Mutex<Results>,
    pub found: Mutex<Found>,
    /// Cancelled when nothing more is to be sent.
    pub ending: CancellationToken,
}

/// What a push has found so far.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub rows: PushRows,
    pub stop: Option<Stop>,
    pub error: Option<PipelineError>,
    pub failures_in_a_row: u32,
}

impl PushContext {
    pub fn found(&self) -> MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Books a row's fate. What cannot be written down ends the push: nobody would know of it.
    pub fn tell(&self, result: &RowResult<'_>) {
        self.found().rows.count(result);
        let written = self.results.lock().unwrap_or_else(PoisonError::into_inner).write(result);
        if let Err(error) = written {
            self.fail(error);
        }
    }

    pub fn stop(&self, stop: Stop) {
        self.found().stop.get_or_insert(stop);
        self.ending.cancel();
    }

    pub fn fail(&self, error: PipelineError) {
        self.found().error.get_or_insert(error);
        self.ending.cancel();
    }
}
