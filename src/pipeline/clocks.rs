//! Checks whether the service's clock can be right. Windows end by the service's clock: a clock that is days behind
//! hides rows, and a clock that is days ahead marks future times as complete.

use crate::{
    flatten::flatten_page,
    model::{DAY_MS, DriftRules, FlagSet, HOUR_MS, PageRequest, Scope, Stream, Window, format_ms, is_in_future},
    source::{Answer, Range, Source, SourceError},
    state::{State, StateError},
};

use super::{PipelineError, Run, backlog::page_rows, ties::moments_of};

/// The largest difference between two clocks that is not reported.
const DIFFERENCE_MAX_MS: i64 = DAY_MS;
/// The start of 2026, when this program was written. A clock with an earlier time is wrong.
const EARLIEST_NOW_MS: i64 = 1_767_225_600_000;
/// Name of the behaviour that stores by how many milliseconds the service's clock was behind this machine's clock when
/// no row was found that is days newer than the service's clock.
const AGREED_BEHIND: &str = "clock_agreed_behind_ms";
/// If the service's clock is behind by this much more than the stored difference, it is compared with the rows again.
const AGREED_TOLERANCE_MS: i64 = 3_600_000;

/// The list whose rows the service's clock is compared with.
#[derive(Clone, Copy, Debug)]
pub struct ClockSample {
    pub list: Stream,
    /// Number of rows to request.
    pub page_rows: u32,
}

/// How the service's clock is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockMismatch {
    /// The service has rows that are days newer than its clock.
    Behind { service_ms: i64, here_ms: i64 },
    /// The service's clock is days ahead of this machine's, and this machine's clock may be right.
    Ahead { service_ms: i64, here_ms: i64 },
}

/// The result of a comparison of the clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockComparison {
    /// The service's clock may be right.
    Plausible,
    /// The service's clock is days behind, and its rows could not be requested. So it may be right or wrong.
    Unknown,
    Wrong(ClockMismatch),
}

impl std::fmt::Display for ClockMismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let days = |by_ms: i64| by_ms as f64 / DAY_MS as f64;
        match *self {
            ClockMismatch::Behind { service_ms, here_ms } => write!(
                f,
                "the service's clock (its Date header) says {}, {:.1} days behind this machine's, and the service has newer \
                 answers",
                format_ms(service_ms),
                days(here_ms - service_ms)
            ),
            ClockMismatch::Ahead { service_ms, here_ms } => write!(
                f,
                "the service's clock (its Date header) says {}, {:.1} days ahead of this machine's",
                format_ms(service_ms),
                days(service_ms - here_ms)
            ),
        }
    }
}

/// Compares the service's clock with this machine's clock. If the service's clock is days behind, also compares it with
/// the rows of a list, because this machine's clock may be wrong.
///
/// `latest_here_ms` is the latest time that this machine's clock is known to have had. Without a `sample`, the result
/// for a clock that is days behind is `Unknown`.
pub async fn compare_clocks(
    source: &Source,
    sample: Option<ClockSample>,
    service_ms: i64,
    here_ms: i64,
    latest_here_ms: Option<i64>,
) -> Result<ClockComparison, SourceError> {
    if (service_ms - here_ms).abs() <= DIFFERENCE_MAX_MS {
        return Ok(ClockComparison::Plausible);
    }
    if service_ms > here_ms {
        let was_set_back = here_ms < EARLIEST_NOW_MS
            || latest_here_ms.is_some_and(|latest_ms| here_ms < latest_ms - DIFFERENCE_MAX_MS);
        return Ok(match was_set_back {
            true => ClockComparison::Plausible,
            false => ClockComparison::Wrong(ClockMismatch::Ahead { service_ms, here_ms }),
        });
    }
    let Some(ClockSample { list, page_rows }) = sample else { return Ok(ClockComparison::Unknown) };
    let after_ms = service_ms.saturating_add(DIFFERENCE_MAX_MS);
    let (window, flags) = (Window::new(after_ms, i64::MAX), FlagSet::EMPTY);
    let request = PageRequest { scope: Scope::all(list), window, flags, page_rows, token: None };
    let page = match source.ask(&request, Range::Window).await {
        Ok(Answer::Page(page)) => page,
        // Some services answer 404 if no row is in the range.
        Ok(Answer::Rejected { status: 404, is_web_page: false }) => return Ok(ClockComparison::Plausible),
        Err(error) if error.ends_the_run() => return Err(error),
        _ => return Ok(ClockComparison::Unknown),
    };
    if page.rows == 0 {
        return Ok(ClockComparison::Plausible);
    }
    let Ok(flat) = flatten_page(list, &page.body, DriftRules::default()) else { return Ok(ClockComparison::Unknown) };
    let is_newer = moments_of(list, &flat).rows.iter().any(|(at_ms, _)| at_ms.is_some_and(|at_ms| at_ms >= after_ms));
    Ok(match is_newer {
        true => ClockComparison::Wrong(ClockMismatch::Behind { service_ms, here_ms }),
        false => ClockComparison::Plausible,
    })
}

/// Returns true if the service's clock is days off, and no run found that it agrees with the rows at about this
/// difference. `behind_ms` is how far the service's clock is behind; negative for a clock that is ahead.
pub fn is_clock_in_doubt(state: &State, behind_ms: i64) -> Result<bool, StateError> {
    if behind_ms.abs() <= DIFFERENCE_MAX_MS {
        return Ok(false);
    }
    let agreed = state.behaviour::<i64>(AGREED_BEHIND)?;
    Ok(behind_ms < 0 || agreed.is_none_or(|(agreed_ms, _)| behind_ms > agreed_ms + AGREED_TOLERANCE_MS))
}

impl Run {
    /// Returns true if the service's clock must be checked: see [`is_clock_in_doubt`].
    pub(super) fn is_clock_suspect(&self, behind_ms: i64) -> Result<bool, PipelineError> {
        Ok(is_clock_in_doubt(&self.context.state(), behind_ms)?)
    }

    /// Returns the latest time of this machine at the start of an earlier run, or `None` for a first run.
    fn latest_here_ms(&self) -> Result<Option<i64>, PipelineError> {
        Ok(self.context.state().latest_start_ms(&self.session.run_id)?)
    }

    /// Adds a note if the service's clock is wrong, with the range that the run does not read for this reason. A clock
    /// that is behind is stored as right if no newer row was found. If the rows could not be requested, the next run
    /// compares again.
    pub(super) async fn check_clock(&mut self, service_ms: i64) -> Result<(), PipelineError> {
        let here_ms = self.session.now_ms();
        let behind_ms = here_ms - service_ms;
        if !self.is_clock_suspect(behind_ms)? {
            self.note_own_clock(behind_ms);
            return Ok(());
        }
        let latest_here_ms = self.latest_here_ms()?;
        let windowed =
            || self.session.settings.streams.iter().map(|stream| stream.stream).filter(|list| list.is_windowed());
        let list = self.session.settings.streams.iter().find(|stream| stream.stream.is_windowed());
        let sample = list.map(|list| {
            page_rows(Some(&self.context.state()), list).map(|page_rows| ClockSample { list: list.stream, page_rows })
        });
        let sample = sample.transpose()?;
        let comparison = match compare_clocks(&self.context.source, sample, service_ms, here_ms, latest_here_ms).await {
            Ok(comparison) => comparison,
            Err(SourceError::Stopped(stop)) => {
                self.findings.stop.get_or_insert(stop);
                return Ok(());
            }
            Err(error) => return Err(PipelineError::Source(error)),
        };
        let mismatch = match comparison {
            ClockComparison::Wrong(mismatch) => mismatch,
            ClockComparison::Plausible if behind_ms > DIFFERENCE_MAX_MS => {
                self.context.state().remember_behaviour(AGREED_BEHIND, &behind_ms, here_ms)?;
                self.note_own_clock(behind_ms);
                return Ok(());
            }
            ClockComparison::Plausible => {
                self.note_own_clock(behind_ms);
                return Ok(());
            }
            ClockComparison::Unknown => return Ok(()),
        };
        let names = windowed().map(Stream::name).collect::<Vec<_>>().join(" and ");
        let note = match mismatch {
            ClockMismatch::Behind { .. } => {
                let requested = self.request.backfill.unwrap_or(Window::new(i64::MIN, i64::MAX));
                let missed = Window::new(requested.start_ms.max(service_ms), requested.end_ms.min(here_ms));
                match missed.start_ms < missed.end_ms {
                    true => format!("{mismatch}. Not read: {names} of {missed}"),
                    false => mismatch.to_string(),
                }
            }
            ClockMismatch::Ahead { .. } => format!(
                "{mismatch}. Windows end by this clock: {names} that are created until then are found by re-scans only. Correct \
                 the clock that is wrong"
            ),
        };
        tracing::error!("{note}");
        self.findings.add_attention_note(note);
        Ok(())
    }

    /// Adds a note if this machine's clock differs from the service's, against which nothing was found. `behind_ms` is
    /// how far the service's clock is behind this machine's. Windows follow the service's clock, so only times of runs
    /// may be wrong, and the run needs no attention.
    fn note_own_clock(&mut self, behind_ms: i64) {
        let apart_ms = behind_ms.saturating_abs();
        if !is_in_future(apart_ms, 0) {
            return;
        }
        let (here, relation) = (format_ms(self.session.now_ms()), if behind_ms > 0 { "ahead of" } else { "behind" });
        let apart = match apart_ms > DAY_MS {
            true => format!("{:.1} days", apart_ms as f64 / DAY_MS as f64),
            false => format!("{:.1} hours", apart_ms as f64 / HOUR_MS as f64),
        };
        let note = format!(
            "this machine's clock says {here}, {apart} {relation} the service's clock. Windows follow the service's clock; the \
             times of runs are wrong until this machine's clock is set right"
        );
        tracing::warn!("{note}");
        self.findings.notes.push(note);
    }
}
