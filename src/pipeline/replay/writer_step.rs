//! The steps that the reader of the archive sends to the writers of the warehouses.

use std::sync::Arc;

use crate::{
    load::CommitOptions,
    model::{DriftPolicy, FlatPage},
    person::Suppression,
};

use super::{inventory::ArchivedScan, page_budget::PageReservation};

/// A step of a writer.
#[derive(Clone)]
pub(super) enum WriterStep {
    /// A page of the current scan.
    Page(Arc<FlatPage>, Arc<PageReservation>),
    /// Apply the scan: the writer has received all pages of the scan.
    Commit(Arc<ArchivedScan>, CommitOptions),
    /// Complete the warehouse: there is no further scan.
    Complete,
}

/// The rules by which records and fields are removed from archived pages.
#[derive(Clone, Copy)]
pub(super) struct PageFilter<'a> {
    pub drift: DriftPolicy,
    pub suppression: &'a Suppression,
}
