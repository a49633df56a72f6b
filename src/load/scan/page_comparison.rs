//! Compares a page with stored rows.

use super::{
    child_digests::ChildDigests,
    row_difference::{Comparer, RowDifference},
};
use crate::model::FlatPage;

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
