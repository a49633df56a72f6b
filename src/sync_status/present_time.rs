//! The present time by which lags are measured: the service's time if its clock can be right, otherwise this machine's.

use crate::{
    model::is_in_future,
    pipeline::{clock_skew_ms, is_clock_in_doubt},
    state::{State, StateError, StoredInterval},
};

/// The present time, and what is known of the clock of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PresentTime {
    /// Epoch milliseconds: by the service's clock, or by this machine's clock if the service's is in doubt.
    pub now_ms: i64,
    /// Milliseconds by which the service's clock is ahead of this machine's; `None` if no run has compared them.
    pub skew_ms: Option<i64>,
    /// True if the service's clock is days off, and no comparison with its rows found that it can be right.
    pub is_in_doubt: bool,
}

impl PresentTime {
    /// Reads what runs found about the clocks. `here_ms` is the time of this machine's clock.
    pub fn read(state: &State, here_ms: i64) -> Result<PresentTime, StateError> {
        let skew_ms = clock_skew_ms(state, here_ms)?;
        let is_in_doubt = is_clock_in_doubt(state, -skew_ms.unwrap_or(0))?;
        let present = PresentTime { now_ms: here_ms, skew_ms, is_in_doubt };
        Ok(PresentTime { now_ms: if is_in_doubt { here_ms } else { present.service_ms(here_ms) }, ..present })
    }

    /// Converts a time of this machine's clock into a time of the service's clock, even if that clock is in doubt.
    pub fn service_ms(&self, here_ms: i64) -> i64 {
        here_ms.saturating_add(self.skew_ms.unwrap_or(0))
    }

    /// Returns the time up to which the coverage is complete: the latest end of an interval that was read after its
    /// end. Earlier intervals may be missing. Returns `None` without such an interval.
    ///
    /// A scan proves nothing about the time after it. So a clock that is ahead, of the service or of this machine,
    /// does not make later times complete.
    pub fn complete_until_ms(&self, intervals: &[StoredInterval]) -> Option<i64> {
        let ahead_ms = self.skew_ms.filter(|skew_ms| self.is_in_doubt && *skew_ms > 0).unwrap_or(0);
        let ends = intervals.iter().filter_map(|StoredInterval { interval, read }| {
            let read_ms = read.read_ms.saturating_sub(ahead_ms);
            let is_past = interval.window.start_ms <= self.now_ms && !is_in_future(read_ms, self.now_ms);
            // An interval of an earlier version of the program has no time of its scan.
            let is_read = read.scans > 0 && ahead_ms > 0;
            is_past.then(|| if is_read { interval.window.end_ms.min(read_ms) } else { interval.window.end_ms })
        });
        ends.max()
    }

    /// Returns the seconds since the coverage is complete; `None` if nothing is.
    pub fn lag_secs(&self, intervals: &[StoredInterval]) -> Option<i64> {
        self.complete_until_ms(intervals).map(|until_ms| self.now_ms.saturating_sub(until_ms).max(0) / 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::{CoverageInterval, DAY_MS, EndStyles, FlagSet, HOUR_MS, Window},
        state::LastRead,
    };

    fn interval(start_ms: i64, end_ms: i64, read_ms: i64) -> StoredInterval {
        let interval = CoverageInterval {
            window: Window::new(start_ms, end_ms),
            flags: FlagSet::EMPTY,
            scanned_ms: read_ms,
            rows: 1,
        };
        let read = LastRead { read_ms, scan_id: None, scans: 1, pages: 1, ends: EndStyles::default() };
        StoredInterval { interval, read }
    }

    fn lag_days(time: PresentTime, intervals: &[StoredInterval]) -> Option<i64> {
        time.lag_secs(intervals).map(|secs| secs * 1000 / DAY_MS)
    }

    #[test]
    fn p3_a_lag_counts_no_time_that_a_wrong_clock_names() {
        const NOW: i64 = 1000 * DAY_MS;
        let time =
            |skew_days: i64, is_in_doubt| PresentTime { now_ms: NOW, skew_ms: Some(skew_days * DAY_MS), is_in_doubt };
        let nightly = [interval(0, NOW - DAY_MS, NOW - DAY_MS), interval(NOW - DAY_MS, NOW, NOW)];
        assert_eq!(lag_days(time(0, false), &nightly), Some(0));
        assert_eq!(lag_days(time(0, false), &[]), None);
        // The service's clock is 40 days behind, and so is the end of everything that was read by it.
        let behind = NOW - 40 * DAY_MS;
        assert_eq!(lag_days(time(-40, true), &[interval(0, behind, behind)]), Some(40));
        // It is 40 days ahead: what it calls complete was read three days ago, and the last two nights read nothing.
        let ahead = NOW + 40 * DAY_MS;
        let nights = [
            interval(0, ahead - 3 * DAY_MS, ahead - 3 * DAY_MS),
            interval(ahead - 3 * DAY_MS, ahead - DAY_MS, ahead - DAY_MS),
            interval(ahead - DAY_MS, ahead, ahead),
        ];
        assert_eq!(lag_days(time(40, true), &nights), Some(3));
        // This machine's clock was set back behind the scans, or the scans had a clock that was ahead.
        let future = interval(NOW - 9 * DAY_MS, NOW + 2 * DAY_MS, NOW + 2 * DAY_MS);
        assert_eq!(lag_days(time(0, false), std::slice::from_ref(&future)), None);
        assert_eq!(lag_days(time(0, false), &[interval(0, NOW - 9 * DAY_MS, NOW - 9 * DAY_MS), future]), Some(9));
        // A difference of minutes is none.
        assert_eq!(lag_days(time(0, false), &[interval(0, NOW + 60_000, NOW + 60_000)]), Some(0));
    }

    #[test]
    fn coverage_of_the_future_is_no_proof_of_freshness() {
        let interval = |end_hours: i64, scanned_hours: i64| interval(0, end_hours * HOUR_MS, scanned_hours * HOUR_MS);
        let time = PresentTime { now_ms: 100 * HOUR_MS, skew_ms: Some(0), is_in_doubt: false };
        assert_eq!(time.lag_secs(&[interval(90, 90)]), Some(10 * 3600));
        assert_eq!(time.lag_secs(&[interval(90, 90), interval(101, 101)]), Some(0), "clocks differ a little");
        assert_eq!(time.lag_secs(&[interval(90, 90), interval(9000, 9000)]), Some(10 * 3600), "a clock was ahead");
        assert_eq!(time.lag_secs(&[interval(9000, 9000)]), None);
    }
}
