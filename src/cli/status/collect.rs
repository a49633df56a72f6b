//! Adds to the status what the checkpoints do not have: the rows and the users of the warehouse, the waiting erasures,
//! and the state of `serve`.

use arrow::{array::AsArray as _, datatypes::Int64Type};

use crate::{
    config::{Settings, WarehouseSettings},
    load::{LoadError, Reader},
    model::{Scope, format_second},
    person::{SuppressionError, SuppressionList},
    state::{State, StateError},
    sync_status::{ServeStatus, Status, WaitingErasure},
};

use super::super::{plan::planned_users, warehouse::reader_limits};

/// Adds the counts of the warehouse and the state of `serve`.
pub(super) fn complete(status: &mut Status, settings: &Settings, state: &State) -> Result<(), StateError> {
    let mut reader = open_reader(&settings.warehouse);
    for scope in &mut status.scopes {
        let counted = reader.as_mut().map(|reader| count(reader, scope.scope));
        let counted = counted.transpose().inspect_err(|error| tracing::info!(%error, "cannot count rows"));
        scope.rows = counted.ok().flatten();
    }
    if let Some(users) = &mut status.users {
        let planned = planned_users(settings, Some(state), status.clock.now_ms);
        (users.named, users.due) = (planned.as_ref().map(|users| users.named), planned.as_ref().map(|users| users.due));
    }
    status.serve = ServeStatus::read(settings)?;
    Ok(())
}

/// Opens the first warehouse that can be read.
fn open_reader(warehouse: &WarehouseSettings) -> Option<Reader> {
    let limits = reader_limits(warehouse);
    warehouse.paths.iter().find_map(|(kind, path)| {
        let opened = Reader::open_limited(&kind.at(path), limits);
        opened.inspect_err(|error| tracing::info!(%error, "cannot count rows")).ok()
    })
}

/// Counts the rows of the stream's table, or only those of the scope's survey.
fn count(reader: &mut Reader, scope: Scope) -> Result<u64, LoadError> {
    let survey = scope.survey_id.map(|id| format!(" WHERE survey_id = {id}")).unwrap_or_default();
    let result = reader.query(&format!("SELECT count(*) FROM {}{survey}", scope.stream), 1)?;
    let column = result.batches.first().and_then(|batch| batch.column(0).as_primitive_opt::<Int64Type>());
    let rows = column.and_then(|column| column.iter().next().flatten());
    Ok(rows.map_or(0, i64::unsigned_abs))
}

/// Returns the waiting erasures, ordered by the end of their suppression.
pub(super) fn erasures_waiting(settings: &Settings) -> Result<Vec<WaitingErasure>, SuppressionError> {
    let list = SuppressionList::read(&settings.erasures_folder())?;
    let mut entries: Vec<_> = list.entries().iter().collect();
    entries.sort_by_key(|entry| (entry.until_ms, &entry.erasure_id));
    let waiting = entries.into_iter().map(|entry| WaitingErasure {
        erasure_id: entry.erasure_id.clone(),
        people: entry.named.len(),
        until: format_second(entry.until_ms),
    });
    Ok(waiting.collect())
}
