//! Decides which events to notify: changes of the state, and a lasting failure again after `again_after`. Pure.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    config::NotifyEvent,
    model::{DAY_MS, is_in_future},
    pipeline::RunReason,
    sync_status::{FailedRun, RunSummary, is_retried},
};

/// The state of the runs that was last notified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RunState {
    #[default]
    #[serde(rename = "well")]
    Good,
    NeedsALook,
    Failed,
}

/// The maximum age of a killed run that is notified. An older one is no news any more.
const KILLED_MS_MAX: i64 = 7 * DAY_MS;
/// Maximum killed runs that are remembered: as many as the history of runs has.
const KILLED_RUNS_MAX: usize = 1000;

/// The facts outside a run that decide which events the run causes.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunContext<'a> {
    /// True if the run's failure is tolerated, because the run is retried.
    pub is_tolerated: bool,
    /// The number of failed runs that no later run resolved.
    pub failures_in_a_row: u32,
    /// Failed runs in a row before a failure is notified.
    pub after_failures: u32,
    /// The newest failed run that no later run resolved; `None` if there is none.
    pub unresolved_failure: Option<&'a RunSummary>,
    /// A lasting failure is notified again after this time.
    pub again_after: Duration,
    /// Epoch milliseconds.
    pub now_ms: i64,
}

/// The state that people were last notified of, and the runs that were considered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct NotifiedState {
    pub state: RunState,
    /// The code of the failure's reason; empty without a failure.
    pub reason: String,
    /// The text of the finding that needs a look; empty without one.
    pub text: String,
    /// When the last notification was decided, or the last run that set the state to `Good` if that is later, in epoch
    /// milliseconds.
    pub at_ms: i64,
    /// The run that failed. The command is empty if an earlier version wrote the file.
    #[serde(flatten)]
    pub failed: FailedRun,
    /// The start of the newest killed run that was considered, epoch milliseconds.
    pub killed_ms: i64,
    /// The killed runs that were considered, the newest last.
    pub killed_run_ids: Vec<String>,
    /// The run that was considered last.
    pub run_id: String,
    /// When people were last notified that the report cannot be written, epoch milliseconds; `None` if it was written
    /// since.
    pub report_failed_ms: Option<i64>,
}

impl NotifiedState {
    /// Returns the events of a run and updates the state. Returns no event if the run was considered before, if its
    /// failure is tolerated, or if it was skipped, stopped or interrupted.
    pub fn events_for_run(&mut self, run: &RunSummary, context: &RunContext) -> Vec<NotifyEvent> {
        if self.run_id == run.run_id {
            return Vec::new();
        }
        self.run_id.clone_from(&run.run_id);
        match () {
            () if run.is_failure() && context.is_tolerated => Vec::new(),
            () if run.is_failure() => self.events_for_failure(run, context),
            () if run.is_success() => self.events_for_success(run, context),
            // A skipped, stopped or interrupted run proves nothing.
            () => Vec::new(),
        }
    }

    /// Returns the events of a killed run, which could not notify itself, and updates the state. Returns no event for
    /// an old run, or for a run that was considered before.
    pub fn events_for_killed_run(&mut self, run: &RunSummary, context: &RunContext) -> Vec<NotifyEvent> {
        let is_recent = context.now_ms.saturating_sub(run.started_ms) < KILLED_MS_MAX;
        // A start in the future is that of a clock that was ahead, and is later than every other run's.
        let is_before = run.started_ms <= self.killed_ms && !is_in_future(self.killed_ms, context.now_ms);
        let is_known = is_before || self.killed_run_ids.contains(&run.run_id);
        if !self.killed_run_ids.contains(&run.run_id) {
            self.killed_run_ids.push(run.run_id.clone());
            self.killed_run_ids.drain(..self.killed_run_ids.len().saturating_sub(KILLED_RUNS_MAX));
        }
        if is_known || !is_recent {
            return Vec::new();
        }
        self.killed_ms = run.started_ms;
        self.events_for_failure(run, context)
    }

    /// Returns the events of an attempt to write the report, and updates the state: as for runs, a lasting failure is
    /// notified again after `again_after`, and its end once.
    pub fn events_for_report(&mut self, is_written: bool, again_after: Duration, now_ms: i64) -> Vec<NotifyEvent> {
        let notified_ms = self.report_failed_ms;
        match is_written {
            true => {
                self.report_failed_ms = None;
                let recovered = notified_ms.map(|_| NotifyEvent::Recovered);
                recovered.into_iter().chain([NotifyEvent::Report]).collect()
            }
            false if notified_ms.is_some_and(|at_ms| is_recent(at_ms, again_after, now_ms)) => Vec::new(),
            false => {
                self.report_failed_ms = Some(now_ms);
                vec![NotifyEvent::Failed]
            }
        }
    }

    /// Returns `Failed`, unless a failure with the same reason was notified less than `again_after` ago, or the next
    /// attempt may succeed and there were fewer than `after_failures` failures.
    fn events_for_failure(&mut self, run: &RunSummary, context: &RunContext) -> Vec<NotifyEvent> {
        // A killed run counts, even if a later run has resolved it.
        let failures = context.failures_in_a_row.max(1);
        let may_pass = run.reason.is_none_or(is_retried) && failures < context.after_failures;
        if may_pass && self.state != RunState::Failed {
            return Vec::new();
        }
        let reason = run.reason.map(RunReason::name).unwrap_or_default();
        let is_recent = is_recent(self.at_ms, context.again_after, context.now_ms);
        let is_known = self.state == RunState::Failed && self.reason == reason && is_recent;
        self.failed = run.as_failed();
        if is_known {
            return Vec::new();
        }
        self.set(RunState::Failed, reason, "", context.now_ms);
        vec![NotifyEvent::Failed]
    }

    /// Returns `Recovered` if the run resolves the notified failure and no other failure is unresolved. Returns
    /// `NeedsALook` for a new finding.
    fn events_for_success(&mut self, run: &RunSummary, context: &RunContext) -> Vec<NotifyEvent> {
        let now_ms = context.now_ms;
        let mut events = Vec::new();
        if self.state == RunState::Failed {
            if !run.resolves(&self.failed) {
                return events;
            }
            if let Some(failure) = context.unresolved_failure {
                // The failure of another command is still unresolved.
                self.failed = failure.as_failed();
                return events;
            }
            events.push(NotifyEvent::Recovered);
        }
        if run.exit_code == Some(0) {
            self.set(RunState::Good, "", "", now_ms);
            return events;
        }
        let text = run.sentence();
        if self.state != RunState::NeedsALook || self.text != text {
            self.set(RunState::NeedsALook, "", &text, now_ms);
            events.push(NotifyEvent::NeedsALook);
        }
        events
    }

    fn set(&mut self, state: RunState, reason: &str, text: &str, now_ms: i64) {
        (self.state, self.at_ms) = (state, now_ms);
        (self.reason, self.text) = (reason.to_owned(), text.to_owned());
    }
}

/// Returns true if `at_ms` is less than `again_after` ago. A clock that was set back gives a negative age, which is not
/// recent.
fn is_recent(at_ms: i64, again_after: Duration, now_ms: i64) -> bool {
    let again_ms = i64::try_from(again_after.as_millis()).unwrap_or(i64::MAX);
    (0..again_ms).contains(&now_ms.saturating_sub(at_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: i64 = 3_600_000;
    const DAY: Duration = Duration::from_secs(23 * 3600);

    /// Plays runs at given hours and returns the events of each.
    struct Simulation {
        state: NotifiedState,
        count: i64,
        failures_in_a_row: u32,
        after_failures: u32,
    }

    impl Simulation {
        fn run(&mut self, hours: i64, reason: Option<RunReason>, why: &str) -> Vec<&'static str> {
            self.play(hours, reason, why, false)
        }

        fn play(&mut self, hours: i64, reason: Option<RunReason>, why: &str, is_tolerated: bool) -> Vec<&'static str> {
            self.count += 1;
            let exit_code = match reason {
                None => 0,
                Some(RunReason::NeedsALook) => 3,
                Some(RunReason::LeaseHeld) => 5,
                Some(_) => 1,
            };
            let run = RunSummary {
                run_id: self.count.to_string(),
                command: "sync".to_owned(),
                started_ms: 0,
                finished_ms: Some(1),
                exit_code: Some(exit_code),
                reason,
                why: Some(why.to_owned()),
                has_sent_requests: true,
                ..RunSummary::default()
            };
            self.events(&run, hours, is_tolerated, None)
        }

        fn events(
            &mut self,
            run: &RunSummary,
            hours: i64,
            is_tolerated: bool,
            unresolved_failure: Option<&RunSummary>,
        ) -> Vec<&'static str> {
            let context = RunContext {
                is_tolerated,
                failures_in_a_row: self.failures_in_a_row,
                after_failures: self.after_failures,
                unresolved_failure,
                again_after: DAY,
                now_ms: hours * HOUR_MS,
            };
            let events = self.state.events_for_run(run, &context);
            assert!(self.state.events_for_run(run, &context).is_empty(), "a run causes its events once");
            events.into_iter().map(NotifyEvent::name).collect()
        }
    }

    fn simulation() -> Simulation {
        let state = NotifiedState { at_ms: -1, ..NotifiedState::default() };
        Simulation { state, count: 0, failures_in_a_row: 1, after_failures: 1 }
    }

    const NONE: [&str; 0] = [];
    const NO_FAILURE: RunContext<'static> = RunContext {
        is_tolerated: false,
        failures_in_a_row: 1,
        after_failures: 1,
        unresolved_failure: None,
        again_after: DAY,
        now_ms: 0,
    };

    #[test]
    fn a_failure_is_notified_daily_and_its_end_once() {
        let (mut simulation, down, key) = (simulation(), Some(RunReason::ServiceFailed), Some(RunReason::KeyRefused));
        assert_eq!(simulation.run(0, None, ""), NONE, "all is well");
        assert_eq!(simulation.run(24, down, "a"), ["failed"]);
        assert_eq!(simulation.run(25, down, "b"), NONE, "the same reason within a day");
        assert_eq!(simulation.run(26, key, "c"), ["failed"], "another reason");
        assert_eq!(simulation.run(48, key, "c"), NONE);
        assert_eq!(simulation.run(49, key, "c"), ["failed"], "the next night");
        assert_eq!(simulation.run(50, Some(RunReason::LeaseHeld), "d"), NONE, "a skipped run proves nothing");
        assert_eq!(simulation.run(72, None, ""), ["recovered"]);
        assert_eq!(simulation.run(96, None, ""), NONE);
    }

    #[test]
    fn a_tolerated_failure_is_not_notified() {
        let (mut simulation, down) = (simulation(), Some(RunReason::ServiceFailed));
        assert_eq!(simulation.play(0, down, "a", true), NONE);
        assert_eq!(simulation.run(1, None, ""), NONE, "the failure was not notified, so no recovery is");
        assert_eq!(simulation.play(24, down, "a", true), NONE);
        assert_eq!(simulation.run(25, down, "a"), ["failed"]);
    }

    #[test]
    fn a_failure_is_notified_after_so_many_runs() {
        let (mut simulation, down, key) = (simulation(), Some(RunReason::ServiceFailed), Some(RunReason::KeyRefused));
        simulation.after_failures = 3;
        let mut run = |failures_in_a_row, hours, reason| {
            simulation.failures_in_a_row = failures_in_a_row;
            simulation.run(hours, reason, "a")
        };
        assert_eq!(run(1, 1, down), NONE);
        assert_eq!(run(0, 2, None), NONE, "the failure was not notified, so no recovery is");
        assert_eq!((run(1, 25, down), run(2, 26, down)), (vec![], vec![]));
        assert_eq!(run(3, 27, down), ["failed"]);
        assert_eq!(run(0, 28, None), ["recovered"]);
        assert_eq!(run(1, 49, key), ["failed"], "no repetition helps");
    }

    #[test]
    fn a_finding_is_notified_when_its_text_changes() {
        let (mut simulation, look) = (simulation(), Some(RunReason::NeedsALook));
        assert_eq!(simulation.run(0, look, "a"), ["needs_a_look"]);
        assert_eq!(simulation.run(24, look, "a"), NONE);
        assert_eq!(simulation.run(48, look, "b"), ["needs_a_look"]);
        assert_eq!(simulation.run(72, Some(RunReason::DiskFull), ""), ["failed"]);
        assert_eq!(simulation.run(96, look, "b"), ["recovered", "needs_a_look"]);
        assert_eq!(simulation.run(120, None, ""), NONE);
        assert_eq!(simulation.run(144, look, "b"), ["needs_a_look"]);
    }

    #[test]
    fn recovery_is_notified_when_no_failure_is_left() {
        let mut simulation = simulation();
        let run = |id: &str, command: &str, exit_code, has_sent_requests| RunSummary {
            run_id: id.to_owned(),
            command: command.to_owned(),
            started_ms: 0,
            finished_ms: Some(1),
            exit_code: Some(exit_code),
            reason: (exit_code == 1).then_some(RunReason::ServiceFailed),
            has_sent_requests,
            ..RunSummary::default()
        };
        let failed = run("1", "sync", 1, true);
        assert_eq!(simulation.events(&failed, 0, false, None), ["failed"]);
        assert_eq!(simulation.events(&run("2", "sync", 0, false), 1, false, None), NONE, "it sent no request");
        assert_eq!(simulation.events(&run("3", "backfill", 0, true), 2, false, None), NONE, "it is another command");
        assert_eq!(simulation.events(&run("4", "backfill", 1, true), 3, false, None), NONE, "the same reason");
        assert_eq!(
            simulation.events(&run("5", "backfill", 0, true), 4, false, Some(&failed)),
            NONE,
            "the failure of sync is unresolved"
        );
        assert_eq!(simulation.events(&run("6", "backfill", 0, true), 5, false, None), NONE, "sync has not succeeded");
        assert_eq!(simulation.events(&run("7", "sync", 0, true), 6, false, None), ["recovered"]);
    }

    #[test]
    fn a_failed_report_is_notified_daily_and_its_end_once() {
        let mut state = NotifiedState::default();
        let mut events = |is_written: bool, hours: i64| -> Vec<&'static str> {
            state.events_for_report(is_written, DAY, hours * HOUR_MS).into_iter().map(NotifyEvent::name).collect()
        };
        assert_eq!(events(true, 0), ["report"]);
        assert_eq!(events(false, 24), ["failed"]);
        assert_eq!(events(false, 25), NONE);
        assert_eq!(events(false, 47), ["failed"]);
        assert_eq!(events(true, 48), ["recovered", "report"]);
        assert_eq!(events(true, 72), ["report"]);
    }

    #[test]
    fn a_killed_run_is_notified_once_within_a_week() {
        let mut state = NotifiedState { at_ms: -1, ..NotifiedState::default() };
        let mut events = |started_hours: i64, hours: i64| {
            let run = RunSummary {
                run_id: started_hours.to_string(),
                command: "sync".to_owned(),
                started_ms: started_hours * HOUR_MS,
                finished_ms: None,
                outcome: "killed".to_owned(),
                exit_code: None,
                reason: Some(RunReason::RunKilled),
                has_sent_requests: true,
                ..RunSummary::default()
            };
            let now_ms = hours * HOUR_MS;
            let context = RunContext { is_tolerated: true, now_ms, ..NO_FAILURE };
            state.events_for_killed_run(&run, &context).len()
        };
        assert_eq!(events(1, 24 * 8), 0, "a week ago");
        assert_eq!((events(200, 201), events(200, 260)), (1, 0));
        assert_eq!((events(202, 203), events(224, 225)), (0, 1), "the same reason, and the next night");
    }

    #[test]
    fn a_killed_run_of_the_future_hides_no_later_one() {
        let mut state = NotifiedState { at_ms: -1, ..NotifiedState::default() };
        let mut events = |started_hours: i64, now_hours: i64| {
            let run = RunSummary {
                run_id: started_hours.to_string(),
                started_ms: started_hours * HOUR_MS,
                reason: Some(RunReason::RunKilled),
                ..RunSummary::default()
            };
            let now_ms = now_hours * HOUR_MS;
            let context = RunContext { is_tolerated: true, now_ms, ..NO_FAILURE };
            state.events_for_killed_run(&run, &context).len()
        };
        assert_eq!(events(90_000, 90_001), 1, "the clock is ten years ahead");
        assert_eq!((events(90_000, 100), events(101, 102)), (0, 1), "it was set right, and another run was killed");
        assert_eq!((events(90_000, 200), events(101, 200)), (0, 0), "each was notified");
    }

    #[test]
    fn a_clock_that_is_set_back_suppresses_no_event() {
        let (mut simulation, down) = (simulation(), Some(RunReason::ServiceFailed));
        assert_eq!(simulation.run(1000, down, "a"), ["failed"]);
        assert_eq!(simulation.run(24, down, "a"), ["failed"]);
        assert_eq!(simulation.run(25, down, "a"), NONE);
    }
}
