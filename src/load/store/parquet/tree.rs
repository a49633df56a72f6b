//! Lists the files of all tables, which are the files that readers see, with notes from their footers.
//!
//! The folders are listed only once, because no other process changes the files while this process has the lock.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File},
    path::{Path, PathBuf},
};

use parquet::{errors::ParquetError, file::metadata::ParquetMetaDataReader};

use super::{partition::Partition, root::Root, rows_reader::unreadable};
use crate::{
    load::{LoadError, store::TimeRange},
    schema::{Table, tables},
};

/// Metadata key in the footer: the number of the last part that is merged into the file.
pub(super) const APPLIED_PART_KEY: &str = "studysync.applied_part";

/// What this program reads from the footer of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FooterNotes {
    /// The number of the last part that is merged into the file; 0 if no part is.
    pub(super) applied_part: u64,
    /// Number of rows in the file.
    pub(super) rows: u64,
}

/// The file of a partition, or of a table without partitions.
#[derive(Clone, Debug)]
pub(super) struct DataFile {
    pub(super) path: PathBuf,
    pub(super) footer: FooterNotes,
}

/// The existing files of a table by partition, with their footers; `None` until a footer is read.
type Files = BTreeMap<Option<Partition>, Option<FooterNotes>>;

/// All files that readers see.
pub(super) struct Tree {
    files: HashMap<&'static str, Files>,
}

impl Tree {
    /// Lists the files under the root.
    pub(super) fn read(root: &Root) -> Result<Self, LoadError> {
        let list = |table: &'static Table| Ok((table.name.as_str(), list(root, table)?));
        Ok(Self { files: tables().iter().map(list).collect::<Result<_, LoadError>>()? })
    }

    /// Returns true if no table has a file.
    pub(super) fn is_empty(&self) -> bool {
        self.files.values().all(BTreeMap::is_empty)
    }

    /// Returns true if a partition has a file.
    pub(super) fn has(&self, table: &Table, partition: Option<Partition>) -> bool {
        self.files.get(table.name.as_str()).is_some_and(|files| files.contains_key(&partition))
    }

    /// Returns the paths of all files.
    pub(super) fn paths(&self, root: &Root) -> Vec<PathBuf> {
        let of_table = |table: &'static Table| self.files.get(table.name.as_str()).map(|files| (table, files));
        let files = tables().iter().filter_map(of_table);
        files.flat_map(|(table, files)| files.keys().map(|partition| root.data_file(table, *partition))).collect()
    }

    /// Returns the file of a partition with its footer, which is read at the first call. Returns `None` if there is no
    /// file.
    pub(super) fn file(
        &mut self,
        root: &Root,
        table: &'static Table,
        partition: Option<Partition>,
    ) -> Result<Option<DataFile>, LoadError> {
        let Some(footer) = self.files.get_mut(table.name.as_str()).and_then(|files| files.get_mut(&partition)) else {
            return Ok(None);
        };
        let path = root.data_file(table, partition);
        root.fetch(&path)?;
        let footer = match footer {
            Some(footer) => footer,
            None => footer.insert(read_footer(root, &path)?),
        };
        Ok(Some(DataFile { path, footer: *footer }))
    }

    /// Returns the partitions that have a file and overlap the range. Without a range, returns all partitions with a
    /// file.
    pub(super) fn partitions_within(
        &self,
        root: &Root,
        table: &'static Table,
        range: Option<TimeRange>,
    ) -> impl Iterator<Item = Option<Partition>> {
        let files = self.files.get(table.name.as_str()).into_iter().flat_map(BTreeMap::keys).copied();
        let partition_by = root.partition_by();
        files.filter(move |partition| match (range, partition) {
            (Some(range), Some(partition)) => partition_by.bounds(*partition).overlaps(range),
            _ => true,
        })
    }

    /// Records that a publish has written a file with this footer, or has removed the file if `footer` is `None`.
    pub(super) fn note(&mut self, table: &'static Table, partition: Option<Partition>, footer: Option<FooterNotes>) {
        let files = self.files.entry(table.name.as_str()).or_default();
        match footer {
            Some(footer) => files.insert(partition, Some(footer)),
            None => files.remove(&partition),
        };
    }
}

/// Lists the existing files of a table, without reading their footers.
fn list(root: &Root, table: &'static Table) -> Result<Files, LoadError> {
    let exists = |partition| {
        let path = root.data_file(table, partition);
        root.remote().map_or_else(|| path.is_file(), |remote| remote.has(&path))
    };
    let Some(column) = &table.partition else {
        let exists = exists(None);
        return Ok(exists.then_some((None, None)).into_iter().collect());
    };
    let folder = root.table_folder(table);
    if let Some(remote) = root.remote() {
        let name = |path: PathBuf| Some(path.parent()?.file_name()?.to_str()?.to_owned());
        let names = remote.files_below(&folder).into_iter().filter_map(name);
        let partitions = names.filter_map(|name| root.partition_by().read_folder(column, &name));
        return Ok(partitions.filter(|partition| exists(Some(*partition))).map(|found| (Some(found), None)).collect());
    }
    let failed = LoadError::io("read", &folder);
    let mut files = Files::new();
    let entries = match fs::read_dir(&folder) {
        // The folder can be missing only for a reader: a writer creates the folders of all tables.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(files),
        entries => entries.map_err(failed)?,
    };
    for entry in entries {
        let name = entry.map_err(failed)?.file_name();
        let partition = name.to_str().and_then(|name| root.partition_by().read_folder(column, name));
        if partition.is_some_and(|partition| exists(Some(partition))) {
            files.insert(partition, None);
        }
    }
    Ok(files)
}

/// Reads the footer of a file.
///
/// # Errors
/// [`LoadError::Damaged`] with the path of the warehouse, because the whole folder must be restored. The program does
/// not request the rows of a single lost file again.
pub(super) fn read_footer(root: &Root, path: &Path) -> Result<FooterNotes, LoadError> {
    let below_root = path.strip_prefix(root.path()).unwrap_or(path).display();
    let damaged = |why: String| LoadError::Damaged { path: root.place(), why: format!("{below_root}: {why}") };
    let file = File::open(path).map_err(LoadError::io("open", path))?;
    let footer = ParquetMetaDataReader::new().parse_and_finish(&file).map_err(|error| match error {
        // The file system refused a read, for example for want of file handles.
        error @ ParquetError::External(_) => unreadable(path, error),
        error => damaged(format!("its footer cannot be read: {error}")),
    })?;
    let notes = footer.file_metadata().key_value_metadata();
    let applied_part = notes
        .and_then(|notes| notes.iter().find(|note| note.key == APPLIED_PART_KEY))
        .and_then(|note| note.value.as_deref()?.parse().ok())
        .ok_or_else(|| damaged(format!("its footer does not say {APPLIED_PART_KEY}")))?;
    Ok(FooterNotes { applied_part, rows: footer.file_metadata().num_rows().unsigned_abs() })
}
