//! Finds the users who are due for a request: users in the warehouse who were never requested, or too long ago. Reads
//! the warehouse in slices, so that neither its engine nor this program holds all users in memory.

use arrow::array::AsArray as _;

use crate::{
    config::WarehouseSettings,
    load::{LoadError, Reader},
    model::can_request_user,
    state::StateError,
};

use super::super::{
    PipelineError,
    assemble::{failed, open_reader},
};

/// Ids that are returned at a time. Further due users are only counted.
const LISTED_MAX: usize = 100_000;
/// Expected rows of one slice. Their ids fit several times into the engine's memory.
const SLICE_ROWS: u64 = 4_000_000;
/// Time limit of the queries.
const TIME_MAX: std::time::Duration = std::time::Duration::from_secs(3600);

/// Ids in answers, snapshots and users. Vanished rows do not count.
const USER_IDS: &str = "\
    SELECT external_user_id AS id FROM responses WHERE _vanished_at IS NULL
    UNION ALL SELECT external_user_id FROM visitor_snapshots WHERE _vanished_at IS NULL
    UNION ALL SELECT external_user_id FROM users WHERE _vanished_at IS NULL";

/// The users who are due.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeopleDue {
    /// Users in the warehouse.
    pub named: u64,
    /// Users who are due.
    pub due: u64,
    /// Ids of at most 100,000 users who are due, sorted.
    pub people: Vec<String>,
    /// Users who cannot be requested, because an address cannot contain their id.
    pub unaskable: u64,
}

/// An error while the due users are collected.
#[derive(Debug, thiserror::Error)]
enum DueError {
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    State(#[from] StateError),
}

/// Finds the due users in the warehouse. No process may have it open for writing. Blocks the thread.
pub fn people_due(
    warehouse: &WarehouseSettings,
    is_due: impl Fn(&str) -> Result<bool, StateError>,
) -> Result<PeopleDue, PipelineError> {
    let (name, mut reader) = open_reader(warehouse, TIME_MAX)?;
    let mut due = PeopleDue::default();
    match collect_due(&mut reader, &mut due, is_due) {
        Ok(()) => Ok(due),
        Err(DueError::Load(error)) => Err(failed(name)(error)),
        Err(DueError::State(error)) => Err(PipelineError::State(error)),
    }
}

fn collect_due(
    reader: &mut Reader,
    found: &mut PeopleDue,
    is_due: impl Fn(&str) -> Result<bool, StateError>,
) -> Result<(), DueError> {
    let mut rows = 0;
    reader.stream("SELECT (SELECT count(*) FROM responses) + (SELECT count(*) FROM users)", 1, |batch| {
        let count = batch.column(0).as_primitive_opt::<arrow::datatypes::Int64Type>();
        rows = count.and_then(|count| count.iter().next().flatten()).unwrap_or(rows);
        Ok::<(), LoadError>(())
    })?;
    let slices = rows.unsigned_abs() / SLICE_ROWS + 1;
    for slice in 0..slices {
        let sql = format!(
            "SELECT DISTINCT id FROM ({USER_IDS}) WHERE id IS NOT NULL AND id <> '' AND hash(id) % {slices} = {slice}"
        );
        reader.stream(&sql, usize::MAX, |batch| {
            let Some(ids) = batch.column(0).as_string_opt::<i32>() else {
                return Err(DueError::Load(LoadError::DamagedRows("ids of users are not texts".into())));
            };
            for id in ids.iter().flatten() {
                found.named += 1;
                if !can_request_user(id) {
                    found.unaskable += 1;
                } else if is_due(id)? {
                    found.due += 1;
                    if found.people.len() < LISTED_MAX {
                        found.people.push(id.to_owned());
                    }
                }
            }
            Ok(())
        })?;
    }
    // The engine returns rows in any order. A fixed order makes runs comparable.
    found.people.sort_unstable();
    Ok(())
}
