//! What the measures have in common.

use serde::Serialize;

use super::{super::ties::Asker, report::Measured, small_list::SmallLists};

/// The largest page of the contract, as long as no other size is known.
const PAGE_ROWS_MAX: u32 = 1000;

/// Whom the measures ask, and what they have found.
pub(super) struct Lab {
    pub asker: Asker,
    /// Ids of users of whom a page or the warehouse told. They are asked for, and stand in no evidence.
    pub user_ids: Vec<String>,
    /// Rows of the largest page that came in time.
    pub page_rows: u32,
    pub timeout_ms: u64,
    /// The service's time.
    pub now_ms: i64,
    pub found: Vec<Measured>,
    counted: u64,
}

impl Lab {
    /// Nothing is measured yet.
    pub fn new(asker: Asker, timeout_ms: u64, now_ms: i64) -> Lab {
        Lab { asker, user_ids: Vec::new(), page_rows: PAGE_ROWS_MAX, timeout_ms, now_ms, found: Vec::new(), counted: 0 }
    }

    /// Whether a behaviour was found to have another value than this one.
    pub fn has_found_other(&self, name: &str, value: impl Serialize) -> bool {
        let value = serde_json::to_value(value).ok();
        self.found.iter().any(|measured| measured.name == name && measured.value.is_some() && measured.value != value)
    }

    /// Small lists of a stream, in which a row is looked for.
    pub fn small_lists<'a>(&self, asker: &'a Asker, key: u128) -> SmallLists<'a> {
        SmallLists { asker, page_rows: self.page_rows, key }
    }

    /// What a measure showed, with the requests since the one before.
    pub fn note(&mut self, measured: Measured) {
        let total = self.asker.source.request_stats().total;
        let requests = total - std::mem::replace(&mut self.counted, total);
        self.found.push(Measured { requests, ..measured });
    }
}
