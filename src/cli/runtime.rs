//! The runtime of commands that wait for the network.

use super::CommandError;

/// Only commands that speak to somebody need threads that wait.
pub(super) fn on_runtime(command: impl Future<Output = Result<u8, CommandError>>) -> Result<u8, CommandError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|source| CommandError::failed("cannot start the runtime", source))?;
    let outcome = runtime.block_on(command);
    // A thread that still waits for the network must not hold the program up.
    runtime.shutdown_background();
    outcome
}
