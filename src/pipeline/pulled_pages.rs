//! Presents the pages of a complete scan to a warehouse.

use std::cell::{Cell, RefCell};

use super::{drift::ScanDrift, scan::CompletedScan};
use crate::{
    load::{LoadError, Pages},
    model::{Drift, FlatPage},
};

/// The pages of a scan. The first read of the pages collects their drift.
pub(super) struct PulledPages<'p> {
    pulled: &'p CompletedScan,
    drift: RefCell<ScanDrift>,
    was_read: Cell<bool>,
}

impl<'p> PulledPages<'p> {
    pub fn of(pulled: &'p CompletedScan) -> Self {
        Self { pulled, drift: RefCell::default(), was_read: Cell::new(false) }
    }

    /// Returns the drift on the pages. Empty if the pages were not read.
    pub fn drift(self) -> Drift {
        self.drift.into_inner().finish()
    }
}

impl Pages for PulledPages<'_> {
    fn for_each(&self, take: &mut dyn FnMut(&FlatPage) -> Result<(), LoadError>) -> Result<(), LoadError> {
        let was_read = self.was_read.replace(true);
        self.pulled.buffer.for_each(&self.pulled.spool, |page| {
            if !was_read {
                self.drift.borrow_mut().add(page);
            }
            take(page)
        })
    }
}
