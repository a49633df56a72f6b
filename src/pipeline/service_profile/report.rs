//! How a behaviour is told: measured now, or as remembered.

use serde::Serialize;
use serde_json::Value;

use crate::{
    model::behaviour_names,
    state::{State, StateError},
};

/// Those that the list of responses shows.
pub(super) const OF_RESPONSES: [&str; 9] = [
    behaviour_names::ORDER,
    behaviour_names::RESPONSES_FILTERED_BY,
    behaviour_names::START_INCLUSIVE,
    behaviour_names::END_INCLUSIVE,
    behaviour_names::END_STYLE,
    behaviour_names::TRAILING_EMPTY_PAGE,
    behaviour_names::NOT_FOUND_WHEN_EMPTY,
    behaviour_names::TIES,
    behaviour_names::PAGE_ROWS,
];
/// Those that the list of themes shows.
pub(super) const OF_THEMES: [&str; 4] = [
    behaviour_names::THEMES_PAGE_ROWS,
    behaviour_names::THEMES_FILTERED_BY,
    behaviour_names::THEMES_START_INCLUSIVE,
    behaviour_names::THEMES_END_INCLUSIVE,
];
/// Those that the list of surveys shows when it is asked for states.
pub(super) const OF_SURVEYS: [&str; 4] = [
    behaviour_names::SURVEY_STATUS_FORM,
    behaviour_names::SURVEYS_LISTED_WHOLE,
    behaviour_names::DEFAULT_STATUSES,
    behaviour_names::STATUSES_ON_REQUEST,
];
/// Those that the list of surveys shows when it is asked for a range.
pub(super) const OF_SURVEY_RANGES: [&str; 3] = [
    behaviour_names::SURVEYS_FILTERED_BY,
    behaviour_names::SURVEYS_START_INCLUSIVE,
    behaviour_names::SURVEYS_END_INCLUSIVE,
];

/// Every behaviour, in the order in which people are told.
pub(super) fn all() -> impl Iterator<Item = &'static str> {
    let of_lists = OF_RESPONSES.into_iter().chain(OF_THEMES).chain(OF_SURVEYS).chain(OF_SURVEY_RANGES);
    of_lists.chain([behaviour_names::USER_TIME_UNIT, behaviour_names::ENVIRONMENT_IDS, behaviour_names::RETRY_AFTER])
}

/// One behaviour as it was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// The name under which it is remembered.
    #[serde(rename = "trait")]
    pub name: &'static str,
    /// What was found; `None` where the service does not show it.
    pub value: Option<Value>,
    /// How it was measured, or why it could not be.
    pub how: String,
    /// Requests that this measure took beyond the ones before.
    pub requests: u64,
    /// When it was measured, epoch milliseconds by this machine's clock; `None` where there is no value.
    pub measured_ms: Option<i64>,
}

impl Measured {
    pub(super) fn known(name: &'static str, value: impl Serialize, how: impl Into<String>) -> Self {
        // A word, a number, a boolean or a list of such: none of them fails.
        let value = serde_json::to_value(value).ok();
        Self { name, value, how: how.into(), requests: 0, measured_ms: None }
    }

    pub(super) fn unknown(name: &'static str, why: impl Into<String>) -> Self {
        Self { name, value: None, how: why.into(), requests: 0, measured_ms: None }
    }
}

/// Those of these behaviours that are missing become unknown, for this reason.
pub(super) fn fill(found: &mut Vec<Measured>, names: impl IntoIterator<Item = &'static str>, why: &str) {
    for name in names {
        if found.iter().all(|measured| measured.name != name) {
            found.push(Measured::unknown(name, why));
        }
    }
}

pub(super) fn in_order(mut found: Vec<Measured>) -> Vec<Measured> {
    found.sort_by_key(|measured| all().position(|name| name == measured.name));
    found
}

/// One behaviour as it is remembered.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KnownBehaviour {
    /// Its name.
    #[serde(rename = "trait")]
    pub name: &'static str,
    /// What was found; `None` if it never was.
    pub value: Option<Value>,
    /// When, epoch milliseconds by this machine's clock.
    pub measured_ms: Option<i64>,
    /// How it was measured; `None` for one of an earlier version of this program.
    pub evidence: Option<String>,
}

/// Every behaviour as it is remembered, known or not.
pub fn known_behaviours(state: &State) -> Result<Vec<KnownBehaviour>, StateError> {
    all()
        .map(|name| {
            let known = state.behaviour::<Value>(name)?;
            let (value, measured_ms) = known.map_or((None, None), |(value, at_ms)| (Some(value), Some(at_ms)));
            Ok(KnownBehaviour { name, value, measured_ms, evidence: state.behaviour_evidence(name)? })
        })
        .collect()
}
