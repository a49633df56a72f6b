//! Decides by the schedules of the faults which requests a fault strikes.

use std::{collections::HashMap, sync::Arc};

use axum::http::StatusCode;

use super::{
    super::{
        faults::{Faults, Latency, RateLimit, RetryAfter, When},
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

/// Returns the schedules of all faults, with the names of the faults.
fn schedules(faults: &Faults) -> [(&'static str, &When); 12] {
    [
        ("too_many_requests", &faults.too_many_requests.when),
        ("server_error", &faults.server_error.when),
        ("lost_answer", &faults.lost_answer.when),
        ("unavailable", &faults.unavailable.when),
        ("cut_body", &faults.cut_body.when),
        ("hung_body", &faults.hung_body.when),
        ("html", &faults.html.when),
        ("no_data", &faults.no_data.when),
        ("repeated_rows", &faults.repeated_rows.when),
        ("looping_cursor", &faults.looping_cursor.when),
        ("empty_page", &faults.empty_page.when),
        ("dead_tokens", &faults.dead_tokens.when),
    ]
}

/// Returns the schedule of the fault with this name; `None` if there is no such fault.
fn schedule_mut<'a>(faults: &'a mut Faults, name: &str) -> Option<&'a mut When> {
    Some(match name {
        "too_many_requests" => &mut faults.too_many_requests.when,
        "server_error" => &mut faults.server_error.when,
        "lost_answer" => &mut faults.lost_answer.when,
        "unavailable" => &mut faults.unavailable.when,
        "cut_body" => &mut faults.cut_body.when,
        "hung_body" => &mut faults.hung_body.when,
        "html" => &mut faults.html.when,
        "no_data" => &mut faults.no_data.when,
        "repeated_rows" => &mut faults.repeated_rows.when,
        "looping_cursor" => &mut faults.looping_cursor.when,
        "empty_page" => &mut faults.empty_page.when,
        "dead_tokens" => &mut faults.dead_tokens.when,
        _ => return None,
    })
}

impl Strikes {
    /// Forgets the counts of schedules that differ in the new faults.
    pub(crate) fn forget_changed(&mut self, current: &Faults, new: &Faults) {
        for ((name, current), (_, new)) in schedules(current).into_iter().zip(schedules(new)) {
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

impl Service {
    /// Returns true if the fault strikes this request. A call counts the request, unless no schedule is set or the path
    /// does not match. It reduces `skip`, or else `count`, by one. If both are 0, it counts for `every` and
    /// `probability`.
    pub(super) fn strikes(&self, name: &'static str, path: &str) -> bool {
        let mut current = lock(&self.faults);
        let Some((_, when)) = schedules(&current).into_iter().find(|(known, _)| *known == name) else { return false };
        let is_set = when.probability > 0.0 || when.every > 0 || when.count > 0;
        if !is_set || !path.starts_with(&when.path) {
            return false;
        }
        let when = when.clone();
        if when.skip == 0 && when.count == 0 {
            return lock(&self.strikes).count_and_draw(name, &when, current.seed);
        }
        let mut faults = Faults::clone(&current);
        if let Some(when) = schedule_mut(&mut faults, name) {
            if when.skip > 0 {
                when.skip -= 1;
            } else {
                when.count -= 1;
            }
        }
        *current = Arc::new(faults);
        when.skip == 0
    }

    /// Returns the refusal by the rate limit, or by a fault that answers before the request is read. `None` if nothing
    /// refuses the request.
    pub(super) fn refuse(&self, faults: &Faults, path: &str) -> Option<Reply> {
        if let Some(refusal) = self.limit_rate(&faults.rate_limit) {
            return Some(refusal);
        }
        self.strike(faults, path)
    }

    /// Returns the refusal by a fault that answers before the request is read; `None` if no such fault strikes. The
    /// rate limit is not checked here.
    pub(super) fn strike(&self, faults: &Faults, path: &str) -> Option<Reply> {
        if self.strikes("too_many_requests", path) {
            let refusal = self.refusal(StatusCode::TOO_MANY_REQUESTS, faults.too_many_requests.retry_after);
            return Some(refusal.struck_by("too_many_requests"));
        }
        if self.strikes("server_error", path) {
            // The settings allow only 400 to 599.
            let status = StatusCode::from_u16(faults.server_error.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            return Some(Reply::error(status, "internal error").struck_by("server_error"));
        }
        if self.strikes("unavailable", path) {
            let refusal = self.refusal(StatusCode::SERVICE_UNAVAILABLE, faults.unavailable.retry_after);
            return Some(refusal.struck_by("unavailable"));
        }
        None
    }

    /// Returns the 429 of the rate limit; `None` if the request is within the limit. If there are too many concurrent
    /// requests, no token is taken.
    fn limit_rate(&self, limit: &RateLimit) -> Option<Reply> {
        let (_, in_flight, _) = self.log.counts();
        let is_crowded = limit.in_flight_max > 0 && in_flight > limit.in_flight_max;
        let wait_us = if is_crowded { 0 } else { lock(&self.bucket).take(limit, self.clock.elapsed_us()).err()? };
        let wait_ms = wait_us.div_ceil(1000).max(limit.min_wait_ms);
        let refusal = self.refusal(StatusCode::TOO_MANY_REQUESTS, RetryAfter { form: limit.form, wait_ms });
        Some(refusal.struck_by("rate_limit"))
    }

    /// Creates a 429 or 503 with a `Retry-After`.
    fn refusal(&self, status: StatusCode, retry_after: RetryAfter) -> Reply {
        let message = match status {
            StatusCode::TOO_MANY_REQUESTS => "too many requests",
            _ => "service unavailable",
        };
        Reply { retry_after: self.retry_after(retry_after), ..Reply::error(status, message) }
    }
}
