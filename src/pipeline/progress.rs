//! Counters of a run, for the progress bar.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use crate::model::{DAY_MS, Scope, Stream, Window};

/// Counters of a run in progress.
#[derive(Debug, Default)]
pub struct Progress {
    windows_done: AtomicU64,
    windows_under_way: AtomicU64,
    /// Milliseconds of creation time in all windows that were due.
    due_ms: AtomicU64,
    /// Milliseconds of creation time in committed windows.
    done_ms: AtomicU64,
    rows_pulled: AtomicU64,
    rows_committed: AtomicU64,
    reached: Mutex<Option<Reach>>,
}

/// The window that a run committed last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    pub stream: Stream,
    /// The end of the window in epoch milliseconds. `None` for a list without windows.
    pub until_ms: Option<i64>,
}

/// The counters at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    pub windows_done: u64,
    pub windows_under_way: u64,
    pub due_ms: u64,
    pub done_ms: u64,
    pub rows_pulled: u64,
    pub rows_committed: u64,
    pub reached: Option<Reach>,
}

impl Snapshot {
    /// Returns the committed share of the creation time that was due: 0 to 1. Returns 0 if nothing was due.
    pub fn share(&self) -> f64 {
        match self.due_ms {
            0 => 0.0,
            due_ms => self.done_ms.min(due_ms) as f64 / due_ms as f64,
        }
    }

    /// Estimates the number of all windows, as if the remaining windows were as long as the finished ones. Returns
    /// `None` before the first commit.
    pub fn windows_expected(&self) -> Option<u64> {
        let share = self.share();
        let expected = (self.windows_done as f64 / share).round() as u64;
        (share > 0.0).then_some(expected.max(self.windows_done))
    }
}

impl Progress {
    /// Reads the counters.
    pub fn snapshot(&self) -> Snapshot {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Snapshot {
            windows_done: read(&self.windows_done),
            windows_under_way: read(&self.windows_under_way),
            due_ms: read(&self.due_ms),
            done_ms: read(&self.done_ms),
            rows_pulled: read(&self.rows_pulled),
            rows_committed: read(&self.rows_committed),
            reached: *self.reached.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Adds a window that the run has to scan.
    pub(super) fn due(&self, scope: Scope, window: Window) {
        self.due_ms.fetch_add(length_ms(scope, window), Ordering::Relaxed);
    }

    /// Records that the pull of a window began.
    pub(super) fn begun(&self) {
        self.windows_under_way.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds rows that were received.
    pub(super) fn pulled(&self, rows: u64) {
        self.rows_pulled.fetch_add(rows, Ordering::Relaxed);
    }

    /// Records that the pull of a window ended, with or without success.
    pub(super) fn ended(&self) {
        self.windows_under_way.fetch_sub(1, Ordering::Relaxed);
    }

    /// Records that a window was committed, or compared by a verify. `rows` is the number of rows of the window.
    pub(super) fn committed(&self, scope: Scope, window: Window, rows: u64) {
        self.windows_done.fetch_add(1, Ordering::Relaxed);
        self.done_ms.fetch_add(length_ms(scope, window), Ordering::Relaxed);
        self.rows_committed.fetch_add(rows, Ordering::Relaxed);
        let until_ms = scope.stream.is_windowed().then_some(window.end_ms);
        *self.reached.lock().unwrap_or_else(PoisonError::into_inner) = Some(Reach { stream: scope.stream, until_ms });
    }
}

/// Returns the milliseconds by which a window counts in the progress. A stream without windows counts as one day.
fn length_ms(scope: Scope, window: Window) -> u64 {
    let length_ms = if scope.stream.is_windowed() { window.len_ms() } else { DAY_MS };
    length_ms.unsigned_abs()
}
