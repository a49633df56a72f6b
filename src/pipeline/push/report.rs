//! What a push did: the JSON of `--json` and of the history of runs. Nothing in it names a person.

use serde::Serialize;

use crate::{model::RunId, source::RequestStats};

use super::{
    super::{Outcome, ReportHeader},
    results::{Fate, RowResult, ThisPush},
};

/// Rows by fate. `read` is the sum of the others, but for rows that were read ahead of an early end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PushRows {
    pub read: u64,
    /// Accepted by this push.
    pub accepted: u64,
    /// Accepted by an earlier one, and not sent again.
    pub known: u64,
    /// Refused by the service, now or by an earlier push.
    pub refused: u64,
    /// Not fit to be sent.
    pub set_aside: u64,
    /// Sent, and no answer tells what became of it; the next push sends it again.
    pub unknown: u64,
    /// Not sent because the push ended, or the service was not to be reached.
    pub not_sent: u64,
    /// What a dry run would send.
    pub would_send: u64,
    /// Of all those that may be at the service more than once, or were when they were sent again.
    pub sent_unknown: u64,
    /// Of all those whose events may or may not be counted by the service.
    pub events_unknown: u64,
    /// Of those known, rows after which other content was sent for the same user.
    pub known_and_overtaken: u64,
}

impl PushRows {
    pub(super) fn count(&mut self, result: &RowResult<'_>) {
        let place = match (result.fate, result.this_push) {
            (Fate::Accepted, ThisPush::Nothing) => &mut self.known,
            (Fate::Accepted, _) => &mut self.accepted,
            (Fate::Refused, _) => &mut self.refused,
            (Fate::SetAside, _) => &mut self.set_aside,
            (Fate::Unknown, _) => &mut self.unknown,
            (Fate::NotSent, _) => &mut self.not_sent,
            (Fate::WouldSend, _) => &mut self.would_send,
        };
        *place += 1;
        self.sent_unknown += u64::from(result.unknown_sends > 0);
        self.events_unknown += u64::from(result.has_unknown_events);
        let is_known = matches!((result.fate, result.this_push), (Fate::Accepted, ThisPush::Nothing));
        self.known_and_overtaken += u64::from(is_known && result.is_overtaken);
    }

    /// How a push ended that came to the end of its input.
    pub(super) fn outcome(&self) -> Outcome {
        match () {
            () if self.not_sent > 0 => Outcome::Failed,
            () if self.refused + self.set_aside + self.unknown + self.events_unknown > 0 => Outcome::NeedsALook,
            () => Outcome::Done,
        }
    }
}

/// A push.
#[derive(Clone, Debug, Serialize)]
pub struct PushReport {
    /// None for a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    #[serde(flatten)]
    pub header: ReportHeader,
    pub dry_run: bool,
    pub rows: PushRows,
    /// The file with each row's fate.
    pub results: String,
    pub requests: RequestStats,
    /// Why the push ended early.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped_because: Option<String>,
}
