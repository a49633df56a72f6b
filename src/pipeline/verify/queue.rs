//! The queue of windows that a verify still has to scan.

use std::collections::VecDeque;

use crate::{model::Stream, plan::halves};

use super::super::scan_pool::{NoteWords, PendingWindows, ScanTask};

/// What the comparison of a window needs besides the scan.
#[derive(Clone, Copy, Debug)]
pub(super) struct ComparePurpose {
    /// When a run last read the window, in epoch milliseconds by the service's clock.
    pub read_ms: i64,
    /// True if the settings name survey statuses, so that the scan may lack rows that a warehouse has.
    pub is_filtered: bool,
}

/// A window that a verify scans and compares.
pub(super) type CompareTask = ScanTask<ComparePurpose>;

/// The windows that a verify still has to scan, in the order of the plan.
#[derive(Debug)]
pub(super) struct CompareQueue {
    pending: VecDeque<CompareTask>,
    /// Windows of streams that the verify has given up after failures.
    dropped: Vec<CompareTask>,
}

impl CompareQueue {
    pub fn new(tasks: Vec<CompareTask>) -> Self {
        Self { pending: tasks.into(), dropped: Vec::new() }
    }

    /// Removes and returns the next window to scan.
    pub fn next_task(&mut self) -> Option<CompareTask> {
        self.pending.pop_front()
    }

    /// Returns the windows that were not scanned, dropped windows included.
    pub fn into_remaining(self) -> impl Iterator<Item = CompareTask> {
        self.pending.into_iter().chain(self.dropped)
    }
}

impl PendingWindows for CompareQueue {
    type Purpose = ComparePurpose;

    const WORDS: NoteWords = NoteWords {
        undeliverable: "were not compared",
        around: "The rows around this window were compared",
        given_up: "was not compared",
    };

    fn finish(&mut self, _: &CompareTask, _: Option<u64>) {}

    /// Puts the halves of a window at the front of the queue. Returns false if the window cannot be halved.
    fn halve(&mut self, task: &CompareTask, has_failed: bool) -> bool {
        let Some([first, second]) = halves(task.window).filter(|_| task.scope.stream.is_windowed()) else {
            return false;
        };
        for window in [second, first] {
            self.pending.push_front(CompareTask { window, is_half: has_failed, ..task.clone() });
        }
        true
    }

    fn drop_stream(&mut self, stream: Stream) {
        let (dropped, pending) = self.pending.drain(..).partition::<Vec<_>, _>(|task| task.scope.stream == stream);
        self.pending = pending.into();
        self.dropped.extend(dropped);
    }
}
