//! The coverage: disjoint intervals of creation time that are proven complete, for each scope, with the scans that
//! read them last.

use rusqlite::{Connection, Transaction, params};

use crate::model::{
    CoverageInterval, DurableStep, EndStyles, FlagSet, NEEDS_RECHECK_MS, Proof, Scan, ScanId, Scope, Window,
};

use super::{
    LastRead, State, StateError, StoredInterval, loaded_survey, proofs::record_proof, scans::insert_interval,
    stored_count, stored_survey,
};

/// A completed scan that becomes coverage. Every warehouse has committed the scan, except for the scans
/// `in_some_ledgers` of [`State::rebuild_coverage`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanCheckpoint {
    pub scan: Scan,
    /// When the scan began, or [`NEEDS_RECHECK_MS`] if its window needs a recheck.
    pub scanned_ms: i64,
    /// Number of records that the service returned.
    pub rows: u64,
    pub proof: Proof,
}

impl ScanCheckpoint {
    /// Returns the scan's window as a coverage interval that this scan read last.
    fn interval(&self) -> StoredInterval {
        let ScanCheckpoint { scan, scanned_ms, rows, proof } = self;
        StoredInterval {
            interval: CoverageInterval { window: scan.window, flags: scan.flags, scanned_ms: *scanned_ms, rows: *rows },
            read: LastRead {
                read_ms: scan.started_ms,
                scan_id: Some(scan.id.clone()),
                scans: 1,
                pages: proof.pages,
                ends: proof.end.into_iter().collect(),
            },
        }
    }
}

impl State {
    /// Returns the coverage of a scope, in order of time.
    pub fn coverage(&self, scope: Scope) -> Result<Vec<CoverageInterval>, StateError> {
        Ok(self.intervals(scope)?.into_iter().map(|stored| stored.interval).collect())
    }

    /// Returns the coverage of a scope with the scans that read it last, in order of time.
    pub fn intervals(&self, scope: Scope) -> Result<Vec<StoredInterval>, StateError> {
        load_intervals(&self.database.connection, scope, Window::new(i64::MIN, i64::MAX))
            .map_err(self.database.failed("read"))
    }

    /// Returns every scope that has coverage.
    pub fn covered_scopes(&self) -> Result<Vec<Scope>, StateError> {
        let sql = "SELECT DISTINCT stream, survey_id FROM coverage ORDER BY stream, survey_id";
        let rows = self.database.query_all(sql, [], |row| Ok((row.get::<_, String>(0)?, row.get(1)?)))?;
        rows.into_iter()
            .map(|(stream, survey)| Ok(Scope { stream: self.parse_stream(&stream)?, survey_id: loaded_survey(survey) }))
            .collect()
    }

    /// Returns every scope of one survey that has coverage or an unfinished scan.
    pub fn survey_scopes(&self) -> Result<Vec<Scope>, StateError> {
        let mut scopes = self.covered_scopes()?;
        scopes.extend(self.unfinished_scans()?.into_iter().map(|unfinished| unfinished.scan.scope));
        scopes.retain(|scope| scope.survey_id.is_some());
        scopes.sort_by_key(|scope| (scope.survey_id, scope.stream));
        scopes.dedup();
        Ok(scopes)
    }

    /// Deletes the checkpoints of one survey, unfinished scans included, in one transaction. The next run discards the
    /// spools of these scans.
    pub fn forget_survey(&mut self, id: i64) -> Result<(), StateError> {
        self.database.transact(|transaction| {
            for table in ["coverage", "proofs", "extents", "scans"] {
                transaction.execute(&format!("DELETE FROM {table} WHERE survey_id = ?1"), [stored_survey(Some(id))])?;
            }
            Ok(())
        })
    }

    /// Returns the earliest start that the coverage of a scope ever had, in epoch milliseconds, even if that time is no
    /// longer covered. Returns `None` if the scope never had coverage.
    pub fn extent_start_ms(&self, scope: Scope) -> Result<Option<i64>, StateError> {
        let sql = "SELECT start_ms FROM extents WHERE stream = ?1 AND survey_id = ?2";
        self.database.query_optional(sql, (scope.stream.name(), stored_survey(scope.survey_id)), |row| row.get(0))
    }

    /// Records in one transaction that a scan is complete and committed, and ends the scan. `warehouses` are the
    /// warehouses of the run by name, each with true if its ledger has the scan.
    pub fn checkpoint(&mut self, checkpoint: &ScanCheckpoint, warehouses: &[(&str, bool)]) -> Result<(), StateError> {
        self.checkpoint_all([(checkpoint, warehouses)])
    }

    /// Records all scans of a commit in one transaction, each as [`State::checkpoint`] does.
    pub fn checkpoint_all<'a>(
        &mut self,
        scans: impl IntoIterator<Item = (&'a ScanCheckpoint, &'a [(&'a str, bool)])>,
    ) -> Result<(), StateError> {
        self.hit(DurableStep::Checkpointed)?;
        self.database.transact(|transaction| {
            let number = next_checkpoint(transaction)?;
            let sql = "UPDATE destinations SET last_scan_id = coalesce(?2, last_scan_id), last_checkpoint = ?3 WHERE name = ?1";
            let (mut update, mut end) =
                (transaction.prepare_cached(sql)?, transaction.prepare_cached("DELETE FROM scans WHERE scan_id = ?1")?);
            for (checkpoint, warehouses) in scans {
                let scan = &checkpoint.scan;
                store_interval(transaction, scan.scope, checkpoint.interval())?;
                record_proof(transaction, scan)?;
                extend_extent(transaction, scan.scope, scan.window.start_ms)?;
                end.execute([&scan.id.0])?;
                for (name, is_in_ledger) in warehouses {
                    update.execute((name, is_in_ledger.then_some(&scan.id.0), number))?;
                }
            }
            Ok(())
        })
    }

    /// Marks the coverage inside a window, so that every run scans the window again until a scan is certain that no row
    /// is missing.
    pub fn mark_for_recheck(&mut self, scope: Scope, window: Window) -> Result<(), StateError> {
        self.database
            .transact(|transaction| edit_parts(transaction, scope, window, |part| part.scanned_ms = NEEDS_RECHECK_MS))
    }

    /// Replaces all coverage in one transaction, after the state file or a warehouse was lost, replaced or left out of
    /// a run.
    ///
    /// - `in_all_ledgers`: the scans that every warehouse has. These scans become the coverage.
    /// - `in_some_ledgers`: the scans that some warehouse lacks. These scans prove nothing, but a later one restricts
    ///   the coverage of an earlier one; see [`restrict_coverage`].
    /// - `extents`: the starts of the windows of all ledgers. Time after the earliest start without coverage is a gap.
    /// - `up_to_date`: the warehouses that have everything in the new coverage.
    pub fn rebuild_coverage(
        &mut self,
        in_all_ledgers: &[ScanCheckpoint],
        in_some_ledgers: &[ScanCheckpoint],
        extents: &[(Scope, i64)],
        up_to_date: &[&str],
    ) -> Result<(), StateError> {
        self.hit(DurableStep::CoverageRebuilt)?;
        let complete = in_all_ledgers.iter().map(|checkpoint| (checkpoint, true));
        let partial = in_some_ledgers.iter().map(|checkpoint| (checkpoint, false));
        let mut oldest_first: Vec<_> = complete.chain(partial).collect();
        oldest_first.sort_by(|(one, _), (other, _)| one.scan.order().cmp(&other.scan.order()));
        self.database.transact(|transaction| {
            // A warehouse that lacks scans may lack users, too. `people` is emptied, so that all users are requested
            // again.
            for table in ["coverage", "proofs", "people"] {
                transaction.execute(&format!("DELETE FROM {table}"), [])?;
            }
            for (checkpoint, is_complete) in oldest_first {
                if is_complete {
                    store_interval(transaction, checkpoint.scan.scope, checkpoint.interval())?;
                    record_proof(transaction, &checkpoint.scan)?;
                } else {
                    restrict_coverage(transaction, checkpoint)?;
                }
            }
            for (scope, start_ms) in extents {
                extend_extent(transaction, *scope, *start_ms)?;
            }
            let number = next_checkpoint(transaction)?;
            for name in up_to_date {
                transaction.execute("UPDATE destinations SET last_checkpoint = ?2 WHERE name = ?1", (name, number))?;
            }
            Ok(())
        })
    }
}

/// Increases the number of checkpoints by one, and returns the new number.
fn next_checkpoint(transaction: &Transaction<'_>) -> rusqlite::Result<i64> {
    let sql = "INSERT INTO meta (key, value) VALUES ('last_checkpoint', '1') \
               ON CONFLICT (key) DO UPDATE SET value = CAST(CAST(value AS INTEGER) + 1 AS TEXT) RETURNING CAST(value AS INTEGER)";
    transaction.query_row(sql, [], |row| row.get(0))
}

/// Moves the extent of a scope, the earliest start that its coverage ever had, to `start_ms`, unless the extent is
/// earlier already.
fn extend_extent(transaction: &Transaction<'_>, scope: Scope, start_ms: i64) -> rusqlite::Result<()> {
    let sql = "INSERT INTO extents (stream, survey_id, start_ms) VALUES (?1, ?2, ?3) \
               ON CONFLICT (stream, survey_id) DO UPDATE SET start_ms = min(start_ms, excluded.start_ms)";
    transaction.execute(sql, (scope.stream.name(), stored_survey(scope.survey_id), start_ms)).map(drop)
}

/// Restricts the coverage inside the window of a scan that only some warehouses have.
///
/// In those warehouses, the scan marked rows that it did not request as vanished: without `with_deleted_responses`, the
/// deleted answers. So the coverage keeps only the flags that the scan also has. If the scan needs a recheck, so does
/// the coverage.
fn restrict_coverage(transaction: &Transaction<'_>, checkpoint: &ScanCheckpoint) -> rusqlite::Result<()> {
    let ScanCheckpoint { scan, scanned_ms, .. } = checkpoint;
    edit_parts(transaction, scan.scope, scan.window, |part| {
        part.flags = part.flags.intersection(scan.flags);
        part.scanned_ms = part.scanned_ms.min(*scanned_ms);
    })
}

/// Applies `edit` to the coverage inside a window. An interval that crosses a border of the window is split; its part
/// outside stays unchanged.
fn edit_parts(
    transaction: &Transaction<'_>,
    scope: Scope,
    window: Window,
    edit: impl Fn(&mut CoverageInterval),
) -> rusqlite::Result<()> {
    for stored in load_intervals(transaction, scope, window)? {
        if let Some(mut part) = stored.part(window) {
            edit(&mut part.interval);
            store_interval(transaction, scope, part)?;
        }
    }
    Ok(())
}

/// Replaces the coverage inside the interval `new` by this interval, and merges it with adjacent intervals if possible.
/// An empty interval changes nothing.
fn store_interval(transaction: &Transaction<'_>, scope: Scope, new: StoredInterval) -> rusqlite::Result<()> {
    let Window { start_ms, end_ms } = new.interval.window;
    if new.interval.window.is_empty() {
        return Ok(());
    }
    // Only intervals that overlap or touch the new one can change.
    let touched = Window::new(start_ms.saturating_sub(1), end_ms.saturating_add(1));
    let stored = load_intervals(transaction, scope, touched)?;
    let (stream, survey) = (scope.stream.name(), stored_survey(scope.survey_id));
    for StoredInterval { interval, .. } in &stored {
        let sql = "DELETE FROM coverage WHERE stream = ?1 AND survey_id = ?2 AND start_ms = ?3";
        transaction.prepare_cached(sql)?.execute((stream, survey, interval.window.start_ms))?;
    }
    for StoredInterval { interval, read } in insert_interval(&stored, new) {
        let sql = "INSERT INTO coverage (stream, survey_id, start_ms, end_ms, flags, scanned_ms, rows_held, read_ms, scan_id, \
                   scans, pages, ends) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
        let CoverageInterval { window, flags, scanned_ms, rows } = interval;
        let row = params![
            stream,
            survey,
            window.start_ms,
            window.end_ms,
            flags.bits(),
            scanned_ms,
            stored_count(rows),
            read.read_ms,
            read.scan_id.map(|id| id.0),
            stored_count(read.scans),
            stored_count(read.pages),
            read.ends.bits(),
        ];
        transaction.prepare_cached(sql)?.execute(row)?;
    }
    Ok(())
}

/// Returns the intervals that overlap a window, in order of time.
fn load_intervals(connection: &Connection, scope: Scope, window: Window) -> rusqlite::Result<Vec<StoredInterval>> {
    let sql = "SELECT start_ms, end_ms, flags, scanned_ms, rows_held, read_ms, scan_id, scans, pages, ends FROM coverage \
               WHERE stream = ?1 AND survey_id = ?2 AND end_ms > ?3 AND start_ms < ?4 ORDER BY start_ms";
    let mut statement = connection.prepare_cached(sql)?;
    let (stream, survey) = (scope.stream.name(), stored_survey(scope.survey_id));
    let rows = statement.query_map((stream, survey, window.start_ms, window.end_ms), |row| {
        let count = |index| row.get::<_, i64>(index).map(i64::unsigned_abs);
        Ok(StoredInterval {
            interval: CoverageInterval {
                window: Window::new(row.get(0)?, row.get(1)?),
                flags: FlagSet::from_bits(row.get(2)?),
                scanned_ms: row.get(3)?,
                rows: count(4)?,
            },
            read: LastRead {
                read_ms: row.get(5)?,
                scan_id: row.get::<_, Option<String>>(6)?.map(ScanId),
                scans: count(7)?,
                pages: count(8)?,
                ends: EndStyles::from_bits(row.get(9)?),
            },
        })
    })?;
    rows.collect()
}
