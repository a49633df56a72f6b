//! Decides when a fault strikes.

use std::{collections::HashMap, sync::Arc};

use axum::http::StatusCode;

use super::{
    super::{
        faults::{Faults, Latency, Refusal, RetryAfter, When},
        random::{Random, mix},
    },
    Reply, Service, lock,
};

/// What the schedules have counted so far.
#[derive(Debug, Default)]
pub(crate) struct Strikes {
    seen: HashMap<&'static str, u64>,
    delayed: u64,
}

/// The schedule of a fault, by its name.
fn schedules(faults: &Faults) -> [(&'static str, &When); 11] {
    [
        ("too_many_requests", &faults.too_many_requests.when),
        ("server_error", &faults.server_error.when),
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

fn schedule_mut<'a>(faults: &'a mut Faults, name: &str) -> Option<&'a mut When> {
    Some(match name {
        "too_many_requests" => &mut faults.too_many_requests.when,
        "server_error" => &mut faults.server_error.when,
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
    /// Schedules that changed count from the beginning.
    pub(crate) fn forget_changed(&mut self, held: &Faults, new: &Faults) {
        for ((name, held), (_, new)) in schedules(held).into_iter().zip(schedules(new)) {
            if held != new {
                self.seen.remove(name);
            }
        }
    }

    /// How long this request takes beyond its work, in milliseconds.
    pub(crate) fn latency_ms(&mut self, faults: &Faults) -> u64 {
        let Latency { ms, jitter_ms, .. } = faults.latency;
        self.delayed += 1;
        ms.saturating_add(Random::new(faults.seed, self.delayed).below(jitter_ms.saturating_add(1)))
    }

    /// Whether the n-th request of a schedule is hit by probability or turn.
    fn is_turn(&mut self, name: &'static str, when: &When, seed: u64) -> bool {
        let seen = self.seen.entry(name).or_default();
        *seen += 1;
        let by_turn = when.every > 0 && (*seen).is_multiple_of(when.every);
        let purpose = name.bytes().fold(seed, |sum, byte| mix(sum, u64::from(byte)));
        by_turn || (when.probability > 0.0 && Random::new(purpose, *seen).chance(when.probability))
    }
}

impl Service {
    /// Whether a fault strikes now. Counts the request, and counts down what is limited.
    pub(super) fn strikes(&self, name: &'static str, path: &str) -> bool {
        let mut held = lock(&self.faults);
        let Some((_, when)) = schedules(&held).into_iter().find(|(known, _)| *known == name) else { return false };
        let is_set = when.probability > 0.0 || when.every > 0 || when.count > 0;
        if !is_set || !path.starts_with(&when.path) {
            return false;
        }
        let when = when.clone();
        if when.skip == 0 && when.count == 0 {
            return lock(&self.strikes).is_turn(name, &when, held.seed);
        }
        let mut faults = Faults::clone(&held);
        if let Some(when) = schedule_mut(&mut faults, name) {
            if when.skip > 0 {
                when.skip -= 1;
            } else {
                when.count -= 1;
            }
        }
        *held = Arc::new(faults);
        when.skip == 0
    }

    /// A refusal before the request is looked at, if its turn has come.
    pub(super) fn refuse(&self, faults: &Faults, path: &str) -> Option<Reply> {
        if let Err(wait_us) = lock(&self.bucket).take(&faults.rate_limit, self.clock.elapsed_us()) {
            let wait_ms = wait_us.div_ceil(1000).max(faults.rate_limit.min_wait_ms);
            let retry_after = self.retry_after(RetryAfter { form: faults.rate_limit.form, wait_ms });
            let reply = Reply::error(StatusCode::TOO_MANY_REQUESTS, "too many requests");
            return Some(Reply { retry_after, ..reply.struck_by("rate_limit") });
        }
        let refusals = [
            ("too_many_requests", &faults.too_many_requests, "too many requests"),
            ("server_error", &faults.server_error, "internal error"),
            ("unavailable", &faults.unavailable, "service unavailable"),
        ];
        let (name, refusal, message) = refusals.into_iter().find(|(name, ..)| self.strikes(name, path))?;
        Some(self.refusal(refusal, message).struck_by(name))
    }

    fn refusal(&self, refusal: &Refusal, message: &str) -> Reply {
        // The settings allow only 400 to 599.
        let status = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let retry_after = refusal.retry_after.and_then(|told| self.retry_after(told));
        Reply { retry_after, ..Reply::error(status, message) }
    }
}
