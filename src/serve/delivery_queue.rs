//! Stores deliveries durably before they are answered. One thread writes all queued deliveries with one fsync. If the
//! queue is full, a new delivery is refused.

use std::{io, sync::Arc};

use tokio::sync::{mpsc, oneshot};

use crate::{
    pipeline::{Reservation, chain},
    state::{DeliveryReceipt, Inbox, NewDelivery, StateError},
};

use super::{Counter, ServeState};

/// Maximum deliveries that wait to be written.
const QUEUED_MAX: usize = 1024;
/// Maximum deliveries that are written together.
const GROUP_MAX: usize = 512;

/// The storage of deliveries.
#[derive(Debug)]
pub enum Storage {
    /// Durably in the inbox.
    Inbox(Inbox),
    /// Nowhere, to measure the receiver alone.
    Nothing,
}

impl Storage {
    /// Tests if a delivery could be stored, by writing something durably and removing it.
    fn probe(&mut self) -> Result<(), StateError> {
        match self {
            Storage::Inbox(inbox) => inbox.check_writable(),
            Storage::Nothing => Ok(()),
        }
    }

    fn accept(&mut self, group: &[NewDelivery]) -> Result<Vec<DeliveryReceipt>, StateError> {
        match self {
            Storage::Inbox(inbox) => inbox.store(group),
            Storage::Nothing => Ok(vec![DeliveryReceipt::Stored; group.len()]),
        }
    }
}

/// Why a delivery was not stored. Both reasons may be temporary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoreError {
    QueueFull,
    WriteFailed,
}

/// A delivery in the queue, and the channel for the result.
struct QueuedDelivery {
    delivery: NewDelivery,
    answer: oneshot::Sender<Result<DeliveryReceipt, StoreError>>,
    /// Reserve the memory of the body.
    _memory: Reservation,
}

/// A request to the writing thread.
enum WriterRequest {
    Store(QueuedDelivery),
    /// Test if a delivery could be stored, and send the result.
    Probe(oneshot::Sender<bool>),
}

/// Sends deliveries to the writing thread, which ends with the last clone.
#[derive(Clone, Debug)]
pub struct DeliveryQueue(mpsc::Sender<WriterRequest>);

impl DeliveryQueue {
    /// Starts the writing thread.
    pub fn start(storage: Storage, state: Arc<ServeState>) -> io::Result<DeliveryQueue> {
        let (sender, receiver) = mpsc::channel(QUEUED_MAX);
        std::thread::Builder::new().name("inbox".to_owned()).spawn(move || write(storage, receiver, &state))?;
        Ok(DeliveryQueue(sender))
    }

    /// Stores a delivery. Returns when the delivery is durable, or when it cannot be stored. `memory` is the
    /// reservation of the memory of the body.
    pub(super) async fn store(
        &self,
        delivery: NewDelivery,
        memory: Reservation,
    ) -> Result<DeliveryReceipt, StoreError> {
        let (answer, answered) = oneshot::channel();
        let queued = QueuedDelivery { delivery, answer, _memory: memory };
        self.0.try_send(WriterRequest::Store(queued)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => StoreError::QueueFull,
            mpsc::error::TrySendError::Closed(_) => StoreError::WriteFailed,
        })?;
        answered.await.unwrap_or(Err(StoreError::WriteFailed))
    }

    /// Tests if a delivery could be stored now. Returns the receiver of the result; `None`, without a test, if the
    /// queue is full: the queued deliveries show the result themselves.
    pub(super) fn probe(&self) -> Option<oneshot::Receiver<bool>> {
        let (answer, answered) = oneshot::channel();
        self.0.try_send(WriterRequest::Probe(answer)).ok()?;
        Some(answered)
    }
}

/// Runs on the writing thread until all clones of the queue are dropped. Collects a group of requests and stores its
/// deliveries together. Tests the storage only if the group has no delivery.
fn write(mut storage: Storage, mut queue: mpsc::Receiver<WriterRequest>, state: &ServeState) {
    let mut group = Vec::with_capacity(GROUP_MAX);
    while let Some(first) = queue.blocking_recv() {
        let mut next = Some(first);
        let mut probes = Vec::new();
        while let Some(request) = next {
            match request {
                WriterRequest::Store(queued) => group.push(queued),
                WriterRequest::Probe(answer) => probes.push(answer),
            }
            next = (group.len() < GROUP_MAX).then(|| queue.try_recv().ok()).flatten();
        }
        if group.is_empty() {
            let probed = storage.probe();
            if let Err(error) = &probed {
                tracing::error!(error = chain(error), "cannot store deliveries");
            }
            state.set_can_store(probed.is_ok());
        } else {
            store(&mut storage, &mut group, state);
        }
        for answer in probes {
            // The send fails if the caller no longer waits.
            let _ = answer.send(state.can_store());
        }
    }
}

/// Stores a group of deliveries and sends each result. The group is empty afterwards.
fn store(storage: &mut Storage, group: &mut Vec<QueuedDelivery>, state: &ServeState) {
    let mut deliveries = Vec::with_capacity(group.len());
    let mut answers = Vec::with_capacity(group.len());
    for QueuedDelivery { delivery, answer, _memory } in group.drain(..) {
        deliveries.push(delivery);
        answers.push((answer, _memory));
    }
    let accepted = storage.accept(&deliveries);
    state.set_can_store(accepted.is_ok());
    if let Err(error) = &accepted {
        tracing::error!(error = chain(error), "cannot store deliveries");
        state.count(Counter::NotStored, deliveries.len() as u64);
    }
    for (index, (answer, _)) in answers.into_iter().enumerate() {
        let stored = accepted.as_ref().ok().and_then(|accepted| accepted.get(index).copied());
        // The send fails if the receiver of the delivery no longer waits. The delivery is stored anyway.
        let _ = answer.send(stored.ok_or(StoreError::WriteFailed));
    }
}
