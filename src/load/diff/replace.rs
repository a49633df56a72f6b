//! A stretch of the warehouse as a replay gives it, in the place of what is held: everything of the stretch is taken out of every
//! table of the stream, and everything that the replay has of it is put in. Nothing is compared.

use std::path::Path;

use super::{
    super::Replacement,
    Delta, Engine, LoadError, TableDelta, Targets, contract, delete_relation, delta_rows,
    sql::{bounds_of, column_list},
    upsert_relation,
};
use crate::{
    load::{TimeBounds, stage::Stage},
    model::ScanId,
    schema::{self, Table, quote_text},
};

/// Under which name the file of a replay is attached.
const CATALOG: &str = "replayed";

/// What changes when the stretch is replaced; `counts.inserted` are the rows put in, of all tables. The file stays attached until
/// [`take_leave`]. An engine that was asked before starts afresh.
pub(in super::super) fn put_in(
    engine: &Engine,
    targets: &mut dyn Targets,
    source: &Path,
    what: &Replacement,
) -> Result<Delta, LoadError> {
    Stage::clear(engine)?;
    let attach = format!(
        "DETACH DATABASE IF EXISTS {CATALOG}; ATTACH {} AS {CATALOG} (TYPE duckdb, READ_ONLY)",
        quote_text(&source.to_string_lossy())
    );
    engine.execute("open what the replay built", &attach)?;
    let bounds = bounds_of(what.window);
    let mut delta = Delta::default();
    let of_stream = |table: &&Table| table.stream.as_deref() == Some(what.stream.name());
    for table in schema::tables().iter().filter(of_stream) {
        let Some(at) = &table.partition else {
            return Err(LoadError::Contract(format!("{} has no creation time to be replaced by", table.name)));
        };
        let inside = bounds.condition(&format!("t.{}", schema::quote_identifier(at)));
        replace(engine, targets, table, (Some(bounds), &inside, ""), &mut delta)?;
    }
    let scans = format!("t.scan_id IN ({})", id_list(&what.scans));
    let rejects = contract("rejects")?;
    // A record that cannot be placed is kept once, by whichever scan saw it first.
    let others = targets.relation(rejects, None)?;
    let known = format!(
        " AND NOT EXISTS (SELECT 1 FROM {others} k WHERE k.stream = t.stream AND k.raw_hash = t.raw_hash
            AND k.scan_id NOT IN ({}))",
        id_list(&what.scans)
    );
    replace(engine, targets, rejects, (None, &scans, &known), &mut delta)?;
    replace(engine, targets, contract("sync_windows")?, (None, &scans, ""), &mut delta)?;
    delta.counts.inserted =
        delta.tables.iter().filter_map(|table| table.upserts.as_ref()).map(|upserts| upserts.rows).sum();
    Ok(delta)
}

/// Lets the file of the replay go, and forgets the delta.
pub(in super::super) fn take_leave(engine: &Engine) -> Result<(), LoadError> {
    Stage::clear(engine)?;
    engine.execute("close what the replay built", &format!("DETACH DATABASE IF EXISTS {CATALOG}"))
}

fn replace(
    engine: &Engine,
    targets: &mut dyn Targets,
    table: &'static Table,
    (bounds, inside, only_new): (Option<TimeBounds>, &str, &str),
    delta: &mut Delta,
) -> Result<(), LoadError> {
    let (deletes, upserts) = (delete_relation(table), upsert_relation(table));
    let held = targets.relation(table, bounds)?;
    let named = column_list("t", super::delta::delete_columns(table));
    let columns = column_list("t", table.columns.iter().map(|column| column.name.as_str()));
    let name = schema::quote_identifier(&table.name);
    engine.execute(
        "compare a replay with the warehouse",
        &format!(
            "CREATE TEMP TABLE {deletes} AS SELECT DISTINCT {named} FROM {held} t WHERE {inside};
             CREATE TEMP TABLE {upserts} AS SELECT {columns} FROM {CATALOG}.main.{name} t WHERE {inside}{only_new}"
        ),
    )?;
    let (deletes, upserts) = (delta_rows(engine, table, &deletes)?, delta_rows(engine, table, &upserts)?);
    if deletes.is_some() || upserts.is_some() {
        delta.tables.push(TableDelta { table, deletes, upserts });
    }
    Ok(())
}

/// At least one, so that the list is never empty.
fn id_list(scans: &[ScanId]) -> String {
    let ids = scans.iter().map(|scan| quote_text(&scan.0));
    ids.chain(std::iter::once("''".to_owned())).collect::<Vec<_>>().join(", ")
}
