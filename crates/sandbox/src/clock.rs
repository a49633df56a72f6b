//! The service's clock. The clock starts at a given time, and runs at real speed or stands still. The machine's date is
//! not read.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::{Duration, UNIX_EPOCH},
};

use axum::http::HeaderValue;
use tokio::time::Instant;

/// The service's clock, and the monotonic clock of the request log and the rate limit.
#[derive(Debug)]
pub(crate) struct Clock {
    begun: Instant,
    start_ms: i64,
    frozen: bool,
    advanced_ms: AtomicI64,
}

impl Clock {
    pub(crate) fn new(start_ms: i64, frozen: bool) -> Self {
        Self { begun: Instant::now(), start_ms, frozen, advanced_ms: AtomicI64::new(0) }
    }

    /// Returns the service's time, epoch milliseconds.
    pub(crate) fn now_ms(&self) -> i64 {
        let ran_ms = if self.frozen { 0 } else { i64::try_from(self.elapsed_us() / 1000).unwrap_or(i64::MAX) };
        self.start_ms.saturating_add(ran_ms).saturating_add(self.advanced_ms.load(Ordering::SeqCst))
    }

    /// Returns the real time since the start, in microseconds.
    pub(crate) fn elapsed_us(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Moves the service's clock forward, by at most a century. Returns the service's time.
    pub(crate) fn advance(&self, by_ms: u64) -> i64 {
        // No test needs more than a century, and a century cannot exceed the calendar.
        const ADVANCE_MAX_MS: u64 = 100 * 366 * 86_400_000;
        let by_ms = i64::try_from(by_ms.min(ADVANCE_MAX_MS)).unwrap_or(0);
        self.advanced_ms.fetch_add(by_ms, Ordering::SeqCst);
        self.now_ms()
    }
}

/// Formats epoch milliseconds as an HTTP date, without the milliseconds.
pub(crate) fn http_date(at_ms: i64) -> String {
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_millis(u64::try_from(at_ms).unwrap_or(0)))
}

/// Builds the value of the `Date` header.
pub(crate) fn date_header(at_ms: i64) -> HeaderValue {
    HeaderValue::from_str(&http_date(at_ms)).unwrap_or_else(|_| HeaderValue::from_static(""))
}
