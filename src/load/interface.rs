//! What goes into a warehouse and comes out of it, beside rows of Arrow.

use arrow::{error::ArrowError, record_batch::RecordBatch};

use crate::model::{FlatEvents, Proof, Scan, ScanId, Stream, Window};

/// Deliveries of webhooks, flattened.
#[derive(Clone, Debug)]
pub struct EventRows {
    /// Without the columns that are filled here.
    pub flat: FlatEvents,
    /// The run that adds them.
    pub run_id: crate::model::RunId,
    /// When, by this machine, epoch milliseconds.
    pub applied_ms: i64,
}

/// Makes rows of events anew from the bodies in stored ones, in their order.
pub type ReadAgain<'a> = dyn Fn(&RecordBatch) -> Result<FlatEvents, ArrowError> + 'a;

/// The stretch of a stream that a replay puts in.
#[derive(Clone, Debug)]
pub struct Replacement {
    /// One with windows.
    pub stream: Stream,
    /// The creation time.
    pub window: Window,
    /// Every scan whose window is in the stretch: their rows of the ledger and of `rejects` are replaced with it.
    pub scans: Vec<ScanId>,
}

/// One applied scan of the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerEntry {
    /// The scan as it was applied.
    pub scan: Scan,
    /// The records it returned.
    pub rows_read: u64,
    /// Rows that seemed to have vanished, and were not believed: the scan left a doubt.
    pub withheld: u64,
    /// How it proved its window complete.
    pub proof: Proof,
}

/// How to apply a scan.
#[derive(Clone, Debug, Default)]
pub struct CommitOptions {
    /// What to do about rows that the scan no longer found.
    pub vanish: VanishPolicy,
    /// Whether the ledger gets a row even if the scan changes nothing: yes for a window that was never proven complete
    /// before, no for a re-scan, which then writes nothing at all.
    pub record_unchanged: bool,
    /// How the scan proved its window complete: for the ledger.
    pub proof: Proof,
}

/// What to do about rows that a complete scan no longer found (promise P4).
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VanishPolicy {
    /// Mark them as vanished, unless more than `rows_max` and more than `share_max` of the window's rows would go, or
    /// the scan found nothing at all and more than a sitting's answers would:
    /// then none is marked and they are counted as withheld.
    Guarded {
        /// Share of the rows that the warehouse holds in the window, 0 to 1.
        share_max: f64,
        /// Rows.
        rows_max: u64,
    },
    /// Mark them all: the user said so.
    Accept,
    /// Mark none, and withhold none: the scan does not show all rows of its window,
    /// so that a row that is not there may be at the service.
    Ignore,
}

impl Default for VanishPolicy {
    fn default() -> Self {
        VanishPolicy::Guarded { share_max: 0.05, rows_max: 20 }
    }
}

/// What applying a scan did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Counts by fate.
    pub counts: RowCounts,
    /// Whether the warehouse changed at all.
    pub wrote: bool,
    /// Whether the ledger held the scan already; the counts are then those of the first time.
    pub was_held: bool,
}

/// Rows of the scan's base table by fate; the columns of the same names in `sync_windows`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct RowCounts {
    /// Records of the pages.
    pub rows_read: u64,
    /// Rows that are new in a warehouse.
    pub inserted: u64,
    /// Rows whose content changed, soft deletions among them.
    pub updated: u64,
    /// Rows that are as they were.
    pub unchanged: u64,
    /// Rows that got a `deletedAt`.
    pub soft_deleted: u64,
    /// Rows that the service no longer returns.
    pub vanished: u64,
    /// Rows that the service no longer returns, too many to be believed; they stay.
    pub withheld: u64,
    /// Records that are new in `rejects`.
    pub rejected: u64,
    /// Records that are new in `response_history` with the reason `collision`, or in `rejects` with `key_collision`.
    pub collisions: u64,
    /// Records that the service returned although their creation time lies outside of the window.
    pub outside_window: u64,
}

impl RowCounts {
    /// The greater of each count: what the warehouses that applied one scan have to say together.
    #[must_use]
    pub fn max(&self, other: &RowCounts) -> RowCounts {
        RowCounts {
            rows_read: self.rows_read.max(other.rows_read),
            inserted: self.inserted.max(other.inserted),
            updated: self.updated.max(other.updated),
            unchanged: self.unchanged.max(other.unchanged),
            soft_deleted: self.soft_deleted.max(other.soft_deleted),
            vanished: self.vanished.max(other.vanished),
            withheld: self.withheld.max(other.withheld),
            rejected: self.rejected.max(other.rejected),
            collisions: self.collisions.max(other.collisions),
            outside_window: self.outside_window.max(other.outside_window),
        }
    }
}

/// A row of `sync_runs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRecord {
    pub run_id: crate::model::RunId,
    pub command: String,
    pub outcome: String,
    pub exit_code: i64,
    /// Epoch milliseconds by this machine.
    pub started_ms: i64,
    /// Epoch milliseconds by this machine.
    pub finished_ms: i64,
    pub base_url: String,
    pub environment: String,
    /// Of this program, that ran it.
    pub program_version: String,
    /// The run's JSON.
    pub report: String,
}

/// Which service and environment a warehouse belongs to (promise P10). A warehouse remembers what it was first opened
/// with and refuses anything else.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Identity {
    pub base_url: String,
    pub environment: String,
}
