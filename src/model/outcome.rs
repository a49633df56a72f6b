//! How a command ended: its outcome, and for an error its reason, its exit code and what to do about it.

use std::error::Error;

use schemars::JsonSchema;
use serde::Serialize;

use super::named::named;

/// An error that can end a command. Each enumeration of errors implements it beside its variants. An error that wraps
/// another delegates to it.
pub trait Fault: Error {
    /// Returns why the command failed. The reason decides the exit code.
    fn reason(&self) -> RunReason;

    /// Returns what to do about the error, in one sentence; `None` if the error's text says enough. The command line,
    /// the pages of `serve`, metrics and notifications show the same hint.
    fn hint(&self) -> Option<&str> {
        None
    }

    /// Returns the exit code of a command that ends with this error.
    fn exit_code(&self) -> u8 {
        self.reason().exit_code()
    }
}

/// The hint for a full disk.
pub const FREE_SPACE: &str =
    "free disk space and run the same command again: nothing committed is lost, and the command resumes";
/// The hint for a file system without locks.
pub const NEEDS_LOCKS: &str = "move it to a file system that supports file locks: a local disk, or a network mount with its lock service (NFS: lockd, not \
     `nolock`). No other process holds it";
/// The hint for a file of a newer version of the program.
pub const USE_NEWER: &str = "use the newer version of studysync";

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

named! {
    /// Returns the name in JSON, metrics and notifications.
    RunReason {
        KeyRefused => "key_refused",
        ServiceFailed => "service_failed",
        Configuration => "configuration",
        LeaseHeld => "lease_held",
        WarehouseLocked => "warehouse_locked",
        DiskFull => "disk_full",
        WarehouseFailed => "warehouse_failed",
        StateFailed => "state_failed",
        PartsFailed => "parts_failed",
        RunFailed => "run_failed",
        RunKilled => "run_killed",
        NeedsALook => "needs_a_look",
        RateLimited => "rate_limited",
        StoppedEarly => "stopped_early",
        Interrupted => "interrupted",
    }
}

impl RunReason {
    /// Returns the exit code of a command that ends for this reason.
    pub fn exit_code(self) -> u8 {
        match self {
            RunReason::Configuration => 2,
            RunReason::NeedsALook => 3,
            RunReason::KeyRefused => 4,
            RunReason::LeaseHeld | RunReason::WarehouseLocked => 5,
            RunReason::RateLimited | RunReason::StoppedEarly => 6,
            RunReason::Interrupted => 130,
            _ => 1,
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

named! {
    /// Returns the name in the run's JSON.
    Outcome {
        Done => "done",
        NeedsALook => "needs_a_look",
        Failed => "failed",
        StoppedEarly => "stopped_early",
        Interrupted => "interrupted",
    }
}

impl Outcome {
    /// Returns the reason of a run that ended so without an error, or `None` if everything is done.
    pub fn reason(self) -> Option<RunReason> {
        Some(match self {
            Outcome::Done => return None,
            Outcome::NeedsALook => RunReason::NeedsALook,
            Outcome::Failed => RunReason::PartsFailed,
            Outcome::StoppedEarly => RunReason::StoppedEarly,
            Outcome::Interrupted => RunReason::Interrupted,
        })
    }

    /// Returns the exit code of the command.
    pub fn exit_code(self) -> u8 {
        self.reason().map_or(0, RunReason::exit_code)
    }
}
