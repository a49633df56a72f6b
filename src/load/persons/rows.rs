//! The rows of people: what has to go from each table so that none of their identifiers is left in a column for them.

use std::collections::BTreeMap;

use arrow::array::{BooleanArray, RecordBatch};

use super::{
    identifier_columns::{IdentifierColumn, columns_to_read, identifier_columns, matching_rows, record_columns},
    identifier_set::IdentifierSet,
    parallel_read::removal_keys_where,
    record_matcher::RecordMatcher,
};
use crate::{
    load::{
        LoadError,
        store::{BufferedStore, Filter, KeySet, TableChange, TimeRange, removal_columns, removal_keys},
    },
    model::{Identifier, Stream, Window},
    schema::{Table, TableKind, children_of, tables},
};

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

    fn note(&mut self, rows: &RowsToRemove) {
        let table = rows.change.table;
        *self.rows.entry(&table.name).or_default() += rows.count;
        let stream = table.stream.as_deref().and_then(|name| name.parse::<Stream>().ok());
        if let (Some(stream), Some(TimeRange { start_us, end_us })) = (stream, rows.change.removed_range) {
            let window = Window::new(start_us.div_euclid(1000), end_us.div_euclid(1000).saturating_add(1));
            let met = self.met.entry(stream).or_insert(window);
            *met = Window::new(met.start_ms.min(window.start_ms), met.end_ms.max(window.end_ms));
        }
    }
}

/// Counts the rows that carry one of these identifiers, and the rows that belong to them. Changes nothing.
pub(in crate::load) fn find(store: &mut BufferedStore, person: &[Identifier]) -> Result<PeopleFound, LoadError> {
    for_each_table(store, person, |_, _| Ok(()))
}

/// Removes the rows that [`find`] counts, and returns the counts.
pub(in crate::load) fn remove(store: &mut BufferedStore, person: &[Identifier]) -> Result<PeopleFound, LoadError> {
    for_each_table(store, person, |store, rows| store.change(rows.change))
}

/// Rows of one table that have to go.
struct RowsToRemove {
    /// Removes them.
    change: TableChange,
    /// How many there are.
    count: u64,
}

fn for_each_table(
    store: &mut BufferedStore,
    person: &[Identifier],
    mut act: impl FnMut(&mut BufferedStore, RowsToRemove) -> Result<(), LoadError>,
) -> Result<PeopleFound, LoadError> {
    let wanted = IdentifierSet::of(person);
    let test = RecordMatcher::new(&wanted);
    let mut found = PeopleFound::default();
    for table in tables().iter().filter(|table| table.kind != TableKind::Child) {
        for rows in rows_to_remove(store, table, &test)? {
            found.note(&rows);
            act(store, rows)?;
        }
    }
    Ok(found)
}

/// The rows of a table and of its children that have to go; tables without any are left out.
fn rows_to_remove(
    store: &mut BufferedStore,
    table: &'static Table,
    test: &RecordMatcher<'_>,
) -> Result<Vec<RowsToRemove>, LoadError> {
    let family = || std::iter::once(table).chain(children_of(&table.name));
    let mut keys = KeySet::new(removal_columns(table));
    for member in family() {
        // An identifier in a child's row marks the whole set, and the row to which the set belongs.
        for rows in keys_of_matching_rows(store, member, test)? {
            keys.add(&removal_keys(member, &rows, table)?)?;
        }
    }
    let mut owned = Vec::new();
    for member in family().filter(|_| !keys.is_empty()) {
        let mut change = TableChange::new(member);
        for rows in keys.values() {
            change.remove(&removal_keys(table, rows, member)?)?;
        }
        let count = count(store, &change)?;
        if count > 0 {
            owned.push(RowsToRemove { change, count });
        }
    }
    Ok(owned)
}

/// The removal columns of the rows that carry a wanted identifier themselves.
fn keys_of_matching_rows(
    store: &mut BufferedStore,
    table: &'static Table,
    test: &RecordMatcher<'_>,
) -> Result<Vec<RecordBatch>, LoadError> {
    let marks: Vec<IdentifierColumn> =
        identifier_columns(table).into_iter().filter(|mark| mark.may_hold(test.wanted)).collect();
    let records = record_columns(table);
    if test.wanted.is_empty() || (marks.is_empty() && records.is_empty()) {
        return Ok(Vec::new());
    }
    let columns: Vec<&str> = columns_to_read(&marks).into_iter().chain(records.iter().copied()).collect();
    removal_keys_where(store, table, &columns, |rows| {
        matching_rows(rows, &marks, &records, test).map(BooleanArray::from)
    })
}

fn count(store: &mut BufferedStore, change: &TableChange) -> Result<u64, LoadError> {
    let filter = Filter::within(change.removed_range).with_keys(&change.removed);
    let mut count = 0;
    store.read(change.table, &removal_columns(change.table), &filter, &mut |rows| {
        count += rows.num_rows() as u64;
        Ok(())
    })?;
    Ok(count)
}
