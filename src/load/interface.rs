//! The types of the values that a [`super::Warehouse`] takes and returns, apart from Arrow rows.

use std::collections::HashMap;

use arrow::{error::ArrowError, record_batch::RecordBatch};

use crate::model::{FlatEvents, Proof, Scan, ScanId, Stream, Window};

/// Webhook events to add to a warehouse, converted to rows.
#[derive(Clone, Debug)]
pub struct EventRows {
    /// The rows, without the columns that the warehouse fills from `run_id` and `applied_ms`.
    pub flat: FlatEvents,
    /// The run that adds the rows.
    pub run_id: crate::model::RunId,
    /// When the rows are added, by this machine's clock, in epoch milliseconds.
    pub applied_ms: i64,
}

/// A callback with which a full replay parses the bodies of stored webhook events again. The callback returns the
/// events in the order of the rows.
pub type ParseAgain<'a> = dyn Fn(&RecordBatch) -> Result<FlatEvents, ArrowError> + 'a;

/// The range of a stream that a replay replaces.
#[derive(Clone, Debug)]
pub struct Replacement {
    /// The stream whose rows are replaced. The stream must have windows.
    pub stream: Stream,
    /// Range of creation times of the replaced rows.
    pub window: Window,
    /// All scans whose window is in the range. The replay also replaces the rows of these scans in the ledger and in
    /// `rejects`.
    pub scans: Vec<ScanId>,
}

/// A row of the ledger (`sync_windows`): one applied scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerEntry {
    /// The scan as it was applied.
    pub scan: Scan,
    /// Number of records that the scan returned.
    pub rows_read: u64,
    /// Number of missing rows that were withheld, because the vanish policy did not believe that they vanished. If the
    /// number is not 0, the window needs a recheck.
    pub withheld: u64,
    /// How the scan proved its window complete.
    pub proof: Proof,
}

/// Options for applying a scan.
#[derive(Clone, Debug, Default)]
pub struct CommitOptions {
    /// Policy for rows that the scan did not return.
    pub vanish: VanishPolicy,
    /// True if the ledger also gets a row when no row changed, as for the first proof of a window. If false, a re-scan
    /// without changes writes nothing.
    pub record_unchanged: bool,
    /// How the scan proved its window complete.
    pub proof: Proof,
}

/// What [`super::Warehouse::commit`] found when it compared keys over all windows.
#[derive(Clone, Debug, Default)]
pub struct CommitFindings {
    /// The counts of the scans whose counts changed, because rows that they added have the key of another row.
    pub corrected: HashMap<ScanId, RowCounts>,
    /// Windows to scan again: the current record of a key has vanished, and another record with the key is there.
    pub rechecks: Vec<Window>,
}

/// Policy for rows that a complete scan did not return (promise P4).
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VanishPolicy {
    /// Marks missing rows as vanished, with a guard against mass deletion. All missing rows are withheld if they exceed
    /// both limits. All missing rows are also withheld if a record of the scan was not JSON. After a scan without
    /// records, another limit replaces these two: more missing rows than the answers of one session are withheld.
    Guarded {
        /// Largest share of the stored rows of the window that may vanish, 0 to 1.
        share_max: f64,
        /// Largest number of rows that may vanish.
        rows_max: u64,
    },
    /// Marks all missing rows as vanished, because the user asked for it.
    Accept,
    /// Neither marks nor withholds missing rows, because the scan does not return all rows of its window.
    Ignore,
}

impl Default for VanishPolicy {
    fn default() -> Self {
        VanishPolicy::Guarded { share_max: 0.05, rows_max: 20 }
    }
}

/// Result of [`super::Warehouse::apply`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Counts of rows by kind of change.
    pub counts: RowCounts,
    /// True if the warehouse changed.
    pub wrote: bool,
    /// True if the ledger had the scan before this call. `counts` are those of the first application.
    pub already_applied: bool,
}

/// Defines [`RowCounts`] from the names of its counts.
macro_rules! row_counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts of the scan's rows by kind of change: the columns of the same names in `sync_windows`.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        pub struct RowCounts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl RowCounts {
            /// Reads each count by its name. Returns the first error of `count`.
            pub fn read<E>(count: impl Fn(&str) -> Result<u64, E>) -> Result<Self, E> {
                Ok(Self { $($name: count(stringify!($name))?,)* })
            }

            /// Returns the count with this name; `None` for an unknown name.
            pub fn named(&self, name: &str) -> Option<u64> {
                let counts = [$((stringify!($name), self.$name)),*];
                counts.into_iter().find(|(known, _)| *known == name).map(|(_, count)| count)
            }
        }

        impl std::ops::AddAssign for RowCounts {
            fn add_assign(&mut self, other: Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

row_counts! {
    /// Records in the pages.
    rows_read,
    /// New rows.
    inserted,
    /// Rows that were replaced: the content changed (also by a soft deletion), the row returned after it had vanished,
    /// another record with its key became current, or further rows with its key were removed.
    updated,
    /// Rows that only got columns that no earlier scan had requested, after a setting changed. The service changed
    /// nothing.
    filled_in,
    /// Rows without a change.
    unchanged,
    /// Rows that got a `deletedAt`.
    soft_deleted,
    /// Rows that are marked as vanished.
    vanished,
    /// Rows that seem to have vanished and are not marked: they are too many to believe, or a record that is no JSON
    /// may be one of them.
    withheld,
    /// New rows in `rejects`.
    rejected,
    /// New rows in `response_history` with the reason `collision`, or in `rejects` with `key_collision`.
    collisions,
    /// Records whose creation time lies outside of the window.
    outside_window,
}

impl RowCounts {
    /// Returns the counts of the data of one scan that several warehouses applied: every record counts once. A record
    /// that is changed in one warehouse and new in another, which was added later, is changed. A reject or collision
    /// that one warehouse knew is known. `withheld` is the largest of all: a person must look at rows that any
    /// warehouse withheld.
    pub fn of_warehouses(all: &[RowCounts]) -> RowCounts {
        let most = |count: fn(&RowCounts) -> u64| all.iter().map(count).max().unwrap_or_default();
        let least = |count: fn(&RowCounts) -> u64| all.iter().map(count).min().unwrap_or_default();
        let current = most(|counts| counts.inserted + counts.updated + counts.filled_in + counts.unchanged);
        let updated = most(|counts| counts.updated);
        let filled_in = most(|counts| counts.filled_in).min(current - updated);
        let inserted = most(|counts| counts.inserted).min(current - updated - filled_in);
        RowCounts {
            rows_read: most(|counts| counts.rows_read),
            inserted,
            updated,
            filled_in,
            unchanged: current - updated - filled_in - inserted,
            soft_deleted: most(|counts| counts.soft_deleted),
            vanished: most(|counts| counts.vanished),
            withheld: most(|counts| counts.withheld),
            rejected: least(|counts| counts.rejected),
            collisions: least(|counts| counts.collisions),
            outside_window: most(|counts| counts.outside_window),
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
    /// When the run began, by this machine's clock, in epoch milliseconds.
    pub started_ms: i64,
    /// When the run ended, by this machine's clock, in epoch milliseconds.
    pub finished_ms: i64,
    pub base_url: String,
    pub environment: String,
    /// Version of the program that ran.
    pub program_version: String,
    /// The report of the run, as JSON text.
    pub report: String,
}

/// The service and environment that a warehouse belongs to (promise P10). A warehouse stores its identity. A warehouse
/// with rows of a service refuses to be opened with another identity.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Identity {
    pub base_url: String,
    pub environment: String,
}
