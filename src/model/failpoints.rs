//! Failpoints: places before each durable step of a run where a test can stop the run, as a kill would.
//!
//! Only tests set a hook; without one, a failpoint costs one comparison. The simulator (`tests/simulation`) stops runs
//! at failpoints.

use std::{
    fmt, io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// A durable step of a run. If a run is killed before the step, only what earlier steps made durable remains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DurableStep {
    /// Create the spool file of a scan.
    SpoolMade,
    /// Append a page to a spool file.
    PageSpooled,
    /// Sync the pages of a spool file.
    SpoolSynced,
    /// Mark a spool file as complete.
    SpoolCompleted,
    /// Drop the pages of a spool file, because its window starts over.
    SpoolRestarted,
    /// Cut an incomplete last page off a spool file.
    SpoolCut,
    /// Move a spool file into the archive.
    SpoolArchived,
    /// Remove a spool file.
    SpoolRemoved,
    /// Rename a downloaded recording to its content hash.
    RecordingKept,
    /// Write the outcome of the download of a recording.
    RecordingNoted,
    /// Remove the recordings of a session.
    RecordingRemoved,
    /// Replace a file of pages with its redacted version.
    PagesRewritten,
    /// Write the suppression list.
    SuppressionWritten,
    /// Write or remove the journal of an erasure.
    JournalWritten,
    /// Write a receipt.
    ReceiptWritten,
    /// Request a purge from the service.
    PurgeAsked,
    /// Replace the DuckDB file with a new one that lacks the erased rows.
    DuckDbRewritten,
    /// Rewrite the state file.
    StateRewritten,
    /// Create the tables of a DuckDB file or of a catalog, or change them.
    DuckDbCreated,
    /// Commit a transaction of a DuckDB file or of a catalog whose statements were executed, and make it durable.
    DuckDbCommitted,
    /// Continue after this commit.
    DuckDbCommittedNow,
    /// Write committed changes to the DuckDB file.
    DuckDbCheckpointed,
    /// Replace the copy for readers of the DuckDB file.
    DuckDbCopied,
    /// Write a file in a Parquet warehouse.
    ParquetWritten,
    /// Sync a file or folder in a Parquet warehouse.
    ParquetSynced,
    /// Create a folder in a Parquet warehouse.
    ParquetFolderMade,
    /// Replace a file or folder in a Parquet warehouse.
    ParquetRenamed,
    /// Remove a file or folder in a Parquet warehouse.
    ParquetRemoved,
    /// Write an object of a bucket.
    ObjectWritten,
    /// Continue after an object of a bucket is written.
    ObjectWrittenNow,
    /// Remove objects of a bucket.
    ObjectRemoved,
    /// Store the lease in the state file.
    LeaseTaken,
    /// Store the start of a run in the state file.
    RunBegun,
    /// Store the end of a run in the state file.
    RunFinished,
    /// Store the start of a scan in the state file.
    ScanBegun,
    /// Store the progress of a scan in the state file.
    ScanAdvanced,
    /// Remove a scan from the state file.
    ScanForgotten,
    /// Store a checkpoint: the window of a scan becomes coverage.
    Checkpointed,
    /// Rebuild the coverage from the ledgers.
    CoverageRebuilt,
    /// Store the identity of a warehouse in the state file.
    DestinationRemembered,
    /// Store a measured behaviour of the service in the state file.
    BehaviourRemembered,
    /// Store results of user lookups in the state file.
    PersonLookupsRecorded,
    /// Store in the state file which users are about to be sent, or the results.
    PushesRecorded,
    /// Remove webhook deliveries from the inbox, because every warehouse has them.
    DeliveriesRemoved,
}

/// Decides whether a run stops before a step: true stops the run.
type Hook = dyn Fn(DurableStep) -> bool + Send + Sync;

/// The hook of a test, and whether it has stopped the run.
struct HookState {
    stops_before: Box<Hook>,
    /// True once the hook returned true.
    is_stopped: AtomicBool,
}

/// The failpoints of a run. Cheap to clone; clones share one hook.
#[derive(Clone, Default)]
pub struct Failpoints(Option<Arc<HookState>>);

impl Failpoints {
    /// Creates failpoints that call `stops_before` before each durable step. Once `stops_before` returns true, this
    /// step and all later steps fail, and `stops_before` is not called again.
    pub fn with_hook(stops_before: impl Fn(DurableStep) -> bool + Send + Sync + 'static) -> Failpoints {
        let state = HookState { stops_before: Box::new(stops_before), is_stopped: AtomicBool::new(false) };
        Failpoints(Some(Arc::new(state)))
    }

    /// Returns an error if the run is stopped before this step. Must be called before each durable step; after an error
    /// the caller must not take the step.
    pub fn hit(&self, step: DurableStep) -> io::Result<()> {
        let Some(state) = &self.0 else { return Ok(()) };
        if !state.is_stopped.load(Ordering::SeqCst) && !(state.stops_before)(step) {
            return Ok(());
        }
        state.is_stopped.store(true, Ordering::SeqCst);
        Err(io::Error::other(format!("stopped before {step:?}")))
    }
}

impl fmt::Debug for Failpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Failpoints(hooked)" } else { "Failpoints" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_stop_every_later_step_fails() {
        let failpoints = Failpoints::with_hook(|step| step == DurableStep::SpoolSynced);
        assert!(failpoints.hit(DurableStep::PageSpooled).is_ok());
        assert!(failpoints.hit(DurableStep::SpoolSynced).is_err());
        assert!(failpoints.clone().hit(DurableStep::PageSpooled).is_err());
        assert!(Failpoints::default().hit(DurableStep::SpoolSynced).is_ok());
    }
}
