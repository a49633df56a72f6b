//! Tables that are only appended to: `rejects`, the ledger `sync_windows`, and `sync_runs`.

use super::{
    super::RunRecord,
    Comparison, Engine, LoadError, TableDelta, contract, delete_relation, delta_rows,
    repeats::LOSERS,
    sql::{select_list, timestamp_ms},
    upsert_relation,
};
use crate::{
    model::Proof,
    schema::{Table, quote_identifier, quote_text},
};

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
    let ledger = contract("sync_windows")?;
    let relation = upsert_relation(ledger);
    let (scan, counts) = (comparison.scan, comparison.delta.counts);
    let row = select_list(ledger, |column| match column.name.as_str() {
        "scan_id" => quote_text(&scan.id.0),
        "stream" => quote_text(scan.scope.stream.name()),
        "survey_id" => scan.scope.survey_id.map_or("NULL::BIGINT".to_owned(), |id| format!("({id})::BIGINT")),
        "window_start" => timestamp_ms(scan.window.start_ms),
        "window_end" => timestamp_ms(scan.window.end_ms),
        "flags" => format!("{}::BIGINT", scan.flags.bits()),
        "scanned_at" => timestamp_ms(scan.started_ms),
        "rows_read" => format!("{}::BIGINT", counts.rows_read),
        "inserted" => format!("{}::BIGINT", counts.inserted),
        "updated" => format!("{}::BIGINT", counts.updated),
        "unchanged" => format!("{}::BIGINT", counts.unchanged),
        "soft_deleted" => format!("{}::BIGINT", counts.soft_deleted),
        "vanished" => format!("{}::BIGINT", counts.vanished),
        "withheld" => format!("{}::BIGINT", counts.withheld),
        "rejected" => format!("{}::BIGINT", counts.rejected),
        "collisions" => format!("{}::BIGINT", counts.collisions),
        "outside_window" => format!("{}::BIGINT", counts.outside_window),
        "pages" => format!("{}::BIGINT", proof.pages),
        "end_style" => proof.end.map_or("NULL::VARCHAR".to_owned(), |end| quote_text(end.name())),
        _ => comparison.stamp(column).unwrap_or_else(|| "NULL".to_owned()),
    });
    comparison.execute(&format!("CREATE TEMP TABLE {relation} AS SELECT {row}"))?;
    comparison.record(ledger, None, Some(&relation))
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
