//! What a warehouse must be able to do, in the order in which `pipeline` asks for it.

use std::path::Path;

use crate::{
    model::{Digest, FlatPage, Identifier, Proof, Scan, ScanId, Stream, Window},
    person::Finder,
};

use super::{Differences, ErasureRecord, Facts, LoadError, Mention, PeopleFound, Searched};

/// One warehouse. Everything it does to data is a scan applied, all or nothing, and applying a scan again changes nothing.
///
/// `begin`, `stage` for each page in order, then `commit`; or `apply`, and after some scans `seal`, which is one transaction for all
/// of them. A failure of any of these leaves the warehouse as it was when it was last sealed; the caller may `begin` again. Every other
/// method seals first. One thread uses it at a time.
pub trait Destination: Send {
    /// "duckdb" or "parquet": for people, and the key under which `state` remembers it.
    fn name(&self) -> &'static str;

    /// Where it is, for people.
    fn location(&self) -> String;

    /// Whether the ledger holds the scan.
    fn holds(&mut self, scan: &ScanId) -> Result<bool, LoadError>;

    /// Every scan that the ledger holds, in no particular order.
    fn ledger(&mut self) -> Result<Vec<LedgerEntry>, LoadError>;

    /// Makes ready for the pages of a scan, and forgets any that were staged before.
    fn begin(&mut self, scan: &Scan) -> Result<(), LoadError>;

    /// Takes one page of the scan. Memory stays bounded however many there are.
    fn stage(&mut self, page: &FlatPage) -> Result<(), LoadError>;

    /// Takes all pages of the scan that was begun at once, of which no more is known than what their records come to, if the warehouse
    /// holds just them; whether it does. If not, nothing was taken, and the pages are to be staged. `repeated` records came beside those,
    /// and were among them.
    fn stage_if_held(&mut self, digest: Digest, repeated: u64) -> Result<bool, LoadError>;

    /// Applies what was staged, in one transaction with the ledger row. A scan that the ledger already holds changes nothing.
    fn commit(&mut self, scan: &Scan, options: &CommitOptions) -> Result<Applied, LoadError> {
        let applied = self.apply(scan, options)?;
        self.seal()?;
        Ok(applied)
    }

    /// Does what `commit` does, but for the end of the transaction, which may wait for [`Destination::seal`]: until then nobody may
    /// believe that the scan is in the warehouse.
    fn apply(&mut self, scan: &Scan, options: &CommitOptions) -> Result<Applied, LoadError>;

    /// Makes durable what was applied. Cheap when there is nothing to do.
    ///
    /// # Errors
    /// Also when something was applied and is lost, because of an error that was told since: no scan that was applied and not
    /// sealed is in the warehouse then.
    fn seal(&mut self) -> Result<(), LoadError> {
        Ok(())
    }

    /// Says how the warehouse differs from what was staged, which is all that the service has of the window, and names at most
    /// `keys_max` rows of each kind of difference. Changes nothing.
    fn compare(&mut self, scan: &Scan, keys_max: usize) -> Result<Differences, LoadError>;

    /// Makes what was committed visible to readers of files (Parquet), or compact (DuckDB). Cheap when there is nothing to do.
    fn publish(&mut self) -> Result<(), LoadError>;

    /// Lets other processes at the warehouse until the next commit, if it is one that keeps them out.
    fn rest(&mut self) -> Result<(), LoadError> {
        Ok(())
    }

    /// The run is over, its row is in `sync_runs`: leaves what others are to find. Cheap when nothing changed since.
    fn finish(&mut self) -> Result<(), LoadError> {
        Ok(())
    }

    /// The warehouse is empty and built beside another one: a kill throws it away, so nothing of it has to survive one before it is
    /// published and closed.
    fn build_anew(&mut self) -> Result<(), LoadError> {
        Ok(())
    }

    /// Whether commits wait for [`Destination::publish`] in such an amount that it is better done now than at the end.
    fn wants_publish(&self) -> bool {
        false
    }

    /// Adds a row to `sync_runs`, in the place of an earlier one of the same run.
    fn record_run(&mut self, run: &RunRecord) -> Result<(), LoadError> {
        self.record_runs(std::slice::from_ref(run))
    }

    /// Adds rows to `sync_runs`, in one transaction.
    fn record_runs(&mut self, runs: &[RunRecord]) -> Result<(), LoadError>;

    /// The rows of `sync_runs`, in no particular order.
    fn runs(&mut self) -> Result<Vec<RunRecord>, LoadError>;

    /// Adds what webhooks told, and the changes of status in it, in one transaction. An event that the warehouse holds is left out:
    /// the same deliveries can be applied again. Returns the events added.
    fn add_events(&mut self, events: &EventRows) -> Result<u64, LoadError>;

    /// Writes every event to a Parquet file, which is made; returns how many.
    fn carry_events_out(&mut self, file: &Path) -> Result<u64, LoadError>;

    /// Adds the events of such a file to a warehouse that has none.
    fn carry_events_in(&mut self, file: &Path) -> Result<(), LoadError>;

    /// Puts the rows of `source`, a DuckDB file that a replay built and nobody has open, in the place of those held of a stretch.
    /// One transaction. Returns the rows put in.
    fn replace(&mut self, source: &Path, what: &Replacement) -> Result<u64, LoadError>;

    /// Which identifiers stand together with these in rows. Changes nothing.
    fn facts(&mut self, wanted: &[Identifier]) -> Result<Facts, LoadError>;

    /// Sessions of which every row had vanished at the service before this moment (epoch milliseconds), at most so many.
    fn vanished_sessions(&mut self, before_ms: i64, sessions_max: usize) -> Result<Vec<Identifier>, LoadError>;

    /// Of these sessions, those of which some row has not vanished.
    fn live_sessions(&mut self, sessions: &[Identifier]) -> Result<Vec<Identifier>, LoadError>;

    /// The rows that carry one of these identifiers, and what belongs to them. Changes nothing.
    fn find_people(&mut self, person: &[Identifier]) -> Result<PeopleFound, LoadError>;

    /// Takes those rows out, so that no byte of them is left in any file of the warehouse. Does so also where none is held any
    /// more: an earlier try may have been cut short between the rows and the bytes.
    fn erase_people(&mut self, person: &[Identifier]) -> Result<PeopleFound, LoadError>;

    /// An error that names what somebody else keeps in the warehouse if rows could not be taken out because of it. Changes nothing.
    fn require_erasable(&mut self) -> Result<(), LoadError> {
        Ok(())
    }

    /// Makes a warehouse at `fresh` with all that others keep in this one, as far as it has no rows: for a replay, which fills it. An
    /// error names what could not come along. A warehouse that holds nothing of others makes none.
    fn clone_objects(&mut self, _fresh: &Path) -> Result<(), LoadError> {
        Ok(())
    }

    /// Brings the rows of others from the warehouse at `left`, of which this one is such a clone, and what was left out until all rows
    /// are there.
    fn import_objects(&mut self, _left: &Path) -> Result<(), LoadError> {
        Ok(())
    }

    /// Looks for identifiers in every text that the warehouse holds. Changes nothing.
    fn search(&mut self, finder: &Finder) -> Result<Searched, LoadError>;

    /// Replaces the identifiers in the columns that mention them, in the tables that tell of the program itself or in all, and
    /// returns the rows that changed. As for [`Destination::erase_people`], no byte of the old texts is left.
    fn redact(&mut self, finder: &Finder, mentions: &[Mention], only_own: bool) -> Result<u64, LoadError>;

    /// Adds rows to `erasures`, in the place of earlier ones of the same erasures.
    fn record_erasures(&mut self, records: &[ErasureRecord]) -> Result<(), LoadError>;

    /// The rows of `erasures`, in no particular order.
    fn erasures(&mut self) -> Result<Vec<ErasureRecord>, LoadError>;
}

/// Deliveries of webhooks, flattened.
#[derive(Clone, Debug)]
pub struct EventRows {
    /// Rows of `webhook_events`, without the columns that are filled here.
    pub rows: arrow::record_batch::RecordBatch,
    /// The run that adds them.
    pub run_id: crate::model::RunId,
    /// When, by this machine, epoch milliseconds.
    pub applied_ms: i64,
}

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
    /// Whether the ledger gets a row even if the scan changes nothing: yes for a window that was never proven complete before,
    /// no for a re-scan, which then writes nothing at all.
    pub record_unchanged: bool,
    /// How the scan proved its window complete: for the ledger.
    pub proof: Proof,
    /// Windows of which scans are expected, as far as they are known, or what is left of a plan and not cut into windows yet. Nothing but
    /// time depends on them.
    pub coming: Vec<(Stream, Window)>,
}

/// What to do about rows that a complete scan no longer found (promise P4).
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VanishPolicy {
    /// Mark them as vanished, unless more than `rows_max` and more than `share_max` of the window's rows would go, or the scan
    /// found nothing at all and more than a sitting's answers would: then none is marked and they are counted as withheld.
    Guarded {
        /// Share of the rows that the warehouse holds in the window, 0 to 1.
        share_max: f64,
        /// Rows.
        rows_max: u64,
    },
    /// Mark them all: the user said so.
    Accept,
    /// Mark none, and withhold none: the scan does not show all rows of its window, so that a row that is not there may be at the
    /// service.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RowCounts {
    pub rows_read: u64,
    pub inserted: u64,
    pub updated: u64,
    pub unchanged: u64,
    pub soft_deleted: u64,
    pub vanished: u64,
    pub withheld: u64,
    /// New in `rejects`.
    pub rejected: u64,
    /// New in `response_history` with the reason `collision`, or in `rejects` with `key_collision`.
    pub collisions: u64,
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

/// Which service and environment a warehouse belongs to (promise P10). A warehouse remembers what it was first opened with and
/// refuses anything else.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Identity {
    pub base_url: String,
    pub environment: String,
}
