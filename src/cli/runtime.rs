//! Runs asynchronous commands.

use super::CommandError;

/// Runs a command on a Tokio runtime. Commands that use no network do not need one.
pub(super) fn on_runtime<T>(command: impl Future<Output = Result<T, CommandError>>) -> Result<T, CommandError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|source| CommandError::failed("cannot start the runtime", source))?;
    let outcome = runtime.block_on(command);
    // A thread that still waits for the network must not delay the end of the program.
    runtime.shutdown_background();
    outcome
}
