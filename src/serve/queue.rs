//! From a body to a durable delivery: one thread writes what is queued, as one group with one fsync, and only then is each of
//! them answered. The queue is bounded; what finds no room is told to come back.

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

/// The way to the thread that writes. It ends with the last clone.
#[derive(Clone, Debug)]
pub struct Queue(mpsc::Sender<Posted>);

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
        self.0.try_send(Posted { delivery, answer, _room: room }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => Refused::Full,
            mpsc::error::TrySendError::Closed(_) => Refused::Failed,
        })?;
        answered.await.unwrap_or(Err(Refused::Failed))
    }
}

fn write(mut storage: Storage, mut queue: mpsc::Receiver<Posted>, board: &Board) {
    let (mut deliveries, mut answers) = (Vec::with_capacity(GROUP_MAX), Vec::with_capacity(GROUP_MAX));
    while let Some(first) = queue.blocking_recv() {
        let mut next = Some(first);
        while let Some(Posted { delivery, answer, _room }) = next {
            deliveries.push(delivery);
            answers.push((answer, _room));
            next = (deliveries.len() < GROUP_MAX).then(|| queue.try_recv().ok()).flatten();
        }
        let accepted = storage.accept(&deliveries);
        board.set_storing(accepted.is_ok());
        if let Err(error) = &accepted {
            tracing::error!(error = crate::pipeline::chain(error), "deliveries could not be stored");
            board.count(Count::NotStored, deliveries.len() as u64);
        }
        for (at, (answer, _)) in answers.drain(..).enumerate() {
            let stored = accepted.as_ref().ok().and_then(|accepted| accepted.get(at).copied());
            // Whoever posted it may be gone; the delivery is stored all the same.
            let _ = answer.send(stored.ok_or(Refused::Failed));
        }
        deliveries.clear();
    }
}
