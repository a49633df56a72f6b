//! Finds the people of an erasure in warehouses and archive: linked identifiers, vanished sessions, and identifiers
//! without any row. Changes nothing.

use std::collections::{BTreeSet, HashSet};

use super::{EraseError, EraseRequest, LinkedIdentifiers, archive, error::in_each, linked, request::PEOPLE_MAX};
use crate::{
    archive::Archive,
    load::{CoOccurrence, Warehouse},
    model::{Identifier, IdentifierKind},
};

/// The maximum number of passes over the archive. A chain of links that needs more passes is cut and reported as
/// incomplete.
const ARCHIVE_PASSES_MAX: u32 = 8;

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
    let mut archived = CoOccurrence::default();
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
        let found = archive::co_occurrence(archive, wanted)?;
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
    let vanished = in_each(destinations, |warehouse| warehouse.vanished_sessions(before_ms, PEOPLE_MAX))?;
    sessions.extend(vanished.into_iter().flatten());
    let all: Vec<Identifier> = sessions.iter().cloned().collect();
    for session in in_each(destinations, |warehouse| warehouse.live_sessions(&all))?.iter().flatten() {
        sessions.remove(session);
    }
    let named = sessions.into_iter().take(PEOPLE_MAX).collect();
    Ok(LinkedIdentifiers { named, is_complete: true, ..LinkedIdentifiers::default() })
}

/// Returns the rows of each warehouse, and those of `archived`, that have any of the wanted identifiers.
fn find_rows(
    wanted: &[Identifier],
    archived: &CoOccurrence,
    destinations: &mut [Warehouse],
) -> Result<Vec<CoOccurrence>, EraseError> {
    let mut found = in_each(destinations, |warehouse| warehouse.co_occurrence(wanted))?;
    let wanted: HashSet<&Identifier> = wanted.iter().collect();
    let is_wanted = |row: &&Vec<Identifier>| row.iter().any(|one| wanted.contains(one));
    let rows = archived.rows.iter().filter(is_wanted).cloned().collect();
    found.push(CoOccurrence { rows, ..CoOccurrence::default() });
    Ok(found)
}

/// Returns the identifiers without a row in any warehouse, sorted. Searches all identifiers as one group, and halves a
/// group that has rows, because most groups have none.
pub(super) fn unknown_among(
    identifiers: Vec<Identifier>,
    destinations: &mut [Warehouse],
) -> Result<Vec<Identifier>, EraseError> {
    let (mut pending, mut unknown) = (vec![identifiers], Vec::new());
    while let Some(mut group) = pending.pop().filter(|group| !group.is_empty()) {
        let found = in_each(destinations, |warehouse| warehouse.find_people(&group))?;
        if found.iter().all(|found| found.total() == 0) {
            unknown.extend(group);
        } else if group.len() > 1 {
            pending.push(group.split_off(group.len() / 2));
            pending.push(group);
        }
    }
    unknown.sort();
    Ok(unknown)
}
