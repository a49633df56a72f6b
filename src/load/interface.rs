//! The values that go into a warehouse and come out of it, apart from Arrow rows.

use arrow::{error::ArrowError, record_batch::RecordBatch};

use crate::model::{FlatEvents, Proof, Scan, ScanId, Stream, Window};

/// Flattened webhook deliveries.
#[derive(Clone, Debug)]
pub struct EventRows {
    /// Rows without the columns that the warehouse fills.
    pub flat: FlatEvents,
    /// The run that adds the rows.
    pub run_id: crate::model::RunId,
    /// Time of this machine, in epoch milliseconds.
    pub applied_ms: i64,
}

/// Parses the bodies of stored events again, in their order.
pub type ReadAgain<'a> = dyn Fn(&RecordBatch) -> Result<FlatEvents, ArrowError> + 'a;

/// The range of a stream that a replay replaces.
#[derive(Clone, Debug)]
pub struct Replacement {
    /// A stream that has windows.
    pub stream: Stream,
    /// Range of the creation time.
    pub window: Window,
    /// Every scan whose window is in the range. Their rows in the ledger and in `rejects` are replaced too.
    pub scans: Vec<ScanId>,
}

/// A row of the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerEntry {
    /// The scan as it was applied.
    pub scan: Scan,
    /// Records that the scan returned.
    pub rows_read: u64,
    /// Rows that seemed to have vanished and were withheld: the window needs a recheck.
    pub withheld: u64,
    /// How the scan proved its window complete.
    pub proof: Proof,
}

/// How to apply a scan.
#[derive(Clone, Debug, Default)]
pub struct CommitOptions {
    /// Policy for rows that the scan did not return.
    pub vanish: VanishPolicy,
    /// True if a scan without changes gets a row in the ledger: true for the first proof of a window, false for a
    /// re-scan, which then writes nothing.
    pub record_unchanged: bool,
    /// How the scan proved its window complete.
    pub proof: Proof,
}

/// Policy for rows that a complete scan did not return (promise P4).
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VanishPolicy {
    /// Marks missing rows as vanished, with a guard against mass deletion. The guard withholds all of them if they
    /// exceed `rows_max` and `share_max`, or if the scan returned nothing and they exceed one session's answers.
    Guarded {
        /// Share of the stored rows of the window, 0 to 1.
        share_max: f64,
        /// Number of rows.
        rows_max: u64,
    },
    /// Marks all missing rows as vanished: the user asked for it.
    Accept,
    /// Marks and withholds nothing: the scan does not return all rows of its window.
    Ignore,
}

impl Default for VanishPolicy {
    fn default() -> Self {
        VanishPolicy::Guarded { share_max: 0.05, rows_max: 20 }
    }
}

/// Result of applying a scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Counts of rows by kind of change.
    pub counts: RowCounts,
    /// True if the warehouse changed.
    pub wrote: bool,
    /// True if the ledger listed the scan before; the counts are then those of its first application.
    pub already_applied: bool,
}

/// Counts of the scan's rows by kind of change: the columns of the same names in `sync_windows`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct RowCounts {
    /// Records in the pages.
    pub rows_read: u64,
    /// New rows.
    pub inserted: u64,
    /// Rows whose content changed, soft deletions among them.
    pub updated: u64,
    /// Rows without a change.
    pub unchanged: u64,
    /// Rows that got a `deletedAt`.
    pub soft_deleted: u64,
    /// Rows that are marked as vanished.
    pub vanished: u64,
    /// Rows that seem to have vanished and are too many to believe; they stay.
    pub withheld: u64,
    /// New rows in `rejects`.
    pub rejected: u64,
    /// New rows in `response_history` with the reason `collision`, or in `rejects` with `key_collision`.
    pub collisions: u64,
    /// Records whose creation time lies outside of the window.
    pub outside_window: u64,
}

impl RowCounts {
    /// The maximum of each count: one result for the warehouses that applied the same scan.
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
    /// Time of this machine, in epoch milliseconds.
    pub started_ms: i64,
    /// Time of this machine, in epoch milliseconds.
    pub finished_ms: i64,
    pub base_url: String,
    pub environment: String,
    /// Version of the program that ran.
    pub program_version: String,
    /// The run's JSON.
    pub report: String,
}

/// The service and environment of a warehouse (promise P10). A warehouse stores the identity that it was created with
/// and refuses any other.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Identity {
    pub base_url: String,
    pub environment: String,
}
