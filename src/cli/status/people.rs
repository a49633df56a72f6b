//! What `status` says of people. Looks into the warehouse for those who are due, if it can be read now.

use serde::Serialize;

use crate::{
    config::Settings,
    state::{PeopleCounts, State, StateError},
};

use super::super::plan::planned_people;

#[derive(Serialize)]
pub(super) struct PeopleStatus {
    /// People whom the service knew when they were last asked for.
    found: u64,
    /// People whom it did not.
    absent: u64,
    /// Everybody whom the warehouse names, and those of them who are due; absent if the warehouse cannot be read now.
    #[serde(skip_serializing_if = "Option::is_none")]
    named: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    due: Option<u64>,
}

/// `None` where nobody was ever asked for and nobody will be.
pub(super) fn people(settings: &Settings, state: &State, now_ms: i64) -> Result<Option<PeopleStatus>, StateError> {
    let PeopleCounts { found, absent } = state.people_counts()?;
    if !settings.users.is_enabled && found + absent == 0 {
        return Ok(None);
    }
    let planned = planned_people(settings, Some(state), now_ms);
    let (named, due) = (planned.as_ref().map(|people| people.named), planned.as_ref().map(|people| people.due));
    Ok(Some(PeopleStatus { found, absent, named, due }))
}

pub(super) fn describe(people: &PeopleStatus) -> String {
    let due = match (people.due, people.named) {
        (Some(due), Some(named)) => format!("{due} of {named} named in the warehouse are due"),
        _ => "who is due cannot be said: the warehouse cannot be read now".to_owned(),
    };
    format!("\nusers: {} known to the service, {} not; {due}\n", people.found, people.absent)
}
