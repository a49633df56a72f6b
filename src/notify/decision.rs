//! What is worth telling: changes of state, and not every night the same. Pure.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    config::NotifyEvent,
    model::DAY_MS,
    sync_status::{FailedRun, RunSummary},
};

/// The state of the runs as it was last told, or would have been.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    #[default]
    Well,
    NeedsALook,
    Failed,
}

/// A killed run of which nobody was told for so long is news no more.
const KILLED_MS_MAX: i64 = 7 * DAY_MS;

/// What a run is judged by beside its own end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Circumstances<'a> {
    /// The run's failure is still retried.
    pub is_tolerated: bool,
    /// The newest failure that no later run has made good.
    pub failure_left: Option<&'a RunSummary>,
    /// A failure that stays is told again after this time.
    pub again_after: Duration,
    /// Epoch milliseconds.
    pub now_ms: i64,
}

/// What was told last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Told {
    pub state: State,
    /// The reason of the failure.
    pub reason: String,
    /// What needs a look.
    pub text: String,
    /// When, epoch milliseconds.
    pub at_ms: i64,
    /// The run that failed; with an empty command, one that an earlier version told.
    #[serde(flatten)]
    pub failed: FailedRun,
    /// When the newest killed run began that was judged, epoch milliseconds.
    pub killed_ms: i64,
    /// The run that was judged last.
    pub run_id: String,
}

impl Told {
    /// What the run calls for; what was told becomes that.
    pub fn judge(&mut self, run: &RunSummary, circumstances: &Circumstances) -> Vec<NotifyEvent> {
        if self.run_id == run.run_id {
            return Vec::new();
        }
        self.run_id.clone_from(&run.run_id);
        match () {
            () if run.is_failure() && circumstances.is_tolerated => Vec::new(),
            () if run.is_failure() => self.judge_failure(run, circumstances),
            () if run.is_success() => self.judge_success(run, circumstances),
            // It was left out, stopped early or interrupted: that says nothing.
            () => Vec::new(),
        }
    }

    /// What a run calls for that was killed, so that it could not tell of itself.
    pub fn judge_killed(&mut self, run: &RunSummary, circumstances: &Circumstances) -> Vec<NotifyEvent> {
        let is_news = circumstances.now_ms.saturating_sub(run.started_ms) < KILLED_MS_MAX;
        if run.started_ms <= self.killed_ms || !is_news {
            return Vec::new();
        }
        self.killed_ms = run.started_ms;
        self.judge_failure(run, circumstances)
    }

    fn judge_failure(&mut self, run: &RunSummary, circumstances: &Circumstances) -> Vec<NotifyEvent> {
        let Circumstances { again_after, now_ms, .. } = *circumstances;
        let reason = reason_of(run);
        let again_ms = i64::try_from(again_after.as_millis()).unwrap_or(i64::MAX);
        // A clock that was set back does not silence it.
        let is_recent = (0..again_ms).contains(&now_ms.saturating_sub(self.at_ms));
        let is_known = self.state == State::Failed && self.reason == reason && is_recent;
        self.failed = run.as_failed();
        if is_known {
            return Vec::new();
        }
        self.note(State::Failed, reason, "", now_ms);
        vec![NotifyEvent::Failed]
    }

    fn judge_success(&mut self, run: &RunSummary, circumstances: &Circumstances) -> Vec<NotifyEvent> {
        let now_ms = circumstances.now_ms;
        let mut events = Vec::new();
        if self.state == State::Failed {
            if !run.resolves(&self.failed) {
                return events;
            }
            if let Some(left) = circumstances.failure_left {
                // Another command has still to make good its own.
                self.failed = left.as_failed();
                return events;
            }
            events.push(NotifyEvent::Recovered);
        }
        if run.exit_code == Some(0) {
            self.note(State::Well, "", "", now_ms);
            return events;
        }
        let text = run.sentence();
        if self.state != State::NeedsALook || self.text != text {
            self.note(State::NeedsALook, "", &text, now_ms);
            events.push(NotifyEvent::NeedsALook);
        }
        events
    }

    /// Remembers what is told now.
    fn note(&mut self, state: State, reason: &str, text: &str, now_ms: i64) {
        (self.state, self.at_ms) = (state, now_ms);
        (self.reason, self.text) = (reason.to_owned(), text.to_owned());
    }
}

fn reason_of(run: &RunSummary) -> &'static str {
    run.reason.map(crate::pipeline::RunReason::name).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::RunReason;

    const HOUR_MS: i64 = 3_600_000;
    const DAY: Duration = Duration::from_secs(23 * 3600);

    /// Plays runs, one each so many hours, and returns what each called for.
    struct Nights {
        told: Told,
        count: i64,
    }

    impl Nights {
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
                outcome: String::new(),
                exit_code: Some(exit_code),
                reason,
                why: Some(why.to_owned()),
                hint: None,
                warnings: Vec::new(),
                has_sent_requests: true,
                narrowed_to: None,
            };
            self.judge(&run, hours, is_tolerated, None)
        }

        fn judge(
            &mut self,
            run: &RunSummary,
            hours: i64,
            is_tolerated: bool,
            failure_left: Option<&RunSummary>,
        ) -> Vec<&'static str> {
            let circumstances = Circumstances { is_tolerated, failure_left, again_after: DAY, now_ms: hours * HOUR_MS };
            let events = self.told.judge(run, &circumstances);
            assert!(self.told.judge(run, &circumstances).is_empty(), "a run is judged once");
            events.into_iter().map(NotifyEvent::name).collect()
        }
    }

    fn nights() -> Nights {
        Nights { told: Told { at_ms: -1, ..Told::default() }, count: 0 }
    }

    const NONE: [&str; 0] = [];

    #[test]
    fn a_failure_is_told_at_once_then_daily_and_its_end_once() {
        let (mut nights, down, key) = (nights(), Some(RunReason::ServiceFailed), Some(RunReason::KeyRefused));
        assert_eq!(nights.run(0, None, ""), NONE, "all is well");
        assert_eq!(nights.run(24, down, "a"), ["failed"]);
        assert_eq!(nights.run(25, down, "b"), NONE, "the same within a day");
        assert_eq!(nights.run(26, key, "c"), ["failed"], "another reason");
        assert_eq!(nights.run(48, key, "c"), NONE);
        assert_eq!(nights.run(49, key, "c"), ["failed"], "the next night");
        assert_eq!(nights.run(50, Some(RunReason::LeaseHeld), "d"), NONE, "left out: neither good nor bad");
        assert_eq!(nights.run(72, None, ""), ["recovered"]);
        assert_eq!(nights.run(96, None, ""), NONE);
    }

    #[test]
    fn a_failure_that_is_still_retried_is_not_told() {
        let (mut nights, down) = (nights(), Some(RunReason::ServiceFailed));
        assert_eq!(nights.play(0, down, "a", true), NONE);
        assert_eq!(nights.run(1, None, ""), NONE, "nobody was told, so nothing has recovered");
        assert_eq!(nights.play(24, down, "a", true), NONE);
        assert_eq!(nights.run(25, down, "a"), ["failed"]);
    }

    #[test]
    fn what_needs_a_look_is_told_when_it_is_something_else() {
        let (mut nights, look) = (nights(), Some(RunReason::NeedsALook));
        assert_eq!(nights.run(0, look, "a"), ["needs_a_look"]);
        assert_eq!(nights.run(24, look, "a"), NONE);
        assert_eq!(nights.run(48, look, "b"), ["needs_a_look"]);
        assert_eq!(nights.run(72, Some(RunReason::DiskFull), ""), ["failed"]);
        assert_eq!(nights.run(96, look, "b"), ["recovered", "needs_a_look"]);
        assert_eq!(nights.run(120, None, ""), NONE);
        assert_eq!(nights.run(144, look, "b"), ["needs_a_look"]);
    }

    #[test]
    fn recovery_is_told_when_no_failure_is_left() {
        let mut nights = nights();
        let run = |id: &str, command: &str, exit_code, has_sent_requests| RunSummary {
            run_id: id.to_owned(),
            command: command.to_owned(),
            started_ms: 0,
            finished_ms: Some(1),
            outcome: String::new(),
            exit_code: Some(exit_code),
            reason: (exit_code == 1).then_some(RunReason::ServiceFailed),
            why: None,
            hint: None,
            warnings: Vec::new(),
            has_sent_requests,
            narrowed_to: None,
        };
        let failed = run("1", "sync", 1, true);
        assert_eq!(nights.judge(&failed, 0, false, None), ["failed"]);
        assert_eq!(nights.judge(&run("2", "sync", 0, false), 1, false, None), NONE, "it sent no request");
        assert_eq!(nights.judge(&run("3", "backfill", 0, true), 2, false, None), NONE, "it is another command");
        assert_eq!(nights.judge(&run("4", "backfill", 1, true), 3, false, None), NONE, "the same reason");
        assert_eq!(nights.judge(&run("5", "backfill", 0, true), 4, false, Some(&failed)), NONE, "sync is left");
        assert_eq!(nights.judge(&run("6", "backfill", 0, true), 5, false, None), NONE, "it is not sync");
        assert_eq!(nights.judge(&run("7", "sync", 0, true), 6, false, None), ["recovered"]);
    }

    #[test]
    fn a_killed_run_is_told_once_and_only_while_it_is_news() {
        let mut told = Told { at_ms: -1, ..Told::default() };
        let mut judge = |started_hours: i64, hours: i64| {
            let run = RunSummary {
                run_id: started_hours.to_string(),
                command: "sync".to_owned(),
                started_ms: started_hours * HOUR_MS,
                finished_ms: None,
                outcome: "killed".to_owned(),
                exit_code: None,
                reason: Some(RunReason::RunKilled),
                why: None,
                hint: None,
                warnings: Vec::new(),
                has_sent_requests: true,
                narrowed_to: None,
            };
            let now_ms = hours * HOUR_MS;
            let circumstances = Circumstances { is_tolerated: true, failure_left: None, again_after: DAY, now_ms };
            told.judge_killed(&run, &circumstances).len()
        };
        assert_eq!(judge(1, 24 * 8), 0, "a week ago");
        assert_eq!((judge(200, 201), judge(200, 260)), (1, 0));
        assert_eq!((judge(202, 203), judge(224, 225)), (0, 1), "the same reason, and the next night");
    }

    #[test]
    fn a_clock_that_is_set_back_silences_nothing() {
        let (mut nights, down) = (nights(), Some(RunReason::ServiceFailed));
        assert_eq!(nights.run(1000, down, "a"), ["failed"]);
        assert_eq!(nights.run(24, down, "a"), ["failed"]);
        assert_eq!(nights.run(25, down, "a"), NONE);
    }
}
