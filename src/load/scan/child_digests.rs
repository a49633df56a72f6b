//! Digests of child rows: for each parent row the number of its child rows and one hash of their contents. Child rows
//! that a scan did not request move with their parent row.

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
            BufferedStore, Filter, KeySet, TableChange, TimeRange, number_column, owner_columns, removal_columns,
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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Digest {
    rows: u64,
    contents: u128,
}

impl ChildDigests {
    /// Digests of no rows.
    pub fn new(base: &'static Table) -> Self {
        // A child that comes with a flag is built from a column with the same flag, and is compared there.
        let compared = children_of(&base.name).filter(|child| child.flag.is_none());
        Self { base, tables: compared.map(|child| (child, HashMap::default())).collect() }
    }

    /// Digests of the stored rows that the filter of each child table selects.
    pub fn of_stored<'f>(
        store: &mut BufferedStore,
        base: &'static Table,
        filter: impl Fn(&'static Table) -> Filter<'f>,
    ) -> Result<Self, LoadError> {
        let mut sums = Self::new(base);
        for (child, sums) in &mut sums.tables {
            store.full_rows(child, &filter(child))?.iter().try_for_each(|rows| add(sums, base, child, rows))?;
        }
        Ok(sums)
    }

    /// Adds the child rows of the wanted records of a page.
    pub fn add_page(&mut self, page: &FlatPage, is_wanted: impl Fn(i64) -> bool) -> Result<(), LoadError> {
        for (child, sums) in &mut self.tables {
            let Some(rows) = page.table(&child.name) else { continue };
            let records = number_column(rows, RECORD_COLUMN)?.values();
            let rows = rows_where(child, rows, |row| records.get(row).is_some_and(|record| is_wanted(*record)))?;
            add(sums, self.base, child, &rows)?;
        }
        Ok(())
    }

    /// The child tables in which the rows of this key differ from those in `other`.
    pub fn differing(&self, other: &Self, key: u128) -> impl Iterator<Item = &'static Table> {
        let both = self.tables.iter().zip(&other.tables);
        both.filter_map(move |((child, digests), (_, others))| {
            (digests.get(&key) != others.get(&key)).then_some(*child)
        })
    }
}

fn add(
    sums: &mut HashMap<u128, Digest>,
    base: &'static Table,
    child: &'static Table,
    rows: &RecordBatch,
) -> Result<(), LoadError> {
    let columns: Vec<&str> = child.flat_columns().map(|column| column.name.as_str()).collect();
    let contents = value_hashes(&columns, rows)?;
    for (owner, content) in parent_keys(base, child, rows)?.into_iter().zip(contents) {
        let sum = sums.entry(owner).or_default();
        *sum = Digest { rows: sum.rows + 1, contents: sum.contents ^ content };
    }
    Ok(())
}

/// The hash of the key of the parent row, for each row of a child table.
fn parent_keys(base: &'static Table, child: &'static Table, rows: &RecordBatch) -> Result<Vec<u128>, LoadError> {
    let parents = renamed(rows, &owner_columns(child), &base.key.iter().map(String::as_str).collect::<Vec<_>>())?;
    key_hashes(&base.key_in_order(), &parents).map_err(invalid_rows(child))
}

/// Gives stored child rows the columns that they share with their parent row, such as its creation time, as the parent
/// row has them now. For child tables that the scan did not ask for: their rows stay, and are looked up by those
/// columns. `old` and `new` are the parent rows before and after, in the same order.
pub(super) fn move_with_parents(
    store: &mut BufferedStore,
    scan: &Scan,
    base: &'static Table,
    child: &'static Table,
    old: &RecordBatch,
    new: &RecordBatch,
) -> Result<(), LoadError> {
    let is_shared = |name: &str| {
        let [of_base, of_child] = [base, child].map(|table| table.column(name).and_then(|column| column.json.as_ref()));
        of_base.is_some() && of_base == of_child
    };
    let shared: Vec<&str> =
        child.columns.iter().map(|column| column.name.as_str()).filter(|it| is_shared(it)).collect();
    let (before, after) = (value_hashes(&shared, old)?, value_hashes(&shared, new)?);
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
