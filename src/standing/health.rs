//! Whether somebody has to be woken, and why:
//! a list of reasons, each with a stable code and the sentence that the run told.

use std::time::Duration;

use serde::Serialize;

use crate::{config::Settings, pipeline::RunReason};

use super::{Lag, RunSummary, Standing};

/// Codes of reasons that are not about the end of a run. The others are those of [`RunReason`].
const BEHIND: &str = "behind";
const NEVER_RAN: &str = "never_ran";
const DELIVERIES_NOT_STORED: &str = "deliveries_not_stored";
const DELIVERIES_WAITING: &str = "deliveries_waiting";
const STANDING_UNKNOWN: &str = "standing_unknown";
/// A stream is behind from here on, where nothing else is set: a nightly run that is two hours late.
pub const MAX_LAG: Duration = Duration::from_secs(26 * 3600);

/// Why something is wrong, or needs a look.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// One of [`codes`].
    pub code: &'static str,
    /// Whether it makes the whole unhealthy. The others are only named.
    pub is_failing: bool,
    /// What happened, in the words of the run.
    pub text: String,
    /// What to do about it, where there is a way out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Every code that a reason can have.
pub fn codes() -> impl Iterator<Item = &'static str> {
    let others = [BEHIND, NEVER_RAN, DELIVERIES_NOT_STORED, DELIVERIES_WAITING, STANDING_UNKNOWN];
    RunReason::ALL.into_iter().map(RunReason::name).chain(others)
}

/// What is still taken for healthy.
#[derive(Clone, Copy, Debug)]
pub struct HealthRules {
    /// How far a stream may be behind; `None`: that is not looked at.
    pub max_lag: Option<Duration>,
    /// Failed runs in a row that are still retried, and therefore only named.
    pub failures_tolerated: u32,
}

impl HealthRules {
    /// The rules of a run that nobody retries.
    pub fn of_one_shot(settings: &Settings) -> HealthRules {
        HealthRules { max_lag: settings.serve.max_lag(MAX_LAG), failures_tolerated: 0 }
    }
}

/// Whether somebody has to be woken, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Health {
    /// The most pressing first.
    pub reasons: Vec<Reason>,
}

impl Health {
    /// The health of what is known.
    pub fn of(standing: &Standing, settings: &Settings, rules: HealthRules) -> Health {
        let mut health = Health::default();
        health.judge_last_run(standing, rules);
        health.judge_lag(standing, settings, rules);
        health
    }

    /// Nothing is known of the runs.
    pub fn unknown(why: String) -> Health {
        let reason = Reason { code: STANDING_UNKNOWN, is_failing: true, text: why, hint: None };
        Health { reasons: vec![reason] }
    }

    /// Whether no reason makes it unhealthy.
    pub fn is_healthy(&self) -> bool {
        !self.reasons.iter().any(|reason| reason.is_failing)
    }

    /// Whether a reason of this code is there.
    pub fn has(&self, code: &str) -> bool {
        self.reasons.iter().any(|reason| reason.code == code)
    }

    /// Whether the run's failure makes it unhealthy.
    pub fn is_failing_for(&self, run: &RunSummary) -> bool {
        run.reason
            .is_some_and(|of_run| self.reasons.iter().any(|reason| reason.code == of_run.name() && reason.is_failing))
    }

    /// Deliveries of webhooks cannot be stored.
    pub fn deliveries_not_stored(&mut self) {
        let text = "deliveries of webhooks cannot be stored".to_owned();
        let hint =
            Some("look at the disk of the state file (space, quota, errors); serve tries again by itself".to_owned());
        self.reasons.insert(0, Reason { code: DELIVERIES_NOT_STORED, is_failing: true, text, hint });
    }

    /// Deliveries of webhooks are stored, and the warehouses cannot take them now.
    pub fn deliveries_waiting(&mut self, why: String) {
        self.reasons.push(Reason { code: DELIVERIES_WAITING, is_failing: false, text: why, hint: None });
    }

    fn judge_last_run(&mut self, standing: &Standing, rules: HealthRules) {
        let Some(last) = &standing.last_ended else {
            let text = "no run has ended yet".to_owned();
            self.reasons.push(Reason { code: NEVER_RAN, is_failing: false, text, hint: None });
            return;
        };
        // A run that was stopped early, or left out, does not make good what failed before it.
        let failed = standing.last_failure.as_ref();
        if let Some((failed, reason)) = failed.and_then(|failed| Some((failed, failed.reason?))) {
            let is_failing = standing.failures_in_a_row > rules.failures_tolerated || !is_retried(reason);
            let (text, hint) = (failed.sentence(), failed.hint.clone());
            self.reasons.push(Reason { code: reason.name(), is_failing, text, hint });
        }
        if let Some(reason) = last.reason.filter(|reason| !reason.is_failure()) {
            let texts = if last.looks.is_empty() { vec![last.sentence()] } else { last.looks.clone() };
            let named = texts.into_iter().map(|text| Reason {
                code: reason.name(),
                is_failing: false,
                text,
                hint: last.hint.clone(),
            });
            self.reasons.extend(named);
        }
    }

    fn judge_lag(&mut self, standing: &Standing, settings: &Settings, rules: HealthRules) {
        // Before the first complete night all is behind, and nobody has to be told.
        let (Some(max_lag), true) = (rules.max_lag, standing.has_succeeded()) else { return };
        let lag = Lag::of(settings, max_lag, &standing.scope_lags);
        let behind = lag.sentences().map(|(behind, text)| Reason {
            code: BEHIND,
            // A stream that was just switched on waits for its first night.
            is_failing: behind.lag_secs.is_some(),
            text,
            hint: None,
        });
        self.reasons.extend(behind);
    }
}

/// Whether `serve` tries a run again that ended so, before the next moment of its schedule.
fn is_retried(reason: RunReason) -> bool {
    !matches!(reason, RunReason::KeyRefused | RunReason::Configuration)
}
