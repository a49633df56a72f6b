//! Searches all stored data for erased people: columns of warehouses, decompressed pages, and raw bytes of files.

use std::{collections::BTreeMap, fs, os::unix::fs::MetadataExt, path::PathBuf};

use serde::Serialize;

use super::{
    EraseError,
    archive::{self, RecordsOf},
};
use crate::{
    archive::Archive,
    config::Settings,
    files::files_below,
    load::{Mention, Warehouse},
    model::Identifier,
    person::IdentifierMatcher,
    pipeline, state,
};

/// The result of the search at one location.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LocationResult {
    /// Number of files, rows or sessions that were searched.
    pub searched: u64,
    /// Size of the searched data.
    pub bytes: u64,
    /// Number of remaining rows, records or files of the people: 0 unless something is wrong.
    pub left: u64,
    /// Number of texts of other people that mention the erased people, by table and column.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub mentions: BTreeMap<String, u64>,
    /// Number of rows in tables of other programs that name the erased people, by table and column. An erasure does not
    /// change tables of other programs.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub in_tables_of_others: BTreeMap<String, u64>,
    /// Number of occurrences of an identifier in the raw bytes of files, if no mention and no longer identifier of
    /// another person explains them. For "push results", the number of other programs' files that name an erased
    /// person.
    pub unexplained: u64,
}

/// The result of a search, by location: a warehouse, "archive", "push results", "recordings", and "files of ..." for
/// raw bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SearchReport {
    pub places: BTreeMap<String, LocationResult>,
    /// Number of identifiers that were searched in columns and fields only, because they look like ordinary text.
    pub not_searched_in_texts: usize,
    /// Number of identifiers that were not searched in raw bytes. They were not searched in texts either, or are so
    /// short that any file may contain them by chance.
    pub not_searched_in_bytes: usize,
}

impl SearchReport {
    /// Returns the number of rows, records and pages of other people that mention an erased person.
    pub fn mentions(&self) -> u64 {
        self.places.values().flat_map(|result| result.mentions.values()).sum()
    }

    /// Returns the number of rows in tables of other programs that name an erased person.
    pub fn in_tables_of_others(&self) -> u64 {
        self.places.values().flat_map(|result| result.in_tables_of_others.values()).sum()
    }

    /// Returns the number of rows, records and occurrences that should have been removed and were not.
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

/// Searches warehouses, archive, push results and the raw bytes of all files for the people. Recordings are searched by
/// the caller. Occurrences in raw bytes only count if no row or page mentions the people, which would explain them.
pub(super) fn search(
    settings: &Settings,
    archive: &Archive,
    destinations: &mut [Warehouse],
    people: &[Identifier],
    matcher: &IdentifierMatcher,
) -> Result<Search, EraseError> {
    let mut search = Search::default();
    search.verified.not_searched_in_texts = matcher.not_in_texts();
    search.verified.not_searched_in_bytes = matcher.not_in_bytes();
    // Number of mentions and longer identifiers, which explain why a file may contain the bytes of an identifier.
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
        // Publishing flushes the log and releases the lock, so that the raw files can be read below.
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
        let result = search_raw(settings, matcher, &paths, explained > 0)?;
        search.verified.places.insert(format!("files of {name}"), result);
    }
    Ok(search)
}

/// Searches the raw bytes of files. If a mention may explain the bytes of an identifier, does not count them.
fn search_raw(
    settings: &Settings,
    matcher: &IdentifierMatcher,
    paths: &[PathBuf],
    is_explained: bool,
) -> Result<LocationResult, EraseError> {
    let mut result = LocationResult::default();
    for path in paths {
        let file = state::open_raw(path, &settings.state_path).map_err(EraseError::io("open", path))?;
        let Some(file) = file else { continue };
        let (hits, bytes) = matcher.count_in_raw(file).map_err(EraseError::io("read", path))?;
        result.searched += 1;
        result.bytes += bytes;
        if hits > 0 && !is_explained {
            result.unexplained += hits;
            tracing::warn!(hits, "{} holds bytes of an identifier", path.display());
        }
    }
    Ok(result)
}

/// Returns the number of rows by `table.column`.
fn by_column(mentions: &[Mention]) -> BTreeMap<String, u64> {
    mentions.iter().map(|mention| (format!("{}.{}", mention.table, mention.column), mention.rows)).collect()
}

/// Searches the results files of `users push`. Returns `None` if there is no such file.
fn search_results(settings: &Settings, people: &RecordsOf<'_>) -> Result<Option<LocationResult>, EraseError> {
    let results = pipeline::search_results(settings, people)?;
    let result = LocationResult {
        searched: results.files,
        bytes: results.bytes,
        left: results.rows + results.mentions,
        // At the path of an earlier results file there may be another program's file now. Such a file is never changed;
        // it counts here if it names an erased person.
        unexplained: results.foreign_files,
        ..LocationResult::default()
    };
    Ok((results.files > 0).then_some(result))
}

/// Returns all files that this program wrote, by location: a warehouse, the reader copy, the archive, the state file
/// and the erasures. Recordings in the folder of a warehouse are left out.
pub(super) fn files_of(settings: &Settings) -> Result<Vec<(&'static str, Vec<PathBuf>)>, EraseError> {
    let mut all = Vec::new();
    let recordings = &settings.recordings.path;
    for place in pipeline::places(&settings.warehouse) {
        let mut groups = place.files()?;
        // Recordings contain no searchable text. The caller searches for recordings by the folders of the sessions.
        if recordings.starts_with(&place.path) {
            groups.iter_mut().for_each(|(_, files)| files.retain(|path| !path.starts_with(recordings)));
        }
        all.extend(groups);
    }
    all.push(("archive", files_below(&settings.archive_root)?));
    let state =
        state::state_files(&settings.state_path).map_err(EraseError::io("list the files of", &settings.state_path))?;
    all.push(("state", state));
    all.push(("erasures", files_below(&settings.erasures_folder())?));
    Ok(all)
}

/// A file with more than one hard link. After a rewrite, the other names still have the old bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HardLinked {
    pub path: PathBuf,
    inode: u64,
}

impl HardLinked {
    /// Returns true if the path leads to another file than before, or to none.
    pub(super) fn was_replaced(&self) -> bool {
        fs::metadata(&self.path).map_or(true, |found| found.ino() != self.inode)
    }
}

/// Returns all files of this program that have more than one hard link.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::{Overrides, resolve},
        model::WarehouseKind,
    };

    #[test]
    fn p9_recordings_hide_no_file_of_a_warehouse() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for file in ["data/w.duckdb", "data/3f/recording", "p/responses/data.parquet", "p/recordings/3f/recording"] {
            fs::create_dir_all(at(file).parent().unwrap()).unwrap();
            fs::write(at(file), "x").unwrap();
        }
        for (recordings, expected) in [
            ("data", ["data/w.duckdb", "p/recordings/3f/recording", "p/responses/data.parquet"].as_slice()),
            ("p/recordings", ["data/w.duckdb", "p/responses/data.parquet"].as_slice()),
        ] {
            let text = format!("[recordings]\npath = '{recordings}'\n[state]\npath = 's/state.sqlite'\n");
            fs::write(at("studysync.toml"), text).unwrap();
            let overrides = Overrides {
                config: Some(at("studysync.toml")),
                warehouses: [(WarehouseKind::DuckDb, at("data/w.duckdb")), (WarehouseKind::Parquet, at("p"))].into(),
                ..Overrides::default()
            };
            let settings = resolve(overrides).unwrap();
            let groups = files_of(&settings).unwrap();
            let found: Vec<PathBuf> = groups.into_iter().flat_map(|(_, paths)| paths).collect();
            assert_eq!(found, expected.iter().map(|file| at(file)).collect::<Vec<_>>(), "{recordings}");
        }
    }
}
