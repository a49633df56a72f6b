//! Runs blocking work on other threads than the network's, or inline if the runtime has one thread.

use std::{thread, time::Duration};

use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::oneshot,
};
use tokio_util::sync::CancellationToken;

use super::error::PipelineError;
use crate::source::{SourceError, Stop};

/// How long the work of [`until_stopped`] may take after a stop.
const AFTER_STOP: Duration = Duration::from_secs(5);

/// Runs blocking work on another thread than those that wait for the network. A runtime with one thread runs it inline.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, PipelineError> {
    if is_single_threaded() {
        return Ok(work());
    }
    tokio::task::spawn_blocking(work).await.map_err(|error| PipelineError::WorkerPanicked(error.to_string()))
}

/// Runs work that may block for ever, for example to read a file of a network mount, on a thread of its own, and
/// returns its result. After `stop`, the work may take another [`AFTER_STOP`]. Then the thread is left behind; it drops
/// the result if the work ever ends. A runtime with one thread runs the work inline.
///
/// # Errors
/// `Cancelled` if the thread is left behind, and `WorkerPanicked` if the work panics.
pub async fn until_stopped<T: Send + 'static>(
    stop: &CancellationToken,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, PipelineError> {
    if is_single_threaded() {
        return Ok(work());
    }
    let panicked = |why: String| PipelineError::WorkerPanicked(why);
    let (runtime, (done, result)) = (Handle::current(), oneshot::channel());
    // A thread of the runtime's own pool would delay the end of the runtime.
    let started = thread::Builder::new().name("opening".to_owned()).spawn(move || {
        let _runtime = runtime.enter();
        // The send fails if nobody waits any more.
        let _ = done.send(work());
    });
    started.map_err(|error| panicked(error.to_string()))?;
    tokio::select! {
        biased;
        done = result => done.map_err(|_| panicked("the thread that opens the files".to_owned())),
        () = async { stop.cancelled().await; tokio::time::sleep(AFTER_STOP).await } => {
            tracing::warn!("a file or a command does not answer; it is not waited for any longer");
            Err(PipelineError::Source(SourceError::Stopped(Stop::Cancelled)))
        }
    }
}

/// Runs both closures in parallel, the first one on a new thread, and returns both results. If the first one panics,
/// its result is an error with `name`. A runtime with one thread runs them one after the other.
pub(super) fn in_parallel<A: Send, B>(
    name: &'static str,
    first: impl FnOnce() -> A + Send,
    second: impl FnOnce() -> B,
) -> (Result<A, PipelineError>, B) {
    if is_single_threaded() {
        return (Ok(first()), second());
    }
    thread::scope(|scope| {
        let first = scope.spawn(first);
        let second = second();
        (first.join().map_err(|_| PipelineError::WorkerPanicked(format!("the thread that {name}"))), second)
    })
}

/// Returns true if the runtime has one thread. In such a runtime, blocking work runs inline, so that the simulator's
/// seed decides the order.
pub(super) fn is_single_threaded() -> bool {
    Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread
}
