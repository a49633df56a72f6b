//! Reads the ledger from the rows of `sync_windows`, wherever they are.

use crate::{
    load::{Engine, LedgerEntry, LoadError, RowCounts},
    model::{FlagSet, RunId, Scan, ScanId, Scope, Window},
    schema::quote_text,
};

const COUNT_COLUMNS: &str = "rows_read, inserted, updated, unchanged, soft_deleted, vanished, withheld, rejected, \
                             collisions, outside_window";

/// Every scan of the ledger; `relation` is what stands behind `FROM`.
pub(super) fn entries(engine: &Engine, relation: &str) -> Result<Vec<LedgerEntry>, LoadError> {
    let failed = |source| LoadError::engine("read the ledger", source);
    let sql = format!(
        "SELECT scan_id, _run_id, stream, survey_id, epoch_ms(window_start), epoch_ms(window_end), flags, \
         epoch_ms(scanned_at), rows_read FROM {relation} AS ledger"
    );
    let mut statement = engine.connection().prepare(&sql).map_err(failed)?;
    let rows = statement
        .query_map([], |row| {
            let stream: String = row.get(2)?;
            let start_ms: i64 = row.get(4)?;
            let end_ms: i64 = row.get(5)?;
            let (survey_id, flags): (Option<i64>, i64) = (row.get(3)?, row.get(6)?);
            let (started_ms, rows_read): (i64, i64) = (row.get(7)?, row.get(8)?);
            let ids: (String, String) = (row.get(0)?, row.get(1)?);
            Ok((ids, stream, survey_id, Window::new(start_ms, end_ms), flags, started_ms, rows_read))
        })
        .map_err(failed)?;
    let mut entries = Vec::new();
    for row in rows {
        let ((scan_id, run_id), stream, survey_id, window, flags, started_ms, rows_read) = row.map_err(failed)?;
        let stream = stream.parse().map_err(LoadError::Contract)?;
        let scan = Scan {
            id: ScanId(scan_id),
            run_id: RunId(run_id),
            scope: Scope { stream, survey_id },
            window,
            flags: FlagSet::from_bits(u8::try_from(flags).unwrap_or_default()),
            started_ms,
        };
        entries.push(LedgerEntry { scan, rows_read: count(rows_read) });
    }
    Ok(entries)
}

/// What applying the scan did, if the ledger holds it.
pub(super) fn counts_of(engine: &Engine, relation: &str, scan: &ScanId) -> Result<Option<RowCounts>, LoadError> {
    let failed = |source| LoadError::engine("look up a scan in the ledger", source);
    // A literal, not a parameter: the file is sorted by scan, and its statistics then rule out most of it.
    let sql = format!("SELECT {COUNT_COLUMNS} FROM {relation} AS ledger WHERE scan_id = {} LIMIT 1", quote_text(&scan.0));
    let mut statement = engine.connection().prepare(&sql).map_err(failed)?;
    let mut rows = statement.query([]).map_err(failed)?;
    let Some(row) = rows.next().map_err(failed)? else { return Ok(None) };
    let value = |at: usize| row.get::<_, i64>(at).map(count).map_err(failed);
    Ok(Some(RowCounts {
        rows_read: value(0)?,
        inserted: value(1)?,
        updated: value(2)?,
        unchanged: value(3)?,
        soft_deleted: value(4)?,
        vanished: value(5)?,
        withheld: value(6)?,
        rejected: value(7)?,
        collisions: value(8)?,
        outside_window: value(9)?,
    }))
}

fn count(value: i64) -> u64 {
    u64::try_from(value).unwrap_or_default()
}
