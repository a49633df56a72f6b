//! The health of the syncs: a list of reasons. Each reason has a stable code and a sentence.

use std::{fmt, time::Duration};

use serde::{Serialize, Serializer, ser::SerializeStruct as _};

use crate::{
    config::Settings,
    pipeline::{RunReason, has_archive, places},
};

use super::{LagCheck, RunSummary, Status};

// Codes of the reasons that do not come from the end of a run. [`RunReason`] has the codes of all other reasons.

/// Code of the reason that a stream is further behind than allowed.
pub const BEHIND: &str = "behind";
const NEVER_RAN: &str = "never_ran";
const DELIVERIES_NOT_STORED: &str = "deliveries_not_stored";
const DELIVERIES_WAITING: &str = "deliveries_waiting";
const REPORT_FAILED: &str = "report_failed";
const WAREHOUSE_MISSING: &str = "warehouse_missing";
const STATUS_UNREADABLE: &str = "standing_unknown";
/// Hint for a missing warehouse if there is an archive.
const REPLAY_BUILDS: &str = "run `studysync replay`: it builds the warehouse from the archive, without requests and with the \
                             earlier versions of answers; a sync builds it with requests";
/// Hint for a missing warehouse if there is no archive.
const SYNC_BUILDS: &str =
    "the next sync pulls every range again, with requests; there is no archive for `studysync replay`";
/// The default of the allowed lag: a nightly run that is two hours late.
pub const MAX_LAG: Duration = Duration::from_secs(26 * 3600);

/// One problem, or one fact that somebody should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HealthReason {
    /// One of [`reason_codes`].
    pub code: &'static str,
    /// True if this reason makes the health bad. False if it only informs.
    pub is_failing: bool,
    /// What happened.
    pub text: String,
    /// What to do, if there is something to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl HealthReason {
    fn new(code: &'static str, is_failing: bool, text: String) -> HealthReason {
        HealthReason { code, is_failing, text, hint: None }
    }

    /// Returns a reason for each configured warehouse without a file or folder. `has_coverage` is true if the
    /// checkpoints cover any range: before the first scan no warehouse is missing, and the list is empty.
    pub fn missing_warehouses(settings: &Settings, has_coverage: bool) -> Vec<HealthReason> {
        let missing = places(&settings.warehouse).into_iter().filter(|place| has_coverage && !place.exists());
        let reasons = missing.map(|place| {
            let hint = if has_archive(settings) { REPLAY_BUILDS } else { SYNC_BUILDS };
            let text =
                format!("there is no {} warehouse at {}: it is new here, or was lost", place.name(), place.location);
            HealthReason { hint: Some(hint.to_owned()), ..HealthReason::new(WAREHOUSE_MISSING, true, text) }
        });
        reasons.collect()
    }
}

/// Returns every code that a reason can have.
pub fn reason_codes() -> impl Iterator<Item = &'static str> {
    let others = [
        BEHIND,
        NEVER_RAN,
        DELIVERIES_NOT_STORED,
        DELIVERIES_WAITING,
        REPORT_FAILED,
        WAREHOUSE_MISSING,
        STATUS_UNREADABLE,
    ];
    RunReason::ALL.into_iter().map(RunReason::name).chain(others)
}

/// The limits of good health.
#[derive(Clone, Copy, Debug)]
pub struct HealthRules {
    /// The allowed lag of a stream; `None` disables the check.
    pub max_lag: Option<Duration>,
    /// Consecutive failed runs that do not make the health bad, because they are retried.
    pub failures_tolerated: u32,
}

impl HealthRules {
    /// Returns the rules for a single command. No failure is tolerated, because `serve` does not retry the run of a
    /// command.
    pub fn for_one_shot(settings: &Settings) -> HealthRules {
        HealthRules { max_lag: settings.serve.max_lag(MAX_LAG), failures_tolerated: 0 }
    }
}

/// The health in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HealthSummary {
    Healthy,
    /// No run has ended yet, and nothing failed.
    NoRunYet,
    NeedsALook,
    Failing,
}

impl fmt::Display for HealthSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HealthSummary::Healthy => "Healthy",
            HealthSummary::NoRunYet => "No run yet",
            HealthSummary::NeedsALook => "Needs a look",
            HealthSummary::Failing => "Failing",
        })
    }
}

/// The health of the syncs. Its JSON has `healthy` and `reasons`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// The reasons, the most urgent first.
    pub reasons: Vec<HealthReason>,
}

impl Serialize for Health {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Health", 2)?;
        fields.serialize_field("healthy", &self.is_healthy())?;
        fields.serialize_field("reasons", &self.reasons)?;
        fields.end()
    }
}

impl Health {
    /// Derives the health from the status by the rules.
    pub fn new(status: &Status, settings: &Settings, rules: HealthRules) -> Health {
        let reasons = HealthReason::missing_warehouses(settings, !status.scopes.is_empty());
        let mut health = Health { reasons };
        health.add_runs(status, rules);
        health.add_lags(status, settings, rules);
        if let Some(why) = status.serve.as_ref().and_then(|serve| serve.report_error.as_ref()) {
            health.add_report_failed(why);
        }
        health
    }

    /// Returns bad health, because the status cannot be read. `why` is the error.
    pub fn unknown(why: String) -> Health {
        Health { reasons: vec![HealthReason::new(STATUS_UNREADABLE, true, why)] }
    }

    /// Returns true if no reason makes the health bad.
    pub fn is_healthy(&self) -> bool {
        !self.reasons.iter().any(|reason| reason.is_failing)
    }

    /// Returns the health in one word.
    pub fn summary(&self) -> HealthSummary {
        match () {
            () if !self.is_healthy() => HealthSummary::Failing,
            () if self.has(NEVER_RAN) => HealthSummary::NoRunYet,
            () if !self.reasons.is_empty() => HealthSummary::NeedsALook,
            () => HealthSummary::Healthy,
        }
    }

    /// Returns true if there is a reason with this code.
    pub fn has(&self, code: &str) -> bool {
        self.reasons.iter().any(|reason| reason.code == code)
    }

    /// Returns true if the run failed and its failure makes the health bad.
    pub fn is_failing_for(&self, run: &RunSummary) -> bool {
        run.reason
            .is_some_and(|of_run| self.reasons.iter().any(|reason| reason.code == of_run.name() && reason.is_failing))
    }

    /// Adds the reason that the service refused the key at a start of `serve`, unless the last run met the same.
    pub fn add_key_refused(&mut self, why: String, hint: Option<String>) {
        let code = RunReason::KeyRefused.name();
        if !self.has(code) {
            self.reasons.insert(0, HealthReason { code, is_failing: true, text: why, hint });
        }
    }

    /// Adds the reason that deliveries of webhooks cannot be stored, as the most urgent one.
    pub fn add_deliveries_not_stored(&mut self) {
        let text = "deliveries of webhooks cannot be stored".to_owned();
        let hint = "check the disk that holds the state file (space, quota, errors); serve retries automatically";
        let hint = Some(hint.to_owned());
        self.reasons.insert(0, HealthReason { code: DELIVERIES_NOT_STORED, is_failing: true, text, hint });
    }

    /// Adds the reason that deliveries of webhooks are stored but cannot be written to the warehouses now. `why` is the
    /// error.
    pub fn add_deliveries_waiting(&mut self, why: String) {
        self.reasons.push(HealthReason::new(DELIVERIES_WAITING, false, why));
    }

    /// Adds the reason that `serve` cannot write the report of its schedule. `why` is the error.
    pub fn add_report_failed(&mut self, why: &str) {
        let text = format!("the report of the schedule cannot be written: {why}");
        let hint = Some("correct what the message names: serve tries again within five minutes".to_owned());
        self.reasons.push(HealthReason { hint, ..HealthReason::new(REPORT_FAILED, true, text) });
    }

    /// Adds the newest unresolved failure, and the findings of the last run.
    fn add_runs(&mut self, status: &Status, rules: HealthRules) {
        let Some(last) = &status.last_ended else {
            self.reasons.push(HealthReason::new(NEVER_RAN, false, "no run has ended yet".to_owned()));
            return;
        };
        // The last run does not matter here: a run that stopped early or was skipped does not resolve the failure of an
        // earlier run.
        let failed = status.last_failure.as_ref();
        if let Some((failed, reason)) = failed.and_then(|failed| Some((failed, failed.reason?))) {
            let is_failing = status.failures_in_a_row > rules.failures_tolerated || !is_retried(reason);
            let (text, hint) = (failed.sentence(), failed.hint.clone());
            self.reasons.push(HealthReason { code: reason.name(), is_failing, text, hint });
        }
        // Nobody waits any more for the run that held the lease.
        let is_over = |reason| reason == RunReason::LeaseHeld && status.running.is_none();
        if let Some(reason) = last.reason.filter(|reason| !reason.is_failure() && !is_over(*reason)) {
            let texts = if last.warnings.is_empty() { vec![last.sentence()] } else { last.warnings.clone() };
            let reasons = texts.into_iter().map(|text| HealthReason::new(reason.name(), false, text));
            self.reasons.extend(reasons.map(|reason| HealthReason { hint: last.hint.clone(), ..reason }));
        }
    }

    /// Adds a reason for each stream that is further behind than the rules allow.
    fn add_lags(&mut self, status: &Status, settings: &Settings, rules: HealthRules) {
        // Before the first successful run every stream is behind. This is expected and no reason.
        let (Some(max_lag), true) = (rules.max_lag, status.has_succeeded) else { return };
        let check = LagCheck::new(settings, max_lag, &status.scopes);
        // A stream that was just switched on is incomplete until its first run, which is no failure.
        let late = check.sentences().map(|(scope, text)| HealthReason::new(BEHIND, scope.lag_secs.is_some(), text));
        self.reasons.extend(late);
    }
}

/// Returns true if another attempt of a run with this reason may succeed, so that `serve` retries it before the next
/// scheduled run.
pub fn is_retried(reason: RunReason) -> bool {
    !matches!(reason, RunReason::KeyRefused | RunReason::Configuration)
}
