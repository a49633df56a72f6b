//! The one place that reads the wall clock. Everything else is handed a time.
//!
//! Two clocks matter: the *service's* (its `Date` header), which decides what may be read, and this machine's, which only
//! stamps when something was done here. Waiting uses tokio's monotonic clock, which tests can pause.

use chrono::{DateTime, Utc};

/// This machine's time in epoch milliseconds.
pub fn now_ms() -> i64 {
    now().timestamp_millis()
}

/// This machine's time.
#[expect(clippy::disallowed_methods, reason = "the clock is read here and nowhere else")]
pub fn now() -> DateTime<Utc> {
    Utc::now()
}
