//! Computes what an erasure would remove. Reads everything, changes nothing.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::{
    EraseError, EraseRequest, LinkedIdentifiers,
    archive::{self, ArchiveFound, ArchivedCoOccurrence, RecordsOf},
    linked,
    request::PEOPLE_MAX,
    verify::HardLinked,
};
use crate::{
    archive::Archive,
    load::{CoOccurrence, PeopleFound, Warehouse},
    model::{Identifier, IdentifierKind, merge_spellings},
    person::IdentifierMatcher,
    pipeline::ResultsFound,
    recordings::StoredRecordings,
};

/// The maximum number of passes over the archive. A chain of links that needs more passes is cut and reported as
/// incomplete.
const ARCHIVE_PASSES_MAX: u32 = 8;

/// Locations of removed data in a receipt.
pub(super) const ARCHIVE_RECORDS: &str = "archive records";
pub(super) const PUSH_RESULTS: &str = "push results";
pub(super) const RECORDINGS: &str = "recordings";

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

    /// Returns all identifiers of the people: named and linked ones.
    pub fn people(&self) -> Vec<Identifier> {
        self.identifiers.all()
    }

    /// Returns the counts of all data that the erasure will remove, by the locations of the receipt.
    pub(super) fn counts(&self) -> BTreeMap<String, u64> {
        let rows = self
            .warehouses
            .iter()
            .flat_map(|(name, found)| found.rows.iter().map(move |(table, rows)| (format!("{name} {table}"), *rows)));
        let others = [
            (ARCHIVE_RECORDS, self.archive.records),
            (PUSH_RESULTS, self.results.rows),
            (RECORDINGS, self.recordings.files),
        ];
        rows.chain(others.map(|(location, count)| (location.to_owned(), count))).collect()
    }

    /// Creates a matcher that finds the people's identifiers in texts and bytes, in all known spellings.
    pub(super) fn matcher(&self) -> IdentifierMatcher {
        IdentifierMatcher::with_spellings(&self.people(), &self.identifiers.spellings)
    }
}

/// Finds the identifiers that are linked to the named people, in all warehouses and the archive.
///
/// `earlier` are the identifiers in the journal of an interrupted attempt. They count as linked, because that attempt
/// may have deleted the rows that link them.
pub(super) fn find_linked(
    request: &EraseRequest,
    earlier: Vec<Identifier>,
    archive: &Archive,
    destinations: &mut [Warehouse],
) -> Result<LinkedIdentifiers, EraseError> {
    // Each round follows links in the warehouses, and reads the archive once for all identifiers together, because the
    // archive is large. Archived rows may link more identifiers, which need another round.
    let named = &request.people;
    let mut archived = ArchivedCoOccurrence::default();
    let mut searched: BTreeSet<Identifier> = BTreeSet::new();
    let (mut rounds, mut passes) = (0, 0);
    let mut identifiers = loop {
        let mut identifiers = linked::follow(named, |wanted| find_rows(wanted, &archived, destinations))?;
        rounds += identifiers.rounds;
        identifiers.rounds = rounds;
        let mut found_so_far: BTreeSet<Identifier> =
            identifiers.all().into_iter().chain(earlier.iter().cloned()).collect();
        // The archive may have rows that change the decision not to follow an identifier.
        found_so_far.extend(identifiers.not_followed.keys().cloned());
        if found_so_far.is_subset(&searched) {
            break identifiers;
        }
        let wanted: Vec<Identifier> = found_so_far.iter().cloned().collect();
        searched.extend(found_so_far);
        let found = archive::co_occurrence(archive, &wanted)?;
        let is_all_known = found.rows.is_subset(&archived.rows);
        archived.add(found);
        passes += 1;
        if is_all_known || passes >= ARCHIVE_PASSES_MAX {
            identifiers.is_complete &= is_all_known;
            break identifiers;
        }
    };
    identifiers.linked.extend(earlier.into_iter().filter(|identifier| !named.contains(identifier)));
    for (identifier, written) in request.spellings.iter().chain(&archived.spellings) {
        identifiers.spellings.entry(identifier.clone()).or_default().extend(written.iter().cloned());
    }
    let all: BTreeSet<Identifier> = identifiers.all().into_iter().collect();
    identifiers.spellings.retain(|identifier, _| all.contains(identifier));
    // The service is asked to purge the names in `visitors_of`. A name that only the journal knows counts as one
    // visitor.
    for identifier in all {
        use IdentifierKind::{Email, UserId, VisitorUuid};
        if matches!(identifier.kind, UserId | Email | VisitorUuid) {
            identifiers.visitors_of.entry(identifier).or_insert(1);
        }
    }
    Ok(identifiers)
}

/// Finds the sessions that vanished before `before_ms`, at most [`PEOPLE_MAX`]. Leaves out sessions that are live in
/// any warehouse. `earlier` are the sessions of an interrupted attempt. Follows no links.
pub(super) fn vanished(
    before_ms: i64,
    earlier: Vec<Identifier>,
    destinations: &mut [Warehouse],
) -> Result<LinkedIdentifiers, EraseError> {
    let mut sessions: BTreeSet<Identifier> = earlier.into_iter().collect();
    for destination in &mut *destinations {
        let name = destination.name();
        sessions.extend(destination.vanished_sessions(before_ms, PEOPLE_MAX).map_err(EraseError::load(name))?);
    }
    let all: Vec<Identifier> = sessions.iter().cloned().collect();
    for destination in destinations {
        let name = destination.name();
        for live in destination.live_sessions(&all).map_err(EraseError::load(name))? {
            sessions.remove(&live);
        }
    }
    let named = sessions.into_iter().take(PEOPLE_MAX).collect();
    Ok(LinkedIdentifiers { named, is_complete: true, ..LinkedIdentifiers::default() })
}

/// Returns the rows of the warehouses, and of `archived`, that have any of the wanted identifiers.
fn find_rows(
    wanted: &[Identifier],
    archived: &ArchivedCoOccurrence,
    destinations: &mut [Warehouse],
) -> Result<CoOccurrence, EraseError> {
    let mut co_occurrence = CoOccurrence::default();
    for destination in destinations {
        let name = destination.name();
        let found = destination.co_occurrence(wanted).map_err(EraseError::load(name))?;
        co_occurrence.rows.extend(found.rows);
        co_occurrence.too_wide.extend(found.too_wide);
        merge_spellings(&mut co_occurrence.spellings, found.spellings);
    }
    let wanted: HashSet<&Identifier> = wanted.iter().collect();
    co_occurrence.rows.extend(archived.rows.iter().filter(|row| row.iter().any(|one| wanted.contains(one))).cloned());
    Ok(co_occurrence)
}

/// Counts the people's rows and archived records, and finds the named identifiers without any row. Stores both in the
/// plan.
pub(super) fn count(plan: &mut Plan, archive: &Archive, destinations: &mut [Warehouse]) -> Result<(), EraseError> {
    let people = plan.people();
    for destination in destinations.iter_mut() {
        let name = destination.name();
        plan.warehouses.insert(name, destination.find_people(&people).map_err(EraseError::load(name))?);
    }
    let matcher = plan.matcher();
    plan.archive = archive::find(archive, &RecordsOf::new(&people, &matcher))?;
    let without_rows: Vec<Identifier> = plan.identifiers.without_rows.iter().cloned().collect();
    plan.unknown = unknown_among(without_rows, destinations)?;
    Ok(())
}

/// Returns the identifiers without a row in any warehouse, sorted. Searches all identifiers as one group, and halves a
/// group that has rows, because most groups have none.
fn unknown_among(identifiers: Vec<Identifier>, destinations: &mut [Warehouse]) -> Result<Vec<Identifier>, EraseError> {
    let (mut pending, mut unknown) = (vec![identifiers], Vec::new());
    while let Some(mut group) = pending.pop() {
        let mut rows = 0;
        for destination in destinations.iter_mut().filter(|_| !group.is_empty()) {
            let name = destination.name();
            rows += destination.find_people(&group).map_err(EraseError::load(name))?.total();
        }
        if rows == 0 {
            unknown.extend(group);
        } else if group.len() > 1 {
            pending.push(group.split_off(group.len() / 2));
            pending.push(group);
        }
    }
    unknown.sort();
    Ok(unknown)
}
