//! Sessions that the service no longer returns: whoever was purged there shows here by nothing else.

use super::{Engine, LoadError, is_persons, stage};
use crate::{
    load::{Targets, diff::timestamp_ms},
    model::{Identifier, IdentifierKind},
    person::identifies,
    schema::{Table, TableKind, quote_identifier, table},
};

/// The table whose rows make a session.
const RESPONSES: &str = "responses";

fn sessions_table() -> Result<(&'static Table, String), LoadError> {
    let unknown = || LoadError::Contract(format!("{RESPONSES} has no column for sessions"));
    let table = table(RESPONSES).filter(|table| table.kind == TableKind::Base).ok_or_else(unknown)?;
    let column = identifies(table).find(|(_, kind)| *kind == IdentifierKind::Session);
    Ok((table, quote_identifier(&column.ok_or_else(unknown)?.0.name)))
}

/// Sessions all of whose rows had vanished before a moment.
pub(in super::super) fn vanished_sessions(
    engine: &Engine,
    targets: &mut dyn Targets,
    before_ms: i64,
    sessions_max: usize,
) -> Result<Vec<Identifier>, LoadError> {
    let (table, session) = sessions_table()?;
    let held = targets.relation(table, None)?;
    let before = timestamp_ms(before_ms);
    let sql = format!(
        "SELECT DISTINCT t.{session} FROM {held} t WHERE t._vanished_at < {before} AND NOT EXISTS (
            SELECT 1 FROM {held} o WHERE o.{session} = t.{session} AND (o._vanished_at IS NULL OR o._vanished_at >= {before}))
         ORDER BY ALL LIMIT {sessions_max}"
    );
    read(engine, &sql)
}

/// Of these sessions, those of which some row has not vanished.
pub(in super::super) fn live_sessions(
    engine: &Engine,
    targets: &mut dyn Targets,
    sessions: &[Identifier],
) -> Result<Vec<Identifier>, LoadError> {
    let (table, session) = sessions_table()?;
    let Some(condition) = is_persons(table, sessions) else { return Ok(Vec::new()) };
    stage(engine, sessions)?;
    let held = targets.relation(table, None)?;
    read(engine, &format!("SELECT DISTINCT t.{session} FROM {held} t WHERE t._vanished_at IS NULL AND {condition}"))
}

fn read(engine: &Engine, sql: &str) -> Result<Vec<Identifier>, LoadError> {
    let failed = |source| LoadError::engine("look for vanished sessions", source);
    let mut statement = engine.connection().prepare(sql).map_err(failed)?;
    let texts = statement.query_map([], |row| row.get::<_, String>(0)).map_err(failed)?;
    let texts = texts.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    Ok(texts.iter().filter_map(|text| Identifier::read(IdentifierKind::Session, text)).collect())
}
