//! The state that all measures share.

use serde::Serialize;

use super::{super::ties::MomentRequester, report::Measured, small_list::SmallListReader};

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
        let (user_ids, measured) = (Vec::new(), Vec::new());
        MeasureContext {
            requester,
            user_ids,
            page_rows: PAGE_ROWS_MAX,
            timeout_ms,
            now_ms,
            measured,
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
