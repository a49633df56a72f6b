//! The ledger of a push: stores which rows were sent, and the outcomes. One thread writes the changes of all lanes;
//! changes that arrive together are written in one transaction.

use std::{
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
};

use tokio::sync::{mpsc, oneshot};

use crate::{
    clock,
    model::{Activity, TimeAccount},
    pipeline::error::PipelineError,
    state::{ContentHash, PushAnswer, PushIntent, PushLedger, PushOutcome, PushRecord, State, StateError},
    upsert::Upsert,
};

use super::report::PushRequest;

/// The maximum number of changes in one transaction.
const GROUP_MAX: usize = 256;

type WriterThread = JoinHandle<Result<(), PipelineError>>;

/// The ledger of a push, as lanes use it.
#[derive(Debug)]
pub(super) struct Ledger {
    /// `None` after [`Ledger::finish`].
    changes: Mutex<Option<mpsc::Sender<ChangeRequest>>>,
    /// `None` after [`Ledger::finish`].
    writer: Mutex<Option<WriterThread>>,
}

/// The ledger's thread has ended with an error, which [`Ledger::finish`] returns.
#[derive(Debug)]
pub(super) struct LedgerClosed;

/// A row to send, with the options of the push.
#[derive(Clone, Debug)]
pub(super) struct RowToSend {
    pub content: ContentHash,
    pub user_id: String,
    pub has_events: bool,
    /// True if events are sent again that the service may have.
    pub resends_events: bool,
    /// True if a row is sent again whose answer is known.
    pub sends_again: bool,
}

impl RowToSend {
    pub fn new(upsert: &Upsert, request: &PushRequest) -> RowToSend {
        RowToSend {
            content: upsert.content_key(),
            user_id: upsert.user_id.clone(),
            has_events: !upsert.events.is_empty(),
            resends_events: request.resends_events,
            sends_again: request.sends_again,
        }
    }
}

/// What to do with a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendDecision {
    /// The service has answered the row; do not send it.
    AlreadyAnswered(PushRecord),
    /// Send the row, with or without its events. `before` is what the ledger had stored about the row.
    Send { with_events: bool, before: PushRecord },
}

/// A change of the ledger.
#[derive(Debug)]
enum Change {
    /// Changes nothing, and returns the decision that a `Begin` would return.
    LookUp(RowToSend),
    Begin(RowToSend),
    Finish(ContentHash, PushOutcome),
}

#[derive(Debug)]
struct ChangeRequest {
    change: Change,
    /// Receives the decision of a `LookUp` or `Begin`, or `None` for a `Finish`, when the change is durable.
    answer: oneshot::Sender<Option<SendDecision>>,
}

/// Decides whether to send a row, and whether with its events. `record` is what the ledger has stored about the row, or
/// `None` for a new row. Pure.
///
/// Events that the service may already have are only sent if `resends_events` is set, because the service counts events
/// twice that it receives twice.
pub(super) fn decide(row: &RowToSend, record: Option<PushRecord>) -> SendDecision {
    let before = record.unwrap_or_default();
    let is_answered = before.answer != PushAnswer::Unknown;
    let needs_events = before.unknown_events && row.resends_events;
    if is_answered && !row.sends_again && !needs_events {
        return SendDecision::AlreadyAnswered(before);
    }
    let may_have_events = before.unknown_events || before.answer == PushAnswer::Accepted;
    let with_events = row.has_events && (!may_have_events || row.resends_events);
    SendDecision::Send { with_events, before }
}

impl Ledger {
    /// Starts the thread that writes the ledger.
    pub fn start(state: Arc<Mutex<State>>, account: TimeAccount) -> Ledger {
        let (sender, receiver) = mpsc::channel(GROUP_MAX);
        let writer = std::thread::spawn(move || write_groups(&state, &account, receiver));
        Ledger { changes: Mutex::new(Some(sender)), writer: Mutex::new(Some(writer)) }
    }

    /// Looks a row up, and decides whether it would be sent. Stores nothing.
    pub async fn look_up(&self, row: RowToSend) -> Result<SendDecision, LedgerClosed> {
        self.change(Change::LookUp(row)).await?.ok_or(LedgerClosed)
    }

    /// Looks a row up, and decides whether to send it. For a row to send, stores an intent, which is durable when this
    /// function returns.
    pub async fn begin_row(&self, row: RowToSend) -> Result<SendDecision, LedgerClosed> {
        self.change(Change::Begin(row)).await?.ok_or(LedgerClosed)
    }

    /// Stores the outcome of an intent. The outcome is durable when this function returns.
    pub async fn finish_row(&self, content: ContentHash, outcome: PushOutcome) -> Result<(), LedgerClosed> {
        self.change(Change::Finish(content, outcome)).await.map(drop)
    }

    /// Passes a change to the ledger's thread, and waits until the change is durable. Returns the decision of a
    /// `LookUp` or `Begin`.
    async fn change(&self, change: Change) -> Result<Option<SendDecision>, LedgerClosed> {
        let sender = self.changes.lock().unwrap_or_else(PoisonError::into_inner).clone().ok_or(LedgerClosed)?;
        let (answer, answered) = oneshot::channel();
        sender.send(ChangeRequest { change, answer }).await.map_err(|_| LedgerClosed)?;
        answered.await.map_err(|_| LedgerClosed)
    }

    /// Waits until all changes are durable, and ends the ledger's thread. Returns the thread's error, if any.
    pub async fn finish(&self) -> Result<(), PipelineError> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner).take();
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(writer) = writer else { return Ok(()) };
        let panicked = || PipelineError::WorkerPanicked("the ledger of the push".to_owned());
        super::blocking(move || writer.join()).await?.map_err(|_| panicked())?
    }
}

/// Writes changes until all senders are dropped. Each group of changes that have arrived is one transaction. Returns
/// the first error, after which lanes get [`LedgerClosed`].
fn write_groups(
    state: &Mutex<State>,
    account: &TimeAccount,
    mut changes: mpsc::Receiver<ChangeRequest>,
) -> Result<(), PipelineError> {
    let mut group = Vec::new();
    while let Some(first) = changes.blocking_recv() {
        group.push(first);
        while group.len() < GROUP_MAX
            && let Ok(next) = changes.try_recv()
        {
            group.push(next);
        }
        let _busy = account.enter(Activity::Write);
        let decisions = state.lock().unwrap_or_else(PoisonError::into_inner).change_pushes(|ledger| {
            group.iter().map(|request| apply(ledger, &request.change)).collect::<Result<Vec<_>, _>>()
        })?;
        // The lanes get their answers after the commit, so that no lane sends a row before its intent is durable.
        for (request, decision) in group.drain(..).zip(decisions) {
            request.answer.send(decision).ok();
        }
    }
    Ok(())
}

/// Applies one change to the ledger. Returns the decision of a `LookUp` or `Begin`. If a `Begin` decides to send the
/// row, stores the intent.
fn apply(ledger: &PushLedger<'_>, change: &Change) -> Result<Option<SendDecision>, StateError> {
    match change {
        Change::LookUp(row) => Ok(Some(decide(row, ledger.record(&row.content)?))),
        Change::Finish(content, outcome) => ledger.finish(content, *outcome).map(|()| None),
        Change::Begin(row) => {
            let decision = decide(row, ledger.record(&row.content)?);
            if let SendDecision::Send { with_events, .. } = decision {
                let (content, user_id) = (row.content, row.user_id.as_str());
                ledger.begin(&PushIntent { content, user_id, with_events, now_ms: clock::now_ms() })?;
            }
            Ok(Some(decision))
        }
    }
}
