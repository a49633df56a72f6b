//! Samples how dense the rows of a range lie, with a few requests, for a plan of which nothing is known yet.

use crate::{
    model::{DAY_MS, HOUR_MS, MINUTE_MS, PageRequest, Window},
    source::{Source, SourceError, WalkStep},
};

use super::ScopeBacklog;

/// Windows that are sampled of a range, spread over it and over the hours of the day.
const WINDOWS: i64 = 6;
/// Lengths of a sampled window, longest first: the first one whose rows fit on [`PAGES_MAX`] pages is taken.
const LENGTHS_MS: [i64; 6] = [DAY_MS, 8 * HOUR_MS, 2 * HOUR_MS, 30 * MINUTE_MS, 5 * MINUTE_MS, 30_000];
/// Pages that are asked for of one window.
const PAGES_MAX: u64 = 3;
/// The most requests that one list may take, retries aside.
pub const SAMPLE_REQUESTS_MAX: u64 = PAGES_MAX * (WINDOWS as u64 + LENGTHS_MS.len() as u64);

/// What a sample found: so many rows in windows of so much time together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    pub rows: u64,
    pub length_ms: i64,
}

/// Samples what is due of one scope; `None` if nothing is, or no sampled window had a row. What does not fit on the
/// pages of a window is left out of the count, so a sample never says more than was seen.
/// A list without windows is counted by its pages.
///
/// # Errors
/// The service does not answer.
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
            // All that was counted had too long a window as well: it begins anew with a shorter one.
            Some(shorter_ms) => (length_ms, nth, found) = (shorter_ms, 0, Sample::default()),
            None => {
                found.rows += counted.rows;
                found.length_ms += window.len_ms();
                nth += 1;
            }
        }
    }
    // Rows that lie elsewhere are as likely as none at all.
    Ok((found.rows > 0).then_some(found))
}

/// The `nth` of the sampled windows: in the middle of its share of what is due.
fn window(work: &ScopeBacklog, nth: i64, length_ms: i64) -> Window {
    let due_ms: i64 = work.due.iter().map(|due| due.window.len_ms()).sum();
    let middle_ms = due_ms / WINDOWS * nth + due_ms / WINDOWS / 2;
    // At another hour of its day each time, since people answer by day; never at a full hour, where machines do.
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

struct Counted {
    rows: u64,
    /// Whether the service has more rows of the window.
    is_cut: bool,
}

/// Counts the rows of a window, on so many pages at most.
async fn count(source: &Source, work: &ScopeBacklog, window: Window, pages_max: u64) -> Result<Counted, SourceError> {
    let request =
        PageRequest { scope: work.scope, window, flags: work.rules.flags, page_rows: work.page_rows, token: None };
    let mut walk = source.walk(request);
    let mut rows = 0;
    for _ in 0..pages_max {
        match walk.next().await? {
            WalkStep::Page(page) => {
                rows += page.rows as u64;
                if page.next.is_none() {
                    return Ok(Counted { rows, is_cut: false });
                }
            }
            WalkStep::Restarted { .. } => rows = 0,
            WalkStep::End(_) | WalkStep::UnprovenEnd => return Ok(Counted { rows, is_cut: false }),
        }
    }
    Ok(Counted { rows, is_cut: true })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::{FlagSet, Scope, Stream},
        plan::{Due, DueRules, Reason, RescanRules},
    };

    #[test]
    fn sampled_windows_lie_in_what_is_due_and_at_different_hours() {
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
