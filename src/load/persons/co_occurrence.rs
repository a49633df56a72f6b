//! Finds the identifiers that occur together in rows.

use std::collections::BTreeSet;

use arrow::array::RecordBatch;
use foldhash::{HashMap, HashSet};
use xxhash_rust::xxh3::xxh3_64;

use super::{
    identifier_columns::{IdentifierColumn, IdentifierValues, columns_to_read, identifier_columns},
    identifier_set::{IdentifierSet, LowercaseBuffer},
    parallel_read::{fold_batches, workers},
};
use crate::{
    load::{
        LoadError,
        store::{BufferedStore, Filter},
    },
    model::{Identifier, IdentifierKind, Spellings, WrittenIdentifier, merge_spellings},
    schema::{Table, tables},
};

/// The rows of a warehouse that contain some identifiers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CoOccurrence {
    /// All identifiers of each row that contains a wanted one; each set once.
    pub rows: Vec<Vec<Identifier>>,
    /// Identifiers that occur in too many sessions: their rows are left out.
    pub too_wide: Vec<Identifier>,
    /// How the identifiers of these rows are written there.
    pub spellings: Spellings,
}

/// Limits that bound the memory, and that tell people from shared identifiers.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Maximum number of different rows from one table.
    rows_max: usize,
    /// Maximum number of sessions of one identifier. Applies only if the table has more than `rows_max` rows.
    sessions_max: usize,
}

const LIMITS: Limits = Limits { rows_max: 200_000, sessions_max: 20_000 };

/// Finds the rows of every table that contain one of the identifiers.
///
/// # Errors
/// `TooManyRows` if there are more rows than the limit although no single identifier is in too many sessions.
pub(in crate::load) fn co_occurrence(
    store: &mut BufferedStore,
    wanted: &[Identifier],
) -> Result<CoOccurrence, LoadError> {
    co_occurrence_within(store, wanted, LIMITS)
}

fn co_occurrence_within(
    store: &mut BufferedStore,
    wanted: &[Identifier],
    limits: Limits,
) -> Result<CoOccurrence, LoadError> {
    let mut wanted = IdentifierSet::of(wanted);
    let mut rows = BTreeSet::new();
    let mut co_occurrence = CoOccurrence::default();
    for table in tables() {
        let id_columns = identifier_columns(table);
        // A table with one identifying column links no identifiers.
        if id_columns.len() < 2 || !id_columns.iter().any(|id_column| id_column.may_hold(&wanted)) {
            continue;
        }
        let mut found = read_table(store, table, &id_columns, &wanted, limits)?;
        if found.is_too_large(limits) {
            let wide = found.wide(limits, id_columns.iter().any(|id_column| id_column.kind == IdentifierKind::Session));
            wanted.remove(&wide);
            co_occurrence.too_wide.extend(wide);
            found = read_table(store, table, &id_columns, &wanted, limits)?;
        }
        if found.is_too_large(limits) {
            return Err(LoadError::TooManyRows { rows_max: limits.rows_max });
        }
        rows.extend(found.rows);
        merge_spellings(&mut co_occurrence.spellings, found.spellings);
    }
    co_occurrence.rows = rows.into_iter().collect();
    co_occurrence.too_wide.sort();
    Ok(co_occurrence)
}

/// The rows of one table that contain a wanted identifier.
#[derive(Debug, Default)]
struct TableCoOccurrence {
    /// The first rows; at most one more than the limit.
    rows: HashSet<Vec<Identifier>>,
    spellings: Spellings,
    /// How often each wanted identifier occurs.
    uses: HashMap<Identifier, IdentifierUse>,
}

/// How many rows and sessions contain an identifier.
#[derive(Debug, Default)]
struct IdentifierUse {
    rows: usize,
    /// Hashes of the sessions; at most one more than the limit.
    sessions: HashSet<u64>,
}

impl TableCoOccurrence {
    fn is_too_large(&self, limits: Limits) -> bool {
        self.rows.len() > limits.rows_max
    }

    /// The identifiers in more sessions than one person can have. In a table without sessions, rows are counted.
    fn wide(&self, limits: Limits, has_sessions: bool) -> HashSet<Identifier> {
        let is_wide = |uses: &IdentifierUse| {
            let count = if has_sessions { uses.sessions.len() } else { uses.rows };
            count > limits.sessions_max
        };
        self.uses.iter().filter(|(_, uses)| is_wide(uses)).map(|(wanted, _)| wanted.clone()).collect()
    }

    fn add(&mut self, row: Vec<WrittenIdentifier>, wanted: &IdentifierSet, limits: Limits) {
        let session = row.iter().find(|spelled| spelled.identifier.kind == IdentifierKind::Session);
        let session = session.map(|spelled| xxh3_64(spelled.identifier.value.as_bytes()));
        let is_full = self.is_too_large(limits);
        let mut identifiers = BTreeSet::new();
        for spelled in row {
            if wanted.contains(&spelled.identifier) && !identifiers.contains(&spelled.identifier) {
                let uses = self.uses.entry(spelled.identifier.clone()).or_default();
                uses.rows += 1;
                uses.sessions.extend(session.filter(|_| uses.sessions.len() <= limits.sessions_max));
            }
            identifiers.insert(if is_full { spelled.identifier } else { spelled.into_identifier(&mut self.spellings) });
        }
        if !is_full {
            self.rows.insert(identifiers.into_iter().collect());
        }
    }

    fn merge(&mut self, other: TableCoOccurrence, limits: Limits) {
        for (identifier, uses) in other.uses {
            let all = self.uses.entry(identifier).or_default();
            all.rows += uses.rows;
            all.sessions.extend(uses.sessions);
        }
        merge_spellings(&mut self.spellings, other.spellings);
        for row in other.rows {
            if !self.is_too_large(limits) {
                self.rows.insert(row);
            }
        }
    }
}

fn read_table(
    store: &mut BufferedStore,
    table: &'static Table,
    id_columns: &[IdentifierColumn],
    wanted: &IdentifierSet,
    limits: Limits,
) -> Result<TableCoOccurrence, LoadError> {
    let columns = columns_to_read(id_columns);
    let lowercase = fold_batches(
        workers(),
        |take| store.read(table, &columns, &Filter::all(), take),
        TableCoOccurrence::default,
        |together, rows| add_batch(together, &rows, id_columns, wanted, limits),
    )?;
    let mut all = TableCoOccurrence::default();
    lowercase.into_iter().for_each(|some| all.merge(some, limits));
    Ok(all)
}

fn add_batch(
    together: &mut TableCoOccurrence,
    rows: &RecordBatch,
    id_columns: &[IdentifierColumn],
    wanted: &IdentifierSet,
    limits: Limits,
) -> Result<(), LoadError> {
    let values =
        id_columns.iter().map(|id_column| id_column.values(rows)).collect::<Result<Vec<IdentifierValues<'_>>, _>>()?;
    let tested =
        || id_columns.iter().zip(&values).filter(|(id_column, _)| id_column.may_hold(wanted)).map(|(_, values)| values);
    let tested: Vec<&IdentifierValues<'_>> = tested().collect();
    let mut lowercase = LowercaseBuffer::default();
    for row in 0..rows.num_rows() {
        if tested.iter().any(|values| values.is_wanted(row, wanted, &mut lowercase)) {
            together.add(values.iter().filter_map(|values| values.read(row)).collect(), wanted, limits);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
