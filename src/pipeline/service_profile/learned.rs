//! What a run sees of the service's behaviours without asking for it:
//! the order and the ends of its lists, and its refusals.

use std::sync::{Arc, Mutex, PoisonError};

use crate::{
    model::{EndStyle, ListOrder, Stream, behaviour_names},
    plan::page_boundaries::PageMoments,
    source::{Page, Source},
    state::State,
};

use super::super::PipelineError;

/// Rows of different times that an order is believed of:
/// by chance they are in order less than once in ten thousand times.
const ORDERED_MIN: usize = 8;

/// What the pulls of a run have seen together.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Learned(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    order: Option<ListOrder>,
    end: Option<EndStyle>,
    trailing_empty_page: Option<bool>,
    not_found_when_empty: Option<bool>,
}

impl Learned {
    /// A page of responses; those of other streams tell nothing of them.
    pub fn page(&self, stream: Stream, page: &Page, moments: &PageMoments) {
        if stream != Stream::Responses {
            return;
        }
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.order = match (seen.order, order_of(moments)) {
            (Some(before), Some(now)) if before != now => Some(ListOrder::None),
            (before, now) => before.or(now),
        };
        let Some(end) = page.end else { return };
        match (page.rows, page.request_token.is_some()) {
            (0, false) => seen.not_found_when_empty = Some(false),
            (0, true) => (seen.end, seen.trailing_empty_page) = (Some(end), Some(true)),
            _ => (seen.end, seen.trailing_empty_page) = (Some(end), Some(false)),
        }
    }

    /// A list call was answered with 404.
    pub fn not_found(&self, stream: Stream) {
        if stream == Stream::Responses {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).not_found_when_empty = Some(true);
        }
    }

    /// Remembers what was seen.
    pub fn remember(&self, state: &State, source: &Source, now_ms: i64) -> Result<(), PipelineError> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let remember = |name, value: Option<serde_json::Value>, evidence: &str| match value {
            Some(value) => state.remember_measured(name, &value, evidence, now_ms).map_err(PipelineError::State),
            None => Ok(()),
        };
        // Words and booleans: none of them fails to become JSON.
        remember(
            behaviour_names::ORDER,
            seen.order.and_then(|order| serde_json::to_value(order).ok()),
            "the pages of a run",
        )?;
        remember(
            behaviour_names::END_STYLE,
            seen.end.and_then(|end| serde_json::to_value(end).ok()),
            "the last pages of lists in a run",
        )?;
        remember(
            behaviour_names::TRAILING_EMPTY_PAGE,
            seen.trailing_empty_page.map(Into::into),
            "the last pages of lists in a run",
        )?;
        remember(
            behaviour_names::NOT_FOUND_WHEN_EMPTY,
            seen.not_found_when_empty.map(Into::into),
            "an empty list in a run",
        )?;
        remember(
            behaviour_names::SURVEYS_ARE_STUDIES,
            source.surveys_are_studies().map(Into::into),
            "the paths of a run",
        )?;
        remember(
            behaviour_names::RETRY_AFTER,
            source.retry_after_seen().and_then(|form| serde_json::to_value(form).ok()),
            "a refusal in a run",
        )
    }
}

/// The order of a page; `None` if it has too few different times to tell.
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
    fn an_order_is_told_by_enough_rows_and_ruled_out_by_three() {
        assert_eq!(order(&[8, 7, 6, 6, 5, 4, 3, 2, 1]), Some(ListOrder::NewestFirst));
        assert_eq!(order(&[1, 2, 3, 4, 5, 6, 7, 8]), Some(ListOrder::OldestFirst));
        assert_eq!(order(&[1, 3, 2]), Some(ListOrder::None));
        assert_eq!(order(&[1, 2, 3, 4, 5, 6, 7, 7]), None);
        assert_eq!(order(&[5; 20]), None);
        assert_eq!(order(&[]), None);
    }
}
