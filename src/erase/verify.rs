//! Searches all stored data for erased people: columns of warehouses, decompressed pages, and raw bytes of files.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use serde::Serialize;

use super::{
    EraseError,
    archive::{self, RecordsOf},
};
use crate::{
    archive::Archive,
    config::Settings,
    files,
    load::{Mention, Warehouse},
    model::Identifier,
    person::IdentifierMatcher,
    pipeline, state,
};

/// The result of the search at one location.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LocationResult {
    /// Files, rows or pages that were searched.
    pub searched: u64,
    /// Size of what was searched.
    pub bytes: u64,
    /// Remaining rows or records of the people: 0 unless something is wrong.
    pub left: u64,
    /// Texts of other people that mention the erased people, by table and column.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub mentions: BTreeMap<String, u64>,
    /// Rows in tables of other programs that name the erased people, by table and column. These tables are not changed.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub in_tables_of_others: BTreeMap<String, u64>,
    /// Occurrences of an identifier in the raw bytes of files, if no mention and no longer identifier of somebody else
    /// explains them.
    pub unexplained: u64,
}

/// The result of a search, by location: a warehouse, "archive", "push results", "recordings", and "files of ..." for
/// raw bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SearchReport {
    pub places: BTreeMap<String, LocationResult>,
    /// Identifiers that were searched in columns and fields only, because they look like ordinary text.
    pub not_searched_in_texts: usize,
    /// Identifiers that were not searched in raw bytes: those not searched in texts, and those so short that any file
    /// may contain them by chance.
    pub not_searched_in_bytes: usize,
}

impl SearchReport {
    /// Rows, records and pages of other people that mention an erased person.
    pub fn mentions(&self) -> u64 {
        self.places.values().flat_map(|result| result.mentions.values()).sum()
    }

    /// Rows in tables of other programs that name an erased person.
    pub fn in_tables_of_others(&self) -> u64 {
        self.places.values().flat_map(|result| result.in_tables_of_others.values()).sum()
    }

    /// Number of rows, records and occurrences that should have been removed and were not.
    pub fn left(&self) -> u64 {
        self.places.values().map(|result| result.left + result.unexplained).sum()
    }
}

/// The result of the search, with the locations that redaction needs.
#[derive(Debug, Default)]
pub(super) struct Search {
    pub verified: SearchReport,
    /// The columns of each warehouse that mention the people.
    pub by_warehouse: BTreeMap<&'static str, Vec<Mention>>,
    /// The archive files that mention the people.
    pub mentioned_in: Vec<PathBuf>,
}

/// Searches warehouses, archive, push results and the raw bytes of all files. Recordings are searched by the caller.
pub(super) fn search(
    settings: &Settings,
    archive: &Archive,
    destinations: &mut [Warehouse],
    (people, matcher): (&[Identifier], &IdentifierMatcher),
) -> Result<Search, EraseError> {
    let mut search = Search::default();
    search.verified.not_searched_in_texts = matcher.not_in_texts();
    search.verified.not_searched_in_bytes = matcher.not_in_bytes();
    // Rows that explain why a file may contain the bytes of an identifier: mentions, and longer identifiers of others.
    let mut explained = 0;
    for destination in destinations {
        let name = destination.name();
        let found = destination.search(matcher).map_err(EraseError::load(name))?;
        let left = destination.find_people(people).map_err(EraseError::load(name))?.total();
        explained += found.inside_longer;
        let result = LocationResult {
            searched: found.rows,
            bytes: found.bytes,
            left,
            mentions: by_column(&found.mentions),
            in_tables_of_others: by_column(&found.in_foreign_tables),
            unexplained: 0,
        };
        search.verified.places.insert(name.to_owned(), result);
        search.by_warehouse.insert(name, found.mentions);
        // Flushes the log and releases the lock, because the next step reads raw files.
        destination.publish().map_err(EraseError::load(name))?;
    }
    let pages = archive::search(archive, &RecordsOf::new(people, matcher))?;
    let mentions = (pages.mentioning_pages > 0).then(|| ("pages".to_owned(), pages.mentioning_pages));
    let result = LocationResult {
        searched: pages.files,
        bytes: pages.bytes,
        left: pages.records,
        mentions: mentions.into_iter().collect(),
        ..LocationResult::default()
    };
    search.verified.places.insert("archive".to_owned(), result);
    search.mentioned_in = pages.mentioned_in;
    explained += search.verified.mentions() + search.verified.in_tables_of_others();
    if let Some(result) = search_results(settings, &RecordsOf::new(people, matcher))? {
        search.verified.places.insert("push results".to_owned(), result);
    }
    for (name, paths) in files_of(settings)? {
        let mut result = LocationResult::default();
        for path in paths {
            let file = File::open(&path).map_err(EraseError::io("open", &path))?;
            let (hits, bytes) = matcher.count_in_raw(file).map_err(EraseError::io("read", &path))?;
            result.searched += 1;
            result.bytes += bytes;
            if explained == 0 {
                result.unexplained += hits;
            }
            if hits > 0 && explained == 0 {
                tracing::warn!(hits, "{} holds bytes of an identifier", path.display());
            }
        }
        search.verified.places.insert(format!("files of {name}"), result);
    }
    Ok(search)
}

/// The number of rows by `table.column`.
fn by_column(mentions: &[Mention]) -> BTreeMap<String, u64> {
    mentions.iter().map(|mention| (format!("{}.{}", mention.table, mention.column), mention.rows)).collect()
}

/// Searches the results of `users push`; `None` if there are none.
fn search_results(settings: &Settings, people: &RecordsOf<'_>) -> Result<Option<LocationResult>, EraseError> {
    let results = pipeline::search_results(settings, people)?;
    let result = LocationResult {
        searched: results.files,
        bytes: results.bytes,
        left: results.rows + results.mentions,
        // Lines with the people in files that are no results of this program any more, and so are not changed.
        unexplained: results.foreign_files,
        ..LocationResult::default()
    };
    Ok((results.files > 0).then_some(result))
}

/// All files of this program, by the part of the program that they belong to.
pub(super) fn files_of(settings: &Settings) -> Result<Vec<(&'static str, Vec<PathBuf>)>, EraseError> {
    let mut all = Vec::new();
    if let Some(path) = &settings.warehouse.duckdb {
        all.push(("duckdb", beside(path)?));
    }
    if let Some(copy) = &settings.warehouse.publish {
        all.push(("publish", beside(copy)?));
    }
    if let Some(root) = &settings.warehouse.parquet {
        let mut files = below(root)?;
        // Recordings contain no searchable text. They are searched by their folders, one per session.
        files.retain(|path| !path.starts_with(&settings.recordings.path));
        all.push(("parquet", files));
    }
    all.push(("archive", below(&settings.archive_root)?));
    let state =
        state::state_files(&settings.state_path).map_err(EraseError::io("list the files of", &settings.state_path))?;
    all.push(("state", state));
    all.push(("erasures", below(&settings.erasures_folder())?));
    Ok(all)
}

/// A file with more than one hard link. After a rewrite, the other names still have the old bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HardLinked {
    pub path: PathBuf,
    inode: u64,
}

impl HardLinked {
    /// Returns true if the path names another file now.
    pub(super) fn was_replaced(&self) -> bool {
        fs::metadata(&self.path).map_or(true, |found| found.ino() != self.inode)
    }
}

/// All files with more than one hard link.
pub(super) fn hard_linked(settings: &Settings) -> Result<Vec<HardLinked>, EraseError> {
    let mut found = Vec::new();
    for path in files_of(settings)?.into_iter().flat_map(|(_, paths)| paths) {
        let metadata = fs::metadata(&path).map_err(EraseError::io("look at", &path))?;
        if metadata.nlink() > 1 {
            found.push(HardLinked { path, inode: metadata.ino() });
        }
    }
    Ok(found)
}

/// A file and all files whose names begin with its name and a dot: its log, spill files and temporary files.
fn beside(path: &Path) -> Result<Vec<PathBuf>, EraseError> {
    let folder = files::folder_of(path);
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut paths = Vec::new();
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(paths),
        entries => entries.map_err(EraseError::io("list", folder))?,
    };
    for entry in entries {
        let path = entry.map_err(EraseError::io("list", folder))?.path();
        let other = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if other == name || other.strip_prefix(&name).is_some_and(|rest| rest.starts_with('.')) {
            paths.extend(below(&path)?);
        }
    }
    paths.sort();
    Ok(paths)
}

/// All files below a folder, with symbolic links followed. For a file, the file itself.
///
/// # Errors
/// If a link has no target, because the target cannot be searched.
fn below(root: &Path) -> Result<Vec<PathBuf>, EraseError> {
    let (mut found, mut paths, mut folders) = (Vec::new(), vec![root.to_owned()], BTreeSet::new());
    while let Some(path) = paths.pop() {
        match files::metadata(&path).map_err(EraseError::io("look at", &path))? {
            // Skips visited folders: a link may lead to a parent folder.
            Some(folder) if folder.is_dir() && folders.insert((folder.dev(), folder.ino())) => {
                for entry in fs::read_dir(&path).map_err(EraseError::io("list", &path))? {
                    paths.push(entry.map_err(EraseError::io("list", &path))?.path());
                }
            }
            Some(file) if file.is_file() => found.push(path),
            Some(_) => {}
            None if path.is_symlink() => {
                let why = std::io::Error::new(std::io::ErrorKind::NotFound, "it is a link that leads nowhere");
                return Err(EraseError::io("search", &path)(why));
            }
            None => {}
        }
    }
    found.sort();
    Ok(found)
}
