//! One lane: the rows of some users, one after the other, each to its end.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::{
    model::Stream,
    source::{Failure, SourceError, UpsertOutcome},
    state::{PushFate, PushOutcome, Pushed},
    upsert::Upsert,
};

use super::{
    super::PipelineError,
    context::PushContext,
    ledger::{LedgerGone, Verdict, Wanted},
    results::{Fate, RowResult, ThisPush},
};

/// So many rows in a row of which the service told nothing are not to blame: the service is.
const FAILURES_IN_A_ROW_MAX: u32 = 3;

pub(super) struct Lane {
    context: Arc<PushContext>,
}

/// A row under way.
struct UnderWay<'a> {
    number: u64,
    upsert: &'a Upsert,
    wanted: Wanted,
}

/// How a row is sent.
struct Sent {
    with_events: bool,
    /// What earlier attempts left.
    before: Pushed,
}

impl Sent {
    fn this_push(&self) -> ThisPush {
        if self.before.unknown_sends > 0 { ThisPush::SentAgain } else { ThisPush::Sent }
    }
}

/// What the service answered to a row.
struct Answer {
    fate: PushFate,
    status: u16,
    /// Attempts before it of which nothing is known.
    unclear: u64,
}

/// Whether the row is at its end.
enum Attempt {
    Over,
    /// TieProbe at it anew: it was not taken now, or went without a trace.
    Again,
}

impl Lane {
    pub fn new(context: Arc<PushContext>) -> Self {
        Lane { context }
    }

    /// Works until there are no more rows.
    pub async fn run(self, mut rows: mpsc::Receiver<(u64, Upsert)>) {
        while let Some((number, upsert)) = rows.recv().await {
            let wanted = Wanted::of(&upsert, &self.context.request);
            let mut row = UnderWay { number, upsert: &upsert, wanted };
            loop {
                if self.context.ending.is_cancelled() {
                    self.tell_not_sent(&row, "the push ended before");
                    break;
                }
                match self.attempt(&mut row).await {
                    Ok(Attempt::Over) => break,
                    Ok(Attempt::Again) => {}
                    // It is said by whoever waits for the ledger.
                    Err(LedgerGone) => {
                        self.context.ending.cancel();
                        return;
                    }
                }
            }
        }
    }

    async fn attempt(&self, row: &mut UnderWay<'_>) -> Result<Attempt, LedgerGone> {
        // An intent says that the row may be at the service: none is noted for a request that is hours ahead.
        self.context.source.until_open().await;
        let sent = match self.context.ledger.begin_row(row.wanted.clone()).await? {
            Verdict::Known(pushed) => {
                let result = RowResult::known(row.number, &row.upsert.user_id, row.wanted.has_events, &pushed);
                self.context.tell(&result);
                return Ok(Attempt::Over);
            }
            Verdict::Send { with_events, before } => Sent { with_events, before },
        };
        let body = Bytes::from(row.upsert.body(sent.with_events));
        let may_repeat = !sent.with_events || self.context.request.resends_events;
        match self.context.source.upsert(body, may_repeat).await {
            Ok(UpsertOutcome::Accepted { status, unclear }) => {
                let answer = Answer { fate: PushFate::Accepted, status, unclear };
                self.answered(row, &sent, answer, "").await
            }
            Ok(UpsertOutcome::Refused { status, message }) => {
                let answer = Answer { fate: PushFate::Refused, status, unclear: 0 };
                self.answered(row, &sent, answer, &message).await
            }
            Ok(UpsertOutcome::Unknown { failure }) => {
                tracing::warn!(failure = failure.kind(), row = row.number, "what became of a row is unknown");
                if !may_repeat {
                    // Its attributes can be sent once more; the intent that stays says that its events may be there.
                    return Ok(Attempt::Again);
                }
                self.tell_unknown(row, &sent, &failure.to_string());
                self.failed(SourceError::Unreachable { url: "/v2/users".to_owned(), attempts: 1, last: failure });
                Ok(Attempt::Over)
            }
            Ok(UpsertOutcome::Interrupted { stop }) => {
                self.tell_unknown(row, &sent, "the push ended before the answer came");
                self.context.stop(stop);
                Ok(Attempt::Over)
            }
            Ok(UpsertOutcome::RateLimited) => {
                self.context.ledger.end_row(row.wanted.content, PushOutcome::NotSent).await?;
                Ok(Attempt::Again)
            }
            Ok(UpsertOutcome::NotSent { failure }) => {
                self.context.ledger.end_row(row.wanted.content, PushOutcome::NotSent).await?;
                self.tell_not_sent(row, &failure.to_string());
                self.failed(not_taken(failure));
                Ok(Attempt::Over)
            }
            Err(error) => {
                self.context.ledger.end_row(row.wanted.content, PushOutcome::NotSent).await?;
                self.ended(row, error);
                Ok(Attempt::Over)
            }
        }
    }

    /// No row can be sent any more.
    fn ended(&self, row: &UnderWay<'_>, error: SourceError) {
        match error {
            SourceError::Stopped(stop) => {
                self.context.stop(stop);
                self.tell_not_sent(row, &stop.to_string());
            }
            error => {
                self.tell_not_sent(row, &error.to_string());
                self.context.fail(PipelineError::Source(error));
            }
        }
    }

    async fn answered(
        &self,
        row: &UnderWay<'_>,
        sent: &Sent,
        answer: Answer,
        reason: &str,
    ) -> Result<Attempt, LedgerGone> {
        let Answer { fate, status, unclear } = answer;
        self.context.ledger.end_row(row.wanted.content, PushOutcome::Answered { fate, status, unclear }).await?;
        self.context.found().failures_in_a_row = 0;
        let is_accepted = fate == PushFate::Accepted;
        let has_unknown_events = sent.before.unknown_events && !(sent.with_events && is_accepted);
        self.context.tell(&RowResult {
            this_push: sent.this_push(),
            status: Some(status),
            unknown_sends: sent.before.unknown_sends + unclear,
            has_events: row.wanted.has_events,
            has_unknown_events,
            reason: match (has_unknown_events, is_accepted) {
                (true, true) => {
                    "its events may be at the service from an earlier attempt; --resend-events sends them once more"
                }
                _ => reason,
            },
            ..RowResult::of(row.number, &row.upsert.user_id, if is_accepted { Fate::Accepted } else { Fate::Refused })
        });
        Ok(Attempt::Over)
    }

    fn tell_unknown(&self, row: &UnderWay<'_>, sent: &Sent, reason: &str) {
        self.context.tell(&RowResult {
            this_push: sent.this_push(),
            unknown_sends: sent.before.unknown_sends + 1,
            has_events: row.wanted.has_events,
            has_unknown_events: sent.before.unknown_events || sent.with_events,
            reason,
            ..RowResult::of(row.number, &row.upsert.user_id, Fate::Unknown)
        });
    }

    fn tell_not_sent(&self, row: &UnderWay<'_>, reason: &str) {
        let has_events = row.wanted.has_events;
        let result = RowResult { has_events, reason, ..RowResult::of(row.number, &row.upsert.user_id, Fate::NotSent) };
        self.context.tell(&result);
    }

    /// The service told nothing of a row. After some of them there is no use in going on.
    fn failed(&self, error: SourceError) {
        let is_enough = {
            let mut found = self.context.found();
            found.failures_in_a_row += 1;
            found.failures_in_a_row >= FAILURES_IN_A_ROW_MAX
        };
        if is_enough {
            self.context.fail(PipelineError::Source(error));
        }
    }
}

/// Why the service did not take a row, without what it said of the person.
fn not_taken(failure: Failure) -> SourceError {
    let url = Stream::Users.path().to_owned();
    match failure {
        Failure::Status { status: status @ (401 | 403), .. } => {
            SourceError::Forbidden { status, url, message: String::new(), is_html: false }
        }
        last => SourceError::Unreachable { url, attempts: 1, last },
    }
}
