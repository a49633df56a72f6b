//! How the comparison of scans reads the warehouse: through the files and parts that can hold what it asks for, and no others.

use super::{known_table, part::Part, relation::Sources, root::Root, tree::Tree};
use crate::{
    load::{LoadError, Targets, TimeBounds},
    schema::Table,
};

/// The warehouse as the comparison reads it.
pub(super) struct TreeTargets<'a> {
    pub(super) root: &'a Root,
    pub(super) tree: &'a mut Tree,
    pub(super) waiting: &'a [Part],
}

impl TreeTargets<'_> {
    /// What readers see of a table that is not cut.
    pub(super) fn published(&mut self, name: &str) -> Result<String, LoadError> {
        let table = known_table(name)?;
        let files = self.tree.files_within(self.root, table, None)?;
        Ok(format!("({})", Sources::new(table, None, &files, []).select_sql()))
    }
}

impl Targets for TreeTargets<'_> {
    fn relation(&mut self, table: &'static Table, bounds: Option<TimeBounds>) -> Result<String, LoadError> {
        let files = self.tree.files_within(self.root, table, bounds)?;
        Ok(format!("({})", Sources::new(table, bounds, &files, self.waiting).select_sql()))
    }
}
