//! What no scan brings, carried from one warehouse to another that is built in its place: the events that webhooks told.

use std::path::Path;

use super::{Engine, LoadError, TableDelta, Targets, contract, delta_rows, upsert_relation};
use crate::{load::stage::Stage, schema::quote_text};

const EVENTS: &str = "webhook_events";

/// Writes every event to a Parquet file; returns how many.
pub(in super::super) fn carry_out(engine: &Engine, targets: &mut dyn Targets, file: &Path) -> Result<u64, LoadError> {
    let stored = targets.relation(contract(EVENTS)?, None)?;
    let [rows] = engine.integers("count the events", &format!("SELECT count(*) FROM {stored} t"))?;
    let file = quote_text(&file.to_string_lossy());
    engine.execute("carry the events over", &format!("COPY (SELECT * FROM {stored} t) TO {file} (FORMAT parquet)"))?;
    Ok(rows.unsigned_abs())
}

/// The events of such a file, to be added to a warehouse that has none.
pub(in super::super) fn carry_in(engine: &Engine, file: &Path) -> Result<Option<TableDelta>, LoadError> {
    Stage::clear(engine)?;
    let table = contract(EVENTS)?;
    let relation = upsert_relation(table);
    let file = quote_text(&file.to_string_lossy());
    engine.execute(
        "carry the events over",
        &format!("CREATE TEMP VIEW {relation} AS SELECT * FROM read_parquet({file})"),
    )?;
    let upserts = delta_rows(engine, table, &relation)?;
    Ok(upserts.map(|upserts| TableDelta { table, deletes: None, upserts: Some(upserts) }))
}
