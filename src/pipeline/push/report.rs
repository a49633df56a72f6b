//! The report of a push: the JSON of `--json` and of the history of runs. It names no person.
//!
//! The request for a push.

use std::path::PathBuf;

use serde::Serialize;

use crate::{
    model::{Outcome, RunId},
    pipeline::report::ReportHeader,
    source::RequestStats,
};

use super::{
    input::PushInput,
    results::{RowOutcome, RowResult, ThisPush},
};

/// Number of rows by outcome. `read` is the sum of the outcomes, plus rows that were read ahead before an early end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PushRows {
    pub read: u64,
    /// Accepted by this push.
    pub accepted: u64,
    /// Accepted by an earlier push, and not sent again.
    pub known: u64,
    /// Refused by the service, now or by an earlier push.
    pub refused: u64,
    /// Invalid rows, and rows about erased people; not sent.
    pub set_aside: u64,
    /// Sent without a conclusive answer; the next push sends these rows again.
    pub unknown: u64,
    /// Not sent because the push ended early, or the service could not be reached.
    pub not_sent: u64,
    /// Dry run: rows that a push would send.
    pub would_send: u64,
    /// Rows of any outcome with a request that has no known outcome: the service may have received them twice.
    pub sent_unknown: u64,
    /// Rows of any outcome whose events the service may or may not have counted.
    pub events_unknown: u64,
    /// Rows of `known` after which other content was sent for the same user.
    pub known_and_overtaken: u64,
    /// True if this push could not send a row that it should send. Such a row is `not_sent`, or it is `unknown` since
    /// an earlier push.
    #[serde(skip)]
    pub has_unsent: bool,
}

impl PushRows {
    pub(super) fn count(&mut self, result: &RowResult<'_>) {
        let is_known = result.outcome == RowOutcome::Accepted && result.this_push == ThisPush::Nothing;
        let count = match result.outcome {
            RowOutcome::Accepted if is_known => &mut self.known,
            RowOutcome::Accepted => &mut self.accepted,
            RowOutcome::Refused => &mut self.refused,
            RowOutcome::SetAside => &mut self.set_aside,
            RowOutcome::Unknown => &mut self.unknown,
            RowOutcome::NotSent => &mut self.not_sent,
            RowOutcome::WouldSend => &mut self.would_send,
        };
        *count += 1;
        self.has_unsent |= match result.outcome {
            RowOutcome::NotSent => true,
            RowOutcome::Unknown => result.this_push == ThisPush::Nothing,
            _ => false,
        };
        self.sent_unknown += u64::from(result.unknown_sends > 0);
        self.events_unknown += u64::from(result.has_unknown_events);
        self.known_and_overtaken += u64::from(is_known && result.is_superseded);
    }

    /// Returns the outcome of a push that read its input to the end.
    pub(super) fn outcome(&self) -> Outcome {
        match () {
            () if self.has_unsent => Outcome::Failed,
            () if self.refused + self.set_aside + self.unknown + self.events_unknown > 0 => Outcome::NeedsALook,
            () => Outcome::Done,
        }
    }
}

/// The report of a push.
#[derive(Clone, Debug, Serialize)]
pub struct PushReport {
    /// `None` for a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    #[serde(flatten)]
    pub header: ReportHeader,
    pub dry_run: bool,
    pub rows: PushRows,
    /// Path of the results file, with the outcome of each row.
    pub results: String,
    pub requests: RequestStats,
    /// Why the push ended early.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped_because: Option<String>,
}

/// The command name in the lease and in the history of runs.
pub(in super::super) const COMMAND: &str = "users push";

/// What a push should send.
#[derive(Clone, Debug)]
pub struct PushRequest {
    pub input: PushInput,
    /// The results file, with the outcome of each row.
    pub results: PathBuf,
    /// True to report what would be sent, and to send nothing.
    pub is_dry_run: bool,
    /// True to send events again if no answer says whether the service has them.
    pub resends_events: bool,
    /// True to send rows again whose answer is known. Their events are not sent again unless `resends_events` is true.
    pub sends_again: bool,
}
