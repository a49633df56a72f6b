//! Reads the ledger, `sync_windows`: which scans were applied, and what they did; and the runs, `sync_runs`.

use std::collections::HashSet;

use duckdb::Row;

use super::{LedgerEntry, LoadError, RowCounts, RunRecord, engine::Engine};
use crate::{
    model::{EndStyle, FlagSet, Proof, RunId, Scan, ScanId, Scope, Stream, Window},
    schema::quote_text,
};

/// The counts with which a scan was applied; `None` if it was not. `ledger` is the SQL of the relation `sync_windows`.
pub(super) fn counts_of(engine: &Engine, ledger: &str, scan: &ScanId) -> Result<Option<RowCounts>, LoadError> {
    let sql = format!(
        "SELECT rows_read, inserted, updated, unchanged, soft_deleted, vanished, withheld, rejected, collisions, outside_window
         FROM {ledger} WHERE scan_id = {}",
        quote_text(&scan.0)
    );
    Ok(query(engine, &sql, counts)?.into_iter().next())
}

/// The scans in the ledger.
pub(super) fn scans(engine: &Engine, ledger: &str) -> Result<HashSet<ScanId>, LoadError> {
    let ids = query(engine, &format!("SELECT scan_id FROM {ledger}"), |row| Ok(ScanId(row.get(0)?)))?;
    Ok(ids.into_iter().collect())
}

/// Every scan in the ledger, with what it did. Windows that reach past the years 1 to 9999 come back cut to them.
pub(super) fn entries(engine: &Engine, ledger: &str) -> Result<Vec<LedgerEntry>, LoadError> {
    let sql = format!(
        "SELECT scan_id, _run_id, stream, survey_id, epoch_ms(window_start), epoch_ms(window_end), flags,
            epoch_ms(scanned_at), rows_read, withheld, pages, end_style FROM {ledger}"
    );
    query(engine, &sql, entry)?.into_iter().collect()
}

/// Every run. `runs` is the SQL of the relation `sync_runs`.
pub(super) fn runs(engine: &Engine, runs: &str) -> Result<Vec<RunRecord>, LoadError> {
    let sql = format!(
        "SELECT run_id, command, outcome, exit_code, epoch_ms(started_at), epoch_ms(finished_at), base_url, environment,
            program_version, report FROM {runs}"
    );
    query(engine, &sql, |row| {
        Ok(RunRecord {
            run_id: RunId(row.get(0)?),
            command: row.get(1)?,
            outcome: row.get(2)?,
            exit_code: row.get(3)?,
            started_ms: row.get(4)?,
            finished_ms: row.get(5)?,
            base_url: row.get(6)?,
            environment: row.get(7)?,
            program_version: row.get(8)?,
            report: row.get(9)?,
        })
    })
}

fn query<T>(
    engine: &Engine,
    sql: &str,
    read: impl FnMut(&Row<'_>) -> Result<T, duckdb::Error>,
) -> Result<Vec<T>, LoadError> {
    let failed = |source| LoadError::engine("read the ledger", source);
    let mut statement = engine.connection().prepare(sql).map_err(failed)?;
    let rows = statement.query_map([], read).map_err(failed)?;
    rows.collect::<Result<_, _>>().map_err(failed)
}

fn counts(row: &Row<'_>) -> Result<RowCounts, duckdb::Error> {
    let count = |at| row.get::<_, i64>(at).map(i64::unsigned_abs);
    Ok(RowCounts {
        rows_read: count(0)?,
        inserted: count(1)?,
        updated: count(2)?,
        unchanged: count(3)?,
        soft_deleted: count(4)?,
        vanished: count(5)?,
        withheld: count(6)?,
        rejected: count(7)?,
        collisions: count(8)?,
        outside_window: count(9)?,
    })
}

fn entry(row: &Row<'_>) -> Result<Result<LedgerEntry, LoadError>, duckdb::Error> {
    let stream: String = row.get(2)?;
    let Ok(stream) = stream.parse::<Stream>() else {
        return Ok(Err(LoadError::Contract(format!("the ledger names the unknown stream '{stream}'"))));
    };
    let flags: i64 = row.get(6)?;
    let scan = Scan {
        id: ScanId(row.get(0)?),
        run_id: RunId(row.get(1)?),
        scope: Scope { stream, survey_id: row.get(3)? },
        window: Window::new(row.get(4)?, row.get(5)?),
        flags: FlagSet::from_bits(u8::try_from(flags).unwrap_or_default()),
        started_ms: row.get(7)?,
    };
    let count = |at| row.get::<_, i64>(at).map(i64::unsigned_abs);
    let pages: Option<i64> = row.get(10)?;
    let end: Option<String> = row.get(11)?;
    let proof = Proof { pages: pages.map_or(0, i64::unsigned_abs), end: end.as_deref().and_then(EndStyle::from_name) };
    Ok(Ok(LedgerEntry { scan, rows_read: count(8)?, withheld: count(9)?, proof }))
}
