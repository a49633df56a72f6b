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

use crate::{
    load::{LoadError, Warehouse},
    pipeline::{assemble::failed, error::PipelineError, threads::is_single_threaded},
};

/// A job of a warehouse's thread.
type Work = Box<dyn FnOnce() + Send>;

/// A warehouse that several threads share. One thread uses it at a time.
#[derive(Clone)]
pub struct SharedDestination {
    destination: Arc<Mutex<Warehouse>>,
    /// Sends jobs to the warehouse's thread, which is started with the first job.
    thread: Arc<OnceLock<Sender<Work>>>,
}

impl SharedDestination {
    /// Wraps the warehouses that a session opened.
    pub fn all(destinations: Vec<Warehouse>) -> Vec<SharedDestination> {
        let shared = |destination| Self { destination: Arc::new(Mutex::new(destination)), thread: Arc::default() };
        destinations.into_iter().map(shared).collect()
    }

    /// Locks the warehouse. A thread that panicked with the lock left no transaction that could be committed, so a
    /// poisoned lock is fine.
    pub fn lock(&self) -> MutexGuard<'_, Warehouse> {
        self.destination.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs work on the warehouse in the calling thread, and adds the warehouse's name to an error.
    pub fn with<T>(&self, work: impl FnOnce(&mut Warehouse) -> Result<T, LoadError>) -> Result<T, PipelineError> {
        let mut destination = self.lock();
        work(&mut destination).map_err(failed(destination.name()))
    }

    /// Runs work on the warehouse's thread, and returns its result. All work runs on the same thread, because memory
    /// that one thread allocates and another frees stays with the allocator. A runtime with one thread runs the work
    /// inline.
    pub fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Warehouse) -> Result<T, LoadError> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, PipelineError>> {
        let shared = self.clone();
        let work = move || shared.with(work);
        if is_single_threaded() {
            return ready(work()).boxed();
        }
        let (done, outcome) = oneshot::channel();
        let job = move || {
            // The receiver is gone if the run has ended.
            let _ = done.send(work());
        };
        let is_sent = self.thread().is_some_and(|thread| thread.send(Box::new(job)).is_ok());
        let panicked = || PipelineError::WorkerPanicked("the thread of a warehouse".to_owned());
        async move { if is_sent { outcome.await.map_err(|_| panicked())? } else { Err(panicked()) } }.boxed()
    }

    /// Returns the sender of jobs, and starts the warehouse's thread if necessary. Returns `None` if it cannot be
    /// started.
    fn thread(&self) -> Option<&Sender<Work>> {
        if self.thread.get().is_none() {
            let (sender, jobs) = channel::<Work>();
            let until_dropped = move || {
                for job in jobs {
                    // After a panic the caller gets an error, and the thread continues with the next job.
                    let _ = catch_unwind(AssertUnwindSafe(job));
                }
            };
            thread::Builder::new().name("warehouse".to_owned()).spawn(until_dropped).ok()?;
            // If another caller was faster, the sender is dropped, and this thread ends.
            let _ = self.thread.set(sender);
        }
        self.thread.get()
    }
}
