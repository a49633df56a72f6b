//! Estimates how many users the next run reads.

use serde::Serialize;

use crate::{
    config::Settings,
    pipeline::{people_due, refresh_intervals},
    state::State,
};

/// The users that the next run reads, with one request each.
#[derive(Serialize)]
pub(in super::super) struct PlannedUsers {
    /// Number of users that the warehouse names.
    pub named: u64,
    /// Number of named users that are due.
    pub due: u64,
    /// Estimated minutes; `None` if no rate is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minutes: Option<f64>,
}

/// Counts the users that the warehouse names and those that are due. `minutes` is `None`. Returns `None` if the
/// warehouse is missing or cannot be read.
pub(in super::super) fn planned_users(settings: &Settings, state: Option<&State>, now_ms: i64) -> Option<PlannedUsers> {
    let rules = refresh_intervals(&settings.users, now_ms);
    let is_due = |user_id: &str| state.map_or(Ok(true), |state| state.is_person_due(user_id, &rules));
    match people_due(&settings.warehouse, is_due) {
        Ok(counts) => Some(PlannedUsers { named: counts.named, due: counts.due, minutes: None }),
        Err(error) => {
            tracing::info!(%error, "cannot estimate the users to read: the warehouse is unreadable");
            None
        }
    }
}
