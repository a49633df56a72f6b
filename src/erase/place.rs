//! What all places with texts have in common: [`TextPlace`], what its methods work with (the people, the plan, the
//! counts of a search), and the search of all places, as texts and as raw bytes.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use serde::Serialize;

use super::{EraseError, LinkedIdentifiers, PersonExport, export::ExportFolder, journal::OpenJournal};
use crate::{
    archive::PageFile,
    load::{LocationResult, PeopleFound},
    model::{Identifier, IdentifierKind, Spellings, format_ms},
    person::{IdentifierMatcher, IdentifyingFields},
    pipeline::{ErasedPeople, ResultsFound},
    recordings::StoredRecordings,
    state,
};

/// A place that may have texts of people. A new place implements every method and stands in the list of `places`;
/// nothing else names single places.
pub(super) trait TextPlace {
    /// Adds to the plan what [`TextPlace::remove`] will remove. Changes nothing.
    fn find(&mut self, people: &People, plan: &mut Plan) -> Result<(), EraseError>;

    /// Adds the people's data that [`TextPlace::find`] counted to a folder. Changes nothing.
    fn export(&mut self, people: &People, plan: &Plan, out: &mut ExportFolder) -> Result<(), EraseError>;

    /// Removes the people's data. Notes each count in the journal right after the removal, so that the receipt of a
    /// resumed erasure counts this removal.
    fn remove(&mut self, people: &People, plan: &Plan, journal: &mut OpenJournal) -> Result<(), EraseError>;

    /// Searches all texts, decoded, for data and mentions of the people. Adds the results by location.
    fn search(&mut self, people: &People, found: &mut LocationResults) -> Result<(), EraseError>;

    /// Replaces the mentions that the last search found. With `only_own`, replaces mentions only in stored reports of
    /// runs.
    fn redact(&mut self, people: &People, only_own: bool, journal: &mut OpenJournal) -> Result<(), EraseError>;

    /// Returns the files to search for raw bytes, by location.
    fn files(&self) -> Result<FileGroups, EraseError>;

    /// Searches the raw bytes of objects in a bucket that [`TextPlace::files`] does not return; `None` if there are
    /// none. Each hit counts as unexplained.
    fn search_objects(&self, _: &People) -> Result<Option<RawResult>, EraseError> {
        Ok(None)
    }
}

/// The people of an erasure, and what recognizes them in records, texts and bytes.
pub(super) struct People {
    /// Sorted.
    pub identifiers: Vec<Identifier>,
    /// Finds the identifiers in all known spellings.
    pub matcher: IdentifierMatcher,
}

impl People {
    /// Creates people with these identifiers, which are sorted, and their known spellings.
    pub fn new(identifiers: Vec<Identifier>, spellings: &Spellings) -> People {
        People { matcher: IdentifierMatcher::with_spellings(&identifiers, spellings), identifiers }
    }

    fn has(&self, identifier: &Identifier) -> bool {
        self.identifiers.binary_search(identifier).is_ok()
    }

    /// Returns true if a JSON object has an identifier of one of the people. `fields` are the fields that contain
    /// identifiers, from the contract of the object's table.
    pub fn has_record(&self, fields: &IdentifyingFields, record: &str) -> bool {
        fields.any(record, &mut |found| self.has(&found.identifier))
    }
}

impl ErasedPeople for People {
    fn is_user(&self, user_id: &str) -> bool {
        Identifier::read(IdentifierKind::UserId, user_id).is_some_and(|user| self.has(&user))
    }

    fn redacted(&self, text: &str) -> Option<String> {
        self.matcher.redacted(text)
    }
}

/// What an erasure would remove.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The id of the erasure, which an interrupted erasure keeps when it resumes.
    pub erasure_id: String,
    /// True if the erasure resumes an interrupted attempt.
    pub is_resumed: bool,
    pub identifiers: LinkedIdentifiers,
    /// Named identifiers without any row or archived record.
    pub unknown: Vec<Identifier>,
    /// Rows of the people, by name of the warehouse.
    pub warehouses: BTreeMap<&'static str, PeopleFound>,
    pub archive: ArchiveFound,
    /// Rows of the people in the results files of `users push`.
    pub results: ResultsFound,
    /// Counts of the recordings of the people's sessions.
    pub recordings: StoredRecordings,
    /// Counts of all data that the erasure will remove, by the locations of the receipt.
    pub(super) counts: BTreeMap<String, u64>,
    /// Files with more than one hard link. After a rewrite, the other names still have the old bytes.
    pub hard_linked: Vec<HardLinked>,
    /// Number of unfinished erasures of other people.
    pub others_unfinished: usize,
}

impl Plan {
    /// Returns the number of rows of the people, in the warehouse with the most such rows.
    pub fn rows(&self) -> u64 {
        self.warehouses.values().map(PeopleFound::total).max().unwrap_or(0)
    }

    /// Returns the warehouse with the most rows of the people; all warehouses have the same rows, unless one is behind.
    pub(super) fn fullest_warehouse(&self) -> Option<(&'static str, &PeopleFound)> {
        self.warehouses.iter().max_by_key(|(_, found)| found.total()).map(|(name, found)| (*name, found))
    }

    /// Returns what was found, as of a time in epoch milliseconds.
    pub(super) fn summary(&self, now_ms: i64) -> PersonExport {
        let shown = |identifier: &Identifier| format!("{} {}", identifier.kind.name(), identifier.value);
        let identifiers = &self.identifiers;
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for (table, rows) in self.fullest_warehouse().into_iter().flat_map(|(_, found)| &found.rows) {
            counts.insert(format!("tables/{table}"), *rows);
        }
        let others = [
            ("archive", self.archive.records),
            ("push_results", self.results.rows),
            ("recordings", self.recordings.files),
        ];
        counts.extend(others.into_iter().filter(|(_, count)| *count > 0).map(|(what, count)| (what.to_owned(), count)));
        PersonExport {
            made_at: format_ms(now_ms),
            named: identifiers.named.iter().map(shown).collect(),
            linked: identifiers.linked.iter().map(shown).collect(),
            not_followed: identifiers.not_followed.keys().map(shown).collect(),
            links_are_complete: identifiers.is_complete,
            counts,
            folder: None,
        }
    }

    /// Returns true if one of the named identifiers was found.
    pub fn has_found(&self) -> bool {
        self.unknown.len() < self.identifiers.named.len()
    }

    /// Returns the people with all their identifiers: named and linked ones.
    pub(super) fn people(&self) -> People {
        People::new(self.identifiers.all(), &self.identifiers.spellings)
    }
}

/// Counts of the people's records in the archive.
#[derive(Clone, Debug, Default)]
pub struct ArchiveFound {
    /// Number of files that were read.
    pub files: u64,
    /// Number of pages in all files.
    pub pages: u64,
    /// Number of records that belong to the people.
    pub records: u64,
    /// Files with records of people.
    pub found_in: Vec<PageFile>,
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

/// The name of a location, and the result of a search of its raw bytes.
pub(super) type RawResult = (&'static str, LocationResult);

/// Files by location.
pub(super) type FileGroups = Vec<(&'static str, Vec<PathBuf>)>;

/// The results of a search by location: a warehouse, "archive", "push results", "recordings", and "files of ..." for
/// raw bytes.
pub(super) type LocationResults = BTreeMap<String, LocationResult>;

/// The result of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SearchReport {
    /// By location: a warehouse, "archive", "push results", "recordings", and "files of ..." for raw bytes.
    pub places: LocationResults,
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

    /// Returns true if a file may contain the bytes of an identifier, because a text mentions it, or contains it inside
    /// a longer word.
    fn explains_bytes(&self) -> bool {
        self.mentions() + self.in_tables_of_others() > 0 || self.places.values().any(|result| result.inside_longer > 0)
    }
}

/// Searches all places for the people, and then the raw bytes of all files. Occurrences in raw bytes only count if no
/// text mentions the people, which would explain them. `state` is the path of the state file.
pub(super) fn search(
    places: &mut [Box<dyn TextPlace + '_>],
    people: &People,
    state: &Path,
) -> Result<SearchReport, EraseError> {
    let mut report = SearchReport {
        not_searched_in_texts: people.matcher.not_in_texts(),
        not_searched_in_bytes: people.matcher.not_in_bytes(),
        ..SearchReport::default()
    };
    for place in places.iter_mut() {
        place.search(people, &mut report.places)?;
    }
    let is_explained = report.explains_bytes();
    for (name, paths) in files_of(places)? {
        let result = search_raw(&paths, &people.matcher, state, is_explained)?;
        report.places.insert(format!("files of {name}"), result);
    }
    for place in places.iter() {
        let Some((name, mut result)) = place.search_objects(people)? else { continue };
        if is_explained {
            result.unexplained = 0;
        }
        report.places.insert(format!("files of {name}"), result);
    }
    Ok(report)
}

/// Searches the raw bytes of files. If a mention may explain the bytes of an identifier, does not count them.
fn search_raw(
    paths: &[PathBuf],
    matcher: &IdentifierMatcher,
    state: &Path,
    is_explained: bool,
) -> Result<LocationResult, EraseError> {
    let mut result = LocationResult::default();
    for path in paths {
        let file = state::open_raw(path, state).map_err(EraseError::io("open", path))?;
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

/// Returns all files that this program wrote, by location.
fn files_of(places: &[Box<dyn TextPlace + '_>]) -> Result<FileGroups, EraseError> {
    let groups = places.iter().map(|place| place.files()).collect::<Result<Vec<_>, _>>()?;
    Ok(groups.into_iter().flatten().collect())
}

/// Returns all files of this program that have more than one hard link.
pub(super) fn hard_linked(places: &[Box<dyn TextPlace + '_>]) -> Result<Vec<HardLinked>, EraseError> {
    let mut found = Vec::new();
    for path in files_of(places)?.into_iter().flat_map(|(_, paths)| paths) {
        let metadata = fs::metadata(&path).map_err(EraseError::io("look at", &path))?;
        if metadata.nlink() > 1 {
            found.push(HardLinked { path, inode: metadata.ino() });
        }
    }
    Ok(found)
}
