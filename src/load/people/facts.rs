//! Which identifiers stand together in rows: what leads are followed by.

use duckdb::Row;

use super::{Engine, LoadError, is_persons, stage};
use crate::{
    load::Targets,
    model::{Identifier, IdentifierKind, Spelled, Spellings},
    person::identifies,
    schema::{ColumnType, Table, quote_identifier, tables},
};

/// Sets of identifiers that are taken from one table at once; an identifier that is in more names no person.
const FACTS_MAX: usize = 200_000;
/// Sittings of one identifier beyond which it is not looked at further.
const SESSIONS_MAX: i64 = 20_000;

/// What a warehouse knows of some identifiers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// For each row that carries one of them, without repetitions: all identifiers of that row.
    pub rows: Vec<Vec<Identifier>>,
    /// Identifiers in so many rows that these were not read.
    pub too_wide: Vec<Identifier>,
    /// How those of the rows are written there.
    pub spellings: Spellings,
}

impl Facts {
    /// Takes in how identifiers are written elsewhere.
    pub fn note_spellings(&mut self, spellings: Spellings) {
        for (identifier, written) in spellings {
            self.spellings.entry(identifier).or_default().extend(written);
        }
    }
}

/// The rows of every table that carry one of the identifiers.
pub(in super::super) fn facts(
    engine: &Engine,
    targets: &mut dyn Targets,
    wanted: &[Identifier],
) -> Result<Facts, LoadError> {
    engine.with_all_threads(|| facts_of(engine, targets, wanted))
}

fn facts_of(engine: &Engine, targets: &mut dyn Targets, wanted: &[Identifier]) -> Result<Facts, LoadError> {
    let mut facts = Facts::default();
    let mut wanted = wanted.to_vec();
    // A table that names people in one way only leads nowhere.
    for table in tables().iter().filter(|table| columns(table).count() > 1) {
        stage(engine, &wanted)?;
        let relation = targets.relation(table, None)?;
        let mut rows = read(engine, table, &relation, &wanted)?;
        if rows.len() > FACTS_MAX {
            let wide = too_wide(engine, table, &relation, &wanted)?;
            wanted.retain(|identifier| !wide.contains(identifier));
            facts.too_wide.extend(wide);
            stage(engine, &wanted)?;
            rows = read(engine, table, &relation, &wanted)?;
        }
        if rows.len() > FACTS_MAX {
            let why = format!("more than {FACTS_MAX} sittings carry what is looked for: name fewer people at once");
            return Err(LoadError::Contract(why));
        }
        for row in rows {
            let mut row: Vec<Identifier> =
                row.into_iter().map(|spelled| spelled.noted_in(&mut facts.spellings)).collect();
            row.sort();
            row.dedup();
            facts.rows.push(row);
        }
    }
    facts.rows.sort();
    facts.rows.dedup();
    Ok(facts)
}

fn columns(table: &Table) -> impl Iterator<Item = (&crate::schema::Column, IdentifierKind)> {
    identifies(table).filter(|(column, _)| column.column_type != ColumnType::Json)
}

fn read(engine: &Engine, table: &Table, relation: &str, wanted: &[Identifier]) -> Result<Vec<Vec<Spelled>>, LoadError> {
    let Some(condition) = is_persons(table, wanted) else { return Ok(Vec::new()) };
    let failed = |source| LoadError::engine("look for people", source);
    let (mut list, mut kinds) = (Vec::new(), Vec::new());
    for (column, kind) in columns(table) {
        let value = format!("CAST(t.{} AS VARCHAR)", quote_identifier(&column.name));
        list.push(match &column.named_by {
            Some(named_by) => format!("CASE WHEN {} THEN {value} END", super::names_an_email_sql(named_by)),
            None => value,
        });
        kinds.push(kind);
    }
    let sql =
        format!("SELECT DISTINCT {} FROM {relation} t WHERE {condition} LIMIT {}", list.join(", "), FACTS_MAX + 1);
    let mut statement = engine.connection().prepare(&sql).map_err(failed)?;
    let found = statement.query_map([], |row| identifiers(row, &kinds)).map_err(failed)?;
    found.collect::<Result<_, _>>().map_err(failed)
}

fn identifiers(row: &Row<'_>, kinds: &[IdentifierKind]) -> Result<Vec<Spelled>, duckdb::Error> {
    let mut identifiers = Vec::new();
    for (at, kind) in kinds.iter().enumerate() {
        let text: Option<String> = row.get(at)?;
        identifiers.extend(text.and_then(|text| Spelled::read(*kind, &text)));
    }
    Ok(identifiers)
}

/// Identifiers that stand in more rows than a person's would.
fn too_wide(
    engine: &Engine,
    table: &Table,
    relation: &str,
    wanted: &[Identifier],
) -> Result<Vec<Identifier>, LoadError> {
    let failed = |source| LoadError::engine("count sittings", source);
    let session = columns(table).find(|(_, kind)| *kind == IdentifierKind::Session);
    let counted = session
        .map_or("count(*)".to_owned(), |(column, _)| format!("count(DISTINCT t.{})", quote_identifier(&column.name)));
    let Some(condition) = is_persons(table, wanted) else { return Ok(Vec::new()) };
    let mut wide = Vec::new();
    for (column, kind) in columns(table) {
        let name = quote_identifier(&column.name);
        let sql = format!(
            "SELECT CAST(t.{name} AS VARCHAR) FROM {relation} t WHERE {condition} GROUP BY t.{name} HAVING {counted} > {SESSIONS_MAX}"
        );
        let mut statement = engine.connection().prepare(&sql).map_err(failed)?;
        let found = statement.query_map([], |row| row.get::<_, Option<String>>(0)).map_err(failed)?;
        for text in found {
            let identifier = text.map_err(failed)?.and_then(|text| Identifier::read(kind, &text));
            wide.extend(identifier.filter(|identifier| wanted.contains(identifier)));
        }
    }
    Ok(wide)
}
