//! The windows of a verify: the request, the plan (the covered windows of the range to compare, and the parts of the
//! range that no run has read), and the queue of the windows that still have to be scanned.

use std::{cmp::Reverse, collections::VecDeque};

use serde::Serialize;

use crate::{
    config::Settings,
    model::{CoverageInterval, IntervalSet, MINUTE_MS, Scope, Stream, Window, format_ms},
    pipeline::{
        error::PipelineError,
        sync::{
            backlog::{ScopeBacklog, ValidCoverage, backlog},
            scan_pool::{NoteWords, PendingWindows, ScanTask},
        },
    },
    plan::{Cutter, Due, Reason, halves},
    state::State,
};

/// The newest time that a verify compares is a multiple of this length, because the newest window of a run also ends at
/// one.
const GRID_MS: i64 = 5 * MINUTE_MS;

/// The range of a verify, the windows to compare, and what cannot be compared.
pub(super) struct VerifyPlan {
    pub range: Window,
    /// The windows to compare: streams without windows first, followed by the windows of all streams, oldest first. In
    /// this order, a verify that was stopped can be resumed at a date.
    pub tasks: Vec<CompareTask>,
    pub never_read: Vec<StreamRange>,
    pub notes: Vec<String>,
}

/// Plans a verify at the service's time `now_ms`. Leaves out rows younger than the setting `settle`, because no run
/// reads them yet.
pub(super) fn plan(
    settings: &Settings,
    state: &State,
    request: VerifyRequest,
    now_ms: i64,
) -> Result<VerifyPlan, PipelineError> {
    let scopes = backlog(settings, Some(state), None, now_ms, ValidCoverage::Stored)?;
    let ends = scopes.iter().filter(|scope| scope.scope.stream.is_windowed()).flat_map(|scope| &scope.covered);
    let covered_end_ms = ends.map(|interval| interval.window.end_ms).max().unwrap_or(request.from_ms);
    let range = Window::new(request.from_ms, request.to_ms.unwrap_or(covered_end_ms));
    let mut plan = VerifyPlan { range, tasks: Vec::new(), never_read: Vec::new(), notes: Vec::new() };
    for scope in &scopes {
        let covered = plan.covered_part(scope, now_ms);
        let is_filtered = settings.streams.iter().any(|of| of.stream == scope.scope.stream && !of.statuses.is_empty());
        for interval in covered {
            plan.add_windows(scope, interval, read_ms(state, scope.scope, &interval)?, is_filtered);
        }
    }
    plan.tasks.sort_by_key(|task| (Reverse(!task.scope.stream.is_windowed()), task.window.start_ms));
    Ok(plan)
}

impl VerifyPlan {
    /// Returns the coverage of a scope inside the range. Adds gaps in the coverage to `never_read`, and a note if the
    /// range has rows that are too young. Returns the whole coverage for a stream without windows.
    fn covered_part(&mut self, backlog: &ScopeBacklog, now_ms: i64) -> Vec<CoverageInterval> {
        let scope = backlog.scope;
        let settled_ms = (now_ms - backlog.rules.lag_ms).div_euclid(GRID_MS) * GRID_MS;
        let range = Window::new(self.range.start_ms, self.range.end_ms.min(settled_ms));
        if !scope.stream.is_windowed() {
            // The list is compared as a whole, because only the complete list shows that a row is gone.
            if backlog.covered.is_empty() {
                self.never_read.push(StreamRange::new(scope, range));
            }
            return backlog.covered.clone();
        }
        if range.end_ms < self.range.end_ms {
            let from = format_ms(settled_ms.max(self.range.start_ms));
            self.notes.push(format!("{scope} from {from} on are younger than `settle`: no run reads them yet"));
        }
        let covered: Vec<CoverageInterval> =
            backlog.covered.iter().filter_map(|interval| interval.part(range)).collect();
        let gaps = covered.iter().map(|interval| interval.window).collect::<IntervalSet>().gaps_in(range);
        self.never_read.extend(gaps.into_iter().map(|gap| StreamRange::new(scope, gap)));
        covered
    }

    /// Cuts a covered interval into windows, and adds them to the tasks. `read_ms` is when a run last read the
    /// interval.
    fn add_windows(&mut self, backlog: &ScopeBacklog, interval: CoverageInterval, read_ms: i64, is_filtered: bool) {
        let (scope, page_rows) = (backlog.scope, backlog.page_rows);
        let due = Due { window: interval.window, reason: Reason::Rescan };
        let mut cutter = Cutter::new(vec![due], vec![interval], page_rows, scope.stream.is_windowed());
        while let Some(Due { window, .. }) = cutter.next_window() {
            // With more flags than the last scan had, the service would send rows that no warehouse can have.
            let flags = interval.flags;
            let purpose = ComparePurpose { read_ms, is_filtered };
            self.tasks.push(CompareTask { scope, window, flags, page_rows, is_half: false, purpose });
        }
    }
}

/// Returns when a run last read the interval, in epoch milliseconds. The interval's own scan time cannot be used,
/// because it is set back if the interval needs a recheck.
fn read_ms(state: &State, scope: Scope, interval: &CoverageInterval) -> Result<i64, PipelineError> {
    let intervals = state.intervals(scope)?;
    let within = intervals.iter().find(|stored| stored.interval.window.contains(interval.window.start_ms));
    Ok(within.map_or(interval.scanned_ms, |stored| stored.read.read_ms))
}

/// The range of a verify, and how much of each difference it lists.
#[derive(Clone, Copy, Debug)]
pub struct VerifyRequest {
    pub from_ms: i64,
    /// The end of the range, in epoch milliseconds. `None` for the end of the coverage.
    pub to_ms: Option<i64>,
    /// The maximum number of rows that the report lists for each kind of difference in a window.
    pub keys_max: usize,
}

/// A range of creation time, in the format of the command line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Range {
    pub start: String,
    pub end: String,
}

impl From<Window> for Range {
    fn from(window: Window) -> Self {
        Range { start: format_ms(window.start_ms), end: format_ms(window.end_ms) }
    }
}

/// A time range of a stream, or of one survey of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StreamRange {
    pub stream: &'static str,
    pub survey_id: Option<i64>,
    #[serde(flatten)]
    pub range: Range,
}

impl StreamRange {
    pub(super) fn new(scope: Scope, window: Window) -> Self {
        StreamRange { stream: scope.stream.name(), survey_id: scope.survey_id, range: window.into() }
    }
}

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
