//! What a verify has to look at: the covered windows of the range, and the parts of it that were never read. Pure.

use std::cmp::Reverse;

use crate::{
    config::Settings,
    model::{CoverageInterval, IntervalSet, MINUTE_MS, Scope, Window, format_ms},
    plan::{Cutter, Due, Reason, halves},
    state::State,
};

use super::{
    super::{PipelineError, work},
    report::NeverRead,
    task::{Task, VerifyRequest},
};

/// Windows are settled on this grid, as in the plan.
const GRID_MS: i64 = 5 * MINUTE_MS;

/// What there is to do.
pub(super) struct Planned {
    pub range: Window,
    /// Oldest first, over all streams: a verify that is stopped can go on by date.
    pub tasks: Vec<Task>,
    pub never_read: Vec<NeverRead>,
    pub notes: Vec<String>,
}

/// Plans the look at the service's time `now_ms`. What is younger than `settle` is left out of the range: no run has read it yet.
pub(super) fn tasks(
    settings: &Settings,
    state: &State,
    request: VerifyRequest,
    now_ms: i64,
) -> Result<Planned, PipelineError> {
    let works = work(settings, Some(state), None, now_ms)?;
    let ends = works.iter().filter(|work| work.scope.stream.is_windowed()).flat_map(|work| &work.held);
    let covered_end_ms = ends.map(|interval| interval.window.end_ms).max().unwrap_or(request.from_ms);
    let asked = Window::new(request.from_ms, request.to_ms.unwrap_or(covered_end_ms));
    let mut planned = Planned { range: asked, tasks: Vec::new(), never_read: Vec::new(), notes: Vec::new() };
    for work in &works {
        let scope = work.scope;
        let settled_ms = (now_ms - work.rules.settle_ms).div_euclid(GRID_MS) * GRID_MS;
        let range = Window::new(asked.start_ms, asked.end_ms.min(settled_ms));
        if range.end_ms < asked.end_ms && scope.stream.is_windowed() {
            let from = format_ms(settled_ms.max(asked.start_ms));
            planned.notes.push(format!("{scope} from {from} on are younger than `settle`: no run reads them yet"));
        }
        // A stream that is read whole is compared whole: only then is a row that is not returned a difference.
        let held: Vec<CoverageInterval> = match scope.stream.is_windowed() {
            true => work.held.iter().filter_map(|interval| interval.part(range)).collect(),
            false => work.held.clone(),
        };
        let covered: IntervalSet = held.iter().map(|interval| interval.window).collect();
        let gaps = if scope.stream.is_windowed() { covered.gaps_in(range) } else { Vec::new() };
        planned.never_read.extend(gaps.into_iter().map(|gap| NeverRead::new(scope, gap)));
        if held.is_empty() && !scope.stream.is_windowed() {
            planned.never_read.push(NeverRead::new(scope, range));
        }
        for interval in held {
            let read_ms = read_ms(state, scope, &interval)?;
            let due = Due { window: interval.window, reason: Reason::Rescan };
            let mut cutter = Cutter::new(vec![due], vec![interval], work.page_rows, scope.stream.is_windowed());
            while let Some(Due { window, .. }) = cutter.next_window() {
                let (flags, page_rows) = (interval.flags, work.page_rows);
                planned.tasks.push(Task {
                    scope,
                    window,
                    flags,
                    page_rows,
                    read_ms,
                    is_part: false,
                    is_part_of_all: settings
                        .streams
                        .iter()
                        .any(|of| of.stream == scope.stream && !of.statuses.is_empty()),
                });
            }
        }
    }
    // A stream without windows goes first.
    planned.tasks.sort_by_key(|task| (Reverse(!task.scope.stream.is_windowed()), task.window.start_ms));
    Ok(planned)
}

/// When the interval was really read, also where a doubt set its time back.
fn read_ms(state: &State, scope: Scope, interval: &CoverageInterval) -> Result<i64, PipelineError> {
    let intervals = state.intervals(scope)?;
    let within = intervals.iter().find(|stored| stored.interval.window.contains(interval.window.start_ms));
    Ok(within.map_or(interval.scanned_ms, |stored| stored.read.read_ms))
}

/// A window that was too much for the service in two; `None` when it cannot be cut any smaller.
pub(super) fn halves_of(task: &Task) -> Option<[Task; 2]> {
    let halves = halves(task.window).filter(|_| task.scope.stream.is_windowed())?;
    Some(halves.map(|window| Task { window, is_part: true, ..task.clone() }))
}
