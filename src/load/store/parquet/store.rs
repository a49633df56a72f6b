//! The Parquet warehouse as a [`Store`].

use std::{path::Path, sync::Arc};

use super::{
    analyst_folder::{CopyFolder, CopyWriter},
    disk::Disk,
    inventory,
    open_part::{OpenPart, WriteContext},
    options::{Limits, ParquetOptions},
    part::{self, Layer, Part},
    partition_cache::PartitionCache,
    publish::Publisher,
    read::TableRead,
    remote::Remote,
    root::Root,
    tree::Tree,
    working_copy,
};
use crate::{
    bucket::Bucket,
    load::{
        Identity, LoadError, LockPatience, ReaderCopy,
        contract::contract,
        store::{Filter, ForeignTable, Store, TableChange, Take},
    },
    model::Failpoints,
    schema::Table,
};

/// Number of waiting parts (committed and not published) at which a publish should run. Each read examines all waiting
/// parts.
pub(super) const WAITING_PARTS_MAX: usize = 256;
/// Bytes of waiting parts at which a publish should run.
pub(super) const WAITING_BYTES_MAX: u64 = 1 << 30;
/// Number of removed keys in waiting parts at which a publish should run: a read keeps those of its range in memory.
pub(super) const WAITING_KEYS_MAX: u64 = 500_000;

/// A new warehouse publishes each time it has this many times the parts of its last publish, so that readers see rows
/// soon after the start of a backfill, for at most a third more merged rows.
const EARLY_PUBLISH_GROWTH: u64 = 4;

/// How the folder is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Write,
    /// Read-only, for `verify`: nothing in the folder is created, published or removed.
    Compare,
}

/// State of the transaction.
enum Transaction {
    None,
    Open(OpenPart),
    /// A step failed and the changes of the transaction are lost. The next refresh removes what is left of its part.
    /// The caller must roll back before any other step.
    Failed,
}

/// A Parquet warehouse in a folder. Dropping the store loses an uncommitted transaction, and writes nothing.
pub(in crate::load) struct ParquetStore {
    root: Root,
    pub(super) disk: Disk,
    identity: Identity,
    options: ParquetOptions,
    /// The copy for readers, which is made when a run ends; `None` for no copy.
    copy: Option<ReaderCopy>,
    pub(super) limits: Limits,
    access: Access,
    /// The files that readers see.
    tree: Tree,
    pub(super) cache: PartitionCache,
    /// The committed parts that are not published yet, oldest first.
    pub(super) waiting: Vec<Part>,
    transaction: Transaction,
    /// The number of the next part.
    next_number: u64,
    /// True if [`ParquetStore::refresh`] must read the folder again before the next step: at first, and after a failed
    /// step.
    is_stale: bool,
}

impl ParquetStore {
    /// Opens the warehouse in this folder. Waits, as long as `patience` allows, while another process has the warehouse
    /// open. An empty or missing folder becomes a new warehouse. A folder of another service without rows of that
    /// service is emptied and bound to the identity.
    ///
    /// # Errors
    /// [`LoadError::Locked`] while another process has the warehouse open. [`LoadError::OtherIdentity`],
    /// [`LoadError::OtherPartition`] and [`LoadError::Newer`] if the folder is another warehouse.
    /// [`LoadError::Damaged`] if a file is missing. [`LoadError::NotOurs`] for a folder with other files.
    pub fn open(
        root: &Path,
        identity: &Identity,
        options: &ParquetOptions,
        patience: &LockPatience,
        failpoints: &Failpoints,
    ) -> Result<Self, LoadError> {
        patience.until_free(|| Self::open_on(Disk::with_failpoints(failpoints.clone()), root, identity, options))
    }

    /// Opens the warehouse as [`ParquetStore::open`] does, but without waiting. `disk` is the access to the file
    /// system, which tests can interrupt.
    pub(super) fn open_on(
        disk: Disk,
        root: &Path,
        identity: &Identity,
        options: &ParquetOptions,
    ) -> Result<Self, LoadError> {
        let root = Root::open(root, identity, options.partition_by, &disk)?;
        let mut opened = Self::new(disk, root, identity, options, Access::Write)?;
        opened.publisher().require_ledger()?;
        opened.refresh()?;
        opened.publisher().create_missing()?;
        Ok(opened)
    }

    /// Opens a warehouse in a bucket. `folder` is the working copy on this machine.
    ///
    /// # Errors
    /// As [`ParquetStore::open`], and [`LoadError::Bucket`] if the bucket does not answer or refuses.
    pub fn open_bucket(
        bucket: &Bucket,
        folder: &Path,
        identity: &Identity,
        options: &ParquetOptions,
        opening: &LockPatience,
    ) -> Result<Self, LoadError> {
        let failpoints = bucket.failpoints().clone();
        opening.until_free(|| {
            let remote = Remote::open(bucket.clone(), folder)?;
            remote.require_complete()?;
            let remote = Some(Arc::new(remote));
            Self::open_on(Disk { remote, ..Disk::with_failpoints(failpoints.clone()) }, folder, identity, options)
        })
    }

    /// Opens the warehouse read-only, for `verify`, which compares the rows with the service. The folder may be
    /// read-only.
    ///
    /// # Errors
    /// As [`ParquetStore::open`]; [`LoadError::Missing`] if there is no folder; [`LoadError::Unfinished`] after an
    /// interrupted publish, which only a writer can finish.
    pub fn open_to_compare(root: &Path, identity: &Identity, options: &ParquetOptions) -> Result<Self, LoadError> {
        Self::open_on_to_compare(Disk::default(), root, identity, options)
    }

    /// Opens a warehouse in a bucket read-only, as [`ParquetStore::open_to_compare`] does with a folder. `folder` is
    /// the folder of this machine for its files. Another process may write meanwhile.
    pub fn open_bucket_to_compare(
        bucket: Bucket,
        folder: &Path,
        identity: &Identity,
        options: &ParquetOptions,
    ) -> Result<Self, LoadError> {
        let remote = Some(Arc::new(Remote::open_to_compare(bucket, folder)?));
        Self::open_on_to_compare(Disk { remote, ..Disk::default() }, folder, identity, options)
    }

    /// Replaces a warehouse in a bucket by the one in the folder `built`. `folder` is the working copy.
    pub fn replace_in_bucket(bucket: &Bucket, folder: &Path, built: &Path) -> Result<(), LoadError> {
        let remote = Remote::open(bucket.clone(), folder)?;
        remote.begin_replacement(built)?;
        remote.replace(built)
    }

    /// Ends a replacement that was stopped. Does nothing if the bucket is not being replaced by this folder: then the
    /// bucket may have newer rows.
    pub fn end_replacement(bucket: &Bucket, folder: &Path, built: &Path) -> Result<(), LoadError> {
        let remote = Remote::open(bucket.clone(), folder)?;
        if remote.is_replaced_by(built)? { remote.replace(built) } else { Ok(()) }
    }

    /// Removes the files of a bucket from a folder of this machine. Does nothing if there is no folder.
    pub fn clear_fetched(folder: &Path) -> Result<(), LoadError> {
        working_copy::clear_unlocked(folder)
    }

    fn open_on_to_compare(
        disk: Disk,
        root: &Path,
        identity: &Identity,
        options: &ParquetOptions,
    ) -> Result<Self, LoadError> {
        let root = Root::open_to_compare(root, identity, options.partition_by, &disk)?;
        let mut opened = Self::new(disk, root, identity, options, Access::Compare)?;
        let published = opened.publisher().published_part()?;
        opened.waiting = part::read_finished(&opened.root, published)?;
        opened.waiting.retain(|part| part.number() > published);
        opened.check_files(published)?;
        if opened.was_publish_interrupted()? {
            return Err(LoadError::Unfinished { path: opened.root.place() });
        }
        opened.is_stale = false;
        Ok(opened)
    }

    /// Creates a store of this folder. The waiting parts are not read yet, so the store is stale.
    fn new(
        disk: Disk,
        root: Root,
        identity: &Identity,
        options: &ParquetOptions,
        access: Access,
    ) -> Result<Self, LoadError> {
        let tree = Tree::read(&root)?;
        let limits = Limits::for_memory(options.memory_limit_bytes);
        Ok(Self {
            root,
            disk,
            identity: identity.clone(),
            options: options.clone(),
            copy: None,
            access,
            tree,
            cache: PartitionCache::new(limits.cached_rows_max),
            limits,
            waiting: Vec::new(),
            transaction: Transaction::None,
            next_number: 1,
            is_stale: true,
        })
    }

    /// Returns this store with a copy for readers.
    pub fn with_copy(self, copy: Option<ReaderCopy>) -> Self {
        Self { copy, ..self }
    }

    /// Returns the folder of the copy for readers; `None` if there is no copy.
    fn copy_folder(&self) -> Option<CopyFolder<'_>> {
        let path = &self.copy.as_ref()?.path;
        Some(CopyFolder { path, identity: &self.identity, disk: &self.disk })
    }

    /// Brings the copy for readers up to date with the published files.
    fn update_copy(&mut self) -> Result<(), LoadError> {
        let (Some(copy), Some(folder)) = (&self.copy, self.copy_folder()) else { return Ok(()) };
        // There is no complete copy of a folder.
        let Some(rules) = copy.rules()? else { return Ok(()) };
        let ParquetOptions { memory_limit_bytes, threads, .. } = self.options;
        let copied = CopyWriter::new(folder, rules).update(&self.root, &self.tree, memory_limit_bytes, threads)?;
        if copied > 0 {
            tracing::info!(path = %copy.path.display(), files = copied, "the copy for readers is replaced");
        }
        Ok(())
    }

    /// Returns an error if the store was opened to compare.
    fn require_writable(&self) -> Result<(), LoadError> {
        match self.access {
            Access::Write => Ok(()),
            Access::Compare => Err(LoadError::Bug("a change of a warehouse that was opened to compare".to_owned())),
        }
    }

    /// Reads the folder again if the store is stale: finds the waiting parts, removes published and unfinished parts,
    /// and finishes an interrupted publish.
    fn refresh(&mut self) -> Result<(), LoadError> {
        if !self.is_stale {
            return Ok(());
        }
        self.require_writable()?;
        self.root.clear_scratch(&self.disk)?;
        self.cache.clear();
        self.root.refresh()?;
        self.tree = Tree::read(&self.root)?;
        let published = self.publisher().published_part()?;
        let (done, waiting) = part::read_all(&self.root, &self.disk, published)?
            .into_iter()
            .partition::<Vec<Part>, _>(|part| part.number() <= published);
        self.waiting = waiting;
        self.check_files(published)?;
        part::remove_all(&done, &self.disk)?;
        let last_commit = self.root.remote().map_or(0, Remote::last_commit);
        self.next_number = self.waiting.last().map_or(published, Part::number).max(published).max(last_commit) + 1;
        if self.was_publish_interrupted()? {
            self.publish_waiting()?;
        }
        self.is_stale = false;
        Ok(())
    }

    /// Returns an error if a file of a table, or a file with added rows of a waiting part, is missing. `published` is
    /// the number of the last published part. A file that an interrupted publish has moved into its table counts as
    /// present.
    fn check_files(&mut self, published: u64) -> Result<(), LoadError> {
        inventory::check(&self.root, &self.tree, published, &self.waiting)?;
        let Self { root, tree, waiting, .. } = self;
        for layer in waiting.iter().flat_map(|part| &part.layers) {
            for (name, changes) in &layer.tables {
                for file in changes.added.iter().filter(|file| !layer.path(file).is_file()) {
                    // An interrupted publish may have moved the file into the table. Then the table's file names this
                    // part or a later one.
                    let partition = file.partitions.first().copied();
                    let table_file = tree.file(root, contract(name)?, partition)?;
                    if table_file.is_none_or(|table_file| table_file.footer.applied_part < layer.part) {
                        let why = format!("a commit that waits for publish has lost its file of {name}");
                        return Err(LoadError::Damaged { path: root.place(), why });
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns true if a waiting part is already merged into a file of a table: a publish was interrupted. It must be
    /// finished before a read, because a read would apply the part to this file a second time.
    fn was_publish_interrupted(&mut self) -> Result<bool, LoadError> {
        let Some(first) = self.waiting.first().map(Part::number) else { return Ok(false) };
        let Self { root, tree, waiting, .. } = self;
        for layer in waiting.iter().flat_map(|part| &part.layers) {
            for (name, changes) in &layer.tables {
                for partition in changes.partitions() {
                    let file = tree.file(root, contract(name)?, partition)?;
                    if file.is_some_and(|file| file.footer.applied_part >= first) {
                        return Ok(true);
                    }
                }
            }
        }
        Ok(false)
    }

    /// Creates a publisher with the state of this store.
    fn publisher(&mut self) -> Publisher<'_> {
        let Self { root, disk, tree, identity, options, limits, .. } = self;
        Publisher { root, disk, tree, identity, threads: options.threads, limits: *limits }
    }

    /// Returns true if the parts of a new warehouse are [`EARLY_PUBLISH_GROWTH`] times those of its last publish.
    fn is_early_publish_due(&self) -> bool {
        let (Some(oldest), Some(newest)) = (self.waiting.first(), self.waiting.last()) else { return false };
        newest.number() >= oldest.number().saturating_sub(1).saturating_mul(EARLY_PUBLISH_GROWTH)
    }

    /// Merges all waiting parts into the files of tables, writes the list of files, and removes the parts. After an
    /// error the store forgets the waiting parts, and the next refresh finds those that are left.
    fn publish_waiting(&mut self) -> Result<(), LoadError> {
        let waiting = std::mem::take(&mut self.waiting);
        self.cache.clear();
        self.publisher().publish(&waiting)?;
        let published = self.publisher().published_part()?;
        inventory::write(&self.root, &self.disk, &self.tree, published)?;
        part::remove_all(&waiting, &self.disk)
    }

    /// Runs a step that changes the disk, on an up-to-date store. After an error the open transaction counts as failed,
    /// and the next step reads the folder again.
    fn run_step<T>(&mut self, step: impl FnOnce(&mut Self) -> Result<T, LoadError>) -> Result<T, LoadError> {
        self.require_writable()?;
        self.refresh()?;
        let done = step(self);
        if done.is_err() {
            self.is_stale = true;
            if !matches!(self.transaction, Transaction::None) {
                self.transaction = Transaction::Failed;
            }
        }
        done
    }

    fn require_no_failed_transaction(&self) -> Result<(), LoadError> {
        match self.transaction {
            Transaction::Failed => Err(LoadError::Bug("a failed transaction was not rolled back".to_owned())),
            Transaction::None | Transaction::Open(_) => Ok(()),
        }
    }

    /// Writes changes as layers of the open transaction's part; begins a part if none is open. After an error the part
    /// is removed and the transaction counts as failed.
    fn write_changes(&mut self, changes: &[TableChange]) -> Result<(), LoadError> {
        let Self { root, disk, identity, options, .. } = self;
        let context = WriteContext { root, disk, identity, threads: options.threads };
        let mut open = match std::mem::replace(&mut self.transaction, Transaction::Failed) {
            Transaction::Open(open) => open,
            Transaction::None | Transaction::Failed => OpenPart::begin(context, self.next_number)?,
        };
        let written = open.write(context, changes);
        match written {
            Ok(()) => self.transaction = Transaction::Open(open),
            // The error of the write is returned, and not an error of the removal.
            Err(_) => open.discard(disk).unwrap_or(()),
        }
        written
    }
}

impl Store for ParquetStore {
    fn rebind(&mut self, identity: &Identity) -> Result<(), LoadError> {
        self.require_writable()?;
        if let Some(copy) = self.copy_folder() {
            copy.check()?;
        }
        self.root.rebind(identity, &self.disk)?;
        self.identity = identity.clone();
        // A missing copy has no owner yet.
        self.copy_folder().filter(|copy| copy.path.exists()).map_or(Ok(()), |copy| copy.write_owner())
    }

    /// Reads the rows of the files of tables, of waiting parts and of the open transaction. Reads the folder again
    /// first if the store is stale.
    fn read(
        &mut self,
        table: &'static Table,
        columns: &[&str],
        filter: &Filter<'_>,
        take: &mut Take<'_>,
    ) -> Result<(), LoadError> {
        self.require_no_failed_transaction()?;
        self.refresh()?;
        let Self { root, tree, cache, waiting, transaction, limits, .. } = self;
        let open = match transaction {
            Transaction::Open(open) => open.layers(),
            Transaction::None | Transaction::Failed => &[],
        };
        let layers: Vec<&Layer> = waiting.iter().flat_map(|part| &part.layers).chain(open).collect();
        TableRead { root, tree, cache, layers, removed_keys_max: limits.removed_keys_max }
            .read(table, columns, filter, take)
    }

    fn write(&mut self, changes: &[TableChange]) -> Result<(), LoadError> {
        self.require_no_failed_transaction()?;
        if changes.iter().all(TableChange::is_empty) {
            return Ok(());
        }
        self.run_step(|this| this.write_changes(changes))
    }

    /// Commits the part of the open transaction; the part then waits for publish. Does nothing if no transaction is
    /// open. After an error the transaction counts as failed.
    fn commit(&mut self, label: &str) -> Result<(), LoadError> {
        self.require_no_failed_transaction()?;
        if matches!(self.transaction, Transaction::None) {
            return Ok(());
        }
        self.run_step(|this| {
            let Transaction::Open(open) = std::mem::replace(&mut this.transaction, Transaction::Failed) else {
                return Ok(());
            };
            let Self { root, disk, identity, options, .. } = this;
            let part = open.commit(WriteContext { root, disk, identity, threads: options.threads }, label)?;
            this.waiting.push(part);
            this.next_number += 1;
            this.transaction = Transaction::None;
            Ok(())
        })
    }

    fn rollback(&mut self) {
        if let Transaction::Open(open) = std::mem::replace(&mut self.transaction, Transaction::None)
            && let Err(error) = open.discard(&self.disk)
        {
            tracing::warn!("cannot remove a transaction that was rolled back, trying again later: {error}");
            self.is_stale = true;
        }
    }

    fn publish(&mut self) -> Result<(), LoadError> {
        self.require_no_failed_transaction()?;
        if self.access == Access::Compare || (self.waiting.is_empty() && !self.is_stale) {
            return Ok(());
        }
        self.run_step(|this| if this.waiting.is_empty() { Ok(()) } else { this.publish_waiting() })
    }

    fn should_compact(&self, has_readers: bool) -> bool {
        let bytes: u64 = self.waiting.iter().map(|part| part.bytes).sum();
        let keys: u64 = self.waiting.iter().map(Part::removed_keys).sum();
        let is_too_much =
            self.waiting.len() >= WAITING_PARTS_MAX || bytes >= WAITING_BYTES_MAX || keys >= WAITING_KEYS_MAX;
        is_too_much || (has_readers && self.is_early_publish_due())
    }

    fn purge_removed_bytes(&mut self) -> Result<(), LoadError> {
        self.require_no_failed_transaction()?;
        // Publish rewrites the partitions from which rows are removed. It also removes the parts, which contain the
        // keys of these rows and may contain rows that a later part removes.
        self.publish()?;
        self.run_step(|this| this.root.clear_scratch(&this.disk))?;
        self.update_copy()
    }

    /// Also fails if the folder of the copy is no copy of this warehouse, because the purge changes the copy.
    fn require_purgeable(&mut self) -> Result<(), LoadError> {
        self.copy_folder().map_or(Ok(()), |copy| copy.check())
    }

    fn export_reader_copy(&mut self) -> Result<(), LoadError> {
        self.publish()?;
        self.update_copy()
    }

    fn foreign_tables(&mut self) -> Result<Vec<ForeignTable>, LoadError> {
        Ok(Vec::new())
    }
}
