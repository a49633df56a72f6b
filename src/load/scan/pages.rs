//! The pages of a scan, as the loader reads them.

use crate::{load::LoadError, model::FlatPage};

/// The pages of a complete scan. Each call of [`Pages::for_each`] passes the same pages in the same order.
pub trait Pages {
    /// Passes each page to `take`, in order.
    ///
    /// # Errors
    /// The error of `take`, or [`LoadError::Pages`] if a page cannot be read.
    fn for_each(&self, take: &mut dyn FnMut(&FlatPage) -> Result<(), LoadError>) -> Result<(), LoadError>;
}

impl Pages for &[FlatPage] {
    fn for_each(&self, take: &mut dyn FnMut(&FlatPage) -> Result<(), LoadError>) -> Result<(), LoadError> {
        self.iter().try_for_each(take)
    }
}
