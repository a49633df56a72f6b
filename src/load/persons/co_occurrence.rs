//! Finds which identifiers occur together in rows, so that `erase` can link the identifiers of a person.

use std::collections::BTreeSet;

use arrow::array::RecordBatch;
use foldhash::{HashMap, HashSet};
use xxhash_rust::xxh3::xxh3_64;

use super::{
    all_rows::fold_rows,
    identifier_columns::{IdentifierColumn, IdentifierValues, columns_to_read, identifier_columns},
    identifier_set::{IdentifierSet, LowercaseBuffer},
};
use crate::{
    load::{LoadError, store::BufferedStore},
    model::{Identifier, IdentifierKind, Spellings, WrittenIdentifier, merge_spellings},
    schema::{Table, tables},
};

/// The identifiers in the rows of a warehouse, or in the records of an archive, that contain a wanted identifier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CoOccurrence {
    /// All identifiers of each row with a wanted identifier, sorted.
    pub rows: BTreeSet<Vec<Identifier>>,
    /// Wanted identifiers that occur in more sessions than one person can have, found only in a table with too many
    /// rows. This table and the tables after it are searched without these identifiers.
    pub too_wide: Vec<Identifier>,
    /// The spellings in which the rows write the identifiers.
    pub spellings: Spellings,
}

impl CoOccurrence {
    /// Adds the rows and spellings of other files.
    pub fn add(&mut self, other: CoOccurrence) {
        self.rows.extend(other.rows);
        self.too_wide.extend(other.too_wide);
        merge_spellings(&mut self.spellings, other.spellings);
    }
}

/// Limits of the memory, and of how many sessions an identifier of one person can have.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Largest number of rows with different identifiers from one table.
    rows_max: usize,
    /// Largest number of sessions of one identifier. Applies only if a table has more rows than `rows_max`.
    sessions_max: usize,
}

const LIMITS: Limits = Limits { rows_max: 200_000, sessions_max: 20_000 };

/// Finds the rows of all tables that contain one of the identifiers, and returns the identifiers in these rows. If a
/// table has too many rows, identifiers in too many sessions are left out.
///
/// # Errors
/// `TooManyRows` if a table has too many rows even without these identifiers.
pub(in crate::load) fn co_occurrence(
    store: &mut BufferedStore,
    wanted: &[Identifier],
) -> Result<CoOccurrence, LoadError> {
    co_occurrence_within(store, wanted, LIMITS)
}

/// Does the work of [`co_occurrence`], with these limits, which tests set low. A table that has too many rows is read a
/// second time, without the identifiers in too many sessions.
fn co_occurrence_within(
    store: &mut BufferedStore,
    wanted: &[Identifier],
    limits: Limits,
) -> Result<CoOccurrence, LoadError> {
    let mut wanted = IdentifierSet::of(wanted);
    let mut co_occurrence = CoOccurrence::default();
    for table in tables() {
        let id_columns = identifier_columns(table);
        // A table with one identifying column links no identifiers.
        if id_columns.len() < 2 || !id_columns.iter().any(|id_column| id_column.may_contain(&wanted)) {
            continue;
        }
        let mut found = read_table(store, table, &id_columns, &wanted, limits)?;
        if found.is_too_large(limits) {
            let wide =
                found.too_wide(limits, id_columns.iter().any(|id_column| id_column.kind == IdentifierKind::Session));
            wanted.remove(&wide);
            co_occurrence.too_wide.extend(wide);
            found = read_table(store, table, &id_columns, &wanted, limits)?;
        }
        if found.is_too_large(limits) {
            return Err(LoadError::TooManyRows { rows_max: limits.rows_max });
        }
        co_occurrence.rows.extend(found.rows);
        merge_spellings(&mut co_occurrence.spellings, found.spellings);
    }
    co_occurrence.too_wide.sort();
    Ok(co_occurrence)
}

/// The identifiers in the rows of one table that contain a wanted identifier.
#[derive(Debug, Default)]
struct TableCoOccurrence {
    /// The identifiers of each row. At most one row more than the limit is kept: the extra row shows that there are too
    /// many.
    rows: HashSet<Vec<Identifier>>,
    spellings: Spellings,
    /// For each wanted identifier, the number of rows and sessions that contain it.
    uses: HashMap<Identifier, IdentifierUse>,
}

/// How many rows and sessions contain an identifier.
#[derive(Debug, Default)]
struct IdentifierUse {
    /// Number of rows that contain the identifier.
    rows: usize,
    /// Hashes of the sessions that contain the identifier. Each thread keeps at most one session more than the limit.
    sessions: HashSet<u64>,
}

impl TableCoOccurrence {
    /// Returns true if there are more rows than the limit.
    fn is_too_large(&self, limits: Limits) -> bool {
        self.rows.len() > limits.rows_max
    }

    /// Returns the wanted identifiers that occur in more sessions than the limit. In a table without sessions
    /// (`has_sessions` is false), rows are counted instead.
    fn too_wide(&self, limits: Limits, has_sessions: bool) -> HashSet<Identifier> {
        let is_wide = |uses: &IdentifierUse| {
            let count = if has_sessions { uses.sessions.len() } else { uses.rows };
            count > limits.sessions_max
        };
        self.uses.iter().filter(|(_, uses)| is_wide(uses)).map(|(wanted, _)| wanted.clone()).collect()
    }

    /// Adds the identifiers of a row that contains a wanted identifier. Once more rows than the limit are kept, only
    /// the counts of the wanted identifiers grow.
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

    /// Adds the rows and counts that another thread found. Keeps at most one row more than the limit, as [`Self::add`]
    /// does. The counts stay complete.
    fn merge(&mut self, other: TableCoOccurrence, limits: Limits) {
        for (identifier, uses) in other.uses {
            let total = self.uses.entry(identifier).or_default();
            total.rows += uses.rows;
            total.sessions.extend(uses.sessions);
        }
        merge_spellings(&mut self.spellings, other.spellings);
        for row in other.rows {
            if !self.is_too_large(limits) {
                self.rows.insert(row);
            }
        }
    }
}

/// Reads a table in several threads, and returns the identifiers of all rows that contain a wanted identifier.
fn read_table(
    store: &mut BufferedStore,
    table: &'static Table,
    id_columns: &[IdentifierColumn],
    wanted: &IdentifierSet,
    limits: Limits,
) -> Result<TableCoOccurrence, LoadError> {
    let columns = columns_to_read(id_columns);
    let found_by_threads = fold_rows(store, table, &columns, TableCoOccurrence::default, |found, rows| {
        add_batch(found, &rows, id_columns, wanted, limits)
    })?;
    let mut total = TableCoOccurrence::default();
    found_by_threads.into_iter().for_each(|found| total.merge(found, limits));
    Ok(total)
}

/// Adds the identifiers of the rows of a batch that contain a wanted identifier. `id_columns` are the identifier
/// columns of the batch.
fn add_batch(
    found: &mut TableCoOccurrence,
    rows: &RecordBatch,
    id_columns: &[IdentifierColumn],
    wanted: &IdentifierSet,
    limits: Limits,
) -> Result<(), LoadError> {
    let values =
        id_columns.iter().map(|id_column| id_column.values(rows)).collect::<Result<Vec<IdentifierValues<'_>>, _>>()?;
    let tested = || {
        id_columns.iter().zip(&values).filter(|(id_column, _)| id_column.may_contain(wanted)).map(|(_, values)| values)
    };
    let tested: Vec<&IdentifierValues<'_>> = tested().collect();
    let mut lowercase = LowercaseBuffer::default();
    for row in 0..rows.num_rows() {
        if tested.iter().any(|values| values.is_wanted(row, wanted, &mut lowercase)) {
            let mut identifiers = Vec::new();
            values.iter().for_each(|values| values.read_into(row, &mut identifiers));
            found.add(identifiers, wanted, limits);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
