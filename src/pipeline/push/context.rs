//! The state that all lanes of a push share.

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
    results::{ResultsFile, RowResult},
};

/// The state that all lanes of a push share.
pub(super) struct PushContext {
    pub request: PushRequest,
    pub source: Source,
    pub ledger: Ledger,
    pub suppression: Suppression,
    pub results: Mutex<ResultsFile>,
    pub progress: Mutex<PushProgress>,
    /// Cancelled when no further row may be sent.
    pub ending: CancellationToken,
}

/// The counts of a push so far, and why it ends early.
#[derive(Debug, Default)]
pub(super) struct PushProgress {
    pub rows: PushRows,
    pub stop: Option<Stop>,
    pub error: Option<PipelineError>,
    /// Consecutive rows without an answer.
    pub consecutive_failures: u32,
}

impl PushContext {
    pub fn progress(&self) -> MutexGuard<'_, PushProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn results(&self) -> MutexGuard<'_, ResultsFile> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the result of a row and writes it to the results file. An error of the file ends the push.
    pub fn record_result(&self, result: &RowResult<'_>) {
        self.progress().rows.count(result);
        let written = self.results().write(result);
        if let Err(error) = written {
            self.fail(error);
        }
    }

    /// Ends the push early. The first reason counts.
    pub fn stop(&self, stop: Stop) {
        self.progress().stop.get_or_insert(stop);
        self.ending.cancel();
    }

    /// Ends the push with an error. The first error counts.
    pub fn fail(&self, error: PipelineError) {
        self.progress().error.get_or_insert(error);
        self.ending.cancel();
    }
}
