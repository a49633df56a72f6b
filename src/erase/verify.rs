//! Searches everything that is kept for what should be gone: the columns of each warehouse, the archived pages
//! decompressed, and the bytes of every file as they lie on the disk.

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

/// What was found at one place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Place {
    /// Files, rows or pages that were looked at.
    pub searched: u64,
    pub bytes: u64,
    /// Rows or records of the people: none, unless something is wrong.
    pub left: u64,
    /// Texts of others that mention them, by table and column where there are such.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub mentions: BTreeMap<String, u64>,
    /// Rows that name them in tables which are not ours, by table and column: nothing is changed there.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub in_tables_of_others: BTreeMap<String, u64>,
    /// Bytes of an identifier in a file that no mention and no longer text of others explains.
    pub unexplained: u64,
}

/// What a search found, by place: a warehouse, "archive", and "files of ..." for the bytes on the disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verified {
    pub places: BTreeMap<String, Place>,
    /// Identifiers that were looked for in columns and fields alone, since they cannot be told from other texts.
    pub not_searched_in_texts: usize,
    /// Those, and others that are in any file by chance.
    pub not_searched_in_bytes: usize,
}

impl Verified {
    /// Rows, records and pages of others that mention somebody.
    pub fn mentions(&self) -> u64 {
        self.places.values().flat_map(|place| place.mentions.values()).sum()
    }

    /// Rows of tables that are not ours and name them.
    pub fn in_tables_of_others(&self) -> u64 {
        self.places.values().flat_map(|place| place.in_tables_of_others.values()).sum()
    }

    /// What should not be there.
    pub fn left(&self) -> u64 {
        self.places.values().map(|place| place.left + place.unexplained).sum()
    }
}

/// The search, with what redaction needs of it.
#[derive(Debug, Default)]
pub(super) struct Search {
    pub verified: Verified,
    pub by_warehouse: BTreeMap<&'static str, Vec<Mention>>,
    pub mentioned_in: Vec<PathBuf>,
}

/// Searches everything.
pub(super) fn search(
    settings: &Settings,
    archive: &Archive,
    destinations: &mut [Warehouse],
    (people, matcher): (&[Identifier], &IdentifierMatcher),
) -> Result<Search, EraseError> {
    let mut search = Search::default();
    search.verified.not_searched_in_texts = matcher.not_in_texts();
    search.verified.not_searched_in_bytes = matcher.not_in_bytes();
    // Bytes of an identifier may well be in a file as part of a longer one of somebody else.
    let mut explained = 0;
    for destination in destinations {
        let name = destination.name();
        let found = destination.search(matcher).map_err(EraseError::load(name))?;
        let left = destination.find_people(people).map_err(EraseError::load(name))?.total();
        explained += found.inside_longer;
        let place = Place {
            searched: found.rows,
            bytes: found.bytes,
            left,
            mentions: by_column(&found.mentions),
            in_tables_of_others: by_column(&found.in_their_tables),
            unexplained: 0,
        };
        search.verified.places.insert(name.to_owned(), place);
        search.by_warehouse.insert(name, found.mentions);
        // The bytes are searched as they lie on the disk: nothing may wait in a log, and no lock be in the way.
        destination.publish().map_err(EraseError::load(name))?;
    }
    let pages = archive::search(archive, &RecordsOf::new(people, matcher))?;
    let mentions = (pages.mentioning_pages > 0).then(|| ("pages".to_owned(), pages.mentioning_pages));
    let place = Place {
        searched: pages.files,
        bytes: pages.bytes,
        left: pages.records,
        mentions: mentions.into_iter().collect(),
        ..Place::default()
    };
    search.verified.places.insert("archive".to_owned(), place);
    search.mentioned_in = pages.mentioned_in;
    explained += search.verified.mentions() + search.verified.in_tables_of_others();
    if let Some(place) = search_results(settings, &RecordsOf::new(people, matcher))? {
        search.verified.places.insert("push results".to_owned(), place);
    }
    for (name, paths) in files_of(settings)? {
        let mut place = Place::default();
        for path in paths {
            let file = File::open(&path).map_err(EraseError::io("open", &path))?;
            let (hits, bytes) = matcher.count_in_raw(file).map_err(EraseError::io("read", &path))?;
            place.searched += 1;
            place.bytes += bytes;
            if explained == 0 {
                place.unexplained += hits;
            }
            if hits > 0 && explained == 0 {
                tracing::warn!(hits, "{} holds bytes of an identifier", path.display());
            }
        }
        search.verified.places.insert(format!("files of {name}"), place);
    }
    Ok(search)
}

fn by_column(mentions: &[Mention]) -> BTreeMap<String, u64> {
    mentions.iter().map(|mention| (format!("{}.{}", mention.table, mention.column), mention.rows)).collect()
}

/// The results of `users push`; `None` if there are none.
fn search_results(settings: &Settings, people: &RecordsOf<'_>) -> Result<Option<Place>, EraseError> {
    let results = pipeline::search_results(settings, people)?;
    let place = Place {
        searched: results.files,
        bytes: results.bytes,
        left: results.rows + results.mentions,
        // What stands there is no file of results any more, and not ours to change.
        unexplained: results.of_others,
        ..Place::default()
    };
    Ok((results.files > 0).then_some(place))
}

/// Every file that the program keeps, by what it belongs to.
pub(super) fn files_of(settings: &Settings) -> Result<Vec<(&'static str, Vec<PathBuf>)>, EraseError> {
    let mut all = Vec::new();
    if let Some(path) = &settings.warehouse.duckdb {
        all.push(("duckdb", beside(path)?));
    }
    if let Some(copy) = &settings.warehouse.publish {
        all.push(("publish", beside(copy)?));
    }
    if let Some(root) = &settings.warehouse.parquet {
        let mut found = below(root)?;
        // Sound and pictures are searched for no texts; whose they are, the names of their folders say.
        found.retain(|path| !path.starts_with(&settings.recordings.path));
        all.push(("parquet", found));
    }
    all.push(("archive", below(&settings.archive_root)?));
    let state =
        state::files_of(&settings.state_path).map_err(EraseError::io("list the files of", &settings.state_path))?;
    all.push(("state", state));
    all.push(("erasures", below(&settings.erasures_folder())?));
    Ok(all)
}

/// A file with more than one name. If it is written anew, the other names keep the old bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HardLinked {
    pub path: PathBuf,
    inode: u64,
}

impl HardLinked {
    /// Whether another file is in its place by now.
    pub(super) fn was_replaced(&self) -> bool {
        fs::metadata(&self.path).map_or(true, |found| found.ino() != self.inode)
    }
}

/// The files that have more than one name.
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

/// A file and those whose names begin with its name and a dot: its log, what it spills, what was built beside it.
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
        let found = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if found == name || found.strip_prefix(&name).is_some_and(|rest| rest.starts_with('.')) {
            paths.extend(below(&path)?);
        }
    }
    paths.sort();
    Ok(paths)
}

/// Every file below a folder, behind links too; a file is its own.
///
/// # Errors
/// A link that leads nowhere: what it leads to cannot be searched, so nobody may say that it was.
fn below(root: &Path) -> Result<Vec<PathBuf>, EraseError> {
    let (mut found, mut paths, mut folders) = (Vec::new(), vec![root.to_owned()], BTreeSet::new());
    while let Some(path) = paths.pop() {
        match files::metadata(&path).map_err(EraseError::io("look at", &path))? {
            // A link may lead to a folder above it.
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
