//! What is worth telling: changes of state, and not every night the same. Pure.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{config::NotifyEvent, standing::RunSummary};

/// The state of the runs as it was last told, or would have been.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    #[default]
    Well,
    NeedsALook,
    Failed,
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
    /// The run that was judged last.
    pub run_id: String,
}

impl Told {
    /// What the run calls for; what was told becomes that. `is_tolerated`: the failure is still retried.
    pub fn judge(
        &mut self,
        run: &RunSummary,
        is_tolerated: bool,
        again_after: Duration,
        now_ms: i64,
    ) -> Vec<NotifyEvent> {
        if self.run_id == run.run_id {
            return Vec::new();
        }
        self.run_id.clone_from(&run.run_id);
        match () {
            () if run.is_failure() && is_tolerated => Vec::new(),
            () if run.is_failure() => self.judge_failure(run, again_after, now_ms),
            () if run.is_success() => self.judge_success(run, now_ms),
            // It was left out, stopped early or interrupted: that says nothing.
            () => Vec::new(),
        }
    }

    fn judge_failure(&mut self, run: &RunSummary, again_after: Duration, now_ms: i64) -> Vec<NotifyEvent> {
        let reason = run.reason.map(crate::pipeline::RunReason::name).unwrap_or_default();
        let again_ms = i64::try_from(again_after.as_millis()).unwrap_or(i64::MAX);
        // A clock that was set back does not silence it.
        let is_recent = (0..again_ms).contains(&now_ms.saturating_sub(self.at_ms));
        if self.state == State::Failed && self.reason == reason && is_recent {
            return Vec::new();
        }
        self.note(State::Failed, reason, "", now_ms);
        vec![NotifyEvent::Failed]
    }

    fn judge_success(&mut self, run: &RunSummary, now_ms: i64) -> Vec<NotifyEvent> {
        let mut events = Vec::new();
        if self.state == State::Failed {
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

    fn note(&mut self, state: State, reason: &str, text: &str, now_ms: i64) {
        (self.state, self.at_ms) = (state, now_ms);
        (self.reason, self.text) = (reason.to_owned(), text.to_owned());
    }
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
                looks: Vec::new(),
            };
            let events = self.told.judge(&run, is_tolerated, DAY, hours * HOUR_MS);
            assert!(self.told.judge(&run, is_tolerated, DAY, hours * HOUR_MS).is_empty(), "a run is judged once");
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
    fn a_clock_that_is_set_back_silences_nothing() {
        let (mut nights, down) = (nights(), Some(RunReason::ServiceFailed));
        assert_eq!(nights.run(1000, down, "a"), ["failed"]);
        assert_eq!(nights.run(24, down, "a"), ["failed"]);
        assert_eq!(nights.run(25, down, "a"), NONE);
    }
}
