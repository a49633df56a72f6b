//! From a body to a durable delivery: one thread writes what is queued, as one group with one fsync, and only then is
//! each of them answered. The queue is bounded; what finds no room is told to come back.

use std::{io, sync::Arc};

use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use crate::state::{Accepted, Inbox, NewDelivery, StateError};

use super::{Board, Count};

/// Deliveries that wait to be written.
const QUEUED_MAX: usize = 1024;
/// Deliveries that are written as one group.
const GROUP_MAX: usize = 512;

/// Where deliveries go.
#[derive(Debug)]
pub enum Storage {
    /// Into the inbox, durably.
    Inbox(Inbox),
    /// Nowhere: to measure what the rest costs.
    Nothing,
}

impl Storage {
    /// Writes something and takes it back, as durably as a delivery.
    fn probe(&mut self) -> Result<(), StateError> {
        match self {
            Storage::Inbox(inbox) => inbox.probe(),
            Storage::Nothing => Ok(()),
        }
    }

    fn accept(&mut self, group: &[NewDelivery]) -> Result<Vec<Accepted>, StateError> {
        match self {
            Storage::Inbox(inbox) => inbox.accept(group),
            Storage::Nothing => Ok(vec![Accepted::Stored; group.len()]),
        }
    }
}

/// Why a delivery was not stored. Neither is for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// Too many wait.
    Full,
    /// The inbox cannot be written.
    Failed,
}

struct Posted {
    delivery: NewDelivery,
    answer: oneshot::Sender<Result<Accepted, Refused>>,
    /// The memory that the body takes.
    _room: OwnedSemaphorePermit,
}

/// What the thread that writes is asked for.
enum Job {
    Store(Posted),
    /// Find out whether a delivery could be stored.
    Probe(oneshot::Sender<bool>),
}

/// The way to the thread that writes. It ends with the last clone.
#[derive(Clone, Debug)]
pub struct Queue(mpsc::Sender<Job>);

impl Queue {
    /// Starts the thread.
    pub fn start(storage: Storage, board: Arc<Board>) -> io::Result<Queue> {
        let (sender, receiver) = mpsc::channel(QUEUED_MAX);
        std::thread::Builder::new().name("inbox".to_owned()).spawn(move || write(storage, receiver, &board))?;
        Ok(Queue(sender))
    }

    /// Returns when the delivery is durable, or cannot be.
    pub(super) async fn store(&self, delivery: NewDelivery, room: OwnedSemaphorePermit) -> Result<Accepted, Refused> {
        let (answer, answered) = oneshot::channel();
        self.0.try_send(Job::Store(Posted { delivery, answer, _room: room })).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => Refused::Full,
            mpsc::error::TrySendError::Closed(_) => Refused::Failed,
        })?;
        answered.await.unwrap_or(Err(Refused::Failed))
    }

    /// Whether a delivery could be stored now.
    /// A queue that is full is at work, which says as much as the last delivery.
    pub(super) async fn probe(&self) -> Option<bool> {
        let (answer, answered) = oneshot::channel();
        self.0.try_send(Job::Probe(answer)).ok()?;
        answered.await.ok()
    }
}

fn write(mut storage: Storage, mut queue: mpsc::Receiver<Job>, board: &Board) {
    let mut group = Vec::with_capacity(GROUP_MAX);
    while let Some(first) = queue.blocking_recv() {
        let mut next = Some(first);
        let mut probes = Vec::new();
        while let Some(job) = next {
            match job {
                Job::Store(posted) => group.push(posted),
                Job::Probe(answer) => probes.push(answer),
            }
            next = (group.len() < GROUP_MAX).then(|| queue.try_recv().ok()).flatten();
        }
        if group.is_empty() {
            let probed = storage.probe();
            if let Err(error) = &probed {
                tracing::error!(error = crate::pipeline::chain(error), "cannot store deliveries");
            }
            board.set_storing(probed.is_ok());
        } else {
            store(&mut storage, &mut group, board);
        }
        for answer in probes {
            // Whoever asked may be gone.
            let _ = answer.send(board.is_storing());
        }
    }
}

fn store(storage: &mut Storage, group: &mut Vec<Posted>, board: &Board) {
    let mut deliveries = Vec::with_capacity(group.len());
    let mut answers = Vec::with_capacity(group.len());
    for Posted { delivery, answer, _room } in group.drain(..) {
        deliveries.push(delivery);
        answers.push((answer, _room));
    }
    let accepted = storage.accept(&deliveries);
    board.set_storing(accepted.is_ok());
    if let Err(error) = &accepted {
        tracing::error!(error = crate::pipeline::chain(error), "cannot store deliveries");
        board.count(Count::NotStored, deliveries.len() as u64);
    }
    for (at, (answer, _)) in answers.into_iter().enumerate() {
        let stored = accepted.as_ref().ok().and_then(|accepted| accepted.get(at).copied());
        // Whoever posted it may be gone; the delivery is stored all the same.
        let _ = answer.send(stored.ok_or(Refused::Failed));
    }
}
