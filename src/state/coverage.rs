//! What was proven complete: disjoint intervals of creation time for each scope,
//! with when and how they were last scanned.

use rusqlite::{Connection, OptionalExtension, Transaction, params};

use crate::model::{
    CoverageInterval, DurableStep, EndStyles, FlagSet, NEEDS_RECHECK_MS, Proof, Scan, ScanId, Scope, Stream, Window,
};

use super::{
    LastRead, State, StateError, StoredInterval, loaded_survey, proofs::prove, stored_interval::insert_interval,
    stored_survey,
};

/// A complete scan, as the checkpoints take it in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Covered {
    pub scan: Scan,
    /// When it counts as looked at: when it began, or [`crate::model::NEEDS_RECHECK_MS`].
    pub scanned_ms: i64,
    /// The records that it returned.
    pub rows: u64,
    pub proof: Proof,
}

impl Covered {
    fn stored(&self) -> StoredInterval {
        let Covered { scan, scanned_ms, rows, proof } = self;
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
    /// The intervals of a scope, in order.
    pub fn coverage(&self, scope: Scope) -> Result<Vec<CoverageInterval>, StateError> {
        Ok(self.intervals(scope)?.into_iter().map(|stored| stored.interval).collect())
    }

    /// The intervals of a scope with how they were last read, in order.
    pub fn intervals(&self, scope: Scope) -> Result<Vec<StoredInterval>, StateError> {
        load(&self.connection, scope, Window::new(i64::MIN, i64::MAX)).map_err(self.failed("read"))
    }

    /// Every scope that has coverage.
    pub fn covered_scopes(&self) -> Result<Vec<Scope>, StateError> {
        let sql = "SELECT DISTINCT stream, survey_id FROM coverage ORDER BY stream, survey_id";
        let mut statement = self.connection.prepare(sql).map_err(self.failed("read"))?;
        let rows = statement
            .query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?)))
            .and_then(|rows| rows.collect::<Result<Vec<_>, _>>())
            .map_err(self.failed("read"))?;
        rows.into_iter()
            .map(|(stream, survey)| {
                let stream: Stream =
                    stream.parse().map_err(|what| StateError::Unreadable { path: self.path.clone(), what })?;
                Ok(Scope { stream, survey_id: loaded_survey(survey) })
            })
            .collect()
    }

    /// Every scope of a single survey of which anything is known, coverage or a scan under way.
    pub fn single_surveys(&self) -> Result<Vec<Scope>, StateError> {
        let mut scopes = self.covered_scopes()?;
        scopes.extend(self.scans_under_way()?.into_iter().map(|left| left.scan.scope));
        scopes.retain(|scope| scope.survey_id.is_some());
        scopes.sort_by_key(|scope| (scope.survey_id, scope.stream));
        scopes.dedup();
        Ok(scopes)
    }

    /// Forgets all that is known of a survey alone. The pages of its scans under way belong to nobody then.
    /// One transaction.
    pub fn forget_survey(&mut self, id: i64) -> Result<(), StateError> {
        let failed = self.failed("write");
        let mut forget = || -> rusqlite::Result<()> {
            let transaction = self.connection.transaction()?;
            for table in ["coverage", "proofs", "extents", "scans"] {
                transaction.execute(&format!("DELETE FROM {table} WHERE survey_id = ?1"), [stored_survey(Some(id))])?;
            }
            transaction.commit()
        };
        forget().map_err(failed)
    }

    /// Where the coverage of a scope ever began, even if it is no longer proven.
    pub fn extent_start_ms(&self, scope: Scope) -> Result<Option<i64>, StateError> {
        let sql = "SELECT start_ms FROM extents WHERE stream = ?1 AND survey_id = ?2";
        self.connection
            .query_row(sql, (scope.stream.name(), stored_survey(scope.survey_id)), |row| row.get(0))
            .optional()
            .map_err(self.failed("read"))
    }

    /// The checkpoint: the scan's window is complete and committed everywhere. One transaction. `taken_by` names the
    /// warehouses of the run, and whether the scan is in their ledger.
    pub fn checkpoint(&mut self, covered: &Covered, taken_by: &[(&str, bool)]) -> Result<(), StateError> {
        let scan = &covered.scan;
        self.hit(DurableStep::Checkpointed)?;
        let failed = self.failed("write");
        let mut apply = || -> rusqlite::Result<()> {
            let transaction = self.connection.transaction()?;
            cover(&transaction, covered)?;
            prove(&transaction, scan)?;
            extend(&transaction, scan.scope, scan.window.start_ms)?;
            transaction.execute("DELETE FROM scans WHERE scan_id = ?1", [&scan.id.0])?;
            let number = next_checkpoint(&transaction)?;
            for (name, is_in_ledger) in taken_by {
                let sql = "UPDATE destinations SET last_scan_id = coalesce(?2, last_scan_id), last_checkpoint = ?3 WHERE name = ?1";
                transaction.execute(sql, (name, is_in_ledger.then_some(&scan.id.0), number))?;
            }
            transaction.commit()
        };
        apply().map_err(failed)
    }

    /// Puts what is covered of a window in doubt: every run looks at it again until a scan leaves none.
    /// One transaction.
    pub fn mark_for_recheck(&mut self, scope: Scope, window: Window) -> Result<(), StateError> {
        let failed = self.failed("write");
        let mut apply = || -> rusqlite::Result<()> {
            let transaction = self.connection.transaction()?;
            for held in load(&transaction, scope, window)? {
                if let Some(mut part) = held.part(window) {
                    part.interval.scanned_ms = NEEDS_RECHECK_MS;
                    lay(&transaction, scope, part)?;
                }
            }
            transaction.commit()
        };
        apply().map_err(failed)
    }

    /// Throws the coverage away and lays the scans that every ledger holds over nothing, oldest first: how a lost file,
    /// or a warehouse that is not the one that was filled or was left out of some runs, is made good. Scans that only
    /// `some` ledgers hold prove nothing, but take away: see [`narrow`]. Where coverage began in any ledger stays
    /// known, so that the rest is a gap. The warehouses `taken_by` are then up to date. One transaction.
    pub fn rebuild_coverage(
        &mut self,
        scans: &[Covered],
        some: &[Covered],
        begun: &[(Scope, i64)],
        taken_by: &[&str],
    ) -> Result<(), StateError> {
        self.hit(DurableStep::CoverageRebuilt)?;
        let failed = self.failed("write");
        let by_all = scans.iter().map(|covered| (covered, true));
        let mut oldest_first: Vec<_> = by_all.chain(some.iter().map(|covered| (covered, false))).collect();
        oldest_first.sort_by_key(|(covered, _)| covered.scan.started_ms);
        let mut apply = || -> rusqlite::Result<()> {
            let transaction = self.connection.transaction()?;
            transaction.execute("DELETE FROM coverage", [])?;
            transaction.execute("DELETE FROM proofs", [])?;
            // A warehouse that lacks scans may lack people too: they are asked for again.
            transaction.execute("DELETE FROM people", [])?;
            for (covered, is_by_all) in &oldest_first {
                if !is_by_all {
                    narrow(&transaction, covered)?;
                    continue;
                }
                cover(&transaction, covered)?;
                prove(&transaction, &covered.scan)?;
            }
            for (scope, start_ms) in begun {
                extend(&transaction, *scope, *start_ms)?;
            }
            let number = next_checkpoint(&transaction)?;
            for name in taken_by {
                transaction.execute("UPDATE destinations SET last_checkpoint = ?2 WHERE name = ?1", (name, number))?;
            }
            transaction.commit()
        };
        apply().map_err(failed)
    }
}

/// The number of the next checkpoint.
fn next_checkpoint(transaction: &Transaction<'_>) -> rusqlite::Result<i64> {
    let sql = "INSERT INTO meta (key, value) VALUES ('last_checkpoint', '1') \
               ON CONFLICT (key) DO UPDATE SET value = CAST(CAST(value AS INTEGER) + 1 AS TEXT) RETURNING CAST(value AS INTEGER)";
    transaction.query_row(sql, [], |row| row.get(0))
}

fn extend(transaction: &Transaction<'_>, scope: Scope, start_ms: i64) -> rusqlite::Result<()> {
    let sql = "INSERT INTO extents (stream, survey_id, start_ms) VALUES (?1, ?2, ?3) \
               ON CONFLICT (stream, survey_id) DO UPDATE SET start_ms = min(start_ms, excluded.start_ms)";
    transaction.execute(sql, (scope.stream.name(), stored_survey(scope.survey_id), start_ms)).map(drop)
}

fn cover(transaction: &Transaction<'_>, covered: &Covered) -> rusqlite::Result<()> {
    lay(transaction, covered.scan.scope, covered.stored())
}

/// A scan that some warehouses took, and others did not. Where it asked for less than is covered, or left a doubt, that
/// is how those warehouses hold it now: an answer that is deleted is gone for a scan that does not ask for such.
fn narrow(transaction: &Transaction<'_>, covered: &Covered) -> rusqlite::Result<()> {
    let Covered { scan, scanned_ms, .. } = covered;
    for held in load(transaction, scan.scope, scan.window)? {
        if let Some(mut part) = held.part(scan.window) {
            part.interval.flags = part.interval.flags.intersection(scan.flags);
            part.interval.scanned_ms = part.interval.scanned_ms.min(*scanned_ms);
            lay(transaction, scan.scope, part)?;
        }
    }
    Ok(())
}

fn lay(transaction: &Transaction<'_>, scope: Scope, laid: StoredInterval) -> rusqlite::Result<()> {
    let Window { start_ms, end_ms } = laid.interval.window;
    if laid.interval.window.is_empty() {
        return Ok(());
    }
    // Only what touches the window can change; merging looks no further than its neighbours.
    let touched = Window::new(start_ms.saturating_sub(1), end_ms.saturating_add(1));
    let held = load(transaction, scope, touched)?;
    let (stream, survey) = (scope.stream.name(), stored_survey(scope.survey_id));
    for StoredInterval { interval, .. } in &held {
        let sql = "DELETE FROM coverage WHERE stream = ?1 AND survey_id = ?2 AND start_ms = ?3";
        transaction.execute(sql, (stream, survey, interval.window.start_ms))?;
    }
    for StoredInterval { interval, read } in insert_interval(&held, laid) {
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
        transaction.execute(sql, row)?;
    }
    Ok(())
}

fn stored_count(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn load(connection: &Connection, scope: Scope, touching: Window) -> rusqlite::Result<Vec<StoredInterval>> {
    let sql = "SELECT start_ms, end_ms, flags, scanned_ms, rows_held, read_ms, scan_id, scans, pages, ends FROM coverage \
               WHERE stream = ?1 AND survey_id = ?2 AND end_ms > ?3 AND start_ms < ?4 ORDER BY start_ms";
    let mut statement = connection.prepare_cached(sql)?;
    let (stream, survey) = (scope.stream.name(), stored_survey(scope.survey_id));
    let rows = statement.query_map((stream, survey, touching.start_ms, touching.end_ms), |row| {
        let count = |at| row.get::<_, i64>(at).map(i64::unsigned_abs);
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
