//! The warehouse as one DuckDB file.
//!
//! The file is attached to an in-memory engine when it is needed, and detached by [`Store::publish`]. DuckDB locks a
//! file that is open for writing, so other processes cannot open it. While the file is detached, analysts can read it.

mod analyst_file;
mod catalog;
mod claims;
mod copy;
mod file;
mod foreign;
mod names;
mod objects;
mod rewrite;
mod search_index;
mod search_state;
mod transaction;
mod unspillable;
mod views;

pub(in crate::load) use self::{
    claims::Claim,
    file::{attach_for_reading, explain, has_commit_log},
};

use std::path::{Path, PathBuf};

use self::{
    catalog::{MissingColumns, with_missing_columns},
    file::AddedRows,
    names::qualified,
    search_state::{IndexState, is_indexed, mark_old_sql},
    unspillable::UnspillableMemory,
};
use super::{Filter, ForeignTable, Store, TableChange, Take, sql, visit_batches};
use crate::{
    files,
    load::{
        FullTextSearch, Identity, LoadError, LockPatience, ReaderCopy,
        engine::{Engine, EngineOptions, StartedEngine, Visit},
    },
    model::Failpoints,
    schema::Table,
};

/// The maximum number of groups of row groups that one checkpoint rewrites in each table. A group has up to three row
/// groups of 122,880 rows, so this takes some seconds; the next checkpoint rewrites further groups.
const VACUUMED_GROUPS_MAX: u32 = 8;

/// The warehouse in one DuckDB file. The file is attached while the store works, and detached between.
pub(in crate::load) struct DuckDbStore {
    engine: Engine,
    path: PathBuf,
    /// The copy for readers, which is made when a run ends; `None` for no copy.
    copy: Option<ReaderCopy>,
    /// Settings of the search index.
    search: FullTextSearch,
    /// State of the search index, read when the file is attached and updated by every change.
    index: IndexState,
    identity: Identity,
    patience: LockPatience,
    access: Access,
    /// Keeps this process from opening the file twice. `Some` while the file is attached.
    claim: Option<Claim>,
    /// True once this store has brought the views up to date, which happens only at the first attach for writing.
    has_views: bool,
    /// Estimates the memory that the engine cannot spill, since the file was attached.
    unspillable: UnspillableMemory,
    /// True if the next publish must make a checkpoint: user objects were imported since the last one, or the file was
    /// attached with a commit log.
    is_dirty: bool,
    /// True if changes were written since the last commit.
    is_open: bool,
    /// The tables to which the open transaction has added rows, and how many.
    added_to: AddedRows,
}

/// How the file is opened.
enum Access {
    /// For reading and writing.
    Write,
    /// Read-only, for `verify`: nothing is created or changed. Columns that the file lacks are read as NULL.
    Compare(MissingColumns),
}

/// Which DuckDB file to open, and how.
pub(in crate::load) struct DuckDbOptions<'p> {
    pub path: &'p Path,
    /// The service and environment that the file must belong to.
    pub identity: &'p Identity,
    /// How long to wait while another process has the file open, each time it is attached.
    pub patience: LockPatience,
    /// The failpoints before durable steps.
    pub failpoints: Failpoints,
    /// The copy for readers, which is made when a run ends; `None` for no copy.
    pub copy: Option<ReaderCopy>,
    /// Settings of the search index.
    pub search: FullTextSearch,
}

impl DuckDbStore {
    /// Opens the warehouse. Creates the file, its folder and the tables on first use. [`Store::publish`] and
    /// [`Store::release_lock`] close the file, and the next use opens the file again.
    ///
    /// # Errors
    /// `Locked` if another process, or this one, has the file open. `OtherIdentity`, `Newer` or `NotOurs` if the file
    /// is another one than this warehouse. A file of another service without rows of that service is no error: it is
    /// bound to the identity.
    pub fn open(options: DuckDbOptions<'_>, engine: StartedEngine) -> Result<Self, LoadError> {
        let folder = files::folder_of(options.path);
        files::create_folders(folder).map_err(LoadError::io("create the folder", folder))?;
        Self::open_as(options, engine, Access::Write)
    }

    /// Opens the warehouse read-only, for `verify`, which compares the rows with the service. The file and its folder
    /// may be read-only.
    ///
    /// # Errors
    /// As [`DuckDbStore::open`]; `Missing` if there is no such file. A file of another service is always an error,
    /// because nothing is changed.
    pub fn open_to_compare(path: &Path, identity: &Identity, options: &EngineOptions) -> Result<Self, LoadError> {
        LoadError::require_file(path)?;
        let engine = StartedEngine::start(options.clone())?;
        let (patience, failpoints) = (LockPatience::default(), Failpoints::default());
        let search = FullTextSearch::default();
        let options = DuckDbOptions { path, identity, patience, failpoints, copy: None, search };
        Self::open_as(options, engine, Access::Compare(MissingColumns::default()))
    }

    fn open_as(options: DuckDbOptions<'_>, engine: StartedEngine, access: Access) -> Result<Self, LoadError> {
        let engine = engine.ready(options.failpoints)?;
        let mut store = Self {
            unspillable: UnspillableMemory::none(engine.memory_limit_bytes()),
            engine,
            path: options.path.to_owned(),
            copy: options.copy,
            search: options.search,
            index: IndexState::Missing,
            identity: options.identity.clone(),
            patience: options.patience,
            access,
            claim: None,
            has_views: false,
            is_dirty: false,
            is_open: false,
            added_to: AddedRows::new(),
        };
        // The commit log of a killed writer may need more memory than a run that publishes in time.
        store.with_enough_memory(|_| Ok(()))?;
        Ok(store)
    }

    /// Attaches the file, unless it is attached already. For writing, also creates missing tables and, at the first
    /// attach, brings the views up to date. If this work fails, the file is detached again.
    fn attach(&mut self) -> Result<(), LoadError> {
        if self.claim.is_some() {
            return Ok(());
        }
        if let Access::Compare(missing_columns) = &mut self.access {
            let claim = Claim::for_reading(&self.path)?;
            file::attach_read_only(&self.engine, &self.path)?;
            self.claim = Some(claim);
            let checked = catalog::check(&self.engine, &self.path, &self.identity);
            let checked = checked.map(|missing| *missing_columns = missing);
            if checked.is_err() {
                // The first error is returned.
                self.detach().ok();
            }
            return checked;
        }
        let claim = Claim::for_writing(&self.path)?;
        self.is_dirty |= file::has_commit_log(&self.path);
        self.patience.until_free(|| file::attach(&self.engine, &self.path))?;
        self.claim = Some(claim);
        let ready = catalog::make_ready(&self.engine, &self.path, &self.identity, self.has_views);
        match ready {
            Ok(index) => {
                (self.has_views, self.index) = (true, index);
                Ok(())
            }
            Err(error) => {
                // An error of detaching is dropped: the first error is returned.
                self.detach().ok();
                Err(error)
            }
        }
    }

    /// Detaches the file, so that other processes can open it. Does nothing if the file is not attached.
    fn detach(&mut self) -> Result<(), LoadError> {
        if self.claim.is_none() {
            return Ok(());
        }
        let detached = file::detach(&self.engine, &self.path);
        if detached.is_ok() {
            self.note_detached();
        } else {
            self.restart_engine();
        }
        detached
    }

    /// Records that the engine has no file attached.
    fn note_detached(&mut self) {
        self.claim = None;
        self.unspillable.clear();
    }

    /// Makes the search index if the settings want one and it is missing or out of date. Drops the index if the
    /// settings want none, or if making it failed. A failure to make the index is only a warning, because the macro
    /// `search_answers` also works without an index. A failure to drop the index is an error.
    fn update_index(&mut self) -> Result<(), LoadError> {
        if !self.search.is_on {
            return if self.index == IndexState::Missing { Ok(()) } else { self.drop_index() };
        }
        let made = self.search.require_installed(&self.engine).and_then(|()| self.make_index());
        let Err(error) = made else { return Ok(()) };
        // After some errors, such as a full disk, the engine refuses every statement until it is restarted.
        self.restart_engine();
        let why = std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
        tracing::warn!(
            "full_text_search is on, and there is no index: {error}{why}; search_answers searches without one. Install the \
             extension for the user who runs studysync (INSTALL fts, in DuckDB of the same version), or name its folder by extension_directory \
             under [warehouse]"
        );
        self.drop_index()
    }

    /// Makes the search index, then publishes, which closes the file. Does nothing if the index is current. Makes no
    /// index if somebody else created the macro `search_answers` of the file. The extension `fts` must be installed.
    fn make_index(&mut self) -> Result<(), LoadError> {
        if self.index == IndexState::Current {
            return Ok(());
        }
        self.attach()?;
        // If the file was not attached, attaching has read the state of the index from the file.
        if self.index == IndexState::Current {
            return self.publish();
        }
        self.search.load_into(&self.engine)?;
        if search_index::make(&self.engine, &self.path)? {
            self.index = IndexState::Current;
            tracing::info!("made the index of words for search_answers");
        } else {
            tracing::info!("the warehouse has a search_answers of somebody else, so no index of words is made");
        }
        self.publish()
    }

    /// Drops the search index if there is one, then publishes, which closes the file.
    fn drop_index(&mut self) -> Result<(), LoadError> {
        if self.remove_index()? {
            tracing::info!("dropped the index of words; search_answers is the plain search");
        }
        self.publish()
    }

    /// Drops the search index if there is one, and leaves the file attached. Returns true if there was an index.
    fn remove_index(&mut self) -> Result<bool, LoadError> {
        self.attach()?;
        let has_index = self.index != IndexState::Missing;
        if has_index {
            search_index::drop_index(&self.engine, &self.path)?;
            self.index = IndexState::Missing;
        }
        Ok(has_index)
    }

    /// Replaces the engine by a new one, which has no file attached. If the new engine cannot be started, the old
    /// engine stays with its attached file. If the old engine is broken, the next statement returns an error.
    fn restart_engine(&mut self) {
        if self.engine.restart().is_ok() {
            self.note_detached();
        }
    }

    /// Returns an error if the file at the path of the copy for readers is neither empty nor a copy of this warehouse.
    /// Detaches the file.
    fn check_copy(&mut self) -> Result<(), LoadError> {
        self.publish()?;
        self.copy.as_ref().map_or(Ok(()), |copy| copy::check_target(&self.engine, &copy.path, &self.identity))
    }

    /// Makes a checkpoint. Attaches the file if needed, and leaves it attached.
    fn checkpoint(&mut self) -> Result<(), LoadError> {
        self.with_enough_memory(|store| file::checkpoint(&store.engine, &store.path))?;
        self.is_dirty = false;
        Ok(())
    }

    /// Attaches the file and runs `work`, again with more memory while the engine has too little. No transaction may be
    /// open. The engine reads and writes 2,048 rows of a column together, which takes much memory if they are long.
    fn with_enough_memory(&mut self, work: impl Fn(&Self) -> Result<(), LoadError>) -> Result<(), LoadError> {
        loop {
            match self.attach().and_then(|()| work(self)) {
                Err(error) if error.is_out_of_memory() && self.raise_memory()? => {}
                worked => return worked,
            }
        }
    }
}

impl Store for DuckDbStore {
    /// Empties the copy for readers, and binds the file to the identity. The copy names the earlier identity, so the
    /// next export would refuse to replace it; an empty file may be replaced. The end of the next run makes a new copy.
    /// The copy is emptied first: a rebind that is killed in between can be run again.
    fn rebind(&mut self, identity: &Identity) -> Result<(), LoadError> {
        self.check_copy()?;
        self.copy.as_ref().map_or(Ok(()), |copy| rewrite::empty_copy(&copy.path))?;
        self.attach()?;
        catalog::bind(&self.engine, &self.path, identity)?;
        self.identity = identity.clone();
        self.detach()
    }

    /// Attaches the file if needed, and reads the rows. If the file was opened to compare, columns that it lacks are
    /// read as NULL.
    fn read(
        &mut self,
        table: &'static Table,
        columns: &[&str],
        filter: &Filter<'_>,
        take: &mut Take<'_>,
    ) -> Result<(), LoadError> {
        self.attach()?;
        let missing_columns = match &self.access {
            Access::Write => None,
            Access::Compare(missing_columns) => missing_columns.get(table.name.as_str()),
        };
        let relation = missing_columns
            .map_or_else(|| qualified(&table.name), |missing_columns| with_missing_columns(table, missing_columns));
        sql::rows(&self.engine, &relation, table, columns, filter, take)
    }

    /// Attaches the file if needed, and visits the rows in the threads of the engine. If the engine has one thread,
    /// worker threads visit the rows that [`Store::read`] reads.
    fn visit(&mut self, table: &'static Table, columns: &[&str], visit: &Visit<'_>) -> Result<(), LoadError> {
        self.attach()?;
        // `read` adds columns that a file opened to compare lacks.
        if self.engine.all_threads() == 1 || matches!(self.access, Access::Compare(_)) {
            return visit_batches(|take| self.read(table, columns, &Filter::all(), take), visit);
        }
        sql::visit(&self.engine, &qualified(&table.name), table, columns, visit)
    }

    /// Attaches the file if needed, opens a transaction if none is open, and writes the changes. If a change affects a
    /// table with indexed answers, the search index is marked as old in the same commit.
    ///
    /// Removals from a table to which the open transaction has added rows get a transaction of their own: if one added
    /// row is removed in the same transaction, the engine writes all added rows of the table a second time.
    fn write(&mut self, changes: &[TableChange]) -> Result<(), LoadError> {
        self.attach()?;
        if !self.is_open {
            transaction::open(&self.engine)?;
            self.is_open = true;
        }
        if self.index == IndexState::Current && changes.iter().any(|change| is_indexed(&change.table.name)) {
            self.engine.execute("mark the index of words as old", &mark_old_sql())?;
            self.index = IndexState::Old;
        }
        for change in changes {
            self.unspillable.add(&self.engine, change)?;
            let name = change.table.name.as_str();
            if !change.removed.is_empty() && self.added_to.contains_key(name) {
                transaction::continue_in_another(&self.engine, &self.path)?;
                self.added_to.clear();
            }
            sql::change(&self.engine, &qualified(name), change, explain(transaction::ACTION, &self.path))?;
            for rows in &change.added {
                *self.added_to.entry(name).or_default() += rows.num_rows();
            }
        }
        Ok(())
    }

    /// Commits the changes. Also rewrites some row groups of tables with many deleted rows or many small row groups.
    fn commit(&mut self, _label: &str) -> Result<(), LoadError> {
        if self.is_open {
            let is_due = file::is_vacuum_due(&self.engine, self.unspillable.has_removals(), &self.added_to)?;
            self.engine.rewrite_at_checkpoint(if is_due { VACUUMED_GROUPS_MAX } else { 0 })?;
            transaction::commit(&self.engine, &self.path)?;
            self.is_open = false;
            self.added_to.clear();
        }
        Ok(())
    }

    fn rollback(&mut self) {
        if !std::mem::take(&mut self.is_open) {
            return;
        }
        self.added_to.clear();
        // The statement fails if an error has ended the transaction already. Then no rollback is needed.
        self.engine.connection().execute_batch("ROLLBACK").ok();
        // Drops what was committed in memory. Also, after some errors, such as a full disk, the engine refuses every
        // statement until it is restarted.
        self.restart_engine();
    }

    /// Replaces the engine by one with twice the memory, which has no file attached.
    fn raise_memory(&mut self) -> Result<bool, LoadError> {
        let is_raised = self.engine.restart_with_more_memory()?;
        if is_raised {
            self.note_detached();
        }
        Ok(is_raised)
    }

    fn publish(&mut self) -> Result<(), LoadError> {
        if self.is_dirty {
            self.checkpoint()?;
        }
        self.detach()
    }

    fn should_compact(&self, _has_readers: bool) -> bool {
        self.unspillable.is_large()
    }

    fn release_lock(&mut self) -> Result<(), LoadError> {
        if self.claim.is_some() { self.publish() } else { Ok(()) }
    }

    /// Makes or drops the search index as the settings want, and makes a new copy for readers unless the copy is
    /// current. Fails if the file at the path of the copy is neither empty nor a copy of this warehouse.
    fn export_reader_copy(&mut self) -> Result<(), LoadError> {
        self.update_index()?;
        let Some(copy) = self.copy.clone() else { return Ok(()) };
        let (path, rules) = (&copy.path, copy.rules()?);
        if rules.is_none() && copy::is_current(&self.path, path) {
            return Ok(());
        }
        self.check_copy()?;
        let is_current = |rules| analyst_file::is_current(&self.engine, [&self.path, path], rules, &self.identity);
        if rules.map_or(Ok(false), is_current)? {
            return Ok(());
        }
        self.checkpoint()?;
        let made = match rules {
            None => copy::make(&self.engine, &self.path, path),
            Some(rules) => {
                self.with_enough_memory(|store| analyst_file::write(&store.engine, path, rules, &store.identity))
            }
        };
        // The file is detached also if copying failed. Copying has dropped the lock already: DuckDB's locks belong to
        // the process, and closing any handle of the file drops them.
        self.detach().and(made)?;
        rules.map_or(Ok(()), |_| analyst_file::replace(&self.engine, &self.path, path))?;
        tracing::info!(path = %path.display(), "the copy for readers is replaced");
        Ok(())
    }

    /// Replaces the file by a new one with the same rows, because the old file may still contain bytes of removed rows.
    /// For the same reason drops the search index and empties the copy for readers.
    fn purge_removed_bytes(&mut self) -> Result<(), LoadError> {
        // The index contains words of removed answers. The end of the run makes a new index.
        self.remove_index()?;
        self.checkpoint()?;
        self.with_enough_memory(|store| rewrite::write(&store.engine, &store.path))?;
        self.detach()?;
        rewrite::replace_old_file(&self.engine, &self.path)?;
        // The copy contains the removed rows. The end of the run makes a new copy.
        self.copy.as_ref().map_or(Ok(()), |copy| rewrite::empty_copy(&copy.path))
    }

    /// Also fails if the file at the path of the copy is not a copy of this warehouse, because the purge empties the
    /// copy.
    fn require_purgeable(&mut self) -> Result<(), LoadError> {
        self.check_copy()?;
        self.attach()?;
        rewrite::require_possible(&self.engine, &self.path)
    }

    fn foreign_tables(&mut self) -> Result<Vec<ForeignTable>, LoadError> {
        self.attach()?;
        objects::foreign_tables(&self.engine)
    }

    fn read_foreign(&mut self, table: &ForeignTable, take: &mut Take<'_>) -> Result<(), LoadError> {
        self.attach()?;
        sql::texts(&self.engine, &table.relation, &table.columns, take)
    }

    fn create_empty_at(&mut self, new_path: &Path) -> Result<(), LoadError> {
        self.attach()?;
        foreign::create_empty(&self.engine, &self.path, new_path)
    }

    fn import_foreign(&mut self, old_path: &Path) -> Result<(), LoadError> {
        self.attach()?;
        let _claim = Claim::for_reading(old_path)?;
        self.is_dirty = true;
        foreign::import(&self.engine, old_path, &self.patience)
    }
}

#[cfg(test)]
mod tests;
