//! Compares a record with the stored row of its key, column by column.

use std::cmp::Ordering;

use arrow::{
    array::{Array as _, DynComparator, RecordBatch, make_comparator},
    compute::SortOptions,
};

use super::{fields::FieldRows, filled_tables::is_requested};
use crate::{
    load::{LoadError, error::invalid_rows, store::number_column},
    model::{FlagSet, Scan},
    schema::{Column, Table},
};

/// How a record differs from the stored row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowDifference {
    None,
    /// The fields are the same, but some are stored in other columns now.
    Moved,
    /// Only columns differ that the stored row was scanned without.
    Enriched,
    /// A column differs that both scans requested.
    Edited,
}

/// Compares rows of a page with stored rows, in the columns that the scan requested.
pub(super) struct Comparer<'t> {
    columns: Vec<(&'t Column, DynComparator)>,
    /// The flags of each stored row, if the table stores flags.
    flags: Option<Vec<i64>>,
    fields: FieldRows<'t>,
    stored_fields: FieldRows<'t>,
}

impl<'t> Comparer<'t> {
    pub fn new(base: &'t Table, scan: &Scan, rows: &RecordBatch, stored: &RecordBatch) -> Result<Self, LoadError> {
        let missing = |column: &Column| LoadError::Bug(format!("rows of {} without {}", base.name, column.name));
        let mut columns = Vec::new();
        let asked_for = || base.content_columns().filter(|column| is_requested(scan, column));
        for column in asked_for() {
            let of = |rows: &'_ RecordBatch| rows.column_by_name(&column.name).cloned().ok_or_else(|| missing(column));
            let (row, stored_column) = (of(rows)?, of(stored)?);
            // Most columns are NULL on both sides.
            if row.null_count() == row.len() && stored_column.null_count() == stored_column.len() {
                continue;
            }
            columns.push((
                column,
                make_comparator(&row, &stored_column, SortOptions::default()).map_err(invalid_rows(base))?,
            ));
        }
        let flags = base.column("_flags").map(|column| number_column(stored, &column.name)).transpose()?;
        let flags = flags.map(|flags| flags.iter().map(Option::unwrap_or_default).collect());
        let (fields, stored_fields) = (FieldRows::of(asked_for(), rows), FieldRows::of(asked_for(), stored));
        Ok(Self { columns, flags, fields, stored_fields })
    }

    /// How the row of the page differs from the stored row. Columns that are computed from fields do not count: a
    /// better computation is no edit.
    pub fn difference(&self, row: usize, stored: usize) -> RowDifference {
        let (differing, have_moved) = self.differing_fields(row, stored);
        let mut sent = differing.into_iter().filter(|column| column.is_hashed()).peekable();
        match (sent.peek().is_some(), have_moved) {
            (true, _) if sent.any(|column| self.was_known(column, stored)) => RowDifference::Edited,
            (true, _) => RowDifference::Enriched,
            (false, true) => RowDifference::Moved,
            (false, false) => RowDifference::None,
        }
    }

    /// The columns that differ, without fields that only moved between columns; and whether fields have moved.
    pub fn differing_fields(&self, row: usize, stored: usize) -> (Vec<&'t Column>, bool) {
        let mut differing: Vec<&Column> = self.differing(row, stored).collect();
        let may_move = |column: &Column| column.is_hashed() && self.was_known(column, stored);
        let known: Vec<&Column> = differing.iter().copied().filter(|column| may_move(column)).collect();
        let have_moved = self.have_moved(&known, row, stored);
        differing.retain(|column| !(have_moved && may_move(column)));
        (differing, have_moved)
    }

    fn differing(&self, row: usize, stored: usize) -> impl Iterator<Item = &'t Column> + use<'_, 't> {
        let differs = move |compare: &DynComparator| compare(row, stored) != Ordering::Equal;
        self.columns.iter().filter(move |(_, compare)| differs(compare)).map(|(column, _)| *column)
    }

    /// Whether these columns, all that differ, differ only because fields moved between them.
    fn have_moved(&self, differing: &[&Column], row: usize, stored: usize) -> bool {
        differing.iter().any(|column| column.rest_of.is_some())
            && self.fields.are_same(row, &self.stored_fields, stored, |column| self.was_known(column, stored))
    }

    /// Whether the stored row was scanned with the flag of the column.
    fn was_known(&self, column: &Column, stored: usize) -> bool {
        column.flag.is_none_or(|flag| self.had_flag(stored, FlagSet::EMPTY.with(flag)))
    }

    fn had_flag(&self, stored: usize, flag: FlagSet) -> bool {
        let flags = self.flags.as_ref().and_then(|flags| flags.get(stored));
        flags.is_none_or(|flags| flags & i64::from(flag.bits()) != 0)
    }
}
