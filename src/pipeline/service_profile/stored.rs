//! Reads facts about the service from the warehouse and the inbox: environments in webhooks, and ids of users. Sends no
//! request.
//!
//! Behaviours that a run observes without further requests: the order and the end of lists, and `Retry-After`.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use arrow::{
    array::{Array as _, AsArray as _},
    datatypes::Int64Type,
};
use serde::Serialize;
use serde_json::Value;

use crate::{
    config::Settings,
    flatten::summarize_body,
    load::Reader,
    model::{EndStyle, ListOrder, Stream, behaviour_names, can_request_user},
    pipeline::{assemble::open_reader, error::PipelineError, memory::Memory},
    plan::page_boundaries::PageMoments,
    source::{Page, Source},
    state::{Inbox, State, StateError},
};

use super::report::Measured;

/// The maximum number of environments in the result.
const ENVIRONMENTS_MAX: usize = 10;
/// The maximum length of an id. A longer text is probably no id, and may name a person.
const ID_CHARS_MAX: usize = 64;
/// The maximum number of deliveries that are read from the inbox.
const DELIVERIES_MAX: u32 = 10_000;
/// Time limit of a query.
const QUERY_TIME: Duration = Duration::from_secs(20);

/// An environment by the service's id.
#[derive(Serialize)]
struct Environment {
    id: String,
    deliveries: u64,
}

/// Opens the warehouse for reading. Returns `None` if it is missing or locked.
pub(super) fn reader(settings: &Settings) -> Option<Reader> {
    let opened = open_reader(&settings.warehouse, QUERY_TIME);
    let opened = opened.map(|(_, reader)| reader);
    opened.inspect_err(|error| tracing::debug!(%error, "the warehouse cannot be read now")).ok()
}

/// Returns ids of the users of the latest ten answers with a user. Returns none if the query fails.
pub(super) fn user_ids(reader: &mut Reader) -> Vec<String> {
    let sql = "SELECT external_user_id FROM current_responses WHERE external_user_id IS NOT NULL ORDER BY created_at DESC LIMIT 10";
    let Ok(found) = reader.query(sql, 10) else { return Vec::new() };
    let columns = found.batches.iter().filter_map(|batch| batch.column(0).as_string_opt::<i32>());
    columns.flatten().flatten().filter(|id| can_request_user(id)).map(str::to_owned).collect()
}

/// Returns the environments in webhooks of the warehouse and the inbox, those with the most deliveries first. The
/// environment of the settings is added without deliveries. Texts that do not look like ids are left out.
pub(super) fn environments(settings: &Settings, reader: Option<&mut Reader>) -> Result<Measured, PipelineError> {
    let mut counts = reader.map(count_in_warehouse).unwrap_or_default();
    let mut add = |id: String, deliveries: u64| *counts.entry(id).or_default() += deliveries;
    count_in_inbox(settings, &mut add)?;
    if let Some(id) = &settings.serve.environment_id {
        add(id.clone(), 0);
    }
    let name = behaviour_names::ENVIRONMENT_IDS;
    let total: u64 = counts.values().sum();
    let (known, others): (Vec<_>, Vec<_>) = counts.into_iter().partition(|(id, _)| is_id(id));
    if known.is_empty() {
        return Ok(Measured::unknown(name, format!("no environment is named in {total} webhooks")));
    }
    let mut known: Vec<Environment> =
        known.into_iter().map(|(id, deliveries)| Environment { id, deliveries }).collect();
    known.sort_by(|left, right| right.deliveries.cmp(&left.deliveries).then_with(|| left.id.cmp(&right.id)));
    let left_out = known.len().saturating_sub(ENVIRONMENTS_MAX) + others.len();
    known.truncate(ENVIRONMENTS_MAX);
    let mut how = format!("{total} webhooks of the warehouse and the inbox");
    if left_out > 0 {
        how.push_str(&format!("; {left_out} more names are left out"));
    }
    Ok(Measured::known(name, known, how))
}

/// Returns true if a text looks like an id. The field of a webhook can contain any text, such as an email address.
fn is_id(text: &str) -> bool {
    let is_sign = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.' | ':');
    text.chars().count() <= ID_CHARS_MAX && text.chars().all(is_sign)
}

/// Counts the webhooks in the warehouse by environment. Returns none if the query fails.
fn count_in_warehouse(reader: &mut Reader) -> BTreeMap<String, u64> {
    let sql = "SELECT environment_id, count(*) FROM webhook_events WHERE environment_id IS NOT NULL GROUP BY ALL ORDER BY 2 DESC LIMIT 100";
    let Ok(found) = reader.query(sql, 100) else { return BTreeMap::new() };
    let mut counts = BTreeMap::new();
    for batch in &found.batches {
        let ids = batch.column(0).as_string_opt::<i32>();
        let deliveries = batch.column(1).as_primitive_opt::<Int64Type>();
        let Some((ids, deliveries)) = ids.zip(deliveries) else { continue };
        let rows = (0..batch.num_rows()).filter(|row| ids.is_valid(*row));
        counts.extend(rows.map(|row| (ids.value(row).to_owned(), deliveries.value(row).unsigned_abs())));
    }
    counts
}

/// Passes the environment of each pending delivery in the inbox to `add`, as one delivery each. Also passes the
/// environment that the inbox stores, with 0 deliveries. Adds nothing if there is no inbox.
fn count_in_inbox(settings: &Settings, add: &mut impl FnMut(String, u64)) -> Result<(), StateError> {
    let Some(inbox) = Inbox::open_read_only(&settings.state_path)? else { return Ok(()) };
    if let Some(id) = inbox.environment_id()? {
        add(id, 0);
    }
    for delivery in inbox.pending(DELIVERIES_MAX, Memory::of(&settings.warehouse).bodies)? {
        if let Some(id) = summarize_body(&delivery.body).environment_id {
            add(id, 1);
        }
    }
    Ok(())
}

/// Number of rows of different times that prove an order. Unordered rows look ordered on fewer than one of ten thousand
/// pages.
const ORDERED_MIN: usize = 8;

/// The behaviours that all pulls of a run have observed, shared by clones.
#[derive(Clone, Debug, Default)]
pub struct ObservedBehaviours(Arc<Mutex<Observations>>);

#[derive(Debug, Default)]
struct Observations {
    order: Option<ListOrder>,
    end: Option<EndStyle>,
    trailing_empty_page: Option<bool>,
    not_found_when_empty: Option<bool>,
}

impl ObservedBehaviours {
    /// Adds the behaviours that a page of responses shows: the order of the rows, and the end of the list. Pages of
    /// other streams are ignored. Two pages with different orders prove that there is no order.
    pub fn add_page(&self, stream: Stream, page: &Page, moments: &PageMoments) {
        if stream != Stream::Responses {
            return;
        }
        let mut observed = self.observations();
        observed.order = match (observed.order, order_of(moments)) {
            (Some(before), Some(now)) if before != now => Some(ListOrder::None),
            (before, now) => before.or(now),
        };
        let Some(end) = page.end else { return };
        match (page.rows, page.request_token.is_some()) {
            (0, false) => observed.not_found_when_empty = Some(false),
            (0, true) => (observed.end, observed.trailing_empty_page) = (Some(end), Some(true)),
            _ => (observed.end, observed.trailing_empty_page) = (Some(end), Some(false)),
        }
    }

    /// Adds a 404 to the first request of a list.
    pub fn add_not_found(&self, stream: Stream) {
        if stream == Stream::Responses {
            self.observations().not_found_when_empty = Some(true);
        }
    }

    fn observations(&self) -> MutexGuard<'_, Observations> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the observed behaviours, with their evidence. Behaviours that were not observed keep their stored value.
    pub fn remember(&self, state: &State, source: &Source, now_ms: i64) -> Result<(), PipelineError> {
        let observed = self.observations();
        let values = [
            (behaviour_names::ORDER, json(observed.order), "the pages of a run"),
            (behaviour_names::END_STYLE, json(observed.end), "the last pages of lists in a run"),
            (
                behaviour_names::TRAILING_EMPTY_PAGE,
                json(observed.trailing_empty_page),
                "the last pages of lists in a run",
            ),
            (behaviour_names::NOT_FOUND_WHEN_EMPTY, json(observed.not_found_when_empty), "an empty list in a run"),
            (behaviour_names::SURVEYS_ARE_STUDIES, json(source.surveys_are_studies()), "the paths of a run"),
            (behaviour_names::RETRY_AFTER, json(source.retry_after_form()), "a 429 in a run"),
        ];
        for (name, value, evidence) in values {
            if let Some(value) = value {
                state.remember_measured(name, &value, evidence, now_ms)?;
            }
        }
        Ok(())
    }
}

/// Returns a word or a boolean as JSON. Returns `None` if there is no value.
fn json(value: Option<impl Serialize>) -> Option<Value> {
    serde_json::to_value(value?).ok()
}

/// Returns the order of a page's rows by creation time. Returns `None` if the rows look ordered, but too few different
/// times prove it.
pub(super) fn order_of(page: &PageMoments) -> Option<ListOrder> {
    let mut times: Vec<i64> = page.rows.iter().filter_map(|(ms, _)| *ms).collect();
    times.dedup();
    let (goes_down, goes_up) = (times.is_sorted_by(|left, right| left > right), times.is_sorted());
    if !goes_down && !goes_up {
        return Some(ListOrder::None);
    }
    let order = if goes_down { ListOrder::NewestFirst } else { ListOrder::OldestFirst };
    (times.len() >= ORDERED_MIN).then_some(order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_texts_that_look_like_ids_are_shown() {
        for id in ["production", "0b7a-4c55", "12", "env:prod_2.1"] {
            assert!(is_id(id), "{id}");
        }
        for other in ["zoe@example.com", "Zoë", "a b", &"x".repeat(65)] {
            assert!(!is_id(other), "{other}");
        }
    }

    fn order(times: &[i64]) -> Option<ListOrder> {
        let rows = times.iter().enumerate().map(|(key, ms)| (Some(*ms), key as u128)).collect();
        order_of(&PageMoments { rows, ..PageMoments::default() })
    }

    #[test]
    fn eight_rows_prove_an_order_and_three_disprove_it() {
        assert_eq!(order(&[8, 7, 6, 6, 5, 4, 3, 2, 1]), Some(ListOrder::NewestFirst));
        assert_eq!(order(&[1, 2, 3, 4, 5, 6, 7, 8]), Some(ListOrder::OldestFirst));
        assert_eq!(order(&[1, 3, 2]), Some(ListOrder::None));
        assert_eq!(order(&[1, 2, 3, 4, 5, 6, 7, 7]), None);
        assert_eq!(order(&[5; 20]), None);
        assert_eq!(order(&[]), None);
    }
}
