//! What runs know about the lists of the service: which lists are taken as empty because they answer 404, and whether a
//! 404 for a page token is the end of a list. Stored as behaviours, with evidence and date.
//!
//! These are proofs, not only measurements, so a change of the service must not hide rows. Whatever was complete by a
//! proof that no longer holds is marked for a recheck.

use crate::{
    model::{DAY_MS, EndStyle, Scope, Stream, Window, behaviour_names},
    source::{KnownLists, NotFoundEnd, Source},
    state::{State, StateError, StoredInterval},
};

/// Scans are compared with the time of a proof by other clocks, which may differ by this much.
const CLOCKS_DIFFER_MS: i64 = DAY_MS;

/// Reads what earlier runs know about the lists.
pub(super) fn recall_lists(state: &State) -> Result<KnownLists, StateError> {
    let mut known = KnownLists::default();
    for list in Stream::LISTS {
        let intervals = intervals_of(state, list)?;
        // A list that never answered with a page, in all scans, is empty so far.
        let has_only_404 = !intervals.is_empty() && intervals.iter().all(|(_, stored)| stored.read.pages == 0);
        let stored = state.behaviour::<bool>(behaviour_names::taken_as_empty(list))?.map(|(is_empty, _)| is_empty);
        if stored.unwrap_or(has_only_404) {
            known.empty.push(list);
        }
        if intervals.iter().any(|(_, stored)| stored.interval.rows > 0) {
            known.with_rows.push(list);
        }
        if let Some((page_rows, at_ms)) = state.behaviour::<u64>(behaviour_names::not_found_end(list))? {
            // 0 rows stand for a rule that was contradicted.
            let end = NotFoundEnd { is_end: Some(page_rows > 0), at_ms, page_rows, ..NotFoundEnd::default() };
            known.ends.push((list, end));
        }
    }
    Ok(known)
}

fn intervals_of(state: &State, stream: Stream) -> Result<Vec<(Scope, StoredInterval)>, StateError> {
    let mut all = Vec::new();
    for scope in state.covered_scopes()?.into_iter().filter(|scope| scope.stream == stream) {
        all.extend(state.intervals(scope)?.into_iter().map(|stored| (scope, stored)));
    }
    Ok(all)
}

/// Returns true if a list of this interval ended with 404.
fn has_404(stored: &StoredInterval) -> bool {
    stored.read.ends.iter().any(|end| end == EndStyle::NotFound)
}

/// Marks the coverage of a stream for a recheck, where `is_meant` is true.
fn mark_for_recheck(
    state: &mut State,
    stream: Stream,
    is_meant: impl Fn(&StoredInterval) -> bool,
) -> Result<(), StateError> {
    let meant: Vec<(Scope, Window)> = intervals_of(state, stream)?
        .into_iter()
        .filter(|(_, stored)| is_meant(stored))
        .map(|(scope, stored)| (scope, stored.interval.window))
        .collect();
    meant.into_iter().try_for_each(|(scope, window)| state.mark_for_recheck(scope, window))
}

/// Stores what a run has learned about the lists. Coverage is marked for a recheck before the value is stored, so that
/// a kill in between only repeats the mark. Returns notes for the report.
pub(super) fn remember_lists(state: &mut State, source: &Source, now_ms: i64) -> Result<Vec<String>, StateError> {
    let mut notes = Vec::new();
    for list in Stream::LISTS {
        if source.is_taken_as_empty(list) {
            let evidence = "404 without a range, while another list answers";
            state.remember_measured(behaviour_names::taken_as_empty(list), &true, evidence, now_ms)?;
        } else if source.has_answered(list) && source.was_taken_as_empty(list) {
            notes.extend(end_emptiness(state, list, now_ms)?);
        }
        notes.extend(remember_end(state, list, source.not_found_end(list), now_ms)?);
    }
    Ok(notes)
}

/// Records that a list which was taken as empty has answered with a page: everything that was complete meanwhile is
/// scanned again. Returns a note, or `None` if this is recorded already.
pub(super) fn end_emptiness(state: &mut State, list: Stream, now_ms: i64) -> Result<Option<String>, StateError> {
    let name = behaviour_names::taken_as_empty(list);
    if state.behaviour::<bool>(name)?.is_some_and(|(is_empty, _)| !is_empty) {
        return Ok(None);
    }
    mark_for_recheck(state, list, has_404)?;
    state.remember_measured(name, &false, "a page of a list that was taken as empty", now_ms)?;
    Ok(Some(format!(
        "{list} were taken as empty, because the service answered 404; they answer now and are read again"
    )))
}

/// Stores what is proven about the 404 at the end of a list, if the run proved or contradicted it.
fn remember_end(state: &mut State, list: Stream, end: NotFoundEnd, now_ms: i64) -> Result<Option<String>, StateError> {
    let Some(is_end) = end.is_end.filter(|_| end.is_new) else { return Ok(None) };
    let name = behaviour_names::not_found_end(list);
    let mut note = None;
    if end.is_contradicted {
        let proven_ms = state.behaviour::<u64>(name)?.map_or(now_ms, |(_, at_ms)| at_ms);
        let since_ms = proven_ms.min(now_ms).saturating_sub(CLOCKS_DIFFER_MS);
        mark_for_recheck(state, list, |stored| has_404(stored) && stored.read.read_ms >= since_ms)?;
        note = Some(format!(
            "a 404 for a page token of {list} was believed to be the end of the list, and is not always: the windows that ended \
             in this way are read again"
        ));
    }
    let evidence = match is_end {
        true => "the parts of a list have the rows of the list that ended with 404 after a page of fewer rows",
        false => "a list went on after a page that was not full",
    };
    state.remember_measured(name, &if is_end { end.page_rows } else { 0 }, evidence, end.at_ms)?;
    Ok(note)
}
