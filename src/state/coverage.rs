//! What was proven complete: disjoint stretches of creation time for each scope, with when and how they were last scanned.

use rusqlite::{Connection, OptionalExtension, Transaction, params};

use crate::model::{DAY_MS, DurableStep, FlagSet, HOUR_MS, IN_DOUBT_MS, Scan, Scope, Segment, Stream, Window};

use super::{State, StateError, loaded_survey, stored_survey};

/// Neighbours scanned within this time of each other are kept as one stretch, so that the file grows with the coverage and not
/// with the number of scans. The stretch counts as scanned at the earlier time.
const MERGE_WITHIN_MS: i64 = HOUR_MS;
/// Stretches are not merged beyond this length: each keeps a density of its own, by which windows are sized.
const MERGED_LEN_MAX_MS: i64 = 31 * DAY_MS;

/// Whether two stretches can be kept as one.
fn merge(held: &Segment, next: &Segment) -> bool {
    held.window.end_ms == next.window.start_ms
        && held.flags == next.flags
        && (held.scanned_ms - next.scanned_ms).abs() <= MERGE_WITHIN_MS
        && next.window.end_ms - held.window.start_ms <= MERGED_LEN_MAX_MS
}

/// The stretches with one more scan laid over them, disjoint, sorted and merged. Pure.
fn lay_over(held: &[Segment], scan: Segment) -> Vec<Segment> {
    let before = Window::new(i64::MIN, scan.window.start_ms);
    let after = Window::new(scan.window.end_ms, i64::MAX);
    let mut stretches: Vec<Segment> =
        held.iter().flat_map(|segment| [segment.part(before), segment.part(after)]).flatten().collect();
    stretches.push(scan);
    stretches.sort_by_key(|segment| segment.window.start_ms);
    let mut merged: Vec<Segment> = Vec::with_capacity(stretches.len());
    for segment in stretches {
        match merged.last_mut() {
            Some(last) if merge(last, &segment) => {
                last.window.end_ms = segment.window.end_ms;
                last.scanned_ms = last.scanned_ms.min(segment.scanned_ms);
                last.rows += segment.rows;
            }
            _ => merged.push(segment),
        }
    }
    merged
}

impl State {
    /// The stretches of a scope, in order.
    pub fn coverage(&self, scope: Scope) -> Result<Vec<Segment>, StateError> {
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

    /// Where the coverage of a scope ever began, even if it is no longer proven.
    pub fn extent_start_ms(&self, scope: Scope) -> Result<Option<i64>, StateError> {
        let sql = "SELECT start_ms FROM extents WHERE stream = ?1 AND survey_id = ?2";
        self.connection
            .query_row(sql, (scope.stream.name(), stored_survey(scope.survey_id)), |row| row.get(0))
            .optional()
            .map_err(self.failed("read"))
    }

    /// The checkpoint: the scan's window is complete and committed everywhere. One transaction. It counts as looked at at
    /// `scanned_ms`. `taken_by` names the warehouses of the run, and whether the scan is in their ledger.
    pub fn checkpoint(
        &mut self,
        scan: &Scan,
        scanned_ms: i64,
        rows: u64,
        taken_by: &[(&str, bool)],
    ) -> Result<(), StateError> {
        self.reach(DurableStep::Checkpointed)?;
        let failed = self.failed("write");
        let mut apply = || -> rusqlite::Result<()> {
            let transaction = self.connection.transaction()?;
            cover(&transaction, scan, scanned_ms, rows)?;
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

    /// Puts what is covered of a window in doubt: every run looks at it again until a scan leaves none. One transaction.
    pub fn doubt(&mut self, scope: Scope, window: Window) -> Result<(), StateError> {
        let failed = self.failed("write");
        let mut apply = || -> rusqlite::Result<()> {
            let transaction = self.connection.transaction()?;
            for held in load(&transaction, scope, window)? {
                if let Some(part) = held.part(window) {
                    lay(&transaction, scope, Segment { scanned_ms: IN_DOUBT_MS, ..part })?;
                }
            }
            transaction.commit()
        };
        apply().map_err(failed)
    }

    /// Throws the coverage away and lays the scans that every ledger holds over nothing, oldest first: how a lost file, or a
    /// warehouse that is not the one that was filled or was left out of some runs, is made good. Where coverage began in any
    /// ledger stays known, so that the rest is a gap. The warehouses `taken_by` are then up to date. One transaction.
    pub fn rebuild_coverage(
        &mut self,
        scans: &[(Scan, u64)],
        begun: &[(Scope, i64)],
        taken_by: &[&str],
    ) -> Result<(), StateError> {
        self.reach(DurableStep::CoverageRebuilt)?;
        let failed = self.failed("write");
        let mut oldest_first: Vec<&(Scan, u64)> = scans.iter().collect();
        oldest_first.sort_by_key(|(scan, _)| scan.started_ms);
        let mut apply = || -> rusqlite::Result<()> {
            let transaction = self.connection.transaction()?;
            transaction.execute("DELETE FROM coverage", [])?;
            for (scan, rows) in &oldest_first {
                cover(&transaction, scan, scan.started_ms, *rows)?;
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

fn cover(transaction: &Transaction<'_>, scan: &Scan, scanned_ms: i64, rows: u64) -> rusqlite::Result<()> {
    lay(transaction, scan.scope, Segment { window: scan.window, flags: scan.flags, scanned_ms, rows })
}

fn lay(transaction: &Transaction<'_>, scope: Scope, laid: Segment) -> rusqlite::Result<()> {
    if laid.window.is_empty() {
        return Ok(());
    }
    // Only what touches the window can change; merging looks no further than its neighbours.
    let touched = Window::new(laid.window.start_ms.saturating_sub(1), laid.window.end_ms.saturating_add(1));
    let held = load(transaction, scope, touched)?;
    let (stream, survey) = (scope.stream.name(), stored_survey(scope.survey_id));
    for segment in &held {
        let sql = "DELETE FROM coverage WHERE stream = ?1 AND survey_id = ?2 AND start_ms = ?3";
        transaction.execute(sql, (stream, survey, segment.window.start_ms))?;
    }
    for segment in lay_over(&held, laid) {
        let sql = "INSERT INTO coverage (stream, survey_id, start_ms, end_ms, flags, scanned_ms, rows_held) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
        let rows = i64::try_from(segment.rows).unwrap_or(i64::MAX);
        let Segment { window, flags, scanned_ms, .. } = segment;
        transaction
            .execute(sql, params![stream, survey, window.start_ms, window.end_ms, flags.bits(), scanned_ms, rows])?;
    }
    Ok(())
}

fn load(connection: &Connection, scope: Scope, touching: Window) -> rusqlite::Result<Vec<Segment>> {
    let sql = "SELECT start_ms, end_ms, flags, scanned_ms, rows_held FROM coverage \
               WHERE stream = ?1 AND survey_id = ?2 AND end_ms > ?3 AND start_ms < ?4 ORDER BY start_ms";
    let mut statement = connection.prepare_cached(sql)?;
    let (stream, survey) = (scope.stream.name(), stored_survey(scope.survey_id));
    let rows = statement.query_map((stream, survey, touching.start_ms, touching.end_ms), |row| {
        Ok(Segment {
            window: Window::new(row.get(0)?, row.get(1)?),
            flags: FlagSet::from_bits(row.get(2)?),
            scanned_ms: row.get(3)?,
            rows: row.get::<_, i64>(4)?.unsigned_abs(),
        })
    })?;
    rows.collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn segment() -> impl Strategy<Value = Segment> {
        (0..100i64, 1..40i64, 0..3i64, 0..3u8, 0..50u64).prop_map(|(start_ms, len_ms, night, flags, rows)| Segment {
            window: Window::new(start_ms, start_ms + len_ms),
            flags: FlagSet::from_bits(flags),
            scanned_ms: night * 24 * HOUR_MS,
            rows,
        })
    }

    proptest! {
        /// Each millisecond knows the last scan that covered it, or an earlier time where neighbours were merged.
        #[test]
        fn coverage_is_what_was_laid_over_it_last(scans in prop::collection::vec(segment(), 1..12)) {
            let mut held = Vec::new();
            let mut truth = [None; 160];
            for scan in &scans {
                held = lay_over(&held, *scan);
                for at in scan.window.start_ms..scan.window.end_ms {
                    truth[at as usize] = Some((scan.flags, scan.scanned_ms));
                }
            }
            for (at, expected) in truth.iter().enumerate() {
                let found: Vec<_> = held.iter().filter(|held| held.window.contains(at as i64)).collect();
                prop_assert!(found.len() <= 1);
                prop_assert_eq!(found.first().map(|held| (held.flags, held.scanned_ms)), *expected);
            }
            for pair in held.windows(2) {
                prop_assert!(pair[0].window.end_ms <= pair[1].window.start_ms);
                prop_assert!(!merge(&pair[0], &pair[1]));
            }
        }
    }

    #[test]
    fn p8_neighbours_of_one_run_are_kept_as_one_stretch() {
        let nightly = |day: i64, scanned_ms| Segment {
            window: Window::new(day * DAY_MS, (day + 1) * DAY_MS),
            flags: FlagSet::EMPTY,
            scanned_ms,
            rows: 10,
        };
        let mut held = Vec::new();
        for day in 0..365 {
            held = lay_over(&held, nightly(day, 1000 * day));
        }
        assert!(held.len() <= 13, "{} stretches for a year", held.len());
        assert_eq!(held.iter().map(|segment| segment.rows).sum::<u64>(), 3650);
    }
}
