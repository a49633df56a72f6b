//! Tables that are only appended to: `rejects`, the ledger `sync_windows`, and `sync_runs`.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray, new_null_array};

use super::{
    super::{RowCounts, RunRecord},
    Comparison, Engine, Fill, LoadError, TableDelta, contract, delete_relation, delta_rows,
    repeats::LOSERS,
    sql::{select_list, timestamp_ms, written_us},
    upsert_relation,
};
use crate::{
    model::{Proof, Scan},
    schema::{Column, ColumnType, Table, quote_identifier, quote_text},
};

/// The table that says which scans were applied.
const LEDGER: &str = "sync_windows";

/// The base table whose history keeps records that lost a collision.
const RESPONSES: &str = "responses";

/// Why a record that lost a collision is among the rejects.
const LOST: &str = "key_collision";

/// Puts rejects that the warehouse does not hold yet into the delta, and counts these: what stands there already has had its
/// look, and must not call for one again in every run.
pub(super) fn write_rejects(comparison: &mut Comparison<'_>, base: &'static Table) -> Result<(), LoadError> {
    let rejects = contract(super::super::stage::REJECTS)?;
    let keeps_losers = base.name != RESPONSES && comparison.delta.counts.collisions > 0;
    if keeps_losers {
        stage_losers(comparison, base)?;
    } else if comparison.stage.rows(&rejects.name) == 0 {
        return Ok(());
    }
    let relation = upsert_relation(rejects);
    let stream = quote_text(comparison.scan.scope.stream.name());
    let row = select_list(rejects, |column| match column.name.as_str() {
        "stream" => stream.clone(),
        "scan_id" => quote_text(&comparison.scan.id.0),
        name => comparison.stamp(column).unwrap_or_else(|| format!("s.{}", quote_identifier(name))),
    });
    let stored = comparison.targets.relation(rejects, None)?;
    comparison.execute(&format!(
        "CREATE TEMP TABLE {relation} AS SELECT {row} FROM stage_{} s
         WHERE NOT EXISTS (SELECT 1 FROM {stored} t WHERE t.stream = {stream} AND t.raw_hash = s.raw_hash)
         QUALIFY row_number() OVER (PARTITION BY s.raw_hash ORDER BY s._seq) = 1",
        rejects.name
    ))?;
    let count = |reason: &str| comparison.count(&format!("SELECT count(*) FROM {relation} WHERE reason {reason}"));
    let (rejected, lost) = (count(&format!("<> '{LOST}'"))?, count(&format!("= '{LOST}'"))?);
    comparison.delta.counts.rejected = rejected;
    if keeps_losers {
        comparison.delta.counts.collisions = lost;
    }
    comparison.record(rejects, None, Some(&relation))
}

/// Only responses have a history that can keep a record which lost a collision; others are kept as the row they would have been.
fn stage_losers(comparison: &Comparison<'_>, base: &'static Table) -> Result<(), LoadError> {
    let columns: Vec<String> =
        base.flat_columns().map(|column| format!("{0} := l.{0}", quote_identifier(&column.name))).collect();
    comparison.execute(&format!(
        "INSERT INTO stage_{} SELECT l._row_hash, '{LOST}', {}, to_json(struct_pack({}))::VARCHAR, l._seq FROM {LOSERS} l",
        super::super::stage::REJECTS,
        quote_text(&base.key.join(", ")),
        columns.join(", ")
    ))
}

/// Puts the scan's row of the ledger into the delta; the counts must be final.
pub(super) fn write_ledger(comparison: &mut Comparison<'_>, proof: Proof) -> Result<(), LoadError> {
    let ledger = contract(LEDGER)?;
    let relation = upsert_relation(ledger);
    let (scan, counts) = (comparison.scan, comparison.delta.counts);
    let row = select_list(ledger, |column| ledger_cell(column, scan, &counts, proof).sql(column.column_type));
    comparison.execute(&format!("CREATE TEMP TABLE {relation} AS SELECT {row}"))?;
    comparison.record(ledger, None, Some(&relation))
}

/// The same row as a batch.
pub(super) fn ledger_row(scan: &Scan, counts: &RowCounts, proof: Proof) -> Result<Fill, LoadError> {
    let table = contract(LEDGER)?;
    let cells = table.columns.iter().map(|column| ledger_cell(column, scan, counts, proof).array(column.column_type));
    let rows = RecordBatch::try_new(table.full_schema(), cells.collect())
        .map_err(|error| LoadError::Contract(format!("{LEDGER}: {error}")))?;
    Ok(Fill { table, rows: vec![rows], bounds: None })
}

/// What stands in a column of the ledger.
fn ledger_cell(column: &Column, scan: &Scan, counts: &RowCounts, proof: Proof) -> Cell {
    match column.name.as_str() {
        "scan_id" => Cell::Text(scan.id.0.clone()),
        "stream" => Cell::Text(scan.scope.stream.name().to_owned()),
        "survey_id" => scan.scope.survey_id.map_or(Cell::Null, Cell::Integer),
        "window_start" => Cell::Moment(scan.window.start_ms),
        "window_end" => Cell::Moment(scan.window.end_ms),
        "flags" => Cell::Integer(scan.flags.bits().into()),
        "scanned_at" | "_synced_at" => Cell::Moment(scan.started_ms),
        "rows_read" => Cell::count(counts.rows_read),
        "inserted" => Cell::count(counts.inserted),
        "updated" => Cell::count(counts.updated),
        "unchanged" => Cell::count(counts.unchanged),
        "soft_deleted" => Cell::count(counts.soft_deleted),
        "vanished" => Cell::count(counts.vanished),
        "withheld" => Cell::count(counts.withheld),
        "rejected" => Cell::count(counts.rejected),
        "collisions" => Cell::count(counts.collisions),
        "outside_window" => Cell::count(counts.outside_window),
        "pages" => Cell::count(proof.pages),
        "end_style" => proof.end.map_or(Cell::Null, |end| Cell::Text(end.name().to_owned())),
        "_run_id" => Cell::Text(scan.run_id.0.clone()),
        _ => Cell::Null,
    }
}

/// A value that is written as SQL or as an array of one.
enum Cell {
    Text(String),
    Integer(i64),
    /// Epoch milliseconds.
    Moment(i64),
    Null,
}

impl Cell {
    fn count(count: u64) -> Self {
        Cell::Integer(i64::try_from(count).unwrap_or(i64::MAX))
    }

    fn sql(&self, column_type: ColumnType) -> String {
        match self {
            Cell::Text(text) => quote_text(text),
            Cell::Integer(number) => format!("({number})::BIGINT"),
            Cell::Moment(at_ms) => timestamp_ms(*at_ms),
            Cell::Null => format!("NULL::{}", column_type.duckdb()),
        }
    }

    fn array(&self, column_type: ColumnType) -> ArrayRef {
        match self {
            Cell::Text(text) => Arc::new(StringArray::from_iter_values([text])),
            Cell::Integer(number) => Arc::new(Int64Array::from_value(*number, 1)),
            Cell::Moment(at_ms) => {
                Arc::new(TimestampMicrosecondArray::from_value(written_us(at_ms.saturating_mul(1000)), 1))
            }
            Cell::Null => new_null_array(&column_type.arrow(), 1),
        }
    }
}

/// `delta_upsert_sync_runs`: the rows of runs. Each takes the place of an earlier row of the same run. `None`: no run at all.
pub(in super::super) fn stage_runs(engine: &Engine, runs: &[RunRecord]) -> Result<Option<TableDelta>, LoadError> {
    let table = contract("sync_runs")?;
    let (upserts, deletes) = (upsert_relation(table), delete_relation(table));
    let rows: Vec<String> = runs.iter().map(|run| format!("SELECT {}", run_row(table, run))).collect();
    if rows.is_empty() {
        return Ok(None);
    }
    engine.execute(
        "record a run",
        &format!(
            "CREATE OR REPLACE TEMP TABLE {upserts} AS {};
             CREATE OR REPLACE TEMP TABLE {deletes} AS SELECT run_id FROM {upserts}",
            rows.join(" UNION ALL ")
        ),
    )?;
    let deletes = delta_rows(engine, table, &deletes)?;
    Ok(Some(TableDelta { table, deletes, upserts: delta_rows(engine, table, &upserts)? }))
}

fn run_row(table: &Table, run: &RunRecord) -> String {
    select_list(table, |column| match column.name.as_str() {
        "run_id" | "_run_id" => quote_text(&run.run_id.0),
        "command" => quote_text(&run.command),
        "outcome" => quote_text(&run.outcome),
        "exit_code" => format!("({})::BIGINT", run.exit_code),
        "started_at" => timestamp_ms(run.started_ms),
        "finished_at" | "_synced_at" => timestamp_ms(run.finished_ms),
        "base_url" => quote_text(&run.base_url),
        "environment" => quote_text(&run.environment),
        "program_version" => quote_text(&run.program_version),
        "report" => quote_text(&run.report),
        _ => "NULL".to_owned(),
    })
}
