//! The windows that a `sync` or `backfill` has not scanned yet, scope by scope in the order of the plan.

use std::collections::VecDeque;

use crate::{
    model::{Scope, Stream},
    pipeline::{meter::Progress, scan::states::OpenScan},
    plan::{Cutter, Due, Reason},
};

use super::{
    backlog::ScopeBacklog,
    scan_pool::{NoteWords, PendingWindows, ScanTask},
};

/// What a run does with the scan of a window.
#[derive(Clone, Copy, Debug)]
pub(super) struct SyncPurpose {
    pub reason: Reason,
    /// True if no complete scan with these flags has covered the window before. Every ledger records such a scan, even
    /// if no row changed.
    pub is_first_proof: bool,
    /// True if the run scans the window a second time, because many of its rows seem to have vanished.
    pub is_recheck: bool,
}

/// A window that a run scans and commits.
pub(super) type SyncTask = ScanTask<SyncPurpose>;

/// The windows that a run has not scanned yet.
#[derive(Debug, Default)]
pub(super) struct WindowQueue {
    /// Incomplete scans of earlier runs.
    resumed: VecDeque<(SyncTask, OpenScan)>,
    /// Second scans of windows whose rows seem to have vanished.
    rechecks: Vec<SyncTask>,
    scopes: Vec<ScopeQueue>,
}

/// The windows of one scope that a run has not scanned yet.
#[derive(Debug)]
struct ScopeQueue {
    backlog: ScopeBacklog,
    /// Cuts the due ranges into windows.
    cutter: Cutter,
    /// True while a window of guessed length is scanned. Other windows of the scope wait, because that scan shows how
    /// many rows there are per time. Windows that are too short take more pages that are not full, and more tie probes.
    is_scouting: bool,
}

impl WindowQueue {
    /// Creates the queue of a backlog, and adds its windows to the progress.
    pub fn new(backlog: Vec<ScopeBacklog>, progress: &Progress) -> Self {
        let scopes = backlog.into_iter().map(|backlog| {
            backlog.due.iter().for_each(|due| progress.due(backlog.scope, due.window));
            let is_windowed = backlog.scope.stream.is_windowed();
            let cutter = Cutter::new(backlog.due.clone(), backlog.covered.clone(), backlog.page_rows, is_windowed);
            ScopeQueue { backlog, cutter, is_scouting: false }
        });
        Self { scopes: scopes.collect(), ..Self::default() }
    }

    /// Adds an incomplete scan of an earlier run.
    pub fn push_resumed(&mut self, task: SyncTask, scan: OpenScan) {
        self.resumed.push_back((task, scan));
    }

    /// Removes and returns the next incomplete scan of an earlier run.
    pub fn next_resumed(&mut self) -> Option<(SyncTask, OpenScan)> {
        self.resumed.pop_front()
    }

    /// Drops the incomplete scans of earlier runs, which stay unfinished in the checkpoints.
    pub fn drop_resumed(&mut self) {
        self.resumed.clear();
    }

    /// Sets the maximum number of expected rows of each stream's windows.
    pub fn limit_rows(&mut self, rows_max: impl Fn(Stream) -> u64) {
        self.scopes.iter_mut().for_each(|queue| queue.cutter.limit_rows(rows_max(queue.backlog.scope.stream)));
    }

    /// Removes and returns the next window to scan. Returns `None` if no window remains, or if all remaining windows
    /// wait for running scans.
    pub fn next_task(&mut self) -> Option<SyncTask> {
        if let Some(task) = self.rechecks.pop() {
            return Some(task);
        }
        self.scopes.iter_mut().filter(|scope| !scope.is_scouting).find_map(ScopeQueue::next_task)
    }

    /// Returns the streams of the resumed windows, planned windows and second scans that remain. A stream may occur
    /// more than once.
    pub fn remaining(&self) -> impl Iterator<Item = Stream> {
        let has_more = |scope: &&ScopeQueue| scope.cutter.remaining().next().is_some();
        let planned = self.scopes.iter().filter(has_more).map(|scope| scope.backlog.scope.stream);
        let rechecks = self.rechecks.iter().map(|task| task.scope.stream);
        self.resumed.iter().map(|(task, _)| task.scope.stream).chain(rechecks).chain(planned)
    }

    /// Adds a second scan of a window, with a smaller page size, so that the page boundaries are elsewhere. A service
    /// that loses rows at page boundaries loses other rows in the second scan.
    pub fn push_recheck(&mut self, task: SyncTask, progress: &Progress) {
        progress.due(task.scope, task.window);
        let page_rows = (task.page_rows * 2 / 3).max(1);
        let purpose = SyncPurpose { is_recheck: true, ..task.purpose };
        self.rechecks.push(SyncTask { page_rows, is_half: false, purpose, ..task });
    }

    fn scope(&mut self, scope: Scope) -> Option<&mut ScopeQueue> {
        self.scopes.iter_mut().find(|queue| queue.backlog.scope == scope)
    }
}

impl ScopeQueue {
    /// Removes and returns the next window of the scope, or `None` if no window remains. A window whose length is a
    /// guess makes the other windows of the scope wait.
    fn next_task(&mut self) -> Option<SyncTask> {
        let is_length_guessed = self.cutter.is_length_guessed();
        let Due { window, reason } = self.cutter.next_window()?;
        self.is_scouting = is_length_guessed;
        Some(SyncTask {
            scope: self.backlog.scope,
            window,
            flags: self.backlog.rules.flags,
            page_rows: self.backlog.page_rows,
            is_half: self.cutter.is_half(window),
            purpose: SyncPurpose { reason, is_first_proof: reason != Reason::Rescan, is_recheck: false },
        })
    }
}

impl PendingWindows for WindowQueue {
    type Purpose = SyncPurpose;

    const WORDS: NoteWords = NoteWords {
        undeliverable: "are missing",
        around: "The rows around this window are complete; the next run requests the window again",
        given_up: "is left to the next run",
    };

    /// Records the end of a scan. Its number of rows decides the length of the next windows.
    fn finish(&mut self, task: &SyncTask, rows: Option<u64>) {
        if let Some(queue) = self.scope(task.scope) {
            queue.is_scouting = false;
            rows.into_iter().for_each(|rows| queue.cutter.learn(task.window, rows));
        }
    }

    /// Cuts a window into halves. The scope of a window of an earlier run is not in this queue: the window is dropped,
    /// true is returned, and the next plan finds the window due.
    fn halve(&mut self, task: &SyncTask, has_failed: bool) -> bool {
        let (window, reason) = (task.window, task.purpose.reason);
        self.scope(task.scope).is_none_or(|ScopeQueue { cutter, .. }| {
            if has_failed { cutter.halve(window, reason) } else { cutter.cut(window, reason) }
        })
    }

    fn drop_stream(&mut self, stream: Stream) {
        self.scopes.retain(|scope| scope.backlog.scope.stream != stream);
        self.rechecks.retain(|task| task.scope.stream != stream);
        self.resumed.retain(|(task, _)| task.scope.stream != stream);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{
        model::{DAY_MS, FlagSet, Window},
        plan::{DueRules, RescanRules},
    };

    #[test]
    fn a_stream_remains_until_its_last_window_starts() {
        let due = vec![Due { window: Window::new(0, 9 * DAY_MS), reason: Reason::Gap }];
        let rules = DueRules { flags: FlagSet::EMPTY, lag_ms: 0, rescan: RescanRules::default() };
        let scope = Scope::all(Stream::Responses);
        let backlog = ScopeBacklog { scope, rules, page_rows: 1000, covered: Vec::new(), due };
        let mut windows = WindowQueue::new(vec![backlog], &Progress::default());
        let first = windows.next_task().unwrap();
        assert_eq!(windows.remaining().collect::<BTreeSet<_>>(), BTreeSet::from([Stream::Responses]));
        windows.finish(&first, Some(10));
        while let Some(task) = windows.next_task() {
            windows.finish(&task, Some(10));
        }
        assert_eq!(windows.remaining().count(), 0);
        windows.push_recheck(first, &Progress::default());
        assert_eq!(windows.remaining().collect::<Vec<_>>(), [Stream::Responses], "its second scan remains");
    }
}
