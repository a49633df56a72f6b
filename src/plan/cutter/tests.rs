//! Simulates backfills of services that cannot deliver some windows:
//! counts windows, and checks that nothing is left out.

use std::collections::VecDeque;

use super::*;
use crate::model::{FlagSet, IntervalSet};

const PAGE_ROWS: u32 = 1000;

/// The result of a simulated backfill.
struct Backfill {
    /// Windows that were tried, including failed ones.
    windows: usize,
    failed: usize,
    succeeded: IntervalSet,
    missing: Vec<Window>,
}

/// Backfills `days` with `rows_a_day`, several windows at a time.
/// Failed windows take longest, because a real run retries their requests.
fn backfill(days: i64, rows_a_day: i64, parallel: usize, succeeds: impl Fn(Window) -> bool) -> Backfill {
    let due = Due { window: Window::new(0, days * DAY_MS), reason: Reason::Gap };
    let mut cutter = Cutter::new(vec![due], Vec::new(), PAGE_ROWS, true);
    let mut under_way: VecDeque<(Due, u32)> = VecDeque::new();
    let mut done = Backfill { windows: 0, failed: 0, succeeded: IntervalSet::default(), missing: Vec::new() };
    loop {
        while under_way.len() < parallel && (under_way.is_empty() || !cutter.is_length_guessed()) {
            let Some(due) = cutter.next_window() else { break };
            done.windows += 1;
            under_way.push_back((due, if succeeds(due.window) { 0 } else { 3 }));
        }
        let Some((due, turns)) = under_way.pop_front() else { return done };
        if turns > 0 {
            under_way.push_back((due, turns - 1));
        } else if succeeds(due.window) {
            assert!(done.succeeded.gaps_in(due.window) == [due.window], "{} succeeded twice", due.window);
            done.succeeded = done.succeeded.windows().iter().copied().chain([due.window]).collect();
            let rows = due.window.len_ms() as f64 * rows_a_day as f64 / DAY_MS as f64;
            cutter.learn(due.window, rows as u64);
        } else {
            done.failed += 1;
            if !cutter.halve(due.window, due.reason) {
                done.missing.push(due.window);
            }
        }
        assert!(done.windows < 100_000, "no end");
    }
}

impl Backfill {
    fn assert_complete(&self, days: i64) {
        let all: IntervalSet = self.succeeded.windows().iter().copied().chain(self.missing.iter().copied()).collect();
        assert_eq!(all.gaps_in(Window::new(0, days * DAY_MS)), [], "left out");
    }
}

#[test]
fn p8_windows_have_fewer_rows_if_fewer_fit_into_memory() {
    let due = Due { window: Window::new(0, 300 * DAY_MS), reason: Reason::Gap };
    let covered = vec![CoverageInterval { window: due.window, flags: FlagSet::EMPTY, scanned_ms: 0, rows: 300_000 }];
    let mut cutter = Cutter::new(vec![due], covered, PAGE_ROWS, true);
    assert_eq!(cutter.next_window().unwrap().window.len_ms(), 24 * DAY_MS, "24 pages of 1,000 rows a day");
    cutter.limit_rows(3_000);
    assert_eq!(cutter.next_window().unwrap().window.len_ms(), 3 * DAY_MS);
    cutter.limit_rows(u64::MAX);
    assert!(cutter.next_window().unwrap().window.len_ms() > 3 * DAY_MS);
}

#[test]
fn p3_one_record_that_always_fails_loses_only_its_second() {
    for (days, rows_a_day) in [(12, 300), (365, 300), (365, 200_000)] {
        for parallel in [1, 4] {
            let healthy = backfill(days, rows_a_day, parallel, |_| true);
            let bad_ms = days * DAY_MS * 3 / 7 + 123_456;
            let failing = backfill(days, rows_a_day, parallel, |window| !window.contains(bad_ms));
            failing.assert_complete(days);
            assert!(failing.missing.iter().all(|window| window.len_ms() <= 2 * HALF_MIN_MS), "{:?}", failing.missing);
            assert_eq!(failing.missing.len(), 1);
            let bisection = 2 * failing.failed;
            assert!(
                failing.windows as f64 <= 1.2 * healthy.windows as f64 + bisection as f64,
                "{} windows for {}, {} of them failed",
                failing.windows,
                healthy.windows,
                failing.failed
            );
            assert!(failing.failed <= 32, "{} failed", failing.failed);
        }
    }
}

#[test]
fn short_windows_become_long_again() {
    // One bad record on each side of every day's start: neither half of a window succeeds, whatever its length.
    let days = 365;
    let bad = |window: Window| (1..20).any(|at| window.contains(at * DAY_MS) || window.contains(at * DAY_MS - 1));
    let healthy = backfill(days, 300, 1, |_| true);
    let failing = backfill(days, 300, 1, |window| !bad(window));
    failing.assert_complete(days);
    assert!(failing.windows <= healthy.windows + 2 * failing.failed + 40, "{} of {}", failing.windows, failing.failed);
    let longest_ms = failing.succeeded.windows().iter().map(|window| window.len_ms()).max().unwrap();
    assert!(longest_ms > 300 * DAY_MS);
}

#[test]
fn windows_get_short_if_only_short_windows_succeed() {
    for limit_ms in [40 * HOUR_MS, 7 * HOUR_MS, 50 * MINUTE_MS] {
        let days = 60;
        let done = backfill(days, 300, 1, |window| window.len_ms() <= limit_ms);
        done.assert_complete(days);
        assert_eq!(done.missing, []);
        let needed = (days * DAY_MS / limit_ms) as usize;
        assert!(done.windows <= 4 * needed + 40, "{} windows where {needed} would do", done.windows);
        assert!(done.failed * 8 <= done.windows + 100, "{} of {} failed", done.failed, done.windows);
    }
}
