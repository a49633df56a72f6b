//! How the comparison of scans reads the warehouse: through the files and parts that can hold what it asks for, and no others.

use arrow::array::RecordBatch;

use super::{
    kept::{self, Kept},
    known_table,
    part::Part,
    partition::Partition,
    relation::Sources,
    root::Root,
    tree::Tree,
};
use crate::{
    load::{Engine, LoadError, Targets, TimeBounds},
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

    /// The files and parts that can hold rows within the bounds.
    fn sources<T>(
        &mut self,
        table: &'static Table,
        bounds: Option<TimeBounds>,
        read: impl FnOnce(&Sources<'_>) -> T,
    ) -> Result<T, LoadError> {
        let mut files = self.tree.files_within(self.root, table, bounds)?;
        files.extend(self.waiting.iter().flat_map(|part| part.whole_files_within(self.root, table, bounds)));
        Ok(read(&Sources::new(table, bounds, &files, self.waiting)))
    }

    /// The partition in which all of this window lies, if its file has all that is committed of it, and is not too large to be kept.
    fn keepable(&mut self, table: &'static Table, bounds: TimeBounds) -> Result<Option<Partition>, LoadError> {
        let by = self.root.partition_by();
        let (first, last) = (by.of(bounds.start_us), by.of(bounds.end_us.saturating_sub(1)));
        let is_changed = self.waiting.iter().any(|part| part.touches(table, Some(first)));
        if first != last || is_changed {
            return Ok(None);
        }
        let file = self.tree.file(self.root, table, Some(first))?;
        Ok(file.filter(|file| file.facts.rows <= kept::ROWS_MAX).map(|_| first))
    }
}

impl Targets for TreeTargets<'_> {
    fn relation(&mut self, table: &'static Table, bounds: Option<TimeBounds>) -> Result<String, LoadError> {
        self.sources(table, bounds, |sources| format!("({})", sources.select_sql()))
    }

    fn kept(
        &mut self,
        engine: &Engine,
        table: &'static Table,
        bounds: TimeBounds,
        expressions: &str,
    ) -> Result<Option<Vec<RecordBatch>>, LoadError> {
        let Some(partition) = self.keepable(table, bounds)? else { return Ok(None) };
        let kept = self.tree.kept.take().filter(|kept| kept.is_of(table, partition) && kept.has(expressions));
        let kept = match kept {
            Some(kept) => kept,
            None => {
                let whole = self.root.partition_by().bounds(partition);
                Kept::read(engine, (table, partition), &self.relation(table, Some(whole))?, expressions)?
            }
        };
        self.tree.kept.insert(kept).within(bounds).map(Some)
    }

    fn is_known_to_hold(&mut self, table: &'static Table, bounds: TimeBounds) -> Result<Option<bool>, LoadError> {
        // As in a backfill; to ask the engine takes a millisecond.
        if self.sources(table, Some(bounds), |sources| sources.rows_max() == 0)? {
            return Ok(Some(false));
        }
        let partition = self.keepable(table, bounds)?;
        let kept = self.tree.kept.as_ref().zip(partition).filter(|(kept, partition)| kept.is_of(table, *partition));
        kept.map(|(kept, _)| kept.holds_within(bounds)).transpose()
    }
}
