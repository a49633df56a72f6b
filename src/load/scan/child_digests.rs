//! Digests of child rows: for each parent row the number of its child rows and one hash of their contents.

use arrow::array::RecordBatch;
use foldhash::HashMap;

use super::{records::rows_where, value_hashes::value_hashes};
use crate::{
    load::{
        LoadError,
        error::unfit,
        store::{BufferedStore, Filter, number_column, owner_columns, renamed},
    },
    model::{FlatPage, key_hashes},
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
    let owners = renamed(rows, &owner_columns(child), &base.key.iter().map(String::as_str).collect::<Vec<_>>())?;
    for (owner, content) in key_hashes(&base.key_in_order(), &owners).map_err(unfit(child))?.into_iter().zip(contents) {
        let sum = sums.entry(owner).or_default();
        *sum = Digest { rows: sum.rows + 1, contents: sum.contents ^ content };
    }
    Ok(())
}
