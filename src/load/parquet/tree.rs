//! The files that readers see, and what each of them holds.
//!
//! The list is read once and then kept: the lock makes this process the only one that changes it. Rows are not read here.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs::{self, File},
    path::{Path, PathBuf},
};

use parquet::file::metadata::ParquetMetaDataReader;

use super::{
    disk::io_error,
    kept::Kept,
    partition::{Partition, overlap},
    root::Root,
};
use crate::{
    load::{LoadError, TimeBounds},
    model::ScanId,
    schema::{Table, tables},
};

/// Key of a file's metadata: the number of the last part that is merged into it.
pub(super) const APPLIED_PART_KEY: &str = "studysync.applied_part";

/// What is known of a file without reading its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileFacts {
    /// The last part that is merged into it.
    pub(super) applied_part: u64,
    pub(super) rows: u64,
    /// Columns of the contract that it was written without: it is older than they are.
    pub(super) missing: Vec<&'static str>,
}

/// A file of a table.
#[derive(Clone, Debug)]
pub(super) struct DataFile {
    pub(super) path: PathBuf,
    pub(super) facts: FileFacts,
}

/// Files by table and partition; `None` where their facts were not needed yet.
type Files = BTreeMap<Option<Partition>, Option<FileFacts>>;

/// Every file that readers see.
pub(super) struct Tree {
    files: HashMap<&'static str, Files>,
    /// What a scan was compared with, until a file changes.
    pub(super) kept: Option<Kept>,
    /// The scans that the ledger's file names, once they were asked for, until a file changes.
    pub(super) scans: Option<HashSet<ScanId>>,
}

impl Tree {
    /// Lists the files under the root.
    pub(super) fn read(root: &Root) -> Result<Self, LoadError> {
        let list = |table: &'static Table| Ok((table.name.as_str(), list(root, table)?));
        let files = tables().iter().map(list).collect::<Result<_, LoadError>>()?;
        Ok(Self { files, kept: None, scans: None })
    }

    /// Whether any table has a file.
    pub(super) fn is_empty(&self) -> bool {
        self.files.values().all(BTreeMap::is_empty)
    }

    /// Every file.
    pub(super) fn paths(&self, root: &Root) -> Vec<PathBuf> {
        let of_table = |table: &'static Table| self.files.get(table.name.as_str()).map(|files| (table, files));
        let files = tables().iter().filter_map(of_table);
        files.flat_map(|(table, files)| files.keys().map(|partition| root.data_file(table, *partition))).collect()
    }

    /// The file of a partition, if there is one.
    pub(super) fn file(
        &mut self,
        root: &Root,
        table: &'static Table,
        partition: Option<Partition>,
    ) -> Result<Option<DataFile>, LoadError> {
        let Some(facts) = self.files.get_mut(table.name.as_str()).and_then(|files| files.get_mut(&partition)) else {
            return Ok(None);
        };
        let path = root.data_file(table, partition);
        let known = match facts {
            Some(known) => known,
            None => facts.insert(read_facts(root, &path, table)?),
        };
        Ok(Some(DataFile { path, facts: known.clone() }))
    }

    /// The files of a table that can hold rows within the bounds.
    pub(super) fn files_within(
        &mut self,
        root: &Root,
        table: &'static Table,
        bounds: Option<TimeBounds>,
    ) -> Result<Vec<DataFile>, LoadError> {
        let wanted = |partition: &Option<Partition>| match (bounds, partition) {
            (Some(bounds), Some(partition)) => overlap(root.partition_by().bounds(*partition), bounds),
            _ => true,
        };
        let Some(files) = self.files.get(table.name.as_str()) else { return Ok(Vec::new()) };
        let partitions: Vec<_> = files.keys().filter(|partition| wanted(partition)).copied().collect();
        let files = partitions.into_iter().map(|partition| self.file(root, table, partition));
        files.filter_map(Result::transpose).collect()
    }

    /// Takes note of a file that was written, or of its removal.
    pub(super) fn note(&mut self, table: &'static Table, partition: Option<Partition>, facts: Option<FileFacts>) {
        (self.kept, self.scans) = (None, None);
        let files = self.files.entry(table.name.as_str()).or_default();
        match facts {
            Some(facts) => files.insert(partition, Some(facts)),
            None => files.remove(&partition),
        };
    }
}

fn list(root: &Root, table: &'static Table) -> Result<Files, LoadError> {
    let Some(column) = &table.partition else {
        let there = root.data_file(table, None).is_file();
        return Ok(there.then_some((None, None)).into_iter().collect());
    };
    let folder = root.table_folder(table);
    let failed = |source| io_error("read", &folder, source);
    let mut files = Files::new();
    let entries = match fs::read_dir(&folder) {
        // Only a reader finds that: a writer makes the folder of every table.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(files),
        entries => entries.map_err(failed)?,
    };
    for entry in entries {
        let name = entry.map_err(failed)?.file_name();
        let partition = name.to_str().and_then(|name| root.partition_by().read_folder(column, name));
        if partition.is_some_and(|partition| root.data_file(table, Some(partition)).is_file()) {
            files.insert(partition, None);
        }
    }
    Ok(files)
}

/// Reads what a file's footer says.
pub(super) fn read_facts(root: &Root, path: &Path, table: &'static Table) -> Result<FileFacts, LoadError> {
    // The whole folder is what has to be restored: rows that are gone from one file are not asked for again.
    let below_root = path.strip_prefix(root.path()).unwrap_or(path).display();
    let damaged =
        |why: String| LoadError::Damaged { path: root.path().to_owned(), why: format!("{below_root}: {why}") };
    let file = File::open(path).map_err(|source| io_error("open", path, source))?;
    let footer = ParquetMetaDataReader::new()
        .parse_and_finish(&file)
        .map_err(|error| damaged(format!("its footer cannot be read: {error}")))?;
    let notes = footer.file_metadata().key_value_metadata();
    let applied_part = notes
        .and_then(|notes| notes.iter().find(|note| note.key == APPLIED_PART_KEY))
        .and_then(|note| note.value.as_deref()?.parse().ok())
        .ok_or_else(|| damaged(format!("its footer does not say {APPLIED_PART_KEY}")))?;
    let held = footer.file_metadata().schema().get_fields();
    let is_missing = |name: &&str| !held.iter().any(|field| field.name() == *name);
    let missing = table.columns.iter().map(|column| column.name.as_str()).filter(is_missing).collect();
    let rows = footer.file_metadata().num_rows().unsigned_abs();
    Ok(FileFacts { applied_part, rows, missing })
}
