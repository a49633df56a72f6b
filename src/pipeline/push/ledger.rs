//! The thread that writes the ledger of a push. Changes of all lanes that arrive together are written in one
//! transaction.

use std::{
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
};

use tokio::sync::{mpsc, oneshot};

use crate::{
    clock,
    model::{Activity, TimeAccount},
    state::{ContentHash, PushAnswer, PushIntent, PushLedger, PushOutcome, PushRecord, State, StateError},
    upsert::Upsert,
};

use super::{super::PipelineError, request::PushRequest};

/// Changes of one transaction.
const GROUP_MAX: usize = 256;

type WriterThread = JoinHandle<Result<(), PipelineError>>;

/// The ledger of a push, as lanes use it.
#[derive(Debug)]
pub(super) struct Ledger {
    changes: Mutex<Option<mpsc::Sender<ChangeRequest>>>,
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
    pub resends_events: bool,
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
    /// Send the row. `before` is what the ledger knew of it.
    Send { with_events: bool, before: PushRecord },
}

#[derive(Debug)]
enum Change {
    Begin(RowToSend),
    Finish(ContentHash, PushOutcome),
}

#[derive(Debug)]
struct ChangeRequest {
    change: Change,
    answer: oneshot::Sender<Option<SendDecision>>,
}

/// Decides whether to send a row, and whether with its events, by what the ledger knows of it. Pure.
pub(super) fn decide(row: &RowToSend, record: Option<PushRecord>) -> SendDecision {
    let before = record.unwrap_or_default();
    let is_answered = before.answer != PushAnswer::Unknown;
    let needs_events = before.unknown_events && row.resends_events;
    if is_answered && !row.sends_again && !needs_events {
        return SendDecision::AlreadyAnswered(before);
    }
    // The service counts events twice that it receives twice.
    let may_have_events = before.unknown_events || before.answer == PushAnswer::Accepted;
    let with_events = row.has_events && (!may_have_events || row.resends_events);
    SendDecision::Send { with_events, before }
}

impl Ledger {
    pub fn start(state: Arc<Mutex<State>>, account: TimeAccount) -> Ledger {
        let (sender, receiver) = mpsc::channel(GROUP_MAX);
        let writer = std::thread::spawn(move || write_groups(&state, &account, receiver));
        Ledger { changes: Mutex::new(Some(sender)), writer: Mutex::new(Some(writer)) }
    }

    /// Looks a row up. If the row must be sent, its intent is durable when this returns.
    pub async fn begin_row(&self, row: RowToSend) -> Result<SendDecision, LedgerClosed> {
        self.change(Change::Begin(row)).await?.ok_or(LedgerClosed)
    }

    /// Records the outcome of an intent, durable when this returns.
    pub async fn finish_row(&self, content: ContentHash, outcome: PushOutcome) -> Result<(), LedgerClosed> {
        self.change(Change::Finish(content, outcome)).await.map(drop)
    }

    async fn change(&self, change: Change) -> Result<Option<SendDecision>, LedgerClosed> {
        let sender = self.changes.lock().unwrap_or_else(PoisonError::into_inner).clone().ok_or(LedgerClosed)?;
        let (answer, answered) = oneshot::channel();
        sender.send(ChangeRequest { change, answer }).await.map_err(|_| LedgerClosed)?;
        answered.await.map_err(|_| LedgerClosed)
    }

    /// Waits until all changes are durable. Returns the error of the thread if it ended with one.
    pub async fn finish(&self) -> Result<(), PipelineError> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner).take();
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(writer) = writer else { return Ok(()) };
        let panicked = || PipelineError::WorkerPanicked("the ledger of the push".to_owned());
        super::blocking(move || writer.join()).await?.map_err(|_| panicked())?
    }
}

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
        // Answered after the commit: a lane sends nothing before its intent is durable.
        for (request, decision) in group.drain(..).zip(decisions) {
            request.answer.send(decision).ok();
        }
    }
    Ok(())
}

fn apply(ledger: &PushLedger<'_>, change: &Change) -> Result<Option<SendDecision>, StateError> {
    match change {
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
