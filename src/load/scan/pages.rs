//! Where the pages of a scan come from.

use crate::{load::LoadError, model::FlatPage};

/// The pages of a complete scan. They are gone through more than once, the same pages in the same order each time.
pub trait Pages {
    /// Hands over each page, in order.
    ///
    /// # Errors
    /// What `take` returns; [`LoadError::Pages`] if a page cannot be had.
    fn for_each(&self, take: &mut dyn FnMut(&FlatPage) -> Result<(), LoadError>) -> Result<(), LoadError>;
}

impl Pages for &[FlatPage] {
    fn for_each(&self, take: &mut dyn FnMut(&FlatPage) -> Result<(), LoadError>) -> Result<(), LoadError> {
        self.iter().try_for_each(take)
    }
}
