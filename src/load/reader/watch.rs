//! Stops a statement that takes too long. Only the engine's own time counts:
//! whoever reads the rows may take all the time he likes between them.

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

/// A thread that interrupts the engine when the time is used up.
pub(super) struct Watch {
    turns: Option<Sender<Turn>>,
    thread: Option<JoinHandle<()>>,
    is_used_up: Arc<AtomicBool>,
}

/// The engine works from `Begin` to `End`.
enum Turn {
    Begin,
    End,
}

impl Watch {
    /// Allows one statement so much time.
    pub fn new(engine: Arc<InterruptHandle>, limit: Duration) -> std::io::Result<Watch> {
        let (turns, heard) = mpsc::channel();
        let is_used_up = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_used_up);
        let watch = move || {
            let mut left = limit;
            while let Ok(Turn::Begin) = heard.recv() {
                let began = Instant::now();
                match heard.recv_timeout(left) {
                    Ok(_) => left = left.saturating_sub(began.elapsed()),
                    Err(RecvTimeoutError::Timeout) => {
                        flag.store(true, Ordering::SeqCst);
                        engine.interrupt();
                        // What is heard next is the end of the turn that was interrupted.
                        return;
                    }
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        };
        let thread = thread::Builder::new().name("statement-watch".to_owned()).spawn(watch)?;
        Ok(Watch { turns: Some(turns), thread: Some(thread), is_used_up })
    }

    /// Lets the engine work, on the clock.
    pub fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        self.tell(Turn::Begin);
        let outcome = work();
        self.tell(Turn::End);
        outcome
    }

    /// Whether the time ran out.
    pub fn is_used_up(&self) -> bool {
        self.is_used_up.load(Ordering::SeqCst)
    }

    fn tell(&self, turn: Turn) {
        // A thread that has interrupted hears no more.
        if let Some(turns) = &self.turns {
            turns.send(turn).ok();
        }
    }
}

impl Drop for Watch {
    /// Waits for the thread, so that it cannot interrupt the next statement.
    fn drop(&mut self) {
        self.turns = None;
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}
