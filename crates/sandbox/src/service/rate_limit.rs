//! The token bucket of the rate limit, and the values of `Retry-After`.

use axum::http::HeaderValue;

use super::{
    super::{
        clock::http_date,
        faults::{RateLimit, RetryAfter, RetryAfterForm},
    },
    Service,
};

/// How far [`RetryAfterForm::PastDate`] is in the past.
const PAST_MS: i64 = 3_600_000;

/// A token bucket that fills in real time.
#[derive(Debug, Default)]
pub(crate) struct Bucket {
    tokens: f64,
    /// When `tokens` was computed, in microseconds of real time.
    filled_us: u64,
    /// False until the first token is taken. Before that the bucket is full, whatever `tokens` says.
    is_used: bool,
}

impl Bucket {
    /// Takes a token; without a rate limit always succeeds. `Err` is the time until the next token, in microseconds.
    pub(crate) fn take(&mut self, limit: &RateLimit, now_us: u64) -> Result<(), u64> {
        if limit.per_second <= 0.0 {
            return Ok(());
        }
        let capacity = f64::from(limit.burst.max(1));
        if !self.is_used {
            (self.is_used, self.tokens, self.filled_us) = (true, capacity, now_us);
        }
        let elapsed_secs = now_us.saturating_sub(self.filled_us) as f64 / 1e6;
        self.tokens = (self.tokens + elapsed_secs * limit.per_second).min(capacity);
        self.filled_us = now_us;
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            return Ok(());
        }
        Err(((1.0 - self.tokens) / limit.per_second * 1e6).ceil() as u64)
    }

    /// Fills the bucket if the rate limit changed.
    pub(crate) fn reset_if_changed(&mut self, current: &RateLimit, new: &RateLimit) {
        if current != new {
            *self = Bucket::default();
        }
    }
}

impl Service {
    /// Returns the value of a `Retry-After` header; `None` for no header. The log notes a wait above 0, to mark
    /// requests that come before its end.
    pub(super) fn retry_after(&self, header: RetryAfter) -> Option<HeaderValue> {
        let wait_ms = i64::try_from(header.wait_ms).unwrap_or(i64::MAX / 2);
        let seconds = header.wait_ms.div_ceil(1000);
        let now_ms = self.clock.now_ms();
        let date_ms = now_ms.saturating_add(wait_ms).div_euclid(1000).saturating_add(1).saturating_mul(1000);
        // An HTTP date has four digits for the year.
        let date_ms = date_ms.min(253_402_300_799_000);
        let (text, stated_ms) = match header.form {
            RetryAfterForm::Absent => return None,
            RetryAfterForm::Seconds => (seconds.to_string(), seconds.saturating_mul(1000)),
            RetryAfterForm::Fraction => {
                (format!("{}.{:03}", header.wait_ms / 1000, header.wait_ms % 1000), header.wait_ms)
            }
            RetryAfterForm::HttpDate => (http_date(date_ms), (date_ms - now_ms) as u64),
            RetryAfterForm::EpochSeconds => ((date_ms / 1000).to_string(), (date_ms - now_ms) as u64),
            RetryAfterForm::EpochMillis => (now_ms.saturating_add(wait_ms).to_string(), header.wait_ms),
            RetryAfterForm::Zero => ("0".into(), 0),
            RetryAfterForm::Negative => ("-5".into(), 0),
            RetryAfterForm::PastDate => (http_date(now_ms - PAST_MS), 0),
            RetryAfterForm::Garbage => ("soon".into(), 0),
        };
        if stated_ms > 0 {
            let now_us = self.clock.elapsed_us();
            self.log.note_retry_after(now_us.saturating_add(stated_ms.saturating_mul(1000)), now_us);
        }
        HeaderValue::from_str(&text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_fills_in_real_time() {
        let limit = RateLimit { per_second: 10.0, burst: 2, ..RateLimit::default() };
        let mut bucket = Bucket::default();
        assert_eq!([bucket.take(&limit, 0), bucket.take(&limit, 0)], [Ok(()), Ok(())]);
        assert!(bucket.take(&limit, 0).is_err_and(|wait_us| wait_us.abs_diff(100_000) <= 1));
        assert!(bucket.take(&limit, 99_000).is_err_and(|wait_us| wait_us.abs_diff(1_000) <= 1));
        assert_eq!(bucket.take(&limit, 100_001), Ok(()));
        assert_eq!([bucket.take(&limit, 9_000_000), bucket.take(&limit, 9_000_000)], [Ok(()), Ok(())]);
        assert!(bucket.take(&limit, 9_000_000).is_err(), "the bucket holds no more than its burst");
    }
}
