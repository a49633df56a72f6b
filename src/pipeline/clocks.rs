//! Checks whether the service's clock can be right. Windows end by this clock: days behind, it hides rows; days ahead,
//! it marks future times as complete.

use crate::{
    flatten::flatten_page,
    model::{DAY_MS, DriftRules, FlagSet, PageRequest, Scope, Stream, Window, format_ms},
    source::{Answer, Range, Source, SourceError},
};

use super::{PipelineError, Run, backlog::page_rows, ties::moments_of};

/// A smaller difference between two clocks is not reported.
const FAR_MS: i64 = DAY_MS;
/// No clock that shows an earlier time is right: this was written in 2026.
const WRITTEN_MS: i64 = 1_767_225_600_000;
/// How far behind the service's clock was when its rows agreed with it, in milliseconds.
const AGREED_BEHIND: &str = "clock_agreed_behind_ms";
/// A clock that is behind by so much more than when its rows agreed with it is held against them again.
const SAME_MS: i64 = 3_600_000;

/// The rows that the service's clock is compared with.
#[derive(Clone, Copy, Debug)]
pub struct ClockSample {
    pub list: Stream,
    /// How many of its rows to ask for.
    pub page_rows: u32,
}

/// How the service's clock is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockMismatch {
    /// The service holds rows that are days newer than its clock.
    Behind { service_ms: i64, here_ms: i64 },
    /// It is days ahead of this machine's, which can be right.
    Ahead { service_ms: i64, here_ms: i64 },
}

impl std::fmt::Display for ClockMismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let days = |by_ms: i64| by_ms as f64 / DAY_MS as f64;
        match *self {
            ClockMismatch::Behind { service_ms, here_ms } => write!(
                f,
                "the service's clock (its Date header) says {}, {:.1} days behind this machine's, and the service holds answers \
                 that are newer",
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

/// Holds the service's clock against this machine's, and where it is far behind, against the rows of a list: a
/// machine's clock may be wrong as well. `seen_ms`: the latest time that this machine's clock is known to have shown.
pub async fn compare_clocks(
    source: &Source,
    sample: Option<ClockSample>,
    service_ms: i64,
    here_ms: i64,
    seen_ms: Option<i64>,
) -> Result<Option<ClockMismatch>, SourceError> {
    if (service_ms - here_ms).abs() <= FAR_MS {
        return Ok(None);
    }
    if service_ms > here_ms {
        let was_set_back = here_ms < WRITTEN_MS || seen_ms.is_some_and(|seen_ms| here_ms < seen_ms - FAR_MS);
        return Ok((!was_set_back).then_some(ClockMismatch::Ahead { service_ms, here_ms }));
    }
    let Some(ClockSample { list, page_rows }) = sample else { return Ok(None) };
    let after_ms = service_ms.saturating_add(FAR_MS);
    let (window, flags) = (Window::new(after_ms, i64::MAX), FlagSet::EMPTY);
    let request = PageRequest { scope: Scope::all(list), window, flags, page_rows, token: None };
    let page = match source.ask(&request, Range::Window).await {
        Ok(Answer::Page { page, .. }) if page.rows > 0 => page,
        Err(error) if error.ends_the_run() => return Err(error),
        _ => return Ok(None),
    };
    let Ok(flat) = flatten_page(list, &page.body, DriftRules::default()) else { return Ok(None) };
    let is_newer = moments_of(list, &flat).rows.iter().any(|(at_ms, _)| at_ms.is_some_and(|at_ms| at_ms >= after_ms));
    Ok(is_newer.then_some(ClockMismatch::Behind { service_ms, here_ms }))
}

impl Run {
    /// Whether a clock that is so far behind was not found to agree with the service's rows.
    pub(super) fn is_clock_suspect(&self, behind_ms: i64) -> Result<bool, PipelineError> {
        if behind_ms.abs() <= FAR_MS {
            return Ok(false);
        }
        let agreed = self.context.state().behaviour::<i64>(AGREED_BEHIND)?;
        Ok(behind_ms < 0 || agreed.is_none_or(|(agreed_ms, _)| behind_ms > agreed_ms + SAME_MS))
    }

    /// The latest time that this machine's clock showed at the start of an earlier run.
    fn latest_here(&self) -> Result<Option<i64>, PipelineError> {
        // The latest of all, unless it is this one.
        let latest = self.context.state().runs(2)?;
        Ok(latest.into_iter().find(|run| run.run_id != self.session.run_id.0).map(|run| run.started_ms))
    }

    /// Says so if the service's clock cannot be right, and what could not be asked for because of it.
    pub(super) async fn check_clock(&mut self, service_ms: i64) -> Result<(), PipelineError> {
        let here_ms = self.session.now_ms();
        let behind_ms = here_ms - service_ms;
        if !self.is_clock_suspect(behind_ms)? {
            return Ok(());
        }
        let seen_ms = self.latest_here()?;
        let windowed =
            || self.session.settings.streams.iter().map(|stream| stream.stream).filter(|list| list.is_windowed());
        let list = self.session.settings.streams.iter().find(|stream| stream.stream.is_windowed());
        let sample = list.map(|list| {
            page_rows(Some(&self.context.state()), list).map(|page_rows| ClockSample { list: list.stream, page_rows })
        });
        let sample = sample.transpose()?;
        let doubt = match compare_clocks(&self.context.source, sample, service_ms, here_ms, seen_ms).await {
            Ok(doubt) => doubt,
            Err(SourceError::Stopped(stop)) => {
                self.findings.stop.get_or_insert(stop);
                return Ok(());
            }
            Err(error) => return Err(PipelineError::Source(error)),
        };
        let Some(doubt) = doubt else {
            if behind_ms > FAR_MS {
                let state = self.context.state();
                state.remember_behaviour(AGREED_BEHIND, &behind_ms, here_ms)?;
            }
            return Ok(());
        };
        let names = windowed().map(Stream::name).collect::<Vec<_>>().join(" and ");
        let note = match doubt {
            ClockMismatch::Behind { .. } => {
                let asked = self.request.backfill.unwrap_or(Window::new(i64::MIN, i64::MAX));
                let missed = Window::new(asked.start_ms.max(service_ms), asked.end_ms.min(here_ms));
                match missed.start_ms < missed.end_ms {
                    true => format!("{doubt}. Not asked for: {names} of {missed}"),
                    false => doubt.to_string(),
                }
            }
            ClockMismatch::Ahead { .. } => format!(
                "{doubt}. Windows end by it: {names} that are created until then are found by re-scans alone. Correct the clock \
                 that is wrong"
            ),
        };
        tracing::error!("{note}");
        self.findings.look_at(note);
        Ok(())
    }
}
