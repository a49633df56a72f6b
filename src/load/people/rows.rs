//! The rows of people: what has to go from each table, as a delta that a destination applies like that of a scan.

use std::{collections::BTreeMap, sync::LazyLock};

use super::{Engine, LoadError, TimeBounds, is_persons, stage};
use crate::{
    load::{
        TableDelta, Targets,
        diff::{delete_columns, delete_relation, delta_rows, equal_columns},
        stage::Stage,
    },
    model::{Identifier, Stream, Window},
    person::{RecordFields, fields_of_stream, fields_of_table},
    schema::{Identifies, Table, TableKind, children_of, quote_identifier, quote_text, table, tables},
};

/// Keys of records that are staged at once.
const KEYS_AT_ONCE: usize = 500;

/// What a warehouse holds of people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeopleFound {
    /// Rows by table; tables without any are left out.
    pub rows: BTreeMap<&'static str, u64>,
    /// For each stream the creation times of those rows, from the first to past the last.
    pub met: BTreeMap<Stream, Window>,
}

impl PeopleFound {
    /// Rows of all tables.
    pub fn total(&self) -> u64 {
        self.rows.values().sum()
    }
}

/// What has to go so that none of the identifiers is left in a column for them. The relations live in the engine until the next
/// use of it; an engine that was asked before starts afresh.
pub(in super::super) fn find(
    engine: &Engine,
    targets: &mut dyn Targets,
    person: &[Identifier],
) -> Result<Vec<TableDelta>, LoadError> {
    Stage::clear(engine)?;
    stage(engine, person)?;
    engine.with_all_threads(|| find_staged(engine, targets, person))
}

fn find_staged(
    engine: &Engine,
    targets: &mut dyn Targets,
    person: &[Identifier],
) -> Result<Vec<TableDelta>, LoadError> {
    let mut deltas = Vec::new();
    for table in tables().iter().filter(|table| table.kind != TableKind::Child) {
        let mut parts = direct(engine, targets, table, person)?;
        let children: Vec<&'static Table> = children_of(&table.name).collect();
        for child in &children {
            // What says in a child whose it is says it of the whole set, and of the row that it belongs to.
            parts.extend(direct(engine, targets, child, person)?);
        }
        if parts.is_empty() {
            continue;
        }
        let relation = delete_relation(table);
        make(engine, &relation, table, &parts)?;
        for child in children {
            make(engine, &delete_relation(child), child, &[format!("SELECT * FROM {relation}")])?;
            record(engine, targets, child, &mut deltas)?;
        }
        record(engine, targets, table, &mut deltas)?;
    }
    Ok(deltas)
}

/// The rows that the deltas take out.
pub(in super::super) fn count(
    engine: &Engine,
    targets: &mut dyn Targets,
    deltas: &[TableDelta],
) -> Result<PeopleFound, LoadError> {
    let mut found = PeopleFound::default();
    for delta in deltas {
        let Some(deletes) = &delta.deletes else { continue };
        let held = targets.relation(delta.table, deletes.bounds)?;
        let same = equal_columns("t", "d", &delta.delete_columns());
        let sql = format!("SELECT count(*) FROM {held} t SEMI JOIN {} d ON {same}", deletes.relation);
        let [rows] = engine.integers("count rows of people", &sql)?;
        if rows > 0 {
            found.rows.insert(&delta.table.name, rows.unsigned_abs());
        }
        let stream = delta.table.stream.as_deref().and_then(|name| name.parse::<Stream>().ok());
        if let (Some(stream), Some(TimeBounds { start_us, end_us })) = (stream, deletes.bounds) {
            let window = Window::new(start_us.div_euclid(1000), end_us.div_euclid(1000).saturating_add(1));
            let met = found.met.entry(stream).or_insert(window);
            *met = Window::new(met.start_ms.min(window.start_ms), met.end_ms.max(window.end_ms));
        }
    }
    Ok(found)
}

/// The keys of the rows that carry an identifier themselves, as queries of the columns by which rows are taken out.
fn direct(
    engine: &Engine,
    targets: &mut dyn Targets,
    table: &'static Table,
    person: &[Identifier],
) -> Result<Vec<String>, LoadError> {
    let names: Vec<String> =
        delete_columns(table).into_iter().map(|name| format!("t.{}", quote_identifier(name))).collect();
    let names = names.join(", ");
    let mut parts = Vec::new();
    if let Some(condition) = is_persons(table, person) {
        let held = targets.relation(table, None)?;
        parts.push(format!("SELECT {names} FROM {held} t WHERE {condition}"));
    }
    let records = table.columns.iter().filter(|column| column.identifies == Some(Identifies::Record));
    for column in records {
        let held = targets.relation(table, None)?;
        let keys = record_keys(engine, table, &column.name, &held, person)?;
        for some in keys.chunks(KEYS_AT_ONCE) {
            let is_one = some.iter().map(|key| format!("({key})")).collect::<Vec<_>>().join(" OR ");
            parts.push(format!("SELECT {names} FROM {held} t WHERE {is_one}"));
        }
    }
    Ok(parts)
}

/// Conditions that name the rows whose column holds a record of one of the people.
fn record_keys(
    engine: &Engine,
    table: &'static Table,
    column: &str,
    held: &str,
    person: &[Identifier],
) -> Result<Vec<String>, LoadError> {
    let failed = |source| LoadError::engine("read records that have no table", source);
    let key = &table.key;
    let list: Vec<String> = key.iter().map(|name| format!("CAST(t.{} AS VARCHAR)", quote_identifier(name))).collect();
    let sql = format!("SELECT t.{}, {} FROM {held} t", quote_identifier(column), list.join(", "));
    let mut statement = engine.connection().prepare(&sql).map_err(failed)?;
    let mut rows = statement.query([]).map_err(failed)?;
    let mut conditions = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        let raw: Option<String> = row.get(0).map_err(failed)?;
        if !raw.is_some_and(|raw| is_record_of(&raw, person)) {
            continue;
        }
        let mut equal = Vec::new();
        for (at, name) in key.iter().enumerate() {
            let value: Option<String> = row.get(at + 1).map_err(failed)?;
            let value = quote_text(&value.unwrap_or_default());
            equal.push(format!("CAST(t.{} AS VARCHAR) = {value}", quote_identifier(name)));
        }
        conditions.push(equal.join(" AND "));
    }
    Ok(conditions)
}

/// Whether a record of any stream, or a delivery of a webhook, is of one of the people.
fn is_record_of(raw: &str, person: &[Identifier]) -> bool {
    static EVENTS: LazyLock<RecordFields> =
        LazyLock::new(|| table("webhook_events").map(fields_of_table).unwrap_or_default());
    // `for_each` says whether it came to the end.
    let is_theirs = |fields: &RecordFields| !fields.for_each(raw, &mut |found| !person.contains(&found.identifier));
    Stream::ALL.into_iter().map(fields_of_stream).chain([&*EVENTS]).any(is_theirs)
}

fn make(engine: &Engine, relation: &str, table: &'static Table, parts: &[String]) -> Result<(), LoadError> {
    let names: Vec<String> = delete_columns(table).into_iter().map(quote_identifier).collect();
    // By place: a child's columns stand in the order of its parent's, whatever they are called.
    let sql = format!("CREATE TEMP TABLE {relation} ({}) AS {}", names.join(", "), parts.join(" UNION "));
    engine.execute("find the rows of people", &sql)
}

fn record(
    engine: &Engine,
    targets: &mut dyn Targets,
    table: &'static Table,
    deltas: &mut Vec<TableDelta>,
) -> Result<(), LoadError> {
    let Some(deletes) = delta_rows(engine, table, &delete_relation(table))? else { return Ok(()) };
    let held = targets.relation(table, deletes.bounds)?;
    let same = equal_columns("t", "d", &delete_columns(table));
    let sql =
        format!("SELECT count(*) FROM (SELECT 1 FROM {held} t SEMI JOIN {} d ON {same} LIMIT 1)", deletes.relation);
    let [is_held] = engine.integers("find the rows of people", &sql)?;
    if is_held > 0 {
        deltas.push(TableDelta { table, deletes: Some(deletes), upserts: None });
    }
    Ok(())
}
