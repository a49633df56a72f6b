//! Interrupts a statement that exceeds its time limit. The limit is for the time in which the engine works. The time in
//! which the caller handles a batch does not count.

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

/// A timer with a thread that interrupts the engine when the time of a statement is used up.
pub(super) struct StatementTimer {
    /// Sends to the thread when the engine begins and stops working. `None` once the timer is dropped, which ends the
    /// thread.
    messages: Option<Sender<Message>>,
    /// The thread that waits for the time limit; `None` once the timer is dropped.
    thread: Option<JoinHandle<()>>,
    /// True if the time of the statement is used up.
    is_used_up: Arc<AtomicBool>,
}

/// A message to the thread of the timer.
enum Message {
    /// The engine begins to work: the clock runs.
    Begin,
    /// The engine stops working: the clock stops.
    End,
}

impl StatementTimer {
    /// Starts the timer of one statement, with a stopped clock. `limit` is the time that the engine may work on the
    /// statement.
    pub fn new(engine: Arc<InterruptHandle>, limit: Duration) -> std::io::Result<StatementTimer> {
        let (messages, received) = mpsc::channel();
        let is_used_up = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_used_up);
        let timer = move || {
            let mut remaining = limit;
            while let Ok(Message::Begin) = received.recv() {
                let began = Instant::now();
                match received.recv_timeout(remaining) {
                    Ok(_) => remaining = remaining.saturating_sub(began.elapsed()),
                    Err(RecvTimeoutError::Timeout) => {
                        flag.store(true, Ordering::SeqCst);
                        engine.interrupt();
                        return;
                    }
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        };
        let thread = thread::Builder::new().name("statement-timer".to_owned()).spawn(timer)?;
        Ok(StatementTimer { messages: Some(messages), thread: Some(thread), is_used_up })
    }

    /// Runs `work` and counts its time against the limit of the statement.
    pub fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        self.send(Message::Begin);
        let outcome = work();
        self.send(Message::End);
        outcome
    }

    /// Returns true if the statement exceeded its time limit and was interrupted.
    pub fn is_used_up(&self) -> bool {
        self.is_used_up.load(Ordering::SeqCst)
    }

    /// Sends a message to the thread of the timer.
    fn send(&self, message: Message) {
        // Sending fails after an interrupt, because the thread ends with the interrupt.
        if let Some(messages) = &self.messages {
            messages.send(message).ok();
        }
    }
}

impl Drop for StatementTimer {
    /// Waits until the thread has ended, so that it cannot interrupt the next statement.
    fn drop(&mut self) {
        self.messages = None;
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}
