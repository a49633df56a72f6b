//! Handles Ctrl-C and SIGTERM.

use std::io;

use tokio::{
    signal::unix::{SignalKind, signal},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

/// Handles signals until it is dropped. The first signal cancels a token, so that the run stops in order. A second
/// signal ends the process at once, which loses no committed data either.
pub(super) struct SignalHandler {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl SignalHandler {
    pub fn start() -> SignalHandler {
        let stop = CancellationToken::new();
        SignalHandler { task: tokio::spawn(stop_on_signal(stop.clone())), stop }
    }

    /// Returns the token that the first signal cancels.
    pub fn token(&self) -> CancellationToken {
        self.stop.clone()
    }
}

impl Drop for SignalHandler {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Cancels `stop` at the first signal, and ends the process with exit code 130 at the second signal.
async fn stop_on_signal(stop: CancellationToken) {
    if next_signal().await.is_err() {
        return;
    }
    tracing::warn!("stopping after the current commit; the next run resumes (a second signal stops at once)");
    stop.cancel();
    if next_signal().await.is_ok() {
        std::process::exit(130);
    }
}

/// Waits for the next Ctrl-C or SIGTERM.
pub(super) async fn next_signal() -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        outcome = tokio::signal::ctrl_c() => outcome,
        _ = terminate.recv() => Ok(()),
    }
}
