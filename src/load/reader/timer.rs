//! Interrupts a statement that exceeds its time limit. Only the engine's time counts, not the time between two batches.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use duckdb::InterruptHandle;

/// A thread that interrupts the engine when its time is up.
pub(super) struct StatementTimer {
    turns: Option<Sender<Turn>>,
    thread: Option<JoinHandle<()>>,
    is_used_up: Arc<AtomicBool>,
}

/// The engine works between `Begin` and `End`.
enum Turn {
    Begin,
    End,
}

impl StatementTimer {
    /// Starts the timer of one statement.
    pub fn new(engine: Arc<InterruptHandle>, limit: Duration) -> std::io::Result<StatementTimer> {
        let (turns, received) = mpsc::channel();
        let is_used_up = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_used_up);
        let timer = move || {
            let mut remaining = limit;
            while let Ok(Turn::Begin) = received.recv() {
                let began = Instant::now();
                match received.recv_timeout(remaining) {
                    Ok(_) => remaining = remaining.saturating_sub(began.elapsed()),
                    Err(RecvTimeoutError::Timeout) => {
                        flag.store(true, Ordering::SeqCst);
                        engine.interrupt();
                        // The next message is the end of the interrupted turn.
                        return;
                    }
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        };
        let thread = thread::Builder::new().name("statement-timer".to_owned()).spawn(timer)?;
        Ok(StatementTimer { turns: Some(turns), thread: Some(thread), is_used_up })
    }

    /// Runs work of the engine on the clock.
    pub fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        self.send(Turn::Begin);
        let outcome = work();
        self.send(Turn::End);
        outcome
    }

    /// Returns true if the time is up.
    pub fn is_used_up(&self) -> bool {
        self.is_used_up.load(Ordering::SeqCst)
    }

    fn send(&self, turn: Turn) {
        // The thread ends after an interrupt and receives nothing more.
        if let Some(turns) = &self.turns {
            turns.send(turn).ok();
        }
    }
}

impl Drop for StatementTimer {
    /// Waits for the thread, so that it cannot interrupt the next statement.
    fn drop(&mut self) {
        self.turns = None;
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}
