//! What a verify has to look at: the covered windows of the range, and the parts of it that were never read. Pure.

use std::cmp::Reverse;

use crate::{
    config::Settings,
    model::{IntervalSet, MINUTE_MS, Scope, Segment, Window, format_ms},
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

/// Plans the look at the service's time `now_ms`. What is younger than `settle` is left out of the range:
/// no run has read it yet.
pub(super) fn tasks(
    settings: &Settings,
    state: &State,
    request: VerifyRequest,
    now_ms: i64,
) -> Result<Planned, PipelineError> {
    let works = work(settings, Some(state), None, now_ms).map_err(PipelineError::State)?;
    let ends = works.iter().filter(|work| work.scope.stream.is_windowed()).flat_map(|work| &work.held);
    let covered_end_ms = ends.map(|segment| segment.window.end_ms).max().unwrap_or(request.from_ms);
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
        let held: Vec<Segment> = match scope.stream.is_windowed() {
            true => work.held.iter().filter_map(|segment| segment.part(range)).collect(),
            false => work.held.clone(),
        };
        let covered: IntervalSet = held.iter().map(|segment| segment.window).collect();
        let gaps = if scope.stream.is_windowed() { covered.gaps_in(range) } else { Vec::new() };
        planned.never_read.extend(gaps.into_iter().map(|gap| NeverRead::new(scope, gap)));
        if held.is_empty() && !scope.stream.is_windowed() {
            planned.never_read.push(NeverRead::new(scope, range));
        }
        for segment in held {
            let read_ms = read_ms(state, scope, &segment)?;
            let due = Due { window: segment.window, reason: Reason::Rescan };
            let mut cutter = Cutter::new(vec![due], vec![segment], work.page_rows, scope.stream.is_windowed());
            while let Some(Due { window, .. }) = cutter.next_window() {
                let (flags, page_rows) = (segment.flags, work.page_rows);
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

/// When the stretch was really read, also where a doubt set its time back.
fn read_ms(state: &State, scope: Scope, segment: &Segment) -> Result<i64, PipelineError> {
    let stretches = state.stretches(scope).map_err(PipelineError::State)?;
    let within = stretches.iter().find(|stretch| stretch.segment.window.contains(segment.window.start_ms));
    Ok(within.map_or(segment.scanned_ms, |stretch| stretch.read.read_ms))
}

/// A window that was too much for the service in two; `None` when it cannot be cut any smaller.
pub(super) fn halves_of(task: &Task) -> Option<[Task; 2]> {
    let halves = halves(task.window).filter(|_| task.scope.stream.is_windowed())?;
    Some(halves.map(|window| Task { window, is_part: true, ..task.clone() }))
}
