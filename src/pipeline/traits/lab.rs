//! What the measures have in common.

use super::{super::ties::Asker, report::Measured};

/// Whom the measures ask, and what they have found.
pub(super) struct Lab {
    pub asker: Asker,
    pub timeout_ms: u64,
    /// The service's time.
    pub now_ms: i64,
    pub found: Vec<Measured>,
    counted: u64,
}

impl Lab {
    /// Nothing is measured yet.
    pub fn new(asker: Asker, timeout_ms: u64, now_ms: i64) -> Lab {
        Lab { asker, timeout_ms, now_ms, found: Vec::new(), counted: 0 }
    }

    /// What a measure showed, with the requests since the one before.
    pub fn note(&mut self, measured: Measured) {
        let total = self.asker.source.request_stats().total;
        let requests = total - std::mem::replace(&mut self.counted, total);
        self.found.push(Measured { requests, ..measured });
    }
}
