//! The records of people in archived pages, and in the spools of scans under way.

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
    model::{Failpoints, Identifier, IdentifierKind, Spelled, Spellings, Stream, merge_spellings},
    person::{IdentifierMatcher, RecordFields, fields_of_stream, without_records},
    pipeline::Erased,
};

/// Sittings that are taken from the archive at once.
const FACTS_MAX: usize = 200_000;

/// What the archive holds of people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArchiveFound {
    /// Files that were looked at.
    pub files: u64,
    /// Pages in them.
    pub pages: u64,
    /// Records of people.
    pub records: u64,
    /// Files that hold such.
    pub found_in: Vec<PathBuf>,
}

/// Knows the records of some people.
pub(super) struct RecordsOf<'a> {
    people: BTreeSet<&'a Identifier>,
    matcher: &'a IdentifierMatcher,
}

impl<'a> RecordsOf<'a> {
    pub fn new(people: &'a [Identifier], matcher: &'a IdentifierMatcher) -> Self {
        RecordsOf { people: people.iter().collect(), matcher }
    }

    /// Whether a record of a stream is of one of the people.
    fn is_theirs(&self, stream: Stream, record: &str) -> bool {
        // A number or an escape is on nearly every page, and in few of its records.
        self.matcher.may_be_a_field(record.as_bytes()) && self.is_theirs_by(fields_of_stream(stream), record)
    }

    /// The same for any JSON object: `fields` are those of the contract of its table.
    pub fn is_theirs_by(&self, fields: &RecordFields, record: &str) -> bool {
        !fields.for_each(record, &mut |found| !self.people.contains(&found.identifier))
    }
}

impl Erased for RecordsOf<'_> {
    fn is_user(&self, user_id: &str) -> bool {
        Identifier::read(IdentifierKind::UserId, user_id).is_some_and(|user| self.people.contains(&user))
    }

    fn redacted(&self, text: &str) -> Option<String> {
        if self.matcher.may_be_in(text.as_bytes()) { self.matcher.redacted(text) } else { None }
    }
}

impl RecordsOf<'_> {
    /// The page without their records.
    fn without(&self, stream: Stream, body: &[u8]) -> Option<PageChange> {
        if !self.matcher.may_be_a_field(body) {
            return None;
        }
        let redacted = without_records(body, |record| self.is_theirs(stream, record))?;
        Some(PageChange { body: redacted.body, removed: redacted.removed })
    }
}

/// Every file of pages: of committed scans and of those under way.
pub(super) fn files(archive: &Archive) -> Result<Vec<PathBuf>, EraseError> {
    let mut files = archive.committed()?;
    files.extend(archive.spools()?);
    files.sort();
    Ok(files)
}

/// Looks through all files. Changes nothing.
pub(super) fn find(archive: &Archive, people: &RecordsOf<'_>) -> Result<ArchiveFound, EraseError> {
    let looked = each_file(archive, |path| {
        let stream = stream_of(path)?;
        rewrite(path, &Failpoints::default(), true, |body| {
            Ok::<_, EraseError>(stream.and_then(|stream| people.without(stream, body)))
        })
    })?;
    let mut found = ArchiveFound::default();
    for (path, counts) in looked {
        found.files += 1;
        found.pages += counts.pages;
        found.records += counts.removed;
        if counts.changed > 0 {
            found.found_in.push(path);
        }
    }
    Ok(found)
}

/// Looks at every file of pages, as many at once as there are processors;
/// what was found comes in the order of the files.
fn each_file<T: Send>(
    archive: &Archive,
    look: impl Fn(&Path) -> Result<T, EraseError> + Sync,
) -> Result<Vec<(PathBuf, T)>, EraseError> {
    let files = files(archive)?;
    let lanes = thread::available_parallelism().map_or(1, NonZero::get);
    let next = AtomicUsize::new(0);
    let lane = || {
        let mut looked = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(path) = files.get(at) else { return Ok(looked) };
            match look(path) {
                Ok(found) => looked.push((at, found)),
                Err(error) => {
                    // The others need not go on.
                    next.store(files.len(), Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
    };
    let mut looked: Vec<(usize, T)> = thread::scope(|scope| {
        let lanes: Vec<_> = (0..lanes).map(|_| scope.spawn(lane)).collect();
        let ends = lanes.into_iter().map(|lane| lane.join().unwrap_or_else(|panic| panic::resume_unwind(panic)));
        ends.collect::<Result<Vec<_>, _>>()
    })?
    .into_iter()
    .flatten()
    .collect();
    looked.sort_by_key(|(at, _)| *at);
    Ok(files.into_iter().zip(looked).map(|(path, (_, found))| (path, found)).collect())
}

/// What the archive knows of some identifiers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ArchivedCoOccurrence {
    /// The identifiers that stand together in a record, for each record that carries one of them.
    pub rows: BTreeSet<Vec<Identifier>>,
    /// How they are written there.
    pub spellings: Spellings,
}

impl ArchivedCoOccurrence {
    pub fn add(&mut self, other: ArchivedCoOccurrence) {
        self.rows.extend(other.rows);
        merge_spellings(&mut self.spellings, other.spellings);
    }

    fn require_few(&self) -> Result<(), EraseError> {
        match self.rows.len() > FACTS_MAX {
            true => Err(EraseError::Names(format!(
                "more than {FACTS_MAX} archived sittings carry what is looked for: name fewer people at once"
            ))),
            false => Ok(()),
        }
    }
}

/// Which identifiers stand together in records that carry one of these: in the archive may be what no table holds, of a
/// scan under way or of a warehouse that was lost.
pub(super) fn co_occurrence(archive: &Archive, wanted: &[Identifier]) -> Result<ArchivedCoOccurrence, EraseError> {
    let matcher = IdentifierMatcher::new(wanted);
    let records = RecordsOf::new(wanted, &matcher);
    let look = |path: &Path| {
        let mut found = ArchivedCoOccurrence::default();
        let Some(stream) = stream_of(path)? else { return Ok(found) };
        rewrite(path, &Failpoints::default(), true, |body| {
            if matcher.may_be_a_field(body) {
                without_records(body, |record| {
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
    each_file(archive, look)?.into_iter().for_each(|(_, found)| co_occurrence.add(found));
    co_occurrence.require_few().map(|()| co_occurrence)
}

fn identifiers_of(stream: Stream, record: &str, spellings: &mut Spellings) -> Vec<Identifier> {
    let mut identifiers = Vec::new();
    fields_of_stream(stream).for_each(record, &mut |found: Spelled| {
        identifiers.push(found.noted_in(spellings));
        true
    });
    identifiers.sort();
    identifiers.dedup();
    identifiers
}

/// Takes the records out of these files. Returns how many they were.
pub(super) fn remove(found_in: &[PathBuf], people: &RecordsOf<'_>, failpoints: &Failpoints) -> Result<u64, EraseError> {
    let mut removed = 0;
    for path in found_in {
        let Some(stream) = stream_of(path)? else { continue };
        let counts = rewrite(path, failpoints, false, |body| Ok::<_, EraseError>(people.without(stream, body)))?;
        removed += counts.removed;
    }
    Ok(removed)
}

/// Replaces what mentions people in the pages of these files. Returns the pages that changed.
pub(super) fn redact(
    found_in: &[PathBuf],
    matcher: &IdentifierMatcher,
    failpoints: &Failpoints,
) -> Result<u64, EraseError> {
    let mut changed = 0;
    for path in found_in {
        let counts = rewrite(path, failpoints, false, |body| {
            let redacted = if matcher.may_be_in(body) { redacted(body, matcher) } else { None };
            Ok::<_, EraseError>(redacted.map(|body| PageChange { body, removed: 0 }))
        })?;
        changed += counts.changed;
    }
    Ok(changed)
}

/// The page without mentions; `None` if it has none. Bytes that are no UTF-8 stay.
fn redacted(body: &[u8], matcher: &IdentifierMatcher) -> Option<Vec<u8>> {
    let (mut redacted, mut is_changed) = (Vec::with_capacity(body.len()), false);
    for chunk in body.utf8_chunks() {
        let text = matcher.redacted(chunk.valid());
        is_changed |= text.is_some();
        redacted.extend_from_slice(text.as_deref().unwrap_or(chunk.valid()).as_bytes());
        redacted.extend_from_slice(chunk.invalid());
    }
    is_changed.then_some(redacted)
}

/// What a search of the pages found.
#[derive(Clone, Debug, Default)]
pub(super) struct PagesSearched {
    pub files: u64,
    pub bytes: u64,
    /// Records that are still there: none, unless something is wrong.
    pub records: u64,
    /// Pages that mention somebody, and the files that these are in.
    pub mentioning_pages: u64,
    pub mentioned_in: Vec<PathBuf>,
}

/// Searches every page, decompressed.
pub(super) fn search(archive: &Archive, people: &RecordsOf<'_>) -> Result<PagesSearched, EraseError> {
    let looked = each_file(archive, |path| {
        let stream = stream_of(path)?;
        let mut found = PagesSearched { files: 1, ..PagesSearched::default() };
        rewrite(path, &Failpoints::default(), true, |body| {
            found.bytes += body.len() as u64;
            let left = stream.and_then(|stream| people.without(stream, body));
            found.records += left.map_or(0, |left| u64::from(left.removed));
            found.mentioning_pages += u64::from(people.matcher.may_be_in(body) && people.matcher.is_in_text(body));
            Ok::<_, EraseError>(None)
        })?;
        Ok(found)
    })?;
    let mut searched = PagesSearched::default();
    for (path, found) in looked {
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

/// The stream of a file; `None` for a spool whose beginning was never made durable: there is nothing in it.
fn stream_of(path: &Path) -> Result<Option<Stream>, EraseError> {
    let is_empty = File::open(path).and_then(|file| file.metadata()).is_ok_and(|metadata| metadata.len() == 0);
    if is_empty {
        return Ok(None);
    }
    Ok(Some(read_pages(path)?.header().scan.scope.stream))
}
