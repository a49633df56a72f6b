//! This machine's wall clock. Only this file reads it; all other code receives a time.
//!
//! The *service's* clock (its `Date` header) decides what may be read. This machine's clock only records when a run did
//! something. Waiting uses tokio's monotonic clock, which tests can pause.

use std::{fmt, sync::Arc};

use chrono::{DateTime, Utc};

/// This machine's clock (the default), or a simulated clock of a test.
#[derive(Clone, Default)]
pub struct Clock(Option<Arc<dyn Fn() -> i64 + Send + Sync>>);

impl Clock {
    /// Creates a clock whose time is the result of `now_ms`, in epoch milliseconds.
    pub fn simulated(now_ms: impl Fn() -> i64 + Send + Sync + 'static) -> Clock {
        Clock(Some(Arc::new(now_ms)))
    }

    /// Returns the time in epoch milliseconds.
    pub fn now_ms(&self) -> i64 {
        self.0.as_ref().map_or_else(now_ms, |simulated_ms| simulated_ms())
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Clock(simulated)" } else { "Clock" })
    }
}

/// Returns this machine's time in epoch milliseconds.
pub fn now_ms() -> i64 {
    now().timestamp_millis()
}

/// Returns this machine's time.
#[expect(clippy::disallowed_methods, reason = "only this function reads the clock")]
pub fn now() -> DateTime<Utc> {
    Utc::now()
}
