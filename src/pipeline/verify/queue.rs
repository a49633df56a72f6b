//! The windows that a verify has not compared yet, oldest first.

use std::collections::VecDeque;

use crate::{model::Stream, plan::halves};

use super::super::scan_pool::{PendingWindows, ScanTask};

/// What a verify needs besides the window.
#[derive(Clone, Copy, Debug)]
pub(super) struct ComparePurpose {
    /// When a run last read the window, by the service's clock; epoch milliseconds.
    pub read_ms: i64,
    /// True if the settings select some survey statuses only, so that the scan lacks rows of the warehouse.
    pub is_filtered: bool,
}

/// A window that a verify scans and compares.
pub(super) type CompareTask = ScanTask<ComparePurpose>;

#[derive(Debug)]
pub(super) struct CompareQueue {
    pending: VecDeque<CompareTask>,
    /// Windows of streams that the verify gave up.
    dropped: Vec<CompareTask>,
}

impl CompareQueue {
    pub fn new(tasks: Vec<CompareTask>) -> Self {
        Self { pending: tasks.into(), dropped: Vec::new() }
    }

    /// The next window to scan.
    pub fn next_task(&mut self) -> Option<CompareTask> {
        self.pending.pop_front()
    }

    /// The windows that were not scanned.
    pub fn into_remaining(self) -> impl Iterator<Item = CompareTask> {
        self.pending.into_iter().chain(self.dropped)
    }
}

impl PendingWindows for CompareQueue {
    type Purpose = ComparePurpose;

    fn finish(&mut self, _: &CompareTask, _: Option<u64>) {}

    fn halve(&mut self, task: &CompareTask) -> bool {
        let Some([first, second]) = halves(task.window).filter(|_| task.scope.stream.is_windowed()) else {
            return false;
        };
        for window in [second, first] {
            self.pending.push_front(CompareTask { window, is_half: true, ..task.clone() });
        }
        true
    }

    fn drop_stream(&mut self, stream: Stream) {
        let (dropped, pending) = self.pending.drain(..).partition::<Vec<_>, _>(|task| task.scope.stream == stream);
        self.pending = pending.into();
        self.dropped.extend(dropped);
    }
}
