//! The people of whom a plan says how many are due.

use serde::Serialize;

use crate::{
    config::Settings,
    pipeline::{people_due, people_rules},
    state::State,
};

/// Who would be asked for: one request each.
#[derive(Serialize)]
pub(in super::super) struct PlannedPeople {
    /// Everybody whom the warehouse names.
    pub named: u64,
    /// Those of them who are due.
    pub due: u64,
    /// At the known rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minutes: Option<f64>,
}

/// Looks into the warehouse for people who are due, without a rate. `None`:
/// it cannot be read now, or there is none yet.
pub(in super::super) fn planned_people(
    settings: &Settings,
    state: Option<&State>,
    now_ms: i64,
) -> Option<PlannedPeople> {
    let rules = people_rules(&settings.users, now_ms);
    let is_due = |user_id: &str| state.map_or(Ok(true), |state| state.is_person_due(user_id, &rules));
    match people_due(&settings.warehouse, is_due) {
        Ok(found) => Some(PlannedPeople { named: found.named, due: found.due, minutes: None }),
        Err(error) => {
            tracing::info!(%error, "cannot estimate the people to read: the warehouse is unreadable");
            None
        }
    }
}
