//! The folder with everything about people: a request for access asks for it.
//!
//! ```text
//! export.json            who was searched, what was found, when
//! tables/<table>.json    the rows of a table, and tables/<table>.csv
//! archive/<stream>.json  the records as the service sent them
//! recordings/            recorded answers, as response_media names them
//! ```

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fs::{self, File},
    io::{BufWriter, Write as _},
    path::{Path, PathBuf},
};

use serde::Serialize;

use super::EraseError;
use crate::{
    files::{self, FileError},
    load::ExportedRows,
};

/// Suffix of the folder while it is being filled.
const UNFINISHED: &str = ".part";
const SUMMARY: &str = "export.json";

/// What is stored about people, and where it was exported to. Contains identifiers of the people.
#[derive(Clone, Debug, Serialize)]
pub struct PersonExport {
    /// When the export was made, in RFC 3339.
    pub made_at: String,
    /// The named identifiers, each after its kind: `email zoe@example.com`.
    pub named: Vec<String>,
    /// Identifiers of the same people that were found by links.
    pub linked: Vec<String>,
    /// Identifiers on the people's rows that other people may have, too. Their other rows are not exported.
    pub not_followed: Vec<String>,
    /// False if there are more links than were followed.
    pub links_are_complete: bool,
    /// Number of rows by table, of archived records, of rows in results of pushes, and of recordings.
    pub counts: BTreeMap<String, u64>,
    /// The folder of the export; `None` if nothing was exported.
    pub folder: Option<PathBuf>,
}

/// A folder that is being filled under another name.
pub(super) struct ExportFolder {
    folder: PathBuf,
    unfinished: PathBuf,
    /// The files that are being written, by their names.
    open: BTreeMap<String, BufWriter<File>>,
    /// Number of records by file, without its extension.
    counts: BTreeMap<String, u64>,
}

impl ExportFolder {
    /// Begins a folder.
    ///
    /// # Errors
    /// `Names` if there is a file or a folder with files at the path, or the rest of an interrupted export beside it.
    pub fn begin(folder: &Path) -> Result<ExportFolder, EraseError> {
        let is_empty = || fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none());
        if files::metadata(folder).map_err(FileError::of("look at", folder))?.is_some() && !is_empty() {
            let problem = format!("{} exists: name a new folder with --out", folder.display());
            return Err(EraseError::Names(problem));
        }
        let unfinished = files::with_suffix(folder, UNFINISHED);
        if files::metadata(&unfinished).map_err(FileError::of("look at", &unfinished))?.is_some() {
            // It may have files of the user, so it is not removed.
            let problem = format!("{} exists, perhaps of an interrupted export: remove it", unfinished.display());
            return Err(EraseError::Names(problem));
        }
        files::create_folders(&unfinished).map_err(FileError::of("create", &unfinished))?;
        Ok(ExportFolder { folder: folder.to_owned(), unfinished, open: BTreeMap::new(), counts: BTreeMap::new() })
    }

    /// Adds rows as JSON and as CSV. `folder` is empty, or ends with a slash. All rows of a table must come in one
    /// call.
    pub fn add_rows(&mut self, folder: &str, rows: &ExportedRows) -> Result<(), FileError> {
        if rows.count == 0 {
            return Ok(());
        }
        let name = format!("{folder}{}", rows.table);
        self.append(&format!("{name}.csv"), &[&rows.csv])?;
        rows.json_lines
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .try_for_each(|line| self.add_record(&name, line))
    }

    /// Adds a JSON object to the file of this name, which has an array.
    pub fn add_record(&mut self, name: &str, record: &[u8]) -> Result<(), FileError> {
        let count = self.counts.entry(name.to_owned()).or_default();
        let before: &[u8] = if *count == 0 { b"[\n" } else { b",\n" };
        *count += 1;
        self.append(&format!("{name}.json"), &[before, record])
    }

    /// Copies a file. `path` is relative to the folder.
    pub fn add_file(&mut self, path: &Path, source: &Path) -> Result<(), FileError> {
        let target = self.unfinished.join(path);
        files::create_folders(files::folder_of(&target)).map_err(FileError::of("create", &target))?;
        fs::copy(source, &target).map(drop).map_err(FileError::of("copy", source))
    }

    /// Ends the files, writes the summary, and gives the folder its name.
    pub fn finish(mut self, mut summary: PersonExport) -> Result<PersonExport, FileError> {
        for name in std::mem::take(&mut self.counts).into_keys() {
            self.append(&format!("{name}.json"), &[b"\n]\n"])?;
        }
        summary.folder = Some(self.folder.clone());
        let text = serde_json::to_vec_pretty(&summary).map_err(FileError::of("write", &self.folder))?;
        self.append(SUMMARY, &[&text, b"\n"])?;
        for (name, mut file) in self.open {
            file.flush().map_err(FileError::of("write", &self.unfinished.join(name)))?;
        }
        files::move_folder(&self.unfinished, &self.folder).map_err(FileError::of("create", &self.folder))?;
        Ok(summary)
    }

    fn append(&mut self, name: &str, parts: &[&[u8]]) -> Result<(), FileError> {
        let path = self.unfinished.join(name);
        let mut write = || {
            let file = match self.open.entry(name.to_owned()) {
                Entry::Occupied(file) => file.into_mut(),
                Entry::Vacant(new) => {
                    files::create_folders(files::folder_of(&path))?;
                    new.insert(BufWriter::new(File::create(&path)?))
                }
            };
            parts.iter().try_for_each(|part| file.write_all(part))
        };
        write().map_err(FileError::of("write", &path))
    }
}
