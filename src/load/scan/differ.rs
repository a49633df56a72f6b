//! Whether a record says something else than the stored row of its key, column by column.

use std::cmp::Ordering;

use arrow::{
    array::{Array as _, DynComparator, RecordBatch, make_comparator},
    compute::SortOptions,
};

use super::tables::was_asked_for;
use crate::{
    load::{LoadError, error::unfit, store::number_column},
    model::{FlagSet, Scan},
    schema::{Column, Table},
};

/// How a record differs from the stored row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Difference {
    None,
    /// In columns that the row was scanned without.
    Enriched,
    /// In a column that both scans asked for.
    Edited,
}

/// Compares rows of a page with stored rows, in the columns that the scan asked for.
pub(super) struct Comparer<'t> {
    columns: Vec<(&'t Column, DynComparator)>,
    /// The flags of each stored row, where the table keeps them.
    flags: Option<Vec<i64>>,
}

impl<'t> Comparer<'t> {
    pub fn new(base: &'t Table, scan: &Scan, rows: &RecordBatch, stored: &RecordBatch) -> Result<Self, LoadError> {
        let missing = |column: &Column| LoadError::Contract(format!("rows of {} without {}", base.name, column.name));
        let mut columns = Vec::new();
        for column in base.content_columns().filter(|column| was_asked_for(scan, column)) {
            let of = |rows: &'_ RecordBatch| rows.column_by_name(&column.name).cloned().ok_or_else(|| missing(column));
            let (row, held) = (of(rows)?, of(stored)?);
            // Most columns have no value on either side.
            if row.null_count() == row.len() && held.null_count() == held.len() {
                continue;
            }
            columns.push((column, make_comparator(&row, &held, SortOptions::default()).map_err(unfit(base))?));
        }
        let flags = base.column("_flags").map(|column| number_column(stored, &column.name)).transpose()?;
        let flags = flags.map(|flags| flags.iter().map(Option::unwrap_or_default).collect());
        Ok(Self { columns, flags })
    }

    /// How the row of the page differs from that stored row.
    pub fn difference(&self, row: usize, stored: usize) -> Difference {
        let mut difference = Difference::None;
        for column in self.differing(row, stored) {
            match column.flag {
                Some(flag) if !self.had_flag(stored, FlagSet::EMPTY.with(flag)) => difference = Difference::Enriched,
                _ => return Difference::Edited,
            }
        }
        difference
    }

    /// The columns in which they differ.
    pub fn differing(&self, row: usize, stored: usize) -> impl Iterator<Item = &'t Column> + use<'_, 't> {
        let differs = move |compare: &DynComparator| compare(row, stored) != Ordering::Equal;
        self.columns.iter().filter(move |(_, compare)| differs(compare)).map(|(column, _)| *column)
    }

    fn had_flag(&self, stored: usize, flag: FlagSet) -> bool {
        let flags = self.flags.as_ref().and_then(|flags| flags.get(stored));
        flags.is_none_or(|flags| flags & i64::from(flag.bits()) != 0)
    }
}
