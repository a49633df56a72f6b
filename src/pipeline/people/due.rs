//! Who is to be asked for: everybody whom the warehouse names, and who is new or was asked for too long ago. Reads the
//! warehouse in slices, so that neither its engine nor this program has to hold all people at once.

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

/// People who are listed at once; the others are only counted.
const LISTED_MAX: usize = 100_000;
/// Rows that a slice is likely to have: their ids fit into the engine's memory several times.
const SLICE_ROWS: u64 = 4_000_000;
/// What looking for people may take.
const TIME_MAX: std::time::Duration = std::time::Duration::from_secs(3600);

/// Whom the warehouse names today: in answers and snapshots, and who is held. Those who vanished are nobody's.
const NAMED: &str = "\
    SELECT external_user_id AS id FROM responses WHERE _vanished_at IS NULL
    UNION ALL SELECT external_user_id FROM visitor_snapshots WHERE _vanished_at IS NULL
    UNION ALL SELECT external_user_id FROM users WHERE _vanished_at IS NULL";

/// Who is due.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeopleDue {
    /// Everybody whom the warehouse names.
    pub named: u64,
    /// Those of them who are due.
    pub due: u64,
    /// The ids of at most 100,000 of those.
    pub people: Vec<String>,
    /// Those named whom no address can ask for.
    pub unaskable: u64,
}

/// An error of either side.
enum DueError {
    Load(LoadError),
    State(StateError),
}

impl From<LoadError> for DueError {
    fn from(error: LoadError) -> Self {
        DueError::Load(error)
    }
}

/// Looks for people in the warehouse, which nobody may have open for writing. Blocks the thread.
pub fn people_due(
    warehouse: &WarehouseSettings,
    is_due: impl Fn(&str) -> Result<bool, StateError>,
) -> Result<PeopleDue, PipelineError> {
    let (name, mut reader) = open_reader(warehouse, TIME_MAX)?;
    let mut found = PeopleDue::default();
    match look(&mut reader, &mut found, is_due) {
        Ok(()) => Ok(found),
        Err(DueError::Load(error)) => Err(failed(name)(error)),
        Err(DueError::State(error)) => Err(PipelineError::State(error)),
    }
}

fn look(
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
            "SELECT DISTINCT id FROM ({NAMED}) WHERE id IS NOT NULL AND id <> '' AND hash(id) % {slices} = {slice}"
        );
        reader.stream(&sql, usize::MAX, |batch| {
            let Some(ids) = batch.column(0).as_string_opt::<i32>() else {
                return Err(DueError::Load(LoadError::DamagedRows("ids of people are not texts".into())));
            };
            for id in ids.iter().flatten() {
                found.named += 1;
                if !can_request_user(id) {
                    found.unaskable += 1;
                } else if is_due(id).map_err(DueError::State)? {
                    found.due += 1;
                    if found.people.len() < LISTED_MAX {
                        found.people.push(id.to_owned());
                    }
                }
            }
            Ok(())
        })?;
    }
    // The engine hands rows over in any order;
    // a run that is cut short and the next one are easier to follow in this one.
    found.people.sort_unstable();
    Ok(())
}
