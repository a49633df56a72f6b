//! Makes the copy without personal data of the folder. The rules are those of [`crate::load::AnalystCopy`].
//!
//! ```text
//! <copy>/<table>/created_month=2026-01-01/data.parquet   what readers see, as in the warehouse
//! <copy>/.studysync/copy.json                            which service; says that the folder is a copy
//! <copy>/.studysync/scratch/                             files that are being written
//! ```
//!
//! A file of the copy has the modification time of its original, and its footer names the rules. So only changed files
//! are written again. One rename replaces a file: a reader sees the old or the new one.

use std::{
    collections::BTreeSet,
    fs::{self, File, FileTimes},
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow::datatypes::{Field, Fields, Schema, SchemaRef};
use parquet::file::metadata::ParquetMetaDataReader;
use serde::{Deserialize, Serialize};

use super::{
    disk::Disk,
    parallel::{run_parallel, worker_count},
    root::Root,
    rows_reader::{RowsReader, read_picked},
    table_file::{RULES_KEY, TableFile},
    tree::Tree,
};
use crate::{
    files,
    load::{AnalystCopy, Identity, LoadError, store::read_schema},
    model::is_same_service,
    schema::{Table, tables},
};

/// Memory that a thread needs to write a file: a row group, and a page and a dictionary of each column, in bytes.
const THREAD_BYTES: u64 = 96 << 20;

/// The content of `copy.json`.
#[derive(Serialize, Deserialize)]
struct CopyOwner {
    base_url: String,
    environment: String,
}

/// The folder with the copy.
pub(super) struct CopyFolder<'a> {
    pub(super) path: &'a Path,
    pub(super) identity: &'a Identity,
    pub(super) disk: &'a Disk,
}

/// Writes the files of the copy by its rules.
pub(super) struct CopyWriter<'a> {
    folder: CopyFolder<'a>,
    rules: &'a AnalystCopy,
    fingerprint: String,
}

/// A file of the warehouse, and its place in the copy.
struct CopiedFile {
    table: &'static Table,
    original: PathBuf,
    copy: PathBuf,
}

impl CopyFolder<'_> {
    fn private(&self) -> PathBuf {
        self.path.join(".studysync")
    }

    /// Fails if the folder is neither empty nor a copy of this warehouse's service.
    pub(super) fn check(&self) -> Result<(), LoadError> {
        let not_ours = |why: &str| Err(LoadError::NotOurs { path: self.path.to_owned(), why: why.to_owned() });
        let owner = self.private().join("copy.json");
        let text = match fs::read(&owner) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let entries = match fs::read_dir(self.path) {
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
                    entries => entries.map_err(LoadError::io("read", self.path))?,
                };
                // A kill can leave the private folder without the owner.
                let is_other = |name: &std::ffi::OsStr| name != ".studysync";
                let is_used = entries.flatten().any(|entry| is_other(&entry.file_name()))
                    || self.private().join("warehouse.json").exists();
                return if is_used { not_ours("it holds other files, and no copy") } else { Ok(()) };
            }
            Err(error) => return Err(LoadError::io("read", &owner)(error)),
        };
        let found: Option<CopyOwner> = serde_json::from_slice(&text).ok();
        let Some(found) = found else { return not_ours(".studysync/copy.json cannot be read") };
        let Identity { base_url, environment } = self.identity;
        if is_same_service(&found.base_url, base_url) && found.environment == *environment {
            return Ok(());
        }
        Err(LoadError::OtherIdentity {
            path: self.path.to_owned(),
            found: format!("{} ({})", found.base_url, found.environment),
            wanted: format!("{base_url} ({environment})"),
        })
    }

    /// Names the service in the folder; creates the folder if it is missing.
    pub(super) fn write_owner(&self) -> Result<(), LoadError> {
        let Identity { base_url, environment } = self.identity;
        let owner = CopyOwner { base_url: base_url.clone(), environment: environment.clone() };
        let path = self.private().join("copy.json");
        let text = serde_json::to_vec_pretty(&owner).map_err(|source| LoadError::io("write", &path)(source.into()))?;
        if fs::read(&path).is_ok_and(|found| found == text) {
            return Ok(());
        }
        files::create_folders(self.path).map_err(LoadError::io("create", self.path))?;
        self.disk.create_folder(&self.private())?;
        self.disk.replace(&path, &text)
    }

    /// Returns the files of tables in the copy.
    fn existing(&self) -> Result<Vec<PathBuf>, LoadError> {
        let mut found = Vec::new();
        for table in tables() {
            let all = files::files_below(&self.path.join(&table.name))?;
            found.extend(all.into_iter().filter(|path| path.extension().is_some_and(|name| name == "parquet")));
        }
        Ok(found)
    }
}

impl<'a> CopyWriter<'a> {
    pub(super) fn new(folder: CopyFolder<'a>, rules: &'a AnalystCopy) -> Self {
        Self { fingerprint: rules.fingerprint(folder.identity), folder, rules }
    }

    /// Writes each file of the warehouse that changed, and removes files that the warehouse does not have any more.
    /// Returns the number of written and removed files.
    pub(super) fn update(&self, root: &Root, tree: &Tree, memory_bytes: u64, threads: u32) -> Result<usize, LoadError> {
        let CopyFolder { disk, .. } = self.folder;
        self.folder.check()?;
        self.folder.write_owner()?;
        let scratch = self.folder.private().join("scratch");
        disk.remove_folder(&scratch)?;
        let files = self.files(root, tree);
        files.iter().try_for_each(|file| root.fetch(&file.original))?;
        let wanted: BTreeSet<&Path> = files.iter().map(|file| file.copy.as_path()).collect();
        let obsolete: Vec<PathBuf> =
            self.folder.existing()?.into_iter().filter(|path| !wanted.contains(path.as_path())).collect();
        for path in &obsolete {
            disk.remove_file(path)?;
        }
        let changed: Vec<(usize, &CopiedFile)> =
            files.iter().enumerate().filter(|(_, file)| !file.is_current(&self.fingerprint)).collect();
        if !changed.is_empty() {
            disk.create_folder(&scratch)?;
        }
        let threads = threads.min(u32::try_from(memory_bytes / THREAD_BYTES).unwrap_or(u32::MAX)).max(1);
        run_parallel(&changed, worker_count(threads, &changed), |(number, file)| {
            self.write(file, &scratch.join(format!("{number}.parquet")))
        })?;
        Ok(changed.len() + obsolete.len())
    }

    /// Returns the files of the warehouse that readers see.
    fn files(&self, root: &Root, tree: &Tree) -> Vec<CopiedFile> {
        let of_table = |table: &'static Table| {
            tree.partitions_within(root, table, None).map(move |partition| root.data_file(table, partition)).map(
                move |original| {
                    let copy = self.folder.path.join(original.strip_prefix(root.path()).unwrap_or(&original));
                    CopiedFile { table, original, copy }
                },
            )
        };
        tables().iter().flat_map(of_table).collect()
    }

    fn write(&self, file: &CopiedFile, new: &Path) -> Result<(), LoadError> {
        let CopiedFile { table, original, copy } = file;
        let failed = LoadError::io("write", new);
        let folder = files::folder_of(copy);
        files::create_folders(folder).map_err(LoadError::io("create", folder))?;
        let time =
            fs::metadata(original).and_then(|found| found.modified()).map_err(LoadError::io("read", original))?;
        self.folder.disk.step("write", new)?;
        let schema = self.schema(table);
        let mut written = TableFile::create_copy(table, new, &schema, &self.fingerprint)?;
        let reader = RowsReader::open(original)?;
        let read = read_schema(table, &self.rules.columns_read(table))?;
        for rows in read_picked(&reader, &reader.all(), &read) {
            written.write(&self.rules.rows(table, &schema, &rows?)?)?;
        }
        written.finish()?;
        let stamped = File::options().write(true).open(new).and_then(|file| {
            file.set_times(FileTimes::new().set_modified(time))?;
            file.sync_all()
        });
        stamped.map_err(failed)?;
        self.folder.disk.rename(new, copy)
    }

    /// Returns the schema of the copied files: that of the warehouse, with columns that the rules empty nullable.
    fn schema(&self, table: &Table) -> SchemaRef {
        let nullable = self.rules.nullable(table);
        let schema = table.parquet_schema();
        let fields = schema.fields().iter().map(|field| {
            let is_nullable = field.is_nullable() || nullable.contains(&field.name().as_str());
            Arc::new(Field::clone(field).with_nullable(is_nullable))
        });
        Arc::new(Schema::new(fields.collect::<Fields>()))
    }
}

impl CopiedFile {
    /// Returns true if the copied file has the content of its original by these rules.
    fn is_current(&self, fingerprint: &str) -> bool {
        let changed = |path: &Path| fs::metadata(path).and_then(|found| found.modified()).ok();
        changed(&self.copy).is_some_and(|time| changed(&self.original) == Some(time))
            && rules_of(&self.copy).as_deref() == Some(fingerprint)
    }
}

/// Returns the fingerprint in the footer of a copied file; `None` for a file without one.
fn rules_of(path: &Path) -> Option<String> {
    let file = File::open(path).ok()?;
    let footer = ParquetMetaDataReader::new().parse_and_finish(&file).ok()?;
    let notes = footer.file_metadata().key_value_metadata()?;
    notes.iter().find(|note| note.key == RULES_KEY)?.value.clone()
}
