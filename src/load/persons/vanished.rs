//! Finds sessions that the service no longer returns. A purge of people at the service shows only by their vanished
//! sessions.

use std::collections::BTreeSet;

use arrow::array::Array as _;

use super::{
    all_rows::fold_rows,
    identifier_columns::{IdentifierColumn, identifier_columns},
    identifier_set::{IdentifierSet, LowercaseBuffer},
};
use crate::{
    load::{
        LoadError,
        contract::contract,
        store::{BufferedStore, Filter, time_column},
    },
    model::{Identifier, IdentifierKind},
    schema::Table,
};

/// The table whose rows belong to sessions.
const RESPONSES: &str = "responses";
/// The column with the time at which a row vanished; NULL if the row has not vanished.
const VANISHED_AT: &str = "_vanished_at";
/// Largest number of sessions that are checked together, to limit the memory.
const CANDIDATES_MAX: usize = 100_000;

/// Returns the sessions of which all rows vanished before `before_ms` (epoch milliseconds), sorted. Returns only the
/// first `sessions_max` sessions.
pub(in crate::load) fn vanished_sessions(
    store: &mut BufferedStore,
    before_ms: i64,
    sessions_max: usize,
) -> Result<Vec<Identifier>, LoadError> {
    vanished_in_batches(store, before_ms, sessions_max, CANDIDATES_MAX)
}

/// Does the work of [`vanished_sessions`] in batches of at most `candidates_max` sessions. Each batch reads the table
/// of responses twice.
fn vanished_in_batches(
    store: &mut BufferedStore,
    before_ms: i64,
    sessions_max: usize,
    candidates_max: usize,
) -> Result<Vec<Identifier>, LoadError> {
    let before_us = before_ms.saturating_mul(1000);
    let is_gone = move |vanished_us: Option<i64>| vanished_us.is_some_and(|vanished_us| vanished_us < before_us);
    let (mut found, mut after) = (Vec::new(), None);
    while found.len() < sessions_max {
        // A candidate is a session with a row that vanished before `before_ms`. `live` are the candidates that also
        // have a row that has not vanished, or vanished later.
        let candidates = candidates(store, after.as_ref(), is_gone, candidates_max)?;
        let wanted = IdentifierSet::of(&candidates);
        let live = sessions_with(store, &wanted, |vanished_us| !is_gone(vanished_us))?;
        let is_last = candidates.len() < candidates_max;
        after = candidates.last().cloned();
        let sessions_left = sessions_max - found.len();
        found.extend(candidates.into_iter().filter(|session| !live.contains(session)).take(sessions_left));
        if is_last {
            break;
        }
    }
    Ok(found)
}

/// Returns the given sessions that have at least one row which has not vanished, sorted.
pub(in crate::load) fn live_sessions(
    store: &mut BufferedStore,
    sessions: &[Identifier],
) -> Result<Vec<Identifier>, LoadError> {
    let wanted = IdentifierSet::of(sessions);
    if !wanted.has_any_of(IdentifierKind::Session) {
        return Ok(Vec::new());
    }
    let live = sessions_with(store, &wanted, |vanished_us| vanished_us.is_none())?;
    Ok(live.into_iter().collect())
}

fn sessions_table() -> Result<(&'static Table, IdentifierColumn), LoadError> {
    let table = contract(RESPONSES)?;
    let id_column = identifier_columns(table).into_iter().find(|id_column| id_column.kind == IdentifierKind::Session);
    Ok((table, id_column.ok_or_else(|| LoadError::Bug(format!("{RESPONSES} has no column for sessions")))?))
}

/// Returns the sessions with a vanished row, in order: the first `candidates_max` sessions after `after`, or from the
/// start if `after` is `None`. `is_gone` gets the vanishing time of a row (epoch microseconds; `None` if it has not
/// vanished) and returns true if the row counts as vanished.
fn candidates(
    store: &mut BufferedStore,
    after: Option<&Identifier>,
    is_gone: impl Fn(Option<i64>) -> bool,
    candidates_max: usize,
) -> Result<BTreeSet<Identifier>, LoadError> {
    let (table, session) = sessions_table()?;
    let mut candidates = BTreeSet::new();
    store.read(table, &[session.column, VANISHED_AT], &Filter::all(), &mut |rows| {
        let (sessions, vanished) = (session.values(&rows)?, time_column(&rows, VANISHED_AT)?);
        for (row, _) in vanished.iter().enumerate().filter(|(_, vanished_us)| is_gone(*vanished_us)) {
            let Some(found) = sessions.read(row) else { continue };
            if after.is_none_or(|after| found.identifier > *after) {
                candidates.insert(found.identifier);
            }
            if candidates.len() > candidates_max {
                candidates.pop_last();
            }
        }
        Ok(())
    })?;
    Ok(candidates)
}

/// Returns the wanted sessions that have a row for which `is_counted` returns true. `is_counted` gets the vanishing
/// time of the row in epoch microseconds, or `None` if the row has not vanished.
fn sessions_with(
    store: &mut BufferedStore,
    wanted: &IdentifierSet,
    is_counted: impl Fn(Option<i64>) -> bool + Sync,
) -> Result<BTreeSet<Identifier>, LoadError> {
    let (table, session) = sessions_table()?;
    let found = fold_rows(store, table, &[session.column, VANISHED_AT], BTreeSet::new, |found, rows| {
        let (sessions, vanished) = (session.values(&rows)?, time_column(&rows, VANISHED_AT)?);
        let mut lowercase = LowercaseBuffer::default();
        for row in 0..rows.num_rows() {
            let vanished_us = vanished.is_valid(row).then(|| vanished.value(row));
            if is_counted(vanished_us) && sessions.is_wanted(row, wanted, &mut lowercase) {
                found.extend(sessions.read(row).map(|spelled| spelled.identifier));
            }
        }
        Ok(())
    })?;
    Ok(found.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::load::tables::{
        Cell,
        fixture::{memory, put},
    };

    /// In several spellings; the last names nobody.
    const SESSIONS: [&str; 7] = ["s-1", "S-1", "s-2", " s-3", "s-3", "s-4", "n/a"];

    fn session(text: &str) -> Option<Identifier> {
        Identifier::read(IdentifierKind::Session, text)
    }

    proptest! {
        #[test]
        fn p9_a_session_has_vanished_once_all_its_rows_have(
            rows in prop::collection::vec((0..SESSIONS.len(), prop::option::of(0..4_i64)), 0..20),
            before_ms in 0..5_i64,
            sessions_max in 0..5_usize,
            candidates_max in 1..4_usize,
        ) {
            let (_shelf, mut store) = memory();
            for (text, vanished_ms) in &rows {
                let cells = [
                    ("response_group_uid", Cell::Text(SESSIONS[*text])),
                    (VANISHED_AT, vanished_ms.map_or(Cell::Null, Cell::at_ms)),
                ];
                put(&mut store, RESPONSES, &[&cells]);
            }
            let all: BTreeSet<Identifier> = rows.iter().filter_map(|(text, _)| session(SESSIONS[*text])).collect();
            let of = |session_of: &Identifier| {
                let session_of = session_of.clone();
                rows.iter().filter(move |(text, _)| session(SESSIONS[*text]).as_ref() == Some(&session_of)).map(|row| row.1)
            };
            let has_gone = |one: &&Identifier| of(one).all(|vanished_ms| vanished_ms.is_some_and(|at_ms| at_ms < before_ms));
            let expected: Vec<Identifier> = all.iter().filter(has_gone).take(sessions_max).cloned().collect();
            let found = vanished_in_batches(&mut store, before_ms, sessions_max, candidates_max).unwrap();
            prop_assert_eq!(found, expected);

            let named: Vec<Identifier> = ["s-1", "s-3", "s-9"].iter().filter_map(|text| session(text)).collect();
            let is_live = |one: &&Identifier| of(one).any(|vanished_ms| vanished_ms.is_none());
            let expected: Vec<Identifier> = named.iter().filter(is_live).cloned().collect();
            prop_assert_eq!(live_sessions(&mut store, &named).unwrap(), expected);
        }
    }

    #[test]
    fn no_table_is_read_without_sessions() {
        let (shelf, mut store) = memory();
        put(&mut store, RESPONSES, &[&[("response_group_uid", Cell::Text("s-1"))]]);
        store.commit("test").unwrap();
        assert!(live_sessions(&mut store, &[]).unwrap().is_empty());
        assert_eq!(shelf.content().rows_read, 0);
    }
}
