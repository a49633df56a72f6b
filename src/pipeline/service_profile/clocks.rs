//! Checks whether the service's clock can be right. Windows end by the service's clock: a clock that is days behind
//! hides rows, and a clock that is days ahead marks future times as complete.

use crate::{
    flatten::flatten_page,
    model::{DAY_MS, DriftRules, FlagSet, PageRequest, Scope, Stream, Window, format_ms, is_in_future},
    source::{Answer, Range, Source, SourceError},
    state::{State, StateError},
};

use super::tie_probe::moments_of;

/// The largest difference between two clocks that is not reported.
pub const DIFFERENCE_MAX_MS: i64 = DAY_MS;
/// The start of 2026, when this program was written. A clock with an earlier time is wrong.
const EARLIEST_NOW_MS: i64 = 1_767_225_600_000;
/// Name of the behaviour that stores by how many milliseconds the service's clock was behind this machine's clock when
/// no row was found that is days newer than the service's clock.
pub const AGREED_BEHIND: &str = "clock_agreed_behind_ms";
/// If the service's clock is behind by this much more than the stored difference, it is compared with the rows again.
const AGREED_TOLERANCE_MS: i64 = 3_600_000;

/// Name of the behaviour that stores how far the service's clock is ahead of this machine's clock, in milliseconds.
pub const CLOCK_SKEW: &str = "clock_skew_ms";

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

/// Returns the service's time at the time `here_ms` of this machine's clock, by the last comparison of the clocks.
/// Returns `here_ms` if they were never compared.
pub fn service_time_ms(state: &State, here_ms: i64) -> Result<i64, StateError> {
    Ok(here_ms.saturating_add(clock_skew_ms(state, here_ms)?.unwrap_or(0)))
}

/// Returns how far the service's clock was ahead of this machine's clock at the last comparison, in milliseconds.
/// Returns `None` if they were never compared, or if this machine's clock was ahead at that time and was set right
/// since.
pub fn clock_skew_ms(state: &State, here_ms: i64) -> Result<Option<i64>, StateError> {
    let compared = state.behaviour::<i64>(CLOCK_SKEW)?;
    Ok(compared.filter(|(_, compared_ms)| !is_in_future(*compared_ms, here_ms)).map(|(skew_ms, _)| skew_ms))
}
