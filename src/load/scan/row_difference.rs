//! Compares a record with the stored row of its key, column by column, and by its child rows.

use std::cmp::Ordering;

use arrow::{
    array::{Array as _, AsArray as _, DynComparator, RecordBatch, StringArray, make_comparator},
    compute::SortOptions,
};

use super::{child_digests::ChildDigests, fields::FieldRows, stamps::is_requested, value_hashes::TextKind};
use crate::{
    load::{LoadError, error::invalid_rows, store::number_column},
    model::{FlagSet, FlatPage, Scan},
    schema::{Column, Table},
};

/// How a record differs from the stored row of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowDifference {
    /// No field differs. Columns that this program computes from fields may differ.
    None,
    /// The fields are the same, but some are stored in other columns now.
    Moved,
    /// The only columns that differ are columns that the earlier scan, which stored the row, did not request.
    Enriched,
    /// At least one column differs that this scan and the earlier scan, which stored the row, both requested.
    Edited,
}

/// Compares rows of a page with stored rows, in the columns that the scan requested.
pub(super) struct Comparer<'t> {
    columns: Vec<ComparedColumn<'t>>,
    /// The flag bits of each stored row; `None` if the table stores no flags.
    flags: Option<Vec<i64>>,
    fields: FieldRows<'t>,
    stored_fields: FieldRows<'t>,
}

/// A column of the two batches.
struct ComparedColumn<'t> {
    column: &'t Column,
    compare: DynComparator,
    /// The scanned and the stored texts of a column in which different texts can be the same value.
    texts: Option<(TextKind, StringArray, StringArray)>,
}

impl ComparedColumn<'_> {
    /// Returns true if the scanned and the stored row have different values in this column.
    fn differs(&self, row: usize, stored: usize) -> bool {
        if (self.compare)(row, stored) == Ordering::Equal {
            return false;
        }
        let same = self.texts.as_ref().is_some_and(|(kind, scanned_texts, stored_texts)| {
            let are_texts = scanned_texts.is_valid(row) && stored_texts.is_valid(stored);
            are_texts && kind.is_same(self.column, scanned_texts.value(row), stored_texts.value(stored))
        });
        !same
    }
}

impl<'t> Comparer<'t> {
    /// Prepares the comparison of `rows` of a page with `stored` rows. Fails if one of the two batches lacks a
    /// requested column.
    pub fn new(base: &'t Table, scan: &Scan, rows: &RecordBatch, stored: &RecordBatch) -> Result<Self, LoadError> {
        let missing = |column: &Column| LoadError::Bug(format!("rows of {} without {}", base.name, column.name));
        let mut columns = Vec::new();
        let requested = || base.content_columns().filter(|column| is_requested(scan, column));
        for column in requested() {
            let values =
                |rows: &'_ RecordBatch| rows.column_by_name(&column.name).cloned().ok_or_else(|| missing(column));
            let (scanned_values, stored_values) = (values(rows)?, values(stored)?);
            // Most columns are NULL in all rows of both batches.
            if [&scanned_values, &stored_values].iter().all(|values| values.null_count() == values.len()) {
                continue;
            }
            let compare = make_comparator(&scanned_values, &stored_values, SortOptions::default());
            let kind = Some(TextKind::of(base, column)).filter(|kind| *kind != TextKind::Exact);
            let texts = kind.zip(scanned_values.as_string_opt().zip(stored_values.as_string_opt()));
            let texts = texts.map(|(kind, (scanned_texts, stored))| (kind, scanned_texts.clone(), stored.clone()));
            columns.push(ComparedColumn { column, compare: compare.map_err(invalid_rows(base))?, texts });
        }
        let flags = base.column("_flags").map(|column| number_column(stored, &column.name)).transpose()?;
        let flags = flags.map(|flags| flags.iter().map(Option::unwrap_or_default).collect());
        let (fields, stored_fields) = (FieldRows::of(requested(), rows), FieldRows::of(requested(), stored));
        Ok(Self { columns, flags, fields, stored_fields })
    }

    /// Returns how a row of the page differs from a stored row, both given by index. Columns that this program computes
    /// from fields do not count, because a new version of the program may compute them differently.
    pub fn difference(&self, row: usize, stored: usize) -> RowDifference {
        let (differing, have_only_moved) = self.differing_fields(row, stored);
        let mut hashed = differing.into_iter().filter(|column| column.is_hashed()).peekable();
        match (hashed.peek().is_some(), have_only_moved) {
            (true, _) if hashed.any(|column| self.was_requested(column, stored)) => RowDifference::Edited,
            (true, _) => RowDifference::Enriched,
            (false, true) => RowDifference::Moved,
            (false, false) => RowDifference::None,
        }
    }

    /// Returns the columns that differ, and true if fields have only moved: all fields that both scans requested have
    /// their old values, but other columns store some of them. Then the columns that differ because of the move are
    /// left out. If one of these fields also has a new value, returns false and leaves out no column.
    pub fn differing_fields(&self, row: usize, stored: usize) -> (Vec<&'t Column>, bool) {
        let mut differing: Vec<&Column> = self.differing(row, stored).collect();
        let is_movable = |column: &Column| column.is_hashed() && self.was_requested(column, stored);
        let movable: Vec<&Column> = differing.iter().copied().filter(|column| is_movable(column)).collect();
        let have_only_moved = self.have_only_moved(&movable, row, stored);
        differing.retain(|column| !(have_only_moved && is_movable(column)));
        (differing, have_only_moved)
    }

    /// Returns the columns whose values differ, including columns that differ only because fields moved.
    fn differing(&self, row: usize, stored: usize) -> impl Iterator<Item = &'t Column> + use<'_, 't> {
        self.columns.iter().filter(move |column| column.differs(row, stored)).map(|column| column.column)
    }

    /// Returns true if all fields that both scans requested have the same values as before, but some are in other
    /// columns. `differing` are the hashed columns that both scans requested and that differ.
    fn have_only_moved(&self, differing: &[&Column], row: usize, stored: usize) -> bool {
        differing.iter().any(|column| column.rest_of.is_some())
            && self.fields.are_same(row, &self.stored_fields, stored, |column| self.was_requested(column, stored))
    }

    /// Returns true if the earlier scan, which stored the row, requested the column.
    fn was_requested(&self, column: &Column, stored: usize) -> bool {
        column.flag.is_none_or(|flag| self.had_flag(stored, FlagSet::EMPTY.with(flag)))
    }

    /// Returns true if the earlier scan, which stored the row, had the flag, or if the table stores no flags.
    fn had_flag(&self, stored: usize, flag: FlagSet) -> bool {
        let flags = self.flags.as_ref().and_then(|flags| flags.get(stored));
        flags.is_none_or(|flags| flags & i64::from(flag.bits()) != 0)
    }
}

/// Compares the rows of a page with stored rows, by columns and by child rows.
pub(super) struct PageComparison<'a> {
    pub columns: Comparer<'a>,
    /// Digests of the stored child rows and of the page's child rows, in this order; `None` if child rows are not
    /// compared.
    pub children: Option<(&'a ChildDigests, ChildDigests)>,
}

impl PageComparison<'_> {
    /// Returns how the row of the page differs from the row `old` of the stored rows. Different child rows count as
    /// an edit.
    pub fn difference(&self, page: &FlatPage, row: usize, old: usize) -> RowDifference {
        let key = page.key_hashes.get(row).copied().unwrap_or_default();
        match &self.children {
            Some((stored, returned)) if stored.differing_tables(returned, key).next().is_some() => {
                RowDifference::Edited
            }
            _ => self.columns.difference(row, old),
        }
    }
}
