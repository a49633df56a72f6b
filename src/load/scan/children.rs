//! The rows of child tables that belong to each row: their number, and one number for their contents.

use arrow::array::RecordBatch;
use foldhash::HashMap;

use super::{records::rows_where, values::value_hashes};
use crate::{
    load::{
        LoadError,
        error::invalid_rows,
        store::{BufferedStore, Filter, number_column, owner_columns, renamed},
    },
    model::{FlatPage, key_hashes},
    schema::{RECORD_COLUMN, Table, children_of},
};

/// What the rows of each child table come to, for each row of the base table that has any.
pub(super) struct ChildSums {
    base: &'static Table,
    tables: Vec<(&'static Table, HashMap<u128, Sum>)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    rows: u64,
    contents: u128,
}

impl ChildSums {
    /// Of no rows yet.
    pub fn new(base: &'static Table) -> Self {
        // What comes with a flag is made of a column that comes with it, and is compared there.
        let compared = children_of(&base.name).filter(|child| child.flag.is_none());
        Self { base, tables: compared.map(|child| (child, HashMap::default())).collect() }
    }

    /// Of the stored rows that the filter of each child table takes.
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

    /// Adds the rows of these records of a page.
    pub fn add_page(&mut self, page: &FlatPage, is_wanted: impl Fn(i64) -> bool) -> Result<(), LoadError> {
        for (child, sums) in &mut self.tables {
            let Some(rows) = page.table(&child.name) else { continue };
            let records = number_column(rows, RECORD_COLUMN)?.values();
            let rows = rows_where(child, rows, |row| records.get(row).is_some_and(|record| is_wanted(*record)))?;
            add(sums, self.base, child, &rows)?;
        }
        Ok(())
    }

    /// The child tables in which the row of this key has other rows there than here.
    pub fn differing(&self, there: &Self, key: u128) -> impl Iterator<Item = &'static Table> {
        let both = self.tables.iter().zip(&there.tables);
        both.filter_map(move |((child, here), (_, there))| (here.get(&key) != there.get(&key)).then_some(*child))
    }
}

fn add(
    sums: &mut HashMap<u128, Sum>,
    base: &'static Table,
    child: &'static Table,
    rows: &RecordBatch,
) -> Result<(), LoadError> {
    let columns: Vec<&str> = child.flat_columns().map(|column| column.name.as_str()).collect();
    let contents = value_hashes(&columns, rows)?;
    let owners = renamed(rows, &owner_columns(child), &base.key.iter().map(String::as_str).collect::<Vec<_>>())?;
    for (owner, content) in
        key_hashes(&base.key_in_order(), &owners).map_err(invalid_rows(child))?.into_iter().zip(contents)
    {
        let sum = sums.entry(owner).or_default();
        *sum = Sum { rows: sum.rows + 1, contents: sum.contents ^ content };
    }
    Ok(())
}
