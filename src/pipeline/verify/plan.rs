//! Plans a verify: the covered windows of the range to compare, and the parts of the range that no run has read.
//!
//! The request for a verify.

use std::cmp::Reverse;

use crate::{
    config::Settings,
    model::{CoverageInterval, IntervalSet, MINUTE_MS, Scope, Window, format_ms},
    plan::{Cutter, Due, Reason},
    state::State,
};

use super::{
    super::{PipelineError, ScopeBacklog, backlog},
    queue::{ComparePurpose, CompareTask},
    report::StreamRange,
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
    let scopes = backlog(settings, Some(state), None, now_ms)?;
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
