//! A warehouse of a run, and the thread that works on it.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        mpsc::{Sender, channel},
    },
    thread,
};

use futures::{
    FutureExt,
    future::{BoxFuture, ready},
};
use tokio::sync::oneshot;

use super::{PipelineError, threads::is_single_threaded};
use crate::load::Warehouse;

type Work = Box<dyn FnOnce() + Send>;

/// A warehouse that several threads can reach; one at a time uses it.
#[derive(Clone)]
pub(super) struct SharedDestination {
    destination: Arc<Mutex<Warehouse>>,
    /// Made when there is something to do for it.
    thread: Arc<OnceLock<Sender<Work>>>,
}

impl SharedDestination {
    /// Those that a session opened.
    pub fn all(destinations: Vec<Warehouse>) -> Vec<SharedDestination> {
        let shared = |destination| Self { destination: Arc::new(Mutex::new(destination)), thread: Arc::default() };
        destinations.into_iter().map(shared).collect()
    }

    /// A thread that died while it held a warehouse left no transaction behind that could be committed.
    pub fn lock(&self) -> MutexGuard<'_, Warehouse> {
        self.destination.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the warehouse, always on the same thread: memory that one thread takes and another gives
    /// back stays with the allocator, and a run over years has many of both.
    /// A runtime of one thread does it there and then.
    pub fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Warehouse) -> T + Send + 'static,
    ) -> BoxFuture<'static, Result<T, PipelineError>> {
        let shared = self.clone();
        let work = move || work(&mut shared.lock());
        if is_single_threaded() {
            return ready(Ok(work())).boxed();
        }
        let (done, outcome) = oneshot::channel();
        let job = move || {
            // Nobody waits any more: the run is over.
            let _ = done.send(work());
        };
        let is_sent = self.thread().is_some_and(|thread| thread.send(Box::new(job)).is_ok());
        let panicked = || PipelineError::WorkerPanicked("the thread of a warehouse".to_owned());
        async move { if is_sent { outcome.await.map_err(|_| panicked()) } else { Err(panicked()) } }.boxed()
    }

    fn thread(&self) -> Option<&Sender<Work>> {
        if self.thread.get().is_none() {
            let (sender, jobs) = channel::<Work>();
            let until_dropped = move || {
                for job in jobs {
                    // Whoever waits for it learns that it died; the next one is done.
                    let _ = catch_unwind(AssertUnwindSafe(job));
                }
            };
            thread::Builder::new().name("warehouse".to_owned()).spawn(until_dropped).ok()?;
            // Another one may have been faster: then this thread ends.
            let _ = self.thread.set(sender);
        }
        self.thread.get()
    }
}
