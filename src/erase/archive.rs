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

use super::{
    EraseError,
    export::ExportFolder,
    journal::OpenJournal,
    place::{FileGroups, LocationResults, People, Plan, TextPlace},
};
use crate::{
    archive::{Archive, PageChange, read_pages, rewrite},
    files::files_below,
    load::{CoOccurrence, LocationResult},
    model::{Failpoints, Identifier, Spellings, Stream, WrittenIdentifier},
    person::{identifying_fields, remove_records},
    pipeline::Session,
};

/// The location of removed records in a receipt.
const RECORDS: &str = "archive records";

/// The maximum number of rows of all files. Records with the same identifiers count as one row.
const CO_OCCURRENCES_MAX: usize = 200_000;

/// The archived pages, and the spools of unfinished scans.
pub(super) struct ArchivedPages<'a> {
    pub session: &'a Session,
    pub archive: &'a Archive,
    /// The files that mention the people, by the last search.
    pub mentioned_in: Vec<PathBuf>,
}

impl People {
    fn has_record_of(&self, stream: Stream, record: &str) -> bool {
        // The matcher is cheap, and rules out most records before they are parsed.
        self.matcher.may_be_a_field(record.as_bytes()) && self.has_record(identifying_fields(stream), record)
    }

    /// Returns the page without the records of the people. Returns `None` if the page has no such record.
    fn without(&self, stream: Stream, body: &[u8]) -> Option<PageChange> {
        if !self.matcher.may_be_a_field(body) {
            return None;
        }
        let redacted = remove_records(body, |record| self.has_record_of(stream, record))?;
        Some(PageChange { body: redacted.body, removed: redacted.removed })
    }
}

impl TextPlace for ArchivedPages<'_> {
    fn find(&mut self, people: &People, plan: &mut Plan) -> Result<(), EraseError> {
        let results = each_file(self.archive, |path| {
            let stream = stream_of(path)?;
            rewrite(path, &Failpoints::default(), true, |body| {
                Ok::<_, EraseError>(stream.and_then(|stream| people.without(stream, body)))
            })
        })?;
        let found = &mut plan.archive;
        for (path, counts) in results {
            found.files += 1;
            found.pages += counts.pages;
            found.records += counts.removed;
            if counts.changed > 0 {
                found.found_in.push(path);
            }
        }
        plan.counts.insert(RECORDS.to_owned(), found.records);
        Ok(())
    }

    /// Exports each record once, although several scans may have returned it.
    fn export(&mut self, people: &People, plan: &Plan, out: &mut ExportFolder) -> Result<(), EraseError> {
        let mut records: BTreeSet<(Stream, String)> = BTreeSet::new();
        for path in &plan.archive.found_in {
            let Some(stream) = stream_of(path)? else { continue };
            rewrite(path, &Failpoints::default(), true, |body| {
                // Visits each record of the page, and removes none.
                remove_records(body, |record| {
                    if people.has_record_of(stream, record) {
                        records.insert((stream, record.to_owned()));
                    }
                    false
                });
                Ok::<_, EraseError>(None)
            })?;
        }
        for (stream, record) in &records {
            out.add_record(&format!("archive/{stream}"), record.as_bytes())?;
        }
        Ok(())
    }

    /// Removes the records from the files of the plan. Skips an empty spool, because it has no records. After an error,
    /// earlier files are already rewritten.
    fn remove(&mut self, people: &People, plan: &Plan, journal: &mut OpenJournal) -> Result<(), EraseError> {
        let mut removed = 0;
        for path in &plan.archive.found_in {
            let Some(stream) = stream_of(path)? else { continue };
            let change = |body: &[u8]| Ok::<_, EraseError>(people.without(stream, body));
            removed += rewrite(path, &self.session.system.failpoints, false, change)?.removed;
        }
        journal.removed(RECORDS, removed)
    }

    fn search(&mut self, people: &People, found: &mut LocationResults) -> Result<(), EraseError> {
        let results = each_file(self.archive, |path| {
            let stream = stream_of(path)?;
            let (mut bytes, mut left, mut mentioning_pages) = (0, 0, 0);
            rewrite(path, &Failpoints::default(), true, |body| {
                bytes += body.len() as u64;
                let removable = stream.and_then(|stream| people.without(stream, body));
                left += removable.map_or(0, |change| u64::from(change.removed));
                mentioning_pages += u64::from(people.matcher.is_in_text(body));
                Ok::<_, EraseError>(None)
            })?;
            Ok((bytes, left, mentioning_pages))
        })?;
        self.mentioned_in.clear();
        let mut all = LocationResult::default();
        for (path, (bytes, left, mentioning_pages)) in results {
            all.searched += 1;
            all.bytes += bytes;
            all.left += left;
            if mentioning_pages > 0 {
                *all.mentions.entry("pages".to_owned()).or_default() += mentioning_pages;
                self.mentioned_in.push(path);
            }
        }
        found.insert("archive".to_owned(), all);
        Ok(())
    }

    fn redact(&mut self, people: &People, only_own: bool, journal: &mut OpenJournal) -> Result<(), EraseError> {
        for path in self.mentioned_in.iter().filter(|_| !only_own) {
            let counts = rewrite(path, &self.session.system.failpoints, false, |body| {
                let redacted = people.matcher.redacted_bytes(body);
                Ok::<_, EraseError>(redacted.map(|body| PageChange { body, removed: 0 }))
            })?;
            journal.redacted(counts.changed)?;
        }
        Ok(())
    }

    fn files(&self) -> Result<FileGroups, EraseError> {
        Ok(vec![("archive", files_below(&self.session.settings.archive_root)?)])
    }
}

/// Calls `visit` for each file with pages, on one thread per processor. Returns the results in the order of the files.
/// After an error of `visit`, visits no further file and returns the error.
fn each_file<T: Send>(
    archive: &Archive,
    visit: impl Fn(&Path) -> Result<T, EraseError> + Sync,
) -> Result<Vec<(PathBuf, T)>, EraseError> {
    let mut files = archive.committed()?;
    files.extend(archive.spools()?);
    files.sort();
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

/// Fails if there are more than [`CO_OCCURRENCES_MAX`] rows.
fn require_few(found: &CoOccurrence) -> Result<(), EraseError> {
    if found.rows.len() > CO_OCCURRENCES_MAX {
        return Err(EraseError::Names(format!(
            "more than {CO_OCCURRENCES_MAX} archived sessions have one of the identifiers: name fewer people at once"
        )));
    }
    Ok(())
}

/// Returns the identifiers of each archived record that has a wanted identifier. Changes nothing. Fails if the records
/// have more than [`CO_OCCURRENCES_MAX`] different sets of identifiers.
///
/// The archive may have records that no table has: records of an unfinished scan, or of a lost warehouse.
pub(super) fn co_occurrence(archive: &Archive, wanted: Vec<Identifier>) -> Result<CoOccurrence, EraseError> {
    let people = People::new(wanted, &Spellings::new());
    let visit = |path: &Path| {
        let mut found = CoOccurrence::default();
        let Some(stream) = stream_of(path)? else { return Ok(found) };
        rewrite(path, &Failpoints::default(), true, |body| {
            if people.matcher.may_be_a_field(body) {
                // Visits each record of the page, and removes none.
                remove_records(body, |record| {
                    if people.has_record_of(stream, record) {
                        let row = identifiers_of(stream, record, &mut found.spellings);
                        found.rows.insert(row);
                    }
                    false
                });
            }
            require_few(&found).map(|()| None)
        })?;
        Ok(found)
    };
    let mut co_occurrence = CoOccurrence::default();
    each_file(archive, visit)?.into_iter().for_each(|(_, found)| co_occurrence.add(found));
    require_few(&co_occurrence).map(|()| co_occurrence)
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

/// Returns the stream of a file with pages. Returns `None` for an empty spool, whose header was never synced.
fn stream_of(path: &Path) -> Result<Option<Stream>, EraseError> {
    let is_empty = File::open(path).and_then(|file| file.metadata()).is_ok_and(|metadata| metadata.len() == 0);
    if is_empty {
        return Ok(None);
    }
    Ok(Some(read_pages(path)?.header().scan.scope.stream))
}
