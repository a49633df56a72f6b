//! Runs asynchronous commands, and handles signals: Ctrl-C, SIGTERM and SIGHUP end a command in order; SIGUSR1 and
//! SIGUSR2 change nothing.

use std::{fs, io};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use crate::process_group;

use super::CommandError;

/// Handles signals until it is dropped. The first signal cancels a token, so that the run stops in order. A second
/// Ctrl-C or SIGTERM ends the process at once, which loses no committed data either.
pub(super) struct SignalHandler {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl SignalHandler {
    /// Handles the signals of a command that ends by itself: SIGHUP stops it.
    pub fn start() -> SignalHandler {
        SignalHandler::spawn(OnHangup::Stop)
    }

    /// Handles the signals of a service. SIGHUP stops a service that was started in a terminal, because then the
    /// terminal is gone. A service without a terminal goes on.
    pub fn for_service() -> SignalHandler {
        // The file of the controlling terminal opens only in a process that has one.
        let has_terminal = fs::File::open("/dev/tty").is_ok();
        SignalHandler::spawn(if has_terminal { OnHangup::Stop } else { OnHangup::GoOn })
    }

    fn spawn(on_hangup: OnHangup) -> SignalHandler {
        let stop = CancellationToken::new();
        // Here and not in the task: a signal that arrives before the task starts must find a handler.
        let signals = Signals::listen();
        let task = tokio::spawn(stop_on_signal(signals, on_hangup, stop.clone()));
        SignalHandler { task, stop }
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

/// The reaction to SIGHUP.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OnHangup {
    Stop,
    GoOn,
}

/// Cancels `stop` at the first signal, and ends the process with exit code 130 at the second signal.
async fn stop_on_signal(signals: io::Result<Signals>, on_hangup: OnHangup, stop: CancellationToken) {
    let Ok(mut signals) = signals else { return };
    let mut signal = signals.next().await;
    while signal == Received::Hangup && on_hangup == OnHangup::GoOn {
        tracing::warn!("received SIGHUP: serve goes on; to apply a changed configuration, restart it");
        signal = signals.next().await;
    }
    tracing::warn!(
        signal = signal.name(),
        "stopping after the current commit; the next run resumes (a second signal stops at once)"
    );
    stop.cancel();
    // A closed terminal sends SIGHUP twice, by the kernel and by the shell. A supervisor may send it after SIGTERM.
    while signals.next().await == Received::Hangup {}
    process_group::kill_all();
    std::process::exit(130);
}

/// Ends the program at the first signal, and with it the commands that it started: for a command that changes nothing.
pub(super) fn end_on_signal() {
    tokio::spawn(async {
        if next_signal().await.is_ok() {
            process_group::kill_all();
            std::process::exit(130);
        }
    });
}

/// Waits for the next Ctrl-C, SIGTERM or SIGHUP.
pub(super) async fn next_signal() -> io::Result<()> {
    Signals::listen()?.next().await;
    Ok(())
}

/// A signal that ends a command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Received {
    Interrupt,
    Terminate,
    Hangup,
}

impl Received {
    fn name(self) -> &'static str {
        match self {
            Received::Interrupt => "SIGINT",
            Received::Terminate => "SIGTERM",
            Received::Hangup => "SIGHUP",
        }
    }
}

/// The signals that arrive after [`Signals::listen`].
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// `None` if the parent process has SIGHUP ignored, as `nohup` does: then it stays ignored.
    hangup: Option<Signal>,
    user1: Signal,
    user2: Signal,
}

impl Signals {
    fn listen() -> io::Result<Signals> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: if is_hangup_ignored() { None } else { Some(signal(SignalKind::hangup())?) },
            user1: signal(SignalKind::user_defined1())?,
            user2: signal(SignalKind::user_defined2())?,
        })
    }

    /// Waits for the next signal that ends a command.
    async fn next(&mut self) -> Received {
        loop {
            let ignored = tokio::select! {
                _ = self.interrupt.recv() => return Received::Interrupt,
                _ = self.terminate.recv() => return Received::Terminate,
                () = received(self.hangup.as_mut()) => return Received::Hangup,
                _ = self.user1.recv() => "SIGUSR1",
                _ = self.user2.recv() => "SIGUSR2",
            };
            tracing::warn!(signal = ignored, "received a signal that has no meaning here: it is ignored");
        }
    }
}

/// Waits for the next signal; for ever if there is no listener.
async fn received(listener: Option<&mut Signal>) {
    match listener {
        Some(listener) => {
            listener.recv().await;
        }
        None => std::future::pending().await,
    }
}

/// Returns true if the process ignores SIGHUP. Known only on Linux; false elsewhere.
fn is_hangup_ignored() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // Bit 0 is signal 1, SIGHUP.
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

/// Runs a command on a Tokio runtime. Commands that use no network do not need one.
pub(super) fn on_runtime<T>(command: impl Future<Output = Result<T, CommandError>>) -> Result<T, CommandError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(CommandError::failed("cannot start the runtime"))?;
    let outcome = runtime.block_on(command);
    // A thread that still waits for the network must not delay the end of the program.
    runtime.shutdown_background();
    outcome
}
