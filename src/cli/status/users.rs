//! Counts of the stream of users.

use serde::Serialize;

use crate::{
    config::Settings,
    state::{PeopleCounts, State, StateError},
};

use super::super::plan::planned_users;

#[derive(Serialize)]
pub(super) struct UsersStatus {
    /// Number of users that the service returned when they were last requested.
    found: u64,
    /// Number of users that the service did not know when they were last requested.
    absent: u64,
    /// Number of users that the warehouse names; `None` if the warehouse cannot be read now.
    #[serde(skip_serializing_if = "Option::is_none")]
    named: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    due: Option<u64>,
}

/// Returns the counts of the stream of users; `None` if the stream is disabled and no user was ever requested. `named`
/// and `due` are `None` if the warehouse is missing or cannot be read.
pub(super) fn users(settings: &Settings, state: &State, now_ms: i64) -> Result<Option<UsersStatus>, StateError> {
    let PeopleCounts { found, absent } = state.people_counts()?;
    if !settings.users.is_enabled && found + absent == 0 {
        return Ok(None);
    }
    let planned = planned_users(settings, Some(state), now_ms);
    let (named, due) = (planned.as_ref().map(|users| users.named), planned.as_ref().map(|users| users.due));
    Ok(Some(UsersStatus { found, absent, named, due }))
}

pub(super) fn describe(users: &UsersStatus) -> String {
    let due = match (users.due, users.named) {
        (Some(due), Some(named)) => format!("{due} of {named} named in the warehouse are due"),
        _ => "due users unknown (the warehouse cannot be read now)".to_owned(),
    };
    format!("\nusers: {} known to the service, {} not; {due}\n", users.found, users.absent)
}
