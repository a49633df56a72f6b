//! The one place that reads the wall clock. Everything else is handed a time.
//!
//! Two clocks matter: the *service's* (its `Date` header), which decides what may be read, and this machine's, which
//! only stamps when something was done here. Waiting uses tokio's monotonic clock, which tests can pause.

use std::{fmt, sync::Arc};

use chrono::{DateTime, Utc};

/// This machine's clock, or one that a test sets. Cheap to clone.
#[derive(Clone, Default)]
pub struct Clock(Option<Arc<dyn Fn() -> i64 + Send + Sync>>);

impl Clock {
    /// A clock that shows what `now_ms` says, in epoch milliseconds.
    pub fn simulated(now_ms: impl Fn() -> i64 + Send + Sync + 'static) -> Clock {
        Clock(Some(Arc::new(now_ms)))
    }

    /// Its time in epoch milliseconds.
    pub fn now_ms(&self) -> i64 {
        self.0.as_ref().map_or_else(now_ms, |shown_ms| shown_ms())
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Clock(simulated)" } else { "Clock" })
    }
}

/// This machine's time in epoch milliseconds.
pub fn now_ms() -> i64 {
    now().timestamp_millis()
}

/// This machine's time.
#[expect(clippy::disallowed_methods, reason = "the clock is read here and nowhere else")]
pub fn now() -> DateTime<Utc> {
    Utc::now()
}
