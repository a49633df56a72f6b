//! Failpoints: places before each durable step of a run where a test can stop it, as a kill would.
//!
//! In production there is no hook, and a failpoint costs one comparison. The simulator (`tests/simulation`) stops runs
//! at them.

use std::{
    fmt, io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// A durable step that is about to be taken. What was durable before it is what a kill leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DurableStep {
    /// The file of a scan is made.
    SpoolMade,
    /// A page is appended to it.
    PageSpooled,
    /// Its pages are made durable.
    SpoolSynced,
    /// It is marked as complete.
    SpoolCompleted,
    /// Its pages are dropped: the window starts over.
    SpoolRestarted,
    /// A torn tail is taken off it.
    SpoolCut,
    /// It moves into the archive.
    SpoolArchived,
    /// It goes.
    SpoolRemoved,
    /// A recording gets the name of its content.
    RecordingKept,
    /// What became of an upload is noted.
    RecordingNoted,
    /// The recordings of a session go.
    RecordingRemoved,
    /// A file of pages that lost records takes the place of the old one.
    PagesRewritten,
    /// Who is kept out is written down.
    SuppressionWritten,
    /// The journal of an erasure is written, or goes.
    JournalWritten,
    /// A receipt is written.
    ReceiptWritten,
    /// A purge is asked of the service.
    PurgeAsked,
    /// A fresh DuckDB file without what was taken out takes the place of the old one.
    DuckDbRewritten,
    /// The checkpoints are written anew.
    StateRewritten,
    /// The DuckDB file gets its tables.
    DuckDbCreated,
    /// A transaction on the DuckDB file, whose statements are done, commits.
    DuckDbCommitted,
    /// A transaction on the DuckDB file has committed.
    DuckDbCommittedNow,
    /// The DuckDB file's log is folded into it.
    DuckDbCheckpointed,
    /// A copy of the DuckDB file takes the place of the last one.
    DuckDbCopied,
    /// A file is written below a Parquet warehouse.
    ParquetWritten,
    /// A file or folder there is made durable.
    ParquetSynced,
    /// A folder is made there.
    ParquetFolderMade,
    /// A file or folder takes the place of another there.
    ParquetRenamed,
    /// A file or folder goes there.
    ParquetRemoved,
    /// The lease is written into the checkpoints.
    LeaseTaken,
    /// A run begins in the checkpoints.
    RunBegun,
    /// A run ends there.
    RunFinished,
    /// A scan begins there.
    ScanBegun,
    /// How far a scan came is remembered.
    ScanAdvanced,
    /// A scan is forgotten.
    ScanForgotten,
    /// A scan's window becomes coverage: the checkpoint.
    Checkpointed,
    /// The coverage is rebuilt from the ledgers.
    CoverageRebuilt,
    /// A warehouse is remembered.
    DestinationRemembered,
    /// A behaviour of the service is remembered.
    BehaviourRemembered,
    /// Answers about people are remembered.
    PersonLookupsRecorded,
    /// Intents to send users, and what came of them, are remembered.
    PushesRecorded,
    /// Deliveries of webhooks, which every warehouse has, leave the inbox.
    DeliveriesRemoved,
}

type Hook = dyn Fn(DurableStep) -> bool + Send + Sync;

struct Watched {
    stops_before: Box<Hook>,
    is_stopped: AtomicBool,
}

/// The failpoints of a run. Cheap to clone; clones share one hook.
#[derive(Clone, Default)]
pub struct Failpoints(Option<Arc<Watched>>);

impl Failpoints {
    /// Calls the hook before each durable step. Once it returns true, this step and every later one fails.
    pub fn with_hook(stops_before: impl Fn(DurableStep) -> bool + Send + Sync + 'static) -> Failpoints {
        let watched = Watched { stops_before: Box::new(stops_before), is_stopped: AtomicBool::new(false) };
        Failpoints(Some(Arc::new(watched)))
    }

    /// Must be called before each durable step. After an error the caller must not take the step.
    pub fn hit(&self, step: DurableStep) -> io::Result<()> {
        let Some(watched) = &self.0 else { return Ok(()) };
        if !watched.is_stopped.load(Ordering::SeqCst) && !(watched.stops_before)(step) {
            return Ok(());
        }
        watched.is_stopped.store(true, Ordering::SeqCst);
        Err(io::Error::other(format!("stopped before {step:?}")))
    }
}

impl fmt::Debug for Failpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Failpoints(watched)" } else { "Failpoints" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn once_stopped_every_later_step_is_refused() {
        let failpoints = Failpoints::with_hook(|step| step == DurableStep::SpoolSynced);
        assert!(failpoints.hit(DurableStep::PageSpooled).is_ok());
        assert!(failpoints.hit(DurableStep::SpoolSynced).is_err());
        assert!(failpoints.clone().hit(DurableStep::PageSpooled).is_err());
        assert!(Failpoints::default().hit(DurableStep::SpoolSynced).is_ok());
    }
}
