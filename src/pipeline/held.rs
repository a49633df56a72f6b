//! The pages of a complete scan on their way to the warehouses: in memory as long as they fit, else read back from the spool.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::{
    archive::{ArchiveError, read_pages},
    flatten::flatten_page,
    model::{DriftRules, FlatPage, Stream},
};

use super::PipelineError;

/// Flattened pages that may be in memory at once, over all scans of the run, in bytes.
const HELD_BYTES_MAX: usize = 64 * 1024 * 1024;

/// How much of [`HELD_BYTES_MAX`] is in use; clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Budget(Arc<AtomicUsize>);

impl Budget {
    fn take(&self, bytes: usize) -> bool {
        let taken = self.0.fetch_add(bytes, Ordering::Relaxed) + bytes <= HELD_BYTES_MAX;
        if !taken {
            self.0.fetch_sub(bytes, Ordering::Relaxed);
        }
        taken
    }
}

/// The pages of one scan. Dropping them gives their memory back.
#[derive(Debug)]
pub(super) struct Held {
    budget: Budget,
    rules: DriftRules,
    pages: Vec<FlatPage>,
    bytes: usize,
    /// Set once a page did not fit, or was there before this run: then all are read from the spool.
    is_spooled: bool,
}

impl Held {
    pub fn new(budget: &Budget, rules: DriftRules) -> Self {
        Self { budget: budget.clone(), rules, pages: Vec::new(), bytes: 0, is_spooled: false }
    }

    /// For a scan whose first pages are in the spool alone.
    pub fn spooled(budget: &Budget, rules: DriftRules) -> Self {
        let mut held = Self::new(budget, rules);
        held.is_spooled = true;
        held
    }

    pub fn push(&mut self, page: FlatPage) {
        if self.is_spooled {
            return;
        }
        let bytes = page.memory_bytes();
        if self.budget.take(bytes) {
            self.bytes += bytes;
            self.pages.push(page);
        } else {
            self.clear();
            self.is_spooled = true;
        }
    }

    /// The window starts over.
    pub fn restart(&mut self) {
        self.clear();
        self.is_spooled = false;
    }

    fn clear(&mut self) {
        self.pages.clear();
        self.budget.0.fetch_sub(std::mem::take(&mut self.bytes), Ordering::Relaxed);
    }

    /// Hands each page to `take`, in order.
    pub fn for_each<E>(
        &self,
        stream: Stream,
        spool: &Path,
        mut take: impl FnMut(&FlatPage) -> Result<(), E>,
    ) -> Result<Result<(), E>, PipelineError> {
        if !self.is_spooled {
            return Ok(self.pages.iter().try_for_each(take));
        }
        let mut pages = read_pages(spool).map_err(PipelineError::Archive)?;
        let mut count = 0;
        for body in pages.by_ref() {
            let body = body.map_err(PipelineError::Archive)?;
            let page = flatten_page(stream, &body, self.rules).map_err(PipelineError::Flatten)?;
            if let Err(error) = take(&page) {
                return Ok(Err(error));
            }
            count += 1;
        }
        if !pages.is_complete() {
            // Rows on pages that are gone would be taken for vanished.
            let (path, why) = (spool.to_owned(), "the file ends before the scan does".to_owned());
            return Err(PipelineError::Archive(ArchiveError::Damaged { path, page: count, why }));
        }
        Ok(Ok(()))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.clear();
    }
}
