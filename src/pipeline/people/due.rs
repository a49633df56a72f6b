//! Finds the users who are due for a request: users in the warehouse who were never requested, or too long ago. Reads
//! the warehouse in slices, so that neither DuckDB nor this program has all users in memory.

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

/// The maximum number of ids that are returned. Further due users are only counted.
const LISTED_MAX: usize = 100_000;
/// Expected number of rows of one slice. The ids of a slice fit several times into DuckDB's memory.
const SLICE_ROWS: u64 = 4_000_000;
/// Time limit of each query.
const TIME_MAX: std::time::Duration = std::time::Duration::from_secs(3600);

/// A query of the user ids in answers, snapshots and users. Vanished rows are left out.
const USER_IDS: &str = "\
    SELECT external_user_id AS id FROM responses WHERE _vanished_at IS NULL
    UNION ALL SELECT external_user_id FROM visitor_snapshots WHERE _vanished_at IS NULL
    UNION ALL SELECT external_user_id FROM users WHERE _vanished_at IS NULL";

/// The users who are due.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeopleDue {
    /// Number of users in the warehouse.
    pub named: u64,
    /// Number of users who are due.
    pub due: u64,
    /// Ids of at most 100,000 users who are due, sorted.
    pub people: Vec<String>,
    /// Number of users who cannot be requested, because an address cannot contain their id.
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

/// Finds the due users in the warehouse. `is_due` decides by the user id. No process may have the warehouse open for
/// writing. Blocks the thread.
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

/// Adds the due users of the warehouse to `found`. Reads the user ids in slices, by a hash of the id.
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
    // DuckDB returns rows in any order. A fixed order makes runs comparable.
    found.people.sort_unstable();
    Ok(())
}
