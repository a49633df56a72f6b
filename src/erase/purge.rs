//! Asks the service to purge people, with at most a hundred deletions per request.
//!
//! The service may refuse a request because it does not know one of the names. A refused request is halved until the
//! refused name is alone in a request. A name that is refused alone counts as unknown, and is not requested again.

use std::collections::VecDeque;

use super::{
    EraseError, LinkedIdentifiers,
    journal::{OpenJournal, PurgeNote},
};
use crate::{
    model::{DurableStep, Identifier, IdentifierKind},
    source::{PURGE_DELETIONS_MAX, PurgeAnswer, PurgeRequest, Source},
};

/// Counts of the service's answers in this attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    /// Number of requests that the service accepted.
    pub requests: u64,
    /// Number of names in accepted requests.
    pub names: u64,
    /// Number of names that the service does not know.
    pub unknown: u64,
}

/// A user id, mail address or visitor UUID in one spelling. `visitors` is the largest number of visitors that the
/// service could delete for this name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Name {
    written: Identifier,
    visitors: usize,
}

/// Returns all names of the people in all known spellings, because the service compares names byte by byte.
fn names_of(identifiers: &LinkedIdentifiers) -> Vec<Name> {
    let forms = |(identifier, visitors): (&Identifier, &usize)| {
        let name = |value| Name { written: Identifier { kind: identifier.kind, value }, visitors: *visitors };
        identifier.written_forms(&identifiers.spellings).into_iter().map(name).collect::<Vec<_>>()
    };
    identifiers.visitors_of.iter().flat_map(forms).collect()
}

/// Requests a purge of all names that the journal does not list as done. Writes the journal after each accepted request
/// and each name that is refused alone, so that a resumed erasure does not request these names again. `delay_seconds`
/// is the delay of the service, or `None` for its default.
pub(super) async fn purge(
    source: &Source,
    journal: &mut OpenJournal,
    identifiers: &LinkedIdentifiers,
    delay_seconds: Option<u64>,
) -> Result<Purged, EraseError> {
    let hash = |journal: &OpenJournal, name: &Name| journal.journals.key.hash(&name.written);
    let is_done = |name: &Name| journal.content.purged.contains(&hash(journal, name));
    let names: Vec<Name> = names_of(identifiers).into_iter().filter(|name| !is_done(name)).collect();
    let mut purged = Purged::default();
    let mut waiting: VecDeque<Vec<Name>> = batches(names).into();
    while let Some(batch) = waiting.pop_front() {
        journal
            .journals
            .failpoints
            .hit(DurableStep::PurgeAsked)
            .map_err(EraseError::io("ask the service for", "a purge"))?;
        let hashes: Vec<_> = batch.iter().map(|name| hash(journal, name)).collect();
        match source.purge(&request(&batch, delay_seconds)).await? {
            PurgeAnswer::Accepted { request_id, service_now_ms } => {
                purged.requests += 1;
                purged.names += batch.len() as u64;
                let now_ms = service_now_ms.unwrap_or_else(crate::clock::now_ms);
                journal.content.suppressed_from_ms.get_or_insert(now_ms);
                journal.content.purge_requests.push(PurgeNote {
                    request_id,
                    deletions: batch.iter().map(|name| name.visitors as u64).sum(),
                    accepted_at: crate::model::format_ms(now_ms),
                });
            }
            PurgeAnswer::Refused { status, .. } if batch.len() == 1 => {
                // The answer may name the person, so it is not logged.
                tracing::info!(status, "the service has nobody of one of the names");
                purged.unknown += 1;
                journal.content.unknown_there += 1;
            }
            PurgeAnswer::Refused { .. } => {
                let mut first = batch;
                let second = first.split_off(first.len() / 2);
                waiting.push_front(second);
                waiting.push_front(first);
                continue;
            }
        }
        journal.content.purged.extend(hashes);
        journal.write()?;
    }
    Ok(purged)
}

/// Groups names so that the service deletes at most [`PURGE_DELETIONS_MAX`] visitors for a group. A name with more
/// visitors is alone in a group.
fn batches(names: Vec<Name>) -> Vec<Vec<Name>> {
    let mut batches: Vec<Vec<Name>> = Vec::new();
    let mut room = 0;
    for name in names {
        let visitors = name.visitors.max(1);
        if visitors > room || batches.is_empty() {
            batches.push(Vec::new());
            room = PURGE_DELETIONS_MAX;
        }
        room = room.saturating_sub(visitors);
        if let Some(batch) = batches.last_mut() {
            batch.push(name);
        }
    }
    batches
}

/// Creates the request that purges a group of names.
fn request(batch: &[Name], delay_seconds: Option<u64>) -> PurgeRequest {
    let mut request = PurgeRequest { delay_seconds, ..PurgeRequest::default() };
    for Name { written: Identifier { kind, value }, .. } in batch {
        match kind {
            IdentifierKind::Email => request.emails.push(value.clone()),
            IdentifierKind::UserId => request.user_ids.push(value.clone()),
            _ => request.visitor_ids.push(value.clone()),
        }
    }
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p9_a_request_deletes_a_hundred_visitors_at_most() {
        let name = |at: usize, visitors| {
            let written = Identifier::read(IdentifierKind::UserId, &format!("user-{at}")).unwrap();
            Name { written, visitors }
        };
        for visitors in [1, 3, 7, 100, 101] {
            let names: Vec<Name> = (0..250).map(|at| name(at, visitors)).collect();
            let batches = batches(names.clone());
            assert_eq!(batches.concat(), names, "nobody is left out");
            for batch in &batches {
                let deletions: usize = batch.iter().map(|name| name.visitors).sum();
                assert!(deletions <= PURGE_DELETIONS_MAX || batch.len() == 1, "{visitors}: {deletions}");
            }
            assert_eq!(batches.len(), 250usize.div_ceil((100 / visitors).max(1)));
        }
        assert!(batches(Vec::new()).is_empty());
    }
}
