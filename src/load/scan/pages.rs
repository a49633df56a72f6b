//! The pages of a scan, as the loader reads them.

use arrow::array::{Array as _, RecordBatch};

use super::stamps::is_filled_by;
use crate::{
    load::{LoadError, contract::contract},
    model::{FlatPage, PageDetail, RecordSet, Scan},
    schema::Table,
};

/// The rows of the pages that the loader needs.
#[derive(Clone, Copy)]
pub enum Wanted<'w> {
    /// The columns and hashes by which records are compared with stored rows.
    Summaries,
    /// All rows.
    Rows,
    /// For each page, by its number from 0, the rows of these records.
    Records(&'w dyn Fn(usize) -> RecordSet),
}

impl Wanted<'_> {
    /// Returns what has to be built of the page with this number.
    pub fn detail(self, page_number: usize) -> PageDetail {
        match self {
            Wanted::Summaries => PageDetail::Summary,
            Wanted::Rows => PageDetail::Rows,
            Wanted::Records(records_of) => PageDetail::Records(records_of(page_number)),
        }
    }
}

/// The pages of a complete scan. Each call of [`Pages::for_each`] passes the same pages in the same order.
pub trait Pages {
    /// Passes each page to `take`, in order, with at least the `wanted` rows. A page without wanted rows may be empty.
    ///
    /// # Errors
    /// The error of `take`, or [`LoadError::Pages`] if a page cannot be read.
    fn for_each(
        &self,
        wanted: Wanted<'_>,
        take: &mut dyn FnMut(&FlatPage) -> Result<(), LoadError>,
    ) -> Result<(), LoadError>;
}

impl Pages for &[FlatPage] {
    fn for_each(
        &self,
        _: Wanted<'_>,
        take: &mut dyn FnMut(&FlatPage) -> Result<(), LoadError>,
    ) -> Result<(), LoadError> {
        self.iter().try_for_each(take)
    }
}

/// Returns an error if the scan's stream does not fill a table of the page, or if a batch does not fit its table. A
/// batch fits if it has the same columns in the same order, and no NULL where the table allows none. The batches of a
/// summary have only the columns of a summary.
pub(super) fn check_columns(scan: &Scan, page: &FlatPage) -> Result<(), LoadError> {
    page.batches.iter().try_for_each(|batch| {
        let table = contract(batch.table)?;
        if !is_filled_by(table, scan) {
            return Err(LoadError::Bug(format!("{} is not filled by {}", table.name, scan.scope.stream)));
        }
        match fits(table, page.is_summary, &batch.rows) {
            true => Ok(()),
            false => Err(LoadError::Bug(format!("the columns of {} are {}", table.name, batch.rows.schema()))),
        }
    })
}

fn fits(table: &Table, is_summary: bool, rows: &RecordBatch) -> bool {
    let (wanted, found) = (if is_summary { table.summary_schema() } else { table.flat_schema() }, rows.schema());
    wanted.fields().len() == found.fields().len()
        && wanted.fields().iter().zip(found.fields()).zip(rows.columns()).all(|((wanted, found), values)| {
            let nulls_fit = wanted.is_nullable() || values.null_count() == 0;
            wanted.name() == found.name() && wanted.data_type() == found.data_type() && nulls_fit
        })
}
