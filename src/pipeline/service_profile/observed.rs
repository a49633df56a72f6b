//! Behaviours that a run observes without further requests: the order and the end of lists, and `Retry-After`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use serde_json::Value;

use crate::{
    model::{EndStyle, ListOrder, Stream, behaviour_names},
    plan::page_boundaries::PageMoments,
    source::{Page, Source},
    state::State,
};

use super::super::PipelineError;

/// Number of rows of different times that prove an order. Unordered rows look ordered on fewer than one of ten thousand
/// pages.
const ORDERED_MIN: usize = 8;

/// The behaviours that all pulls of a run have observed, shared by clones.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct ObservedBehaviours(Arc<Mutex<Observations>>);

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
