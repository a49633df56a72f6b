//! Estimates the number of rows in a range with a few requests, for the plan of a first run.

use crate::{
    model::{DAY_MS, HOUR_MS, MINUTE_MS, PageRequest, Window},
    source::{Source, SourceError, WalkStep},
};

use super::backlog::ScopeBacklog;

/// Number of sampled windows, which are spread over the range and over the hours of the day.
const WINDOWS: i64 = 6;
/// Lengths of a sampled window, longest first. The first length whose rows fit on [`PAGES_MAX`] pages is used.
const LENGTHS_MS: [i64; 6] = [DAY_MS, 8 * HOUR_MS, 2 * HOUR_MS, 30 * MINUTE_MS, 5 * MINUTE_MS, 30_000];
/// The maximum number of pages that are requested of one window.
const PAGES_MAX: u64 = 3;
/// The maximum number of requests for a list without windows, without retries. A list with windows may need more,
/// because sampling starts again each time a length proves too long.
pub const SAMPLE_REQUESTS_MAX: u64 = PAGES_MAX * (WINDOWS as u64 + LENGTHS_MS.len() as u64);

/// The result of sampling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Number of rows in all sampled windows.
    pub rows: u64,
    /// Total length of the sampled windows.
    pub length_ms: i64,
}

/// Samples the due windows of a scope. Returns `None` if nothing is due, or if no sampled window has a row. Rows after
/// the last requested page are not counted, so the number of rows is a lower bound. A list without windows is not
/// sampled: its first [`SAMPLE_REQUESTS_MAX`] pages are counted, and a list without rows counts as 0 rows.
///
/// # Errors
/// If a request fails.
pub async fn sample(source: &Source, work: &ScopeBacklog) -> Result<Option<Sample>, SourceError> {
    let Some(first) = work.due.first() else { return Ok(None) };
    if !work.scope.stream.is_windowed() {
        return Ok(Some(Sample {
            rows: count(source, work, first.window, SAMPLE_REQUESTS_MAX).await?.rows,
            length_ms: first.window.len_ms(),
        }));
    }
    let mut found = Sample::default();
    let mut lengths = LENGTHS_MS.into_iter();
    let mut length_ms = lengths.next().unwrap_or(DAY_MS);
    let mut nth = 0;
    while nth < WINDOWS {
        let window = window(work, nth, length_ms);
        let counted = count(source, work, window, PAGES_MAX).await?;
        let shorter = if counted.is_cut { lengths.next() } else { None };
        match shorter {
            // Windows of this length have too many rows, so sampling starts again with a shorter length.
            Some(shorter_ms) => (length_ms, nth, found) = (shorter_ms, 0, Sample::default()),
            None => {
                found.rows += counted.rows;
                found.length_ms += window.len_ms();
                nth += 1;
            }
        }
    }
    // Without a sampled row nothing can be estimated: times between the sampled windows may still have rows.
    Ok((found.rows > 0).then_some(found))
}

/// Returns the `nth` of [`WINDOWS`] windows to sample, at most `length_ms` long. The windows are spread evenly over the
/// due time.
fn window(work: &ScopeBacklog, nth: i64, length_ms: i64) -> Window {
    let due_ms: i64 = work.due.iter().map(|due| due.window.len_ms()).sum();
    let middle_ms = due_ms / WINDOWS * nth + due_ms / WINDOWS / 2;
    // Each window is at another hour of the day, because people answer by day, and not at a full hour, because
    // scheduled jobs run then.
    let at_hour_ms = middle_ms / DAY_MS * DAY_MS + DAY_MS / WINDOWS * nth + 1_000_003 * (nth + 1);
    let mut offset_ms = if due_ms > WINDOWS * DAY_MS { at_hour_ms } else { middle_ms }.min(due_ms - 1);
    for due in &work.due {
        if offset_ms < due.window.len_ms() {
            let end_ms = (due.window.start_ms + offset_ms + length_ms).min(due.window.end_ms);
            let start_ms = (end_ms - length_ms).max(due.window.start_ms);
            return Window::new(start_ms, end_ms);
        }
        offset_ms -= due.window.len_ms();
    }
    work.due.first().map_or(Window::new(0, 1), |due| due.window)
}

/// The result of counting the rows of a window.
struct RowCount {
    /// Number of rows on the requested pages.
    rows: u64,
    /// True if the window has more pages than were requested.
    is_cut: bool,
}

/// Counts the rows of a window, on at most `pages_max` pages.
async fn count(source: &Source, work: &ScopeBacklog, window: Window, pages_max: u64) -> Result<RowCount, SourceError> {
    let request =
        PageRequest { scope: work.scope, window, flags: work.rules.flags, page_rows: work.page_rows, token: None };
    let mut walk = source.walk(request);
    let mut rows = 0;
    for _ in 0..pages_max {
        match walk.next().await? {
            WalkStep::Page(page) => {
                rows += page.rows as u64;
                if page.next.is_none() {
                    return Ok(RowCount { rows, is_cut: false });
                }
            }
            WalkStep::Restarted { .. } => rows = 0,
            WalkStep::End(_) | WalkStep::UnprovenEnd => return Ok(RowCount { rows, is_cut: false }),
        }
    }
    Ok(RowCount { rows, is_cut: true })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::{FlagSet, Scope, Stream},
        plan::{Due, DueRules, Reason, RescanRules},
    };

    #[test]
    fn sampled_windows_are_due_and_at_different_hours() {
        let due = |start_days: i64, end_days: i64| Due {
            window: Window::new(start_days * DAY_MS, end_days * DAY_MS),
            reason: Reason::New,
        };
        let work = ScopeBacklog {
            scope: Scope::all(Stream::Responses),
            rules: DueRules { flags: FlagSet::EMPTY, lag_ms: 0, rescan: RescanRules::default() },
            page_rows: 1000,
            covered: Vec::new(),
            due: vec![due(0, 20), due(30, 70)],
        };
        for length_ms in LENGTHS_MS {
            let windows: Vec<Window> = (0..WINDOWS).map(|nth| window(&work, nth, length_ms)).collect();
            for window in &windows {
                assert_eq!(window.len_ms(), length_ms);
                let is_due = |due: &Due| due.window.start_ms <= window.start_ms && window.end_ms <= due.window.end_ms;
                assert!(work.due.iter().any(is_due), "{window:?}");
            }
            let mut hours: Vec<i64> =
                windows.iter().map(|window| window.start_ms.rem_euclid(DAY_MS) / HOUR_MS).collect();
            hours.sort_unstable();
            hours.dedup();
            assert!(length_ms == DAY_MS || hours.len() == WINDOWS as usize, "{hours:?}");
        }
        let short = ScopeBacklog { due: vec![Due { window: Window::new(5, 9), reason: Reason::New }], ..work };
        assert!((0..WINDOWS).all(|nth| window(&short, nth, DAY_MS) == Window::new(5, 9)));
    }
}
