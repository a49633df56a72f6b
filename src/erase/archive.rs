//! Finds, removes and redacts records of people in archived pages and in the spools of unfinished scans.

use std::collections::BTreeSet;

use super::{
    EraseError,
    export::ExportFolder,
    journal::OpenJournal,
    place::{FileGroups, LocationResults, People, Plan, RawResult, TextPlace},
};
use crate::{
    archive::{Archive, ArchiveError, PageChange, PageFile},
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
    pub mentioned_in: Vec<PageFile>,
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
        let results = self.archive.each_file(|file| {
            let change = |stream, body: &[u8]| Ok::<_, EraseError>(people.without(stream, body));
            file.rewrite(&Failpoints::default(), true, change)
        })?;
        let found = &mut plan.archive;
        for (file, counts) in results {
            found.files += 1;
            found.pages += counts.pages;
            found.records += counts.removed;
            if counts.changed > 0 {
                found.found_in.push(file);
            }
        }
        plan.counts.insert(RECORDS.to_owned(), found.records);
        Ok(())
    }

    /// Exports each record once, although several scans may have returned it.
    fn export(&mut self, people: &People, plan: &Plan, out: &mut ExportFolder) -> Result<(), EraseError> {
        let mut records: BTreeSet<(Stream, String)> = BTreeSet::new();
        for file in &plan.archive.found_in {
            file.rewrite(&Failpoints::default(), true, |stream, body| {
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

    /// Removes the records from the files of the plan. After an error, earlier files are already rewritten.
    fn remove(&mut self, people: &People, plan: &Plan, journal: &mut OpenJournal) -> Result<(), EraseError> {
        let mut removed = 0;
        for file in &plan.archive.found_in {
            let change = |stream, body: &[u8]| Ok::<_, EraseError>(people.without(stream, body));
            removed += file.rewrite(&self.session.system.failpoints, false, change)?.removed;
        }
        journal.removed(RECORDS, removed)
    }

    fn search(&mut self, people: &People, found: &mut LocationResults) -> Result<(), EraseError> {
        let results = self.archive.each_file(|file| {
            let (mut bytes, mut left, mut mentioning_pages) = (0, 0, 0);
            file.rewrite(&Failpoints::default(), true, |stream, body| {
                bytes += body.len() as u64;
                let removable = people.without(stream, body);
                left += removable.map_or(0, |change| u64::from(change.removed));
                mentioning_pages += u64::from(people.matcher.is_in_text(body));
                Ok::<_, EraseError>(None)
            })?;
            Ok::<_, EraseError>((bytes, left, mentioning_pages))
        })?;
        self.mentioned_in.clear();
        let mut all = LocationResult::default();
        for (file, (bytes, left, mentioning_pages)) in results {
            all.searched += 1;
            all.bytes += bytes;
            all.left += left;
            if mentioning_pages > 0 {
                *all.mentions.entry("pages".to_owned()).or_default() += mentioning_pages;
                self.mentioned_in.push(file);
            }
        }
        found.insert("archive".to_owned(), all);
        Ok(())
    }

    fn redact(&mut self, people: &People, only_own: bool, journal: &mut OpenJournal) -> Result<(), EraseError> {
        for file in self.mentioned_in.iter().filter(|_| !only_own) {
            let counts = file.rewrite(&self.session.system.failpoints, false, |_, body| {
                let redacted = people.matcher.redacted_bytes(body);
                Ok::<_, EraseError>(redacted.map(|body| PageChange { body, removed: 0 }))
            })?;
            journal.redacted(counts.changed)?;
        }
        Ok(())
    }

    fn files(&self) -> Result<FileGroups, EraseError> {
        Ok(vec![("archive", files_below(&self.session.settings.archive_location.path)?)])
    }

    fn search_objects(&self, people: &People) -> Result<Option<RawResult>, EraseError> {
        if self.session.settings.archive_location.bucket.is_none() {
            return Ok(None);
        }
        let results = self.archive.each_file(|file| {
            if file.key().is_none() {
                return Ok(None);
            }
            let found = people.matcher.count_in_raw(file.open_raw()?);
            found.map(Some).map_err(|error| EraseError::from(ArchiveError::io("read", file.path())(error)))
        })?;
        let mut all = LocationResult::default();
        for (hits, bytes) in results.into_iter().filter_map(|(_, found)| found) {
            all.searched += 1;
            all.bytes += bytes;
            all.unexplained += hits;
        }
        Ok(Some(("archive objects", all)))
    }
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
    let visit = |file: &PageFile| {
        let mut found = CoOccurrence::default();
        file.rewrite(&Failpoints::default(), true, |stream, body| {
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
        Ok::<_, EraseError>(found)
    };
    let mut co_occurrence = CoOccurrence::default();
    archive.each_file(visit)?.into_iter().for_each(|(_, found)| co_occurrence.add(found));
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
