//! Why a run did not end as `done`, as one word of a fixed list, by which monitors count and alert.
//!
//! The outcomes of a run.

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    archive::ArchiveError,
    load::LoadError,
    source::{SourceError, Stop},
    state::StateError,
};

use super::PipelineError;

/// Why a run did not end as `done`. The names are contracts:
/// they stand in the run's JSON, in metrics and in notifications.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunReason {
    /// The service refused the key.
    KeyRefused,
    /// The service gave no answer, or an unusable one.
    ServiceFailed,
    /// The configuration, the command line, or a file that they name is invalid.
    Configuration,
    /// Another run holds the lease.
    LeaseHeld,
    /// Another program has the warehouse open.
    WarehouseLocked,
    /// The disk is full.
    DiskFull,
    /// A warehouse cannot be read or written.
    WarehouseFailed,
    /// The checkpoints cannot be read or written.
    StateFailed,
    /// Some windows, lists or users failed; the others are done.
    PartsFailed,
    /// Anything else that ends a run.
    RunFailed,
    /// The process was killed, or the machine stopped.
    RunKilled,
    /// Rejects, withheld deletions, collisions, or a clock that is days off.
    NeedsALook,
    /// The service requires a longer wait than the run's patience.
    RateLimited,
    /// A deadline or a request budget ended the run.
    StoppedEarly,
    /// A signal ended the run.
    Interrupted,
}

impl RunReason {
    /// Returns the name in JSON, metrics and notifications.
    pub fn name(self) -> &'static str {
        match self {
            RunReason::KeyRefused => "key_refused",
            RunReason::ServiceFailed => "service_failed",
            RunReason::Configuration => "configuration",
            RunReason::LeaseHeld => "lease_held",
            RunReason::WarehouseLocked => "warehouse_locked",
            RunReason::DiskFull => "disk_full",
            RunReason::WarehouseFailed => "warehouse_failed",
            RunReason::StateFailed => "state_failed",
            RunReason::PartsFailed => "parts_failed",
            RunReason::RunFailed => "run_failed",
            RunReason::RunKilled => "run_killed",
            RunReason::NeedsALook => "needs_a_look",
            RunReason::RateLimited => "rate_limited",
            RunReason::StoppedEarly => "stopped_early",
            RunReason::Interrupted => "interrupted",
        }
    }

    /// All reasons.
    pub const ALL: [RunReason; 15] = [
        RunReason::KeyRefused,
        RunReason::ServiceFailed,
        RunReason::Configuration,
        RunReason::LeaseHeld,
        RunReason::WarehouseLocked,
        RunReason::DiskFull,
        RunReason::WarehouseFailed,
        RunReason::StateFailed,
        RunReason::PartsFailed,
        RunReason::RunFailed,
        RunReason::RunKilled,
        RunReason::NeedsALook,
        RunReason::RateLimited,
        RunReason::StoppedEarly,
        RunReason::Interrupted,
    ];

    /// Returns the reason with this name, or `None` for an unknown name.
    pub fn named(name: &str) -> Option<RunReason> {
        RunReason::ALL.into_iter().find(|reason| reason.name() == name)
    }

    /// Returns the reason of an error that ended a run.
    pub fn of_error(error: &PipelineError) -> RunReason {
        match error {
            PipelineError::Config(_)
            | PipelineError::UnknownSurveys(_)
            | PipelineError::Source(SourceError::Settings(_)) => RunReason::Configuration,
            PipelineError::Source(SourceError::KeyRefused { .. }) => RunReason::KeyRefused,
            PipelineError::Source(SourceError::Stopped(stop)) => RunReason::of_stop(*stop),
            PipelineError::Source(_) => RunReason::ServiceFailed,
            PipelineError::State(StateError::Leased { .. }) => RunReason::LeaseHeld,
            PipelineError::Load { source: LoadError::Locked { .. }, .. } => RunReason::WarehouseLocked,
            PipelineError::Load { source: LoadError::Full { .. }, .. }
            | PipelineError::State(StateError::Full { .. })
            | PipelineError::Archive(ArchiveError::Full { .. }) => RunReason::DiskFull,
            error if error.exit_code() == 2 => RunReason::Configuration,
            PipelineError::Load { .. } => RunReason::WarehouseFailed,
            PipelineError::State(_) => RunReason::StateFailed,
            _ => RunReason::RunFailed,
        }
    }

    fn of_stop(stop: Stop) -> RunReason {
        match stop {
            Stop::Cancelled => RunReason::Interrupted,
            Stop::Patience { .. } => RunReason::RateLimited,
            Stop::Deadline { .. } | Stop::Budget { .. } => RunReason::StoppedEarly,
        }
    }

    /// Returns the reason of a run with this outcome, or `None` if everything is done.
    pub fn of(outcome: Outcome, error: Option<&PipelineError>, stop: Option<Stop>) -> Option<RunReason> {
        match (outcome, error, stop) {
            (_, Some(error), _) => Some(RunReason::of_error(error)),
            (Outcome::Done, ..) => None,
            (Outcome::NeedsALook, ..) => Some(RunReason::NeedsALook),
            (Outcome::Failed, ..) => Some(RunReason::PartsFailed),
            (_, _, Some(stop)) => Some(RunReason::of_stop(stop)),
            (Outcome::Interrupted, ..) => Some(RunReason::Interrupted),
            (Outcome::StoppedEarly, ..) => Some(RunReason::StoppedEarly),
        }
    }

    /// Returns true if a run with this reason failed. A run that found the lease taken, was stopped on purpose, or only
    /// needs a look has not failed.
    pub fn is_failure(self) -> bool {
        !matches!(
            self,
            RunReason::LeaseHeld
                | RunReason::NeedsALook
                | RunReason::RateLimited
                | RunReason::StoppedEarly
                | RunReason::Interrupted
        )
    }
}

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
