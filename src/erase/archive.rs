//! Finds, removes and redacts records of people in archived pages and in the spools of unfinished scans.

use std::{
    collections::BTreeSet,
    fs::File,
    num::NonZero,
    panic,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use super::EraseError;
use crate::{
    archive::{Archive, PageChange, read_pages, rewrite},
    model::{Failpoints, Identifier, IdentifierKind, Spellings, Stream, WrittenIdentifier, merge_spellings},
    person::{IdentifierMatcher, IdentifyingFields, identifying_fields, remove_records},
    pipeline::ErasedPeople,
};

/// The maximum number of rows in an [`ArchivedCoOccurrence`]. Records with the same identifiers count as one row.
const CO_OCCURRENCES_MAX: usize = 200_000;

/// Counts of the people's records in the archive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArchiveFound {
    /// Number of files that were read.
    pub files: u64,
    /// Number of pages in all files.
    pub pages: u64,
    /// Number of records that belong to the people.
    pub records: u64,
    /// Files with records of people.
    pub found_in: Vec<PathBuf>,
}

/// Recognizes the records of some people.
pub(super) struct RecordsOf<'a> {
    people: BTreeSet<&'a Identifier>,
    matcher: &'a IdentifierMatcher,
}

impl<'a> RecordsOf<'a> {
    pub fn new(people: &'a [Identifier], matcher: &'a IdentifierMatcher) -> Self {
        RecordsOf { people: people.iter().collect(), matcher }
    }

    fn is_theirs(&self, stream: Stream, record: &str) -> bool {
        // The matcher is cheap, and rules out most records before they are parsed.
        self.matcher.may_be_a_field(record.as_bytes()) && self.is_theirs_by(identifying_fields(stream), record)
    }

    /// Returns true if a JSON object has an identifier of one of the people. `fields` are the fields that contain
    /// identifiers, from the contract of the object's table.
    pub fn is_theirs_by(&self, fields: &IdentifyingFields, record: &str) -> bool {
        fields.any(record, &mut |found| self.people.contains(&found.identifier))
    }
}

impl ErasedPeople for RecordsOf<'_> {
    fn is_user(&self, user_id: &str) -> bool {
        Identifier::read(IdentifierKind::UserId, user_id).is_some_and(|user| self.people.contains(&user))
    }

    fn redacted(&self, text: &str) -> Option<String> {
        if self.matcher.may_be_in(text.as_bytes()) { self.matcher.redacted(text) } else { None }
    }
}

impl RecordsOf<'_> {
    /// Returns the page without the records of the people. Returns `None` if the page has no such record.
    fn without(&self, stream: Stream, body: &[u8]) -> Option<PageChange> {
        if !self.matcher.may_be_a_field(body) {
            return None;
        }
        let redacted = remove_records(body, |record| self.is_theirs(stream, record))?;
        Some(PageChange { body: redacted.body, removed: redacted.removed })
    }
}

/// Returns the paths of all files with pages, of committed and of unfinished scans, sorted.
pub(super) fn files(archive: &Archive) -> Result<Vec<PathBuf>, EraseError> {
    let mut files = archive.committed()?;
    files.extend(archive.spools()?);
    files.sort();
    Ok(files)
}

/// Counts the records of people in all files. Changes nothing.
pub(super) fn find(archive: &Archive, people: &RecordsOf<'_>) -> Result<ArchiveFound, EraseError> {
    let results = each_file(archive, |path| {
        let stream = stream_of(path)?;
        rewrite(path, &Failpoints::default(), true, |body| {
            Ok::<_, EraseError>(stream.and_then(|stream| people.without(stream, body)))
        })
    })?;
    let mut found = ArchiveFound::default();
    for (path, counts) in results {
        found.files += 1;
        found.pages += counts.pages;
        found.records += counts.removed;
        if counts.changed > 0 {
            found.found_in.push(path);
        }
    }
    Ok(found)
}

/// Calls `visit` for each file with pages, on one thread per processor. Returns the results in the order of the files.
/// After an error of `visit`, visits no further file and returns the error.
fn each_file<T: Send>(
    archive: &Archive,
    visit: impl Fn(&Path) -> Result<T, EraseError> + Sync,
) -> Result<Vec<(PathBuf, T)>, EraseError> {
    let files = files(archive)?;
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let next = AtomicUsize::new(0);
    let visit_next_files = || {
        let mut results = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(path) = files.get(index) else { return Ok(results) };
            match visit(path) {
                Ok(found) => results.push((index, found)),
                Err(error) => {
                    // The other threads find no further file, and end.
                    next.store(files.len(), Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
    };
    let mut results: Vec<(usize, T)> = thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(visit_next_files)).collect();
        let ends = handles.into_iter().map(|handle| handle.join().unwrap_or_else(|panic| panic::resume_unwind(panic)));
        ends.collect::<Result<Vec<_>, _>>()
    })?
    .into_iter()
    .flatten()
    .collect();
    results.sort_by_key(|(index, _)| *index);
    Ok(files.into_iter().zip(results).map(|(path, (_, found))| (path, found)).collect())
}

/// Identifiers that occur together in archived records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ArchivedCoOccurrence {
    /// For each record with a wanted identifier, all identifiers of the record.
    pub rows: BTreeSet<Vec<Identifier>>,
    /// The spellings of the identifiers of `rows` in the records.
    pub spellings: Spellings,
}

impl ArchivedCoOccurrence {
    /// Adds the rows and spellings of other files.
    pub fn add(&mut self, other: ArchivedCoOccurrence) {
        self.rows.extend(other.rows);
        merge_spellings(&mut self.spellings, other.spellings);
    }

    /// Fails if there are more than [`CO_OCCURRENCES_MAX`] rows.
    fn require_few(&self) -> Result<(), EraseError> {
        if self.rows.len() > CO_OCCURRENCES_MAX {
            return Err(EraseError::Names(format!(
                "more than {CO_OCCURRENCES_MAX} archived sessions have one of the identifiers: name fewer people at once"
            )));
        }
        Ok(())
    }
}

/// Returns the identifiers of each archived record that has a wanted identifier. Changes nothing. Fails if the records
/// have more than [`CO_OCCURRENCES_MAX`] different sets of identifiers.
///
/// The archive may have records that no table has: records of an unfinished scan, or of a lost warehouse.
pub(super) fn co_occurrence(archive: &Archive, wanted: &[Identifier]) -> Result<ArchivedCoOccurrence, EraseError> {
    let matcher = IdentifierMatcher::new(wanted);
    let records = RecordsOf::new(wanted, &matcher);
    let visit = |path: &Path| {
        let mut found = ArchivedCoOccurrence::default();
        let Some(stream) = stream_of(path)? else { return Ok(found) };
        rewrite(path, &Failpoints::default(), true, |body| {
            if matcher.may_be_a_field(body) {
                // Visits each record of the page, and removes none.
                remove_records(body, |record| {
                    if records.is_theirs(stream, record) {
                        let row = identifiers_of(stream, record, &mut found.spellings);
                        found.rows.insert(row);
                    }
                    false
                });
            }
            found.require_few().map(|()| None)
        })?;
        Ok(found)
    };
    let mut co_occurrence = ArchivedCoOccurrence::default();
    each_file(archive, visit)?.into_iter().for_each(|(_, found)| co_occurrence.add(found));
    co_occurrence.require_few().map(|()| co_occurrence)
}

/// Returns the identifiers of a record, sorted. Adds their spellings to `spellings`.
fn identifiers_of(stream: Stream, record: &str, spellings: &mut Spellings) -> Vec<Identifier> {
    let mut identifiers = Vec::new();
    identifying_fields(stream).any(record, &mut |found: WrittenIdentifier| {
        identifiers.push(found.into_identifier(spellings));
        false
    });
    identifiers.sort();
    identifiers.dedup();
    identifiers
}

/// Removes the records of people from the files `found_in`. Skips an empty spool, because it has no records. Returns
/// the number of removed records. After an error, earlier files are already rewritten.
pub(super) fn remove(found_in: &[PathBuf], people: &RecordsOf<'_>, failpoints: &Failpoints) -> Result<u64, EraseError> {
    let mut removed = 0;
    for path in found_in {
        let Some(stream) = stream_of(path)? else { continue };
        let counts = rewrite(path, failpoints, false, |body| Ok::<_, EraseError>(people.without(stream, body)))?;
        removed += counts.removed;
    }
    Ok(removed)
}

/// Replaces mentions of people in the pages of a file. Returns the number of changed pages.
pub(super) fn redact(path: &Path, matcher: &IdentifierMatcher, failpoints: &Failpoints) -> Result<u64, EraseError> {
    let counts = rewrite(path, failpoints, false, |body| {
        let redacted = if matcher.may_be_in(body) { matcher.redacted_bytes(body) } else { None };
        Ok::<_, EraseError>(redacted.map(|body| PageChange { body, removed: 0 }))
    })?;
    Ok(counts.changed)
}

/// The result of a search of all pages.
#[derive(Clone, Debug, Default)]
pub(super) struct PagesSearched {
    /// Number of files that were searched.
    pub files: u64,
    /// Size of the searched pages, decompressed.
    pub bytes: u64,
    /// Number of records of the people that were not removed: 0 unless something is wrong.
    pub records: u64,
    /// Number of pages that mention one of the people.
    pub mentioning_pages: u64,
    /// The files with pages that mention one of the people.
    pub mentioned_in: Vec<PathBuf>,
}

/// Searches every page, decompressed, for records of the people and for mentions of the people. Changes nothing.
pub(super) fn search(archive: &Archive, people: &RecordsOf<'_>) -> Result<PagesSearched, EraseError> {
    let results = each_file(archive, |path| {
        let stream = stream_of(path)?;
        let mut found = PagesSearched { files: 1, ..PagesSearched::default() };
        rewrite(path, &Failpoints::default(), true, |body| {
            found.bytes += body.len() as u64;
            let removable = stream.and_then(|stream| people.without(stream, body));
            found.records += removable.map_or(0, |change| u64::from(change.removed));
            found.mentioning_pages += u64::from(people.matcher.may_be_in(body) && people.matcher.is_in_text(body));
            Ok::<_, EraseError>(None)
        })?;
        Ok(found)
    })?;
    let mut searched = PagesSearched::default();
    for (path, found) in results {
        searched.files += found.files;
        searched.bytes += found.bytes;
        searched.records += found.records;
        searched.mentioning_pages += found.mentioning_pages;
        if found.mentioning_pages > 0 {
            searched.mentioned_in.push(path);
        }
    }
    Ok(searched)
}

/// Returns the stream of a file with pages. Returns `None` for an empty spool, whose header was never synced.
fn stream_of(path: &Path) -> Result<Option<Stream>, EraseError> {
    let is_empty = File::open(path).and_then(|file| file.metadata()).is_ok_and(|metadata| metadata.len() == 0);
    if is_empty {
        return Ok(None);
    }
    Ok(Some(read_pages(path)?.header().scan.scope.stream))
}
