//! What the checkpoints and the clocks know against the data at the end of a run. The run's report has it, so that the
//! view `untrusted` finds it in `sync_runs`.

use crate::{
    model::{CLOCK, DAY_MS, NEEDS_RECHECK, NEEDS_RECHECK_MS, Untrusted, Window, format_ms},
    pipeline::{
        error::PipelineError,
        service_profile::clocks::{clock_skew_ms, is_clock_in_doubt},
    },
    state::{State, StateError},
};

use super::run::Run;

/// Maximum entries of a report.
const ENTRIES_MAX: usize = 100;
/// Name of the value in the state file: the entries of the last row in `sync_runs`.
const RECORDED: &str = "untrusted_recorded";

impl Run {
    /// Sets the entries of the report.
    pub(super) fn note_untrusted(&mut self) -> Result<(), PipelineError> {
        let found = untrusted(&self.context.state(), self.session.now_ms())?;
        self.findings.untrusted = found;
        Ok(())
    }

    /// Returns true if the entries are not those of the last row in `sync_runs`.
    pub(super) fn is_untrusted_news(&self) -> Result<bool, PipelineError> {
        let recorded = self.context.state().behaviour::<Vec<Untrusted>>(RECORDED)?;
        Ok(without_times(&recorded.unwrap_or_default().0) != without_times(&self.findings.untrusted))
    }

    /// Remembers that the row of this run in `sync_runs` has the entries.
    pub(super) fn remember_untrusted(&self) -> Result<(), PipelineError> {
        let state = self.context.state();
        // Most runs find nothing, and store nothing.
        if self.findings.untrusted.is_empty() && state.behaviour::<Vec<Untrusted>>(RECORDED)?.is_none() {
            return Ok(());
        }
        state.remember_behaviour(RECORDED, &self.findings.untrusted, self.session.now_ms())?;
        Ok(())
    }
}

/// The clock's range moves with the time, which is no news.
fn without_times(entries: &[Untrusted]) -> Vec<Untrusted> {
    let without = |entry: &Untrusted| match entry.reason == CLOCK {
        true => Untrusted { reason: CLOCK.to_owned(), ..Untrusted::default() },
        false => entry.clone(),
    };
    entries.iter().map(without).collect()
}

/// Returns the windows that need a recheck, and the clock if it is in doubt.
fn untrusted(state: &State, here_ms: i64) -> Result<Vec<Untrusted>, StateError> {
    let mut found = Vec::new();
    let skew_ms = clock_skew_ms(state, here_ms)?.unwrap_or(0);
    if is_clock_in_doubt(state, -skew_ms)? {
        found.push(of_clock(here_ms, skew_ms));
    }
    for scope in state.covered_scopes()? {
        let intervals = state.coverage(scope)?;
        let unsure = intervals.iter().filter(|interval| interval.scanned_ms == NEEDS_RECHECK_MS);
        found.extend(unsure.map(|interval| {
            let Window { start_ms, end_ms } = interval.window;
            let range = scope.stream.is_windowed().then(|| (format_ms(start_ms), format_ms(end_ms)));
            let (range_start, range_end) = range.unzip();
            Untrusted {
                reason: NEEDS_RECHECK.to_owned(),
                stream: Some(scope.stream.name().to_owned()),
                survey_id: scope.survey_id,
                range_start,
                range_end,
                detail: "the last scan was unsure; every run repeats it until one is sure".to_owned(),
                ..Untrusted::default()
            }
        }));
    }
    found.truncate(ENTRIES_MAX);
    Ok(found)
}

/// `skew_ms` is how far the service's clock is ahead of this machine's.
fn of_clock(here_ms: i64, skew_ms: i64) -> Untrusted {
    let days = skew_ms.unsigned_abs() as f64 / DAY_MS as f64;
    let relation = if skew_ms > 0 { "ahead of" } else { "behind" };
    Untrusted {
        reason: CLOCK.to_owned(),
        range_start: Some(format_ms(here_ms.min(here_ms.saturating_add(skew_ms)))),
        detail: format!("the service's clock is {days:.1} days {relation} this machine's, and windows end by it"),
        ..Untrusted::default()
    }
}
