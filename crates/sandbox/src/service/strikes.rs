//! Decides which requests are refused, and which ones a fault strikes: the schedules of the faults, the token bucket of
//! the rate limit, and the values of `Retry-After`.

use std::sync::Arc;

use axum::http::{HeaderValue, StatusCode, header};

use super::{
    super::{
        clock::http_date,
        faults::{BrokenBody, Faults, RateLimit, RetryAfter, RetryAfterForm},
    },
    reply::Reply,
    state::{Service, lock},
};

/// How far [`RetryAfterForm::PastDate`] is in the past.
const PAST_MS: i64 = 3_600_000;

/// Milliseconds between the last byte of a cut body and the end of the connection, so that the client receives the
/// bytes.
const CUT_FLUSH_MS: u64 = 20;

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
