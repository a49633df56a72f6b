//! What the reader of the archive hands to the writers of the warehouses.

use std::sync::Arc;

use crate::{
    load::CommitOptions,
    model::{DriftPolicy, FlatPage},
    person::Suppression,
};

use super::{ahead::Room, inventory::Archived};

/// What a writer is told.
#[derive(Clone)]
pub(super) enum Step {
    Page(Arc<FlatPage>, Arc<Room>),
    /// All pages of the scan came.
    Commit(Arc<Archived>, CommitOptions),
    /// There are no more scans.
    Complete,
}

/// What keeps records out of the warehouses.
#[derive(Clone, Copy)]
pub(super) struct KeptOut<'a> {
    pub drift: DriftPolicy,
    pub suppression: &'a Suppression,
}
