//! Digests of child rows: for each parent row the number of its child rows and one hash of their contents. Digests show
//! in which child tables the rows of a parent changed. This file also updates stored child rows that a scan did not
//! request, when shared columns of their parent row change. A shared column stores the same field of the record in the
//! parent and the child table, such as the creation time.

use arrow::{
    array::{RecordBatch, UInt64Array},
    compute::take,
};
use foldhash::HashMap;

use super::{
    records::rows_where,
    stamps::{column_of, rows_of, stamp},
    value_hashes::value_hashes,
};
use crate::{
    load::{
        LoadError,
        error::invalid_rows,
        store::{
            BufferedStore, Filter, KeySet, TableChange, TimeRange, number_column, removal_columns, removal_key_columns,
            removal_keys, renamed,
        },
    },
    model::{FlatPage, Scan, key_hashes},
    schema::{RECORD_COLUMN, Table, children_of},
};

/// For each child table, the digests of the child rows by the key hash of their parent row.
pub(super) struct ChildDigests {
    base: &'static Table,
    tables: Vec<(&'static Table, HashMap<u128, Digest>)>,
}

/// The digest of the child rows of one parent row in one table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Digest {
    /// Number of child rows.
    rows: u64,
    /// XOR of the content hashes of the child rows, so that their order does not matter.
    contents: u128,
}

impl ChildDigests {
    /// Creates digests without rows. Child tables that need a flag are left out. The rows of such a table are built
    /// from a column of the parent with the same flag, so comparing this column shows every change of these rows.
    pub fn new(base: &'static Table) -> Self {
        let compared = children_of(&base.name).filter(|child| child.flag.is_none());
        Self { base, tables: compared.map(|child| (child, HashMap::default())).collect() }
    }

    /// Creates the digests of stored child rows. `filter` returns, for each child table, the filter that selects the
    /// rows.
    pub fn of_stored<'f>(
        store: &mut BufferedStore,
        base: &'static Table,
        filter: impl Fn(&'static Table) -> Filter<'f>,
    ) -> Result<Self, LoadError> {
        let mut digests = Self::new(base);
        for (child, digests) in &mut digests.tables {
            store.full_rows(child, &filter(child))?.iter().try_for_each(|rows| add(digests, base, child, rows))?;
        }
        Ok(digests)
    }

    /// Adds the child rows of a page that belong to wanted records. `is_wanted` returns true for the number of a wanted
    /// record.
    pub fn add_page(&mut self, page: &FlatPage, is_wanted: impl Fn(i64) -> bool) -> Result<(), LoadError> {
        for (child, digests) in &mut self.tables {
            let Some(rows) = page.table(&child.name) else { continue };
            let records = number_column(rows, RECORD_COLUMN)?.values();
            let rows = rows_where(child, rows, |row| records.get(row).is_some_and(|record| is_wanted(*record)))?;
            add(digests, self.base, child, &rows)?;
        }
        Ok(())
    }

    /// Returns the child tables in which the rows of one parent row differ between `self` and `other`. `key` is the key
    /// hash of the parent row.
    pub fn differing_tables(&self, other: &Self, key: u128) -> impl Iterator<Item = &'static Table> {
        let both = self.tables.iter().zip(&other.tables);
        both.filter_map(move |((child, digests), (_, others))| {
            (digests.get(&key) != others.get(&key)).then_some(*child)
        })
    }
}

/// Adds child rows to the digests of their parent rows.
fn add(
    digests: &mut HashMap<u128, Digest>,
    base: &'static Table,
    child: &'static Table,
    rows: &RecordBatch,
) -> Result<(), LoadError> {
    let columns: Vec<&str> = child.flat_columns().map(|column| column.name.as_str()).collect();
    let contents = value_hashes(child, &columns, rows)?;
    for (parent, content) in parent_keys(base, child, rows)?.into_iter().zip(contents) {
        let digest = digests.entry(parent).or_default();
        *digest = Digest { rows: digest.rows + 1, contents: digest.contents ^ content };
    }
    Ok(())
}

/// Returns, for each row of a child table, the hash of the key of its parent row.
fn parent_keys(base: &'static Table, child: &'static Table, rows: &RecordBatch) -> Result<Vec<u128>, LoadError> {
    let parents = renamed(rows, &removal_key_columns(child), &base.key.iter().map(String::as_str).collect::<Vec<_>>())?;
    key_hashes(&base.key_in_order(), &parents).map_err(invalid_rows(child))
}

/// Copies changed values of shared columns, such as the creation time, from parent rows to their stored child rows.
/// Without the copy, child rows would no longer be found: they are looked up by the key and creation time of their
/// parent row. Called for child tables that the scan did not request, whose rows stay. `old` and `new` are the parent
/// rows before and after the change, in the same order. Does nothing if no shared column changed.
pub(super) fn move_with_parents(
    store: &mut BufferedStore,
    scan: &Scan,
    base: &'static Table,
    child: &'static Table,
    old: &RecordBatch,
    new: &RecordBatch,
) -> Result<(), LoadError> {
    // A shared column stores the same field of the record in both tables.
    let is_shared = |name: &str| {
        let [in_base, in_child] = [base, child].map(|table| table.column(name).and_then(|column| column.json.as_ref()));
        in_base.is_some() && in_base == in_child
    };
    let shared: Vec<&str> =
        child.columns.iter().map(|column| column.name.as_str()).filter(|name| is_shared(name)).collect();
    let (before, after) = (value_hashes(base, &shared, old)?, value_hashes(base, &shared, new)?);
    let moved = removal_keys(base, &rows_where(base, old, |row| before.get(row) != after.get(row))?, child)?;
    if moved.num_rows() == 0 {
        return Ok(());
    }
    let keys = KeySet::of(removal_columns(child), std::slice::from_ref(&moved))?;
    let parents: HashMap<u128, u64> =
        key_hashes(&base.key_in_order(), new).map_err(invalid_rows(base))?.into_iter().zip(0..).collect();
    let mut change = TableChange::new(child);
    change.remove(&moved)?;
    for range in TimeRange::clusters_of(child, std::slice::from_ref(&moved))? {
        for rows in store.full_rows(child, &Filter::within(range).with_keys(&keys))? {
            let parents: UInt64Array =
                parent_keys(base, child, &rows)?.iter().map(|key| parents.get(key).copied()).collect();
            let count = rows.num_rows();
            change.add(rows_of(child, count, |column| {
                Ok(Some(match (stamp(scan, column, count), column.name.as_str()) {
                    (Some(stamp), _) => stamp,
                    (None, name) if is_shared(name) => {
                        take(&column_of(base, new, name)?, &parents, None).map_err(invalid_rows(child))?
                    }
                    (None, name) => column_of(child, &rows, name)?,
                }))
            })?);
        }
    }
    store.change(change)
}
