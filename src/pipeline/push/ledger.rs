//! The ledger's own thread: intents and outcomes of all lanes that come together become durable together,
//! in one transaction.

use std::{
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
};

use tokio::sync::{mpsc, oneshot};

use crate::{
    clock,
    model::{Activity, TimeAccount},
    state::{ContentKey, PushFate, PushIntent, PushLedger, PushOutcome, Pushed, State, StateError},
    upsert::Upsert,
};

use super::{super::PipelineError, request::PushRequest};

/// Changes of one transaction.
const GROUP_MAX: usize = 256;

type Writer = JoinHandle<Result<(), PipelineError>>;

/// The ledger, as the lanes reach it.
#[derive(Debug)]
pub(super) struct Ledger {
    changes: Mutex<Option<mpsc::Sender<Asked>>>,
    writer: Mutex<Option<Writer>>,
}

/// The ledger's thread is gone; it says why when it is waited for.
#[derive(Debug)]
pub(super) struct LedgerGone;

/// A row that is to be sent.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub content: ContentKey,
    pub user_id: String,
    pub has_events: bool,
    pub resends_events: bool,
    pub sends_again: bool,
}

impl Wanted {
    pub fn of(upsert: &Upsert, request: &PushRequest) -> Wanted {
        Wanted {
            content: upsert.content_key(),
            user_id: upsert.user_id.clone(),
            has_events: !upsert.events.is_empty(),
            resends_events: request.resends_events,
            sends_again: request.sends_again,
        }
    }
}

/// What is to be done about a row. An intent is durable where something is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Its answer is known.
    Known(Pushed),
    /// Send it. `before` is what was known of it.
    Send { with_events: bool, before: Pushed },
}

#[derive(Debug)]
enum Change {
    Begin(Wanted),
    End(ContentKey, PushOutcome),
}

#[derive(Debug)]
struct Asked {
    change: Change,
    answer: oneshot::Sender<Option<Verdict>>,
}

/// What is to be done about a row of which so much is known. Pure.
pub(super) fn judge(wanted: &Wanted, pushed: Option<Pushed>) -> Verdict {
    let before = pushed.unwrap_or_default();
    let is_known = before.fate != PushFate::Unknown;
    let wants_events = before.unknown_events && wanted.resends_events;
    if is_known && !wanted.sends_again && !wants_events {
        return Verdict::Known(before);
    }
    // Events that were taken, or may have been, are counted once more if they are sent once more.
    let may_be_there = before.unknown_events || before.fate == PushFate::Accepted;
    let with_events = wanted.has_events && (!may_be_there || wanted.resends_events);
    Verdict::Send { with_events, before }
}

impl Ledger {
    pub fn begin(state: Arc<Mutex<State>>, account: TimeAccount) -> Ledger {
        let (sender, receiver) = mpsc::channel(GROUP_MAX);
        let writer = std::thread::spawn(move || write_groups(&state, &account, receiver));
        Ledger { changes: Mutex::new(Some(sender)), writer: Mutex::new(Some(writer)) }
    }

    /// Looks a row up, and notes the intent to send it unless its answer is known.
    pub async fn begin_row(&self, wanted: Wanted) -> Result<Verdict, LedgerGone> {
        self.ask(Change::Begin(wanted)).await?.ok_or(LedgerGone)
    }

    /// Notes what came of the intent.
    pub async fn end_row(&self, content: ContentKey, outcome: PushOutcome) -> Result<(), LedgerGone> {
        self.ask(Change::End(content, outcome)).await.map(drop)
    }

    async fn ask(&self, change: Change) -> Result<Option<Verdict>, LedgerGone> {
        let sender = self.changes.lock().unwrap_or_else(PoisonError::into_inner).clone().ok_or(LedgerGone)?;
        let (answer, answered) = oneshot::channel();
        sender.send(Asked { change, answer }).await.map_err(|_| LedgerGone)?;
        answered.await.map_err(|_| LedgerGone)
    }

    /// Waits until everything is durable, and says what went wrong if something did.
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
    mut changes: mpsc::Receiver<Asked>,
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
        let verdicts = state.lock().unwrap_or_else(PoisonError::into_inner).change_pushes(|ledger| {
            group.iter().map(|asked| apply(ledger, &asked.change)).collect::<Result<Vec<_>, _>>()
        })?;
        // Only now is it durable.
        for (asked, verdict) in group.drain(..).zip(verdicts) {
            asked.answer.send(verdict).ok();
        }
    }
    Ok(())
}

fn apply(ledger: &PushLedger<'_>, change: &Change) -> Result<Option<Verdict>, StateError> {
    match change {
        Change::End(content, outcome) => ledger.finish(content, outcome).map(|()| None),
        Change::Begin(wanted) => {
            let verdict = judge(wanted, ledger.pushed(&wanted.content)?);
            if let Verdict::Send { with_events, .. } = verdict {
                let (content, user_id) = (wanted.content, wanted.user_id.as_str());
                ledger.intend(&PushIntent { content, user_id, with_events, now_ms: clock::now_ms() })?;
            }
            Ok(Some(verdict))
        }
    }
}
