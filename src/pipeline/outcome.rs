//! The outcomes of a run.

use schemars::JsonSchema;
use serde::Serialize;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Everything that was due is done.
    Done,
    /// Done, and somebody must read a finding: rejects, withheld deletions, collisions.
    NeedsALook,
    /// Some windows failed; the others are done.
    Failed,
    /// Ended early at a deadline, a request budget or a rate limit; the next run resumes.
    StoppedEarly,
    /// Ended by Ctrl-C, SIGTERM or SIGHUP; the next run resumes.
    Interrupted,
}

impl Outcome {
    /// Returns the name in the run's JSON.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Done => "done",
            Outcome::NeedsALook => "needs_a_look",
            Outcome::Failed => "failed",
            Outcome::StoppedEarly => "stopped_early",
            Outcome::Interrupted => "interrupted",
        }
    }

    /// Returns the exit code of the command.
    pub fn exit_code(self) -> u8 {
        match self {
            Outcome::Done => 0,
            Outcome::Failed => 1,
            Outcome::NeedsALook => 3,
            Outcome::StoppedEarly => 6,
            Outcome::Interrupted => 130,
        }
    }
}
