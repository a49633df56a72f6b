//! Where work is done: beside the threads that wait for the network, or there and then.

use std::thread;

use tokio::runtime::RuntimeFlavor;

use super::PipelineError;

/// Work that blocks, off the threads that wait for the network.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, PipelineError> {
    if is_single_threaded() {
        return Ok(work());
    }
    tokio::task::spawn_blocking(work).await.map_err(|error| PipelineError::Died(error.to_string()))
}

/// Does both at the same time, the first on a thread of its own, which is named by what it does.
pub(super) fn side_by_side<A: Send, B>(
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
        (first.join().map_err(|_| PipelineError::Died(format!("the thread that {name}"))), second)
    })
}

/// Whether the runtime has one thread. Then work that blocks is done there and then: a program that wants everything on
/// one thread gets it, and the simulator an order that its seed decides.
pub(super) fn is_single_threaded() -> bool {
    tokio::runtime::Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread
}
