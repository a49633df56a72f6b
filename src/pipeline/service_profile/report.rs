//! Behaviours for the report of `check` and `status`: measured now, or stored.
//!
//! The state that all measures share.

use serde::Serialize;
use serde_json::Value;

use crate::{
    model::{Stream, behaviour_names},
    state::{State, StateError},
};

use super::{rows::SmallListReader, tie_probe::MomentRequester};

/// Behaviours that are measured with the list of responses.
pub(super) const RESPONSES_BEHAVIOURS: [&str; 9] = [
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
/// Behaviours that are measured with the list of themes.
pub(super) const THEMES_BEHAVIOURS: [&str; 4] = [
    behaviour_names::THEMES_PAGE_ROWS,
    behaviour_names::THEMES_FILTERED_BY,
    behaviour_names::THEMES_START_INCLUSIVE,
    behaviour_names::THEMES_END_INCLUSIVE,
];
/// Behaviours that are measured with lists of surveys by status.
pub(super) const STATUS_BEHAVIOURS: [&str; 4] = [
    behaviour_names::SURVEY_STATUS_FORM,
    behaviour_names::SURVEYS_LISTED_WHOLE,
    behaviour_names::DEFAULT_STATUSES,
    behaviour_names::STATUSES_ON_REQUEST,
];
/// Behaviours that are measured with lists of surveys by time.
pub(super) const SURVEY_RANGE_BEHAVIOURS: [&str; 3] = [
    behaviour_names::SURVEYS_FILTERED_BY,
    behaviour_names::SURVEYS_START_INCLUSIVE,
    behaviour_names::SURVEYS_END_INCLUSIVE,
];

/// Returns the names of all behaviours, in the order of the report.
pub(super) fn all() -> impl Iterator<Item = &'static str> {
    let of_lists = RESPONSES_BEHAVIOURS.into_iter().chain(THEMES_BEHAVIOURS);
    let of_surveys = STATUS_BEHAVIOURS.into_iter().chain(SURVEY_RANGE_BEHAVIOURS);
    let of_404 = Stream::LISTS
        .into_iter()
        .flat_map(|list| [behaviour_names::taken_as_empty(list), behaviour_names::not_found_end(list)]);
    of_lists.chain(of_surveys).chain(of_404).chain([
        behaviour_names::USER_TIME_UNIT,
        behaviour_names::ENVIRONMENT_IDS,
        behaviour_names::RETRY_AFTER,
    ])
}

/// The result of measuring one behaviour.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// The name under which the value is stored.
    #[serde(rename = "trait")]
    pub name: &'static str,
    /// The measured value; `None` if the service does not show it.
    pub value: Option<Value>,
    /// How the value was measured, or why it could not be measured.
    pub how: String,
    /// Number of requests of this measure.
    pub requests: u64,
    /// When the value was measured, in epoch milliseconds by this machine's clock. `None` without a value.
    pub measured_ms: Option<i64>,
}

impl Measured {
    /// Creates a measured behaviour. `how` says how it was measured.
    pub(super) fn known(name: &'static str, value: impl Serialize, how: impl Into<String>) -> Self {
        // The JSON of words, numbers, booleans and lists of them cannot fail.
        let value = serde_json::to_value(value).ok();
        Self { name, value, how: how.into(), requests: 0, measured_ms: None }
    }

    /// Creates a behaviour that could not be measured. `why` says why.
    pub(super) fn unknown(name: &'static str, why: impl Into<String>) -> Self {
        Self { name, value: None, how: why.into(), requests: 0, measured_ms: None }
    }
}

/// Adds the missing behaviours of `names` as unknown, for this reason.
pub(super) fn fill_unknown(measured: &mut Vec<Measured>, names: impl IntoIterator<Item = &'static str>, why: &str) {
    for name in names {
        if measured.iter().all(|one| one.name != name) {
            measured.push(Measured::unknown(name, why));
        }
    }
}

/// Sorts behaviours in the order of the report.
pub(super) fn in_order(mut measured: Vec<Measured>) -> Vec<Measured> {
    measured.sort_by_key(|one| all().position(|name| name == one.name));
    measured
}

/// One behaviour as it is stored in the checkpoints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KnownBehaviour {
    /// The name of the behaviour.
    #[serde(rename = "trait")]
    pub name: &'static str,
    /// The stored value. `None` if the behaviour was never measured.
    pub value: Option<Value>,
    /// When the behaviour was measured, in epoch milliseconds by this machine's clock.
    pub measured_ms: Option<i64>,
    /// How the behaviour was measured. `None` for a value of an earlier version of this program.
    pub evidence: Option<String>,
}

/// Returns every behaviour as it is stored, measured or not.
pub fn known_behaviours(state: &State) -> Result<Vec<KnownBehaviour>, StateError> {
    all()
        .map(|name| {
            let known = state.behaviour::<Value>(name)?;
            let (value, measured_ms) = known.map_or((None, None), |(value, at_ms)| (Some(value), Some(at_ms)));
            Ok(KnownBehaviour { name, value, measured_ms, evidence: state.behaviour_evidence(name)? })
        })
        .collect()
}

/// The largest page of the contract, used until the page size is measured.
const PAGE_ROWS_MAX: u32 = 1000;

/// The client, the inputs and the results of all measures.
pub(super) struct MeasureContext {
    pub requester: MomentRequester,
    /// Ids of users on a page or in the warehouse, some of whom are requested. No evidence contains an id.
    pub user_ids: Vec<String>,
    /// The largest page size that the service answered in time.
    pub page_rows: u32,
    /// The time limit of a request.
    pub timeout_ms: u64,
    /// The service's time in epoch milliseconds.
    pub now_ms: i64,
    /// The behaviours that were measured so far.
    pub measured: Vec<Measured>,
    /// Number of requests that are counted in `measured`.
    counted_requests: u64,
}

impl MeasureContext {
    pub fn new(requester: MomentRequester, timeout_ms: u64, now_ms: i64) -> MeasureContext {
        MeasureContext {
            requester,
            user_ids: Vec::new(),
            page_rows: PAGE_ROWS_MAX,
            timeout_ms,
            now_ms,
            measured: Vec::new(),
            counted_requests: 0,
        }
    }

    /// Returns true if a behaviour was measured, with another value than `value`.
    pub fn has_other_value(&self, name: &str, value: impl Serialize) -> bool {
        let value = serde_json::to_value(value).ok();
        let is_other = |measured: &Measured| measured.value.is_some() && measured.value != value;
        self.measured.iter().any(|measured| measured.name == name && is_other(measured))
    }

    /// Creates a reader of small lists, which looks for the row with the key hash `key`.
    pub fn small_lists<'a>(&self, requester: &'a MomentRequester, key: u128) -> SmallListReader<'a> {
        SmallListReader { requester, page_rows: self.page_rows, key }
    }

    /// Adds a measured behaviour, with the number of requests since the behaviour before.
    pub fn add(&mut self, measured: Measured) {
        let total = self.requester.source.request_stats().total;
        let requests = total - std::mem::replace(&mut self.counted_requests, total);
        self.measured.push(Measured { requests, ..measured });
    }
}
