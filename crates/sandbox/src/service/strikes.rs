//! Decides which requests are refused, and which ones a fault strikes: the schedules of the faults, the token bucket of
//! the rate limit, and the values of `Retry-After`.

use std::{collections::HashMap, sync::Arc};

use axum::http::{HeaderValue, StatusCode, header};

use super::{
    super::{
        clock::http_date,
        faults::{BrokenBody, Faults, Latency, RateLimit, RetryAfter, RetryAfterForm, When},
        random::{Random, mix},
    },
    Reply, Service, lock,
};

/// The requests that the schedules have counted so far.
#[derive(Debug, Default)]
pub(crate) struct Strikes {
    /// For each fault by its name: the number of requests that `every` and `probability` have counted.
    seen: HashMap<&'static str, u64>,
    /// Number of requests whose latency was drawn. This number seeds the jitter.
    delayed: u64,
}

impl Strikes {
    /// Forgets the counts of schedules that differ in the new faults.
    pub(crate) fn forget_changed(&mut self, current: &mut Faults, new: &mut Faults) {
        for ((name, current), (_, new)) in current.schedules().into_iter().zip(new.schedules()) {
            if current != new {
                self.seen.remove(name);
            }
        }
    }

    /// Returns the latency of the next request with a random jitter, in milliseconds.
    pub(crate) fn latency_ms(&mut self, faults: &Faults) -> u64 {
        let Latency { ms, jitter_ms, .. } = faults.latency;
        self.delayed += 1;
        ms.saturating_add(Random::new(faults.seed, self.delayed).below(jitter_ms.saturating_add(1)))
    }

    /// Counts a request for the schedule of a fault. Returns true if the fault strikes the request, as every n-th
    /// request or by chance.
    fn count_and_draw(&mut self, name: &'static str, when: &When, seed: u64) -> bool {
        let seen = self.seen.entry(name).or_default();
        *seen += 1;
        let by_turn = when.every > 0 && (*seen).is_multiple_of(when.every);
        let purpose = name.bytes().fold(seed, |sum, byte| mix(sum, u64::from(byte)));
        by_turn || (when.probability > 0.0 && Random::new(purpose, *seen).chance(when.probability))
    }
}

/// How far [`RetryAfterForm::PastDate`] is in the past.
const PAST_MS: i64 = 3_600_000;

/// Milliseconds between the last byte of a cut body and the end of the connection, so that the client receives the
/// bytes.
const CUT_FLUSH_MS: u64 = 20;

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
    /// Returns true if the fault strikes this request. A call counts the request, unless no schedule is set or the path
    /// does not match. It reduces `skip`, or else `count`, by one. If both are 0, it counts for `every` and
    /// `probability`.
    pub(super) fn strikes(&self, name: &'static str, path: &str) -> bool {
        let mut faults = lock(&self.faults);
        let seed = faults.seed;
        let schedules = Arc::make_mut(&mut faults).schedules();
        let Some((_, when)) = schedules.into_iter().find(|(known, _)| *known == name) else { return false };
        let is_set = when.probability > 0.0 || when.every > 0 || when.count > 0;
        if !is_set || !path.starts_with(&when.path) {
            return false;
        }
        if when.skip > 0 {
            when.skip -= 1;
            return false;
        }
        if when.count > 0 {
            when.count -= 1;
            return true;
        }
        lock(&self.strikes).count_and_draw(name, when, seed)
    }

    /// Returns the refusal by a fault that answers before the request is read; `None` if no such fault strikes. The
    /// rate limit is not checked here.
    pub(super) fn strike(&self, faults: &Faults, path: &str) -> Option<Reply> {
        if self.strikes("too_many_requests", path) {
            return Some(self.too_many_requests("too_many_requests", faults.too_many_requests.retry_after));
        }
        if self.strikes("server_error", path) {
            return Some(Reply::fault("server_error", faults.server_error.status, "internal error"));
        }
        self.strikes("unavailable", path).then(|| {
            let retry_after = self.retry_after(faults.unavailable.retry_after);
            Reply::fault("unavailable", 503, "service unavailable").with_header(header::RETRY_AFTER, retry_after)
        })
    }

    /// Applies the fault that strikes: it replaces the content of the reply, or breaks the delivery of the body.
    pub(super) fn spoil(&self, reply: Reply, path: &str, faults: &Faults) -> Reply {
        let content = |fault, content_type, text: &'static str| {
            let spoiled = Reply { content_type: Some(content_type), ..Reply::json(StatusCode::OK, text) };
            Reply { headers: reply.headers.clone(), ..spoiled }.struck_by(fault)
        };
        if self.strikes("html", path) {
            content("html", "text/html", "<!doctype html><title>Sign in</title><p>Please sign in.")
        } else if self.strikes("no_data", path) {
            content("no_data", "application/json", r#"{"cursor":null}"#)
        } else if self.strikes("cut_body", path) {
            let fault = BrokenBody { silent_ms: CUT_FLUSH_MS, ..faults.cut_body.clone() };
            Reply { broken: Some(fault), ..reply }.struck_by("cut_body")
        } else if self.strikes("hung_body", path) {
            Reply { broken: Some(faults.hung_body.clone()), ..reply }.struck_by("hung_body")
        } else {
            reply
        }
    }

    /// Returns the 429 of the rate limit; `None` if the request is within the limit. If there are too many concurrent
    /// requests, no token is taken.
    pub(super) fn limit_rate(&self, limit: &RateLimit) -> Option<Reply> {
        let (_, in_flight, _) = self.log.counts();
        let is_crowded = limit.in_flight_max > 0 && in_flight > limit.in_flight_max;
        let wait_us = if is_crowded { 0 } else { lock(&self.bucket).take(limit, self.clock.elapsed_us()).err()? };
        let wait_ms = wait_us.div_ceil(1000).max(limit.min_wait_ms);
        Some(self.too_many_requests("rate_limit", RetryAfter { form: limit.form, wait_ms }))
    }

    fn too_many_requests(&self, fault: &'static str, retry_after: RetryAfter) -> Reply {
        Reply::fault(fault, 429, "too many requests").with_header(header::RETRY_AFTER, self.retry_after(retry_after))
    }

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
