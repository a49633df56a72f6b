//! Finds and removes the rows of people: rows with an identifier of a person, and the parent and child rows of such
//! rows.

use std::collections::BTreeMap;

use arrow::array::{BooleanArray, RecordBatch};

use super::{
    all_rows::removal_keys_where,
    identifier_columns::{RecordMatcher, RowMatcher},
    identifier_set::IdentifierSet,
    mentions::decoded,
};
use crate::{
    load::{
        ExportedRows, LoadError,
        store::{BufferedStore, Filter, KeySet, TableChange, TimeRange, removal_columns, removal_keys},
    },
    model::{Identifier, Stream, Window},
    schema::{Table, TableKind, children_of, tables},
};

/// The rows of people in a warehouse.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeopleFound {
    /// Number of rows by table; tables without such rows are left out.
    pub rows: BTreeMap<&'static str, u64>,
    /// For each stream the range of the creation times of the found rows. Streams without found rows, and rows without
    /// a creation time, are left out.
    pub met: BTreeMap<Stream, Window>,
}

impl PeopleFound {
    /// Returns the number of rows in all tables.
    pub fn total(&self) -> u64 {
        self.rows.values().sum()
    }

    /// Adds the number and the time range of rows to the result.
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

/// Counts the rows that contain one of these identifiers, with their parent and child rows. No row is changed.
pub(in crate::load) fn find(store: &mut BufferedStore, person: &[Identifier]) -> Result<PeopleFound, LoadError> {
    for_each_table(store, person, |_, _| Ok(()))
}

/// Removes the rows that [`find`] counts, and returns the counts.
pub(in crate::load) fn remove(store: &mut BufferedStore, person: &[Identifier]) -> Result<PeopleFound, LoadError> {
    for_each_table(store, person, |store, rows| store.change(rows.change))
}

/// Calls `take` with the rows that [`find`] counts, for each table once. Texts in Base64 are decoded.
pub(in crate::load) fn export(
    store: &mut BufferedStore,
    person: &[Identifier],
    take: &mut dyn FnMut(ExportedRows) -> Result<(), LoadError>,
) -> Result<(), LoadError> {
    let exported = for_each_table(store, person, |store, RowsToRemove { change, .. }| {
        let table = change.table;
        let columns: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
        let filter = Filter::within(change.removed_range).with_keys(&change.removed);
        let mut exported = ExportedRows { table: table.name.clone(), ..ExportedRows::default() };
        store.read(table, &columns, &filter, &mut |rows| exported.add(&decoded(table, rows)?))?;
        take(exported)
    });
    exported.map(drop)
}

/// The rows of one table that belong to a person or to several people.
struct RowsToRemove {
    /// The change that removes the rows.
    change: TableChange,
    /// Number of stored rows that the change removes.
    count: u64,
}

/// Calls `act` with the rows of the person in each table that has such rows, and returns the counts of all these rows.
fn for_each_table(
    store: &mut BufferedStore,
    person: &[Identifier],
    mut act: impl FnMut(&mut BufferedStore, RowsToRemove) -> Result<(), LoadError>,
) -> Result<PeopleFound, LoadError> {
    let wanted = IdentifierSet::of(person);
    let matcher = RecordMatcher::new(&wanted);
    let mut found = PeopleFound::default();
    for table in tables().iter().filter(|table| table.kind != TableKind::Child) {
        for rows in rows_to_remove(store, table, &matcher)? {
            found.note(&rows);
            act(store, rows)?;
        }
    }
    Ok(found)
}

/// Returns the rows of a table and its child tables that belong to people. A row belongs to people if it, its parent
/// row, or a child row of that parent row contains a wanted identifier. Tables without such rows are left out.
fn rows_to_remove(
    store: &mut BufferedStore,
    table: &'static Table,
    matcher: &RecordMatcher<'_>,
) -> Result<Vec<RowsToRemove>, LoadError> {
    let family = || std::iter::once(table).chain(children_of(&table.name));
    let mut keys = KeySet::new(removal_columns(table));
    for member in family() {
        // A row with an identifier selects its parent row, if it is a child row, and all child rows of that parent.
        for rows in keys_of_matching_rows(store, member, matcher)? {
            keys.add(&removal_keys(member, &rows, table)?)?;
        }
    }
    let mut to_remove = Vec::new();
    for member in family().filter(|_| !keys.is_empty()) {
        let mut change = TableChange::new(member);
        for rows in keys.values() {
            change.remove(&removal_keys(table, rows, member)?)?;
        }
        let count = count_removed(store, &change)?;
        if count > 0 {
            to_remove.push(RowsToRemove { change, count });
        }
    }
    Ok(to_remove)
}

/// Returns the [`removal_columns`] of the rows of one table that contain a wanted identifier, in an identifier column
/// or in the JSON text of a record. Parent and child rows of these rows are not included.
fn keys_of_matching_rows(
    store: &mut BufferedStore,
    table: &'static Table,
    matcher: &RecordMatcher<'_>,
) -> Result<Vec<RecordBatch>, LoadError> {
    let Some(row_matcher) = RowMatcher::of(table, matcher) else { return Ok(Vec::new()) };
    removal_keys_where(store, table, &row_matcher.columns(), |rows| {
        row_matcher.matching(&decoded(table, rows.clone())?).map(BooleanArray::from)
    })
}

/// Counts the stored rows that the change would remove, without removing them.
fn count_removed(store: &mut BufferedStore, change: &TableChange) -> Result<u64, LoadError> {
    let filter = Filter::within(change.removed_range).with_keys(&change.removed);
    let mut count = 0;
    store.read(change.table, &removal_columns(change.table), &filter, &mut |rows| {
        count += rows.num_rows() as u64;
        Ok(())
    })?;
    Ok(count)
}
