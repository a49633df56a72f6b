//! A lane of a push: sends its rows one after the other. All rows of a user go through the same lane.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::{
    model::Stream,
    pipeline::{error::PipelineError, memory::Reservation},
    source::{Failure, SourceError, UpsertOutcome, Upserted},
    state::{PushAnswer, PushOutcome, PushRecord},
    upsert::Upsert,
};

use super::{
    context::PushContext,
    ledger::{LedgerClosed, RowToSend, SendDecision},
    results::{RowOutcome, RowResult, ThisPush},
};

/// Consecutive rows, neither accepted nor refused, after which the push fails: the service is probably down.
const CONSECUTIVE_FAILURES_MAX: u32 = 3;

/// Sends the rows of some users, one row after the other.
pub(super) struct Lane {
    context: Arc<PushContext>,
}

/// A row that waits in a lane.
pub(super) struct QueuedRow {
    pub number: u64,
    pub upsert: Upsert,
    /// Reserves the memory of the row until it is answered.
    pub _memory: Reservation,
}

/// The row that the lane is sending.
struct RowInFlight<'a> {
    number: u64,
    upsert: &'a Upsert,
    to_send: RowToSend,
    /// What this push did with the row so far.
    this_push: ThisPush,
}

/// One attempt to send a row.
struct Attempt {
    with_events: bool,
    /// What the ledger had stored about the row before the attempt.
    before: PushRecord,
}

impl Attempt {
    /// Returns the value of the column `this_push`.
    fn this_push(&self) -> ThisPush {
        if self.before.unknown_sends > 0 { ThisPush::SentAgain } else { ThisPush::Sent }
    }
}

/// The service's answer to a row.
struct ServiceAnswer {
    answer: PushAnswer,
    status: u16,
    /// Earlier requests of the attempt that have no known outcome.
    unknown_sends: u64,
}

/// What the lane does next.
enum Progress {
    NextRow,
    /// Send the row once more: it was rate limited.
    RetryRow,
    /// Send the row once more, without its events: the service may have them from this attempt, which has this value
    /// of the column `this_push`.
    RetryWithoutEvents(ThisPush),
}

impl Lane {
    pub fn new(context: Arc<PushContext>) -> Self {
        Lane { context }
    }

    /// Sends rows until the channel is closed. After the end of the push, records what the ledger knows about the
    /// remaining rows.
    /// Returns early if the ledger cannot be written.
    pub async fn run(self, mut rows: mpsc::Receiver<QueuedRow>) {
        while let Some(QueuedRow { number, upsert, _memory }) = rows.recv().await {
            let mut row = RowInFlight {
                number,
                upsert: &upsert,
                to_send: RowToSend::new(&upsert, &self.context.request),
                this_push: ThisPush::Nothing,
            };
            loop {
                let step = match self.context.ending.is_cancelled() {
                    true => self.leave(&row).await,
                    false => self.attempt(&row).await,
                };
                match step {
                    Ok(Progress::NextRow) => break,
                    Ok(Progress::RetryRow) => {}
                    Ok(Progress::RetryWithoutEvents(this_push)) => row.this_push = this_push,
                    // `Ledger::finish` returns the error.
                    Err(LedgerClosed) => {
                        self.context.ending.cancel();
                        return;
                    }
                }
            }
        }
    }

    /// Looks the row up in the ledger, sends it if necessary, and records the outcome in the ledger and the results.
    /// Returns `RetryRow` if the row has to be sent once more: after a rate limit, or without its events after a
    /// request without a known outcome.
    async fn attempt(&self, row: &RowInFlight<'_>) -> Result<Progress, LedgerClosed> {
        // An intent means that the service may have the row. The ledger stores it only when the request can be sent.
        self.context.source.until_unblocked().await;
        let attempt = match self.context.ledger.begin_row(row.to_send.clone()).await? {
            SendDecision::AlreadyAnswered(record) => {
                self.record_already_answered(row, &record);
                return Ok(Progress::NextRow);
            }
            SendDecision::Send { with_events, before } => Attempt { with_events, before },
        };
        let body = Bytes::from(row.upsert.body(attempt.with_events));
        let may_repeat = !attempt.with_events || self.context.request.resends_events;
        let Upserted { outcome, unknown_sends } = self.context.source.upsert(body, may_repeat).await;
        match outcome {
            Ok(UpsertOutcome::Accepted { status }) => {
                let answer = ServiceAnswer { answer: PushAnswer::Accepted, status, unknown_sends };
                self.finish_answered(row, &attempt, answer, "").await
            }
            Ok(UpsertOutcome::Refused { status, message }) => {
                let answer = ServiceAnswer { answer: PushAnswer::Refused, status, unknown_sends };
                self.finish_answered(row, &attempt, answer, &message).await
            }
            Ok(UpsertOutcome::Unknown { failure }) => {
                tracing::warn!(failure = failure.kind(), row = row.number, "no answer says whether a row was accepted");
                if !may_repeat {
                    self.context.ledger.finish_row(row.to_send.content, PushOutcome::Unknown { unknown_sends }).await?;
                    return Ok(Progress::RetryWithoutEvents(attempt.this_push()));
                }
                self.finish_unknown(row, &attempt, unknown_sends, &failure.to_string()).await?;
                self.count_failure(SourceError::Unreachable {
                    url: "/v2/users".to_owned(),
                    attempts: 1,
                    last: failure,
                    answered_ms: None,
                });
                Ok(Progress::NextRow)
            }
            Ok(UpsertOutcome::RateLimited) => {
                self.context.ledger.finish_row(row.to_send.content, PushOutcome::NotSent).await?;
                Ok(Progress::RetryRow)
            }
            Ok(UpsertOutcome::NotSent { failure }) => {
                self.context.ledger.finish_row(row.to_send.content, PushOutcome::NotSent).await?;
                self.record_not_accepted(row, &attempt.before, &failure.to_string());
                self.count_failure(error_of_not_sent(failure));
                Ok(Progress::NextRow)
            }
            Err(error) => self.finish_failed(row, &attempt, error, unknown_sends).await,
        }
    }

    /// Records a row whose request failed with an error that every further request would get, too, or because the run
    /// stops. Ends the push.
    async fn finish_failed(
        &self,
        row: &RowInFlight<'_>,
        attempt: &Attempt,
        error: SourceError,
        unknown_sends: u64,
    ) -> Result<Progress, LedgerClosed> {
        match (&error, unknown_sends) {
            (_, 0) => {
                self.context.ledger.finish_row(row.to_send.content, PushOutcome::NotSent).await?;
                self.record_not_accepted(row, &attempt.before, &error.to_string());
            }
            (SourceError::Stopped(_), _) => {
                self.finish_unknown(row, attempt, unknown_sends, "the push ended before the answer came").await?;
            }
            _ => self.finish_unknown(row, attempt, unknown_sends, &error.to_string()).await?,
        }
        match error {
            SourceError::Stopped(stop) => self.context.stop(stop),
            error => self.context.fail(PipelineError::Source(error)),
        }
        Ok(Progress::NextRow)
    }

    /// Records the service's answer to a row, first in the ledger and second in the results file. `reason` is the
    /// service's text for a refused row, otherwise empty.
    async fn finish_answered(
        &self,
        row: &RowInFlight<'_>,
        attempt: &Attempt,
        answer: ServiceAnswer,
        reason: &str,
    ) -> Result<Progress, LedgerClosed> {
        let ServiceAnswer { answer, status, unknown_sends } = answer;
        let outcome = PushOutcome::Answered { answer, status, unknown_sends };
        self.context.ledger.finish_row(row.to_send.content, outcome).await?;
        self.context.progress().consecutive_failures = 0;
        let is_accepted = answer == PushAnswer::Accepted;
        let may_have_events = attempt.before.unknown_events || (attempt.with_events && unknown_sends > 0);
        let has_unknown_events = may_have_events && !(attempt.with_events && is_accepted);
        self.context.record_result(&RowResult {
            this_push: attempt.this_push(),
            status: Some(status),
            unknown_sends: attempt.before.unknown_sends + unknown_sends,
            has_events: row.to_send.has_events,
            has_unknown_events,
            reason: match (has_unknown_events, is_accepted) {
                (true, true) => {
                    "its events may be at the service from an earlier attempt; --resend-events sends them once more"
                }
                _ => reason,
            },
            ..row.result(if is_accepted { RowOutcome::Accepted } else { RowOutcome::Refused })
        });
        Ok(Progress::NextRow)
    }

    /// Records a row that was sent and has no known outcome, first in the ledger and second in the results file.
    async fn finish_unknown(
        &self,
        row: &RowInFlight<'_>,
        attempt: &Attempt,
        unknown_sends: u64,
        reason: &str,
    ) -> Result<(), LedgerClosed> {
        self.context.ledger.finish_row(row.to_send.content, PushOutcome::Unknown { unknown_sends }).await?;
        self.context.record_result(&RowResult {
            this_push: attempt.this_push(),
            unknown_sends: attempt.before.unknown_sends + unknown_sends,
            has_events: row.to_send.has_events,
            has_unknown_events: attempt.before.unknown_events || attempt.with_events,
            reason,
            ..row.result(RowOutcome::Unknown)
        });
        Ok(())
    }

    /// Records the result of a row that the push does not send, or not once more, because the push has ended.
    async fn leave(&self, row: &RowInFlight<'_>) -> Result<Progress, LedgerClosed> {
        match self.context.ledger.look_up(row.to_send.clone()).await? {
            SendDecision::AlreadyAnswered(record) => self.record_already_answered(row, &record),
            SendDecision::Send { before, .. } => self.record_not_accepted(row, &before, "the push ended before"),
        }
        Ok(Progress::NextRow)
    }

    /// Records the result of a row that the service answered in an earlier push, and that is not sent again.
    fn record_already_answered(&self, row: &RowInFlight<'_>, record: &PushRecord) {
        let (user_id, has_events) = (&row.upsert.user_id, row.to_send.has_events);
        self.context.record_result(&RowResult::already_answered(row.number, user_id, has_events, record));
    }

    /// Records the result of a row of which no request of this push was accepted. `record` is what the ledger has
    /// stored about the row: if an earlier request has no known outcome, nor has the row.
    fn record_not_accepted(&self, row: &RowInFlight<'_>, record: &PushRecord, reason: &str) {
        let is_unknown = record.answer == PushAnswer::Unknown && record.unknown_sends > 0;
        self.context.record_result(&RowResult {
            this_push: row.this_push,
            unknown_sends: record.unknown_sends,
            has_events: row.to_send.has_events,
            has_unknown_events: record.unknown_events,
            reason,
            ..row.result(if is_unknown { RowOutcome::Unknown } else { RowOutcome::NotSent })
        });
    }

    /// Counts a row that the service neither accepted nor refused. Ends the push after `CONSECUTIVE_FAILURES_MAX`
    /// consecutive ones.
    fn count_failure(&self, error: SourceError) {
        // `fail` locks the progress too, so the lock is released first.
        let is_limit_reached = {
            let mut progress = self.context.progress();
            progress.consecutive_failures += 1;
            progress.consecutive_failures >= CONSECUTIVE_FAILURES_MAX
        };
        if is_limit_reached {
            self.context.fail(PipelineError::Source(error));
        }
    }
}

impl RowInFlight<'_> {
    /// Creates a result of the row, with only the outcome.
    fn result(&self, outcome: RowOutcome) -> RowResult<'_> {
        RowResult::new(self.number, &self.upsert.user_id, outcome)
    }
}

/// Returns the error for a row that the service did not take. Leaves out the text of the answer, which may name the
/// user.
fn error_of_not_sent(failure: Failure) -> SourceError {
    let url = Stream::Users.path().to_owned();
    match failure {
        Failure::Status { status: status @ (401 | 403), .. } => {
            SourceError::Forbidden { status, url, message: String::new(), is_html: false }
        }
        last => SourceError::Unreachable { url, attempts: 1, last, answered_ms: None },
    }
}
