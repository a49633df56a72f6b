//! What the checkpoints and the clocks know against the data at the end of a run. The run's report has it, so that the
//! view `untrusted` finds it in `sync_runs`.

use crate::{
    model::{CLOCK, DAY_MS, NEEDS_RECHECK, NEEDS_RECHECK_MS, Scope, Untrusted, WITHHELD, Window, format_ms},
    pipeline::{
        error::PipelineError,
        service_profile::clocks::{clock_skew_ms, is_clock_in_doubt},
    },
    state::{State, StateError},
};

use super::{findings::WithheldRows, run::Run};

/// Maximum entries of a report.
const ENTRIES_MAX: usize = 100;
/// Name of the value in the state file: the entries of the last row in `sync_runs`.
const RECORDED: &str = "untrusted_recorded";

impl Run {
    /// Sets the entries of the report.
    pub(super) fn note_untrusted(&mut self) -> Result<(), PipelineError> {
        let state = self.context.state();
        let mut found = of_clock(&state, self.session.now_ms())?;
        let before = recorded(&state)?;
        for scope in state.covered_scopes()? {
            let intervals = state.coverage(scope)?;
            let unsure = intervals.iter().filter(|interval| interval.scanned_ms == NEEDS_RECHECK_MS);
            for window in unsure.map(|interval| interval.window) {
                found.extend(of_window(scope, window, self.findings.withheld_rows(), &before));
            }
        }
        drop(state);
        found.truncate(ENTRIES_MAX);
        self.findings.untrusted = found;
        Ok(())
    }

    /// Returns true if the entries are not those of the last row in `sync_runs`.
    pub(super) fn is_untrusted_news(&self) -> Result<bool, PipelineError> {
        Ok(without_times(&recorded(&self.context.state())?) != without_times(&self.findings.untrusted))
    }

    /// Remembers that the row of this run in `sync_runs` has the entries.
    pub(super) fn remember_untrusted(&self) -> Result<(), PipelineError> {
        let state = self.context.state();
        // Most runs find nothing, and store nothing.
        if !self.findings.untrusted.is_empty() || !recorded(&state)?.is_empty() {
            state.remember_behaviour(RECORDED, &self.findings.untrusted, self.session.now_ms())?;
        }
        Ok(())
    }
}

fn recorded(state: &State) -> Result<Vec<Untrusted>, StateError> {
    Ok(state.behaviour(RECORDED)?.unwrap_or_default().0)
}

/// The clock's range moves with the time, which is no news.
fn without_times(entries: &[Untrusted]) -> Vec<Untrusted> {
    let without = |entry: &Untrusted| match entry.reason == CLOCK {
        true => Untrusted { reason: CLOCK.to_owned(), ..Untrusted::default() },
        false => entry.clone(),
    };
    entries.iter().map(without).collect()
}

/// Returns the entries of a window that needs a recheck: the rows that this run withheld there, or that were withheld
/// `before` if this run did not scan the window, or else that its last scan was unsure.
fn of_window(scope: Scope, window: Window, withheld: &[WithheldRows], before: &[Untrusted]) -> Vec<Untrusted> {
    let unsure = Untrusted {
        reason: NEEDS_RECHECK.to_owned(),
        stream: Some(scope.stream.name().to_owned()),
        survey_id: scope.survey_id,
        detail: "the last scan was unsure; every run repeats it until one is sure".to_owned(),
        ..within(scope, window)
    };
    let here = withheld.iter().filter(|rows| rows.scope == scope && rows.window.overlaps(window));
    let here: Vec<Untrusted> = here
        .map(|rows| Untrusted {
            reason: WITHHELD.to_owned(),
            records: i64::try_from(rows.withheld).ok(),
            detail: "rows that the service no longer returns are kept; if they are really gone: studysync sync --accept-vanished"
                .to_owned(),
            ..Untrusted { stream: unsure.stream.clone(), survey_id: scope.survey_id, ..within(scope, rows.window) }
        })
        .collect();
    if !here.is_empty() {
        return here;
    }
    let same_range = |entry: &&Untrusted| {
        entry.reason == WITHHELD
            && (&entry.stream, entry.survey_id) == (&unsure.stream, unsure.survey_id)
            && (&entry.range_start, &entry.range_end) == (&unsure.range_start, &unsure.range_end)
    };
    vec![before.iter().find(same_range).unwrap_or(&unsure).clone()]
}

/// Returns an entry with the range of a window; without a range for a list that is always read completely.
fn within(scope: Scope, window: Window) -> Untrusted {
    let is_windowed = scope.stream.is_windowed();
    let moment = |at_ms| is_windowed.then(|| format_ms(at_ms));
    Untrusted { range_start: moment(window.start_ms), range_end: moment(window.end_ms), ..Untrusted::default() }
}

/// Returns the entry of the service's clock, if it is in doubt.
fn of_clock(state: &State, here_ms: i64) -> Result<Vec<Untrusted>, StateError> {
    let skew_ms = clock_skew_ms(state, here_ms)?.unwrap_or(0);
    if !is_clock_in_doubt(state, -skew_ms)? {
        return Ok(Vec::new());
    }
    let days = skew_ms.unsigned_abs() as f64 / DAY_MS as f64;
    let relation = if skew_ms > 0 { "ahead of" } else { "behind" };
    Ok(vec![Untrusted {
        reason: CLOCK.to_owned(),
        range_start: Some(format_ms(here_ms.min(here_ms.saturating_add(skew_ms)))),
        detail: format!("the service's clock is {days:.1} days {relation} this machine's, and windows end by it"),
        ..Untrusted::default()
    }])
}
