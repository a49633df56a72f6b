//! Runs blocking work on other threads than the network's, or inline if the runtime has one thread.

use std::thread;

use tokio::runtime::RuntimeFlavor;

use super::PipelineError;

/// Runs blocking work on another thread than those that wait for the network. A runtime with one thread runs it inline.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, PipelineError> {
    if is_single_threaded() {
        return Ok(work());
    }
    tokio::task::spawn_blocking(work).await.map_err(|error| PipelineError::WorkerPanicked(error.to_string()))
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
    tokio::runtime::Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread
}
