//! Backfills of services that cannot deliver some windows: how many windows they take, and that nothing is left out.

use std::collections::VecDeque;

use super::*;
use crate::model::IntervalSet;

const PAGE_ROWS: u32 = 1000;

/// What a backfill of some days came to.
struct Backfill {
    /// Windows that were pulled, those that did not come included.
    windows: usize,
    failed: usize,
    came: IntervalSet,
    missing: Vec<Window>,
}

/// Pulls `days` at a service that has `rows_a_day`, so many windows at once. Those that do not come take longest, as
/// they do where the service is asked for them again and again.
fn backfill(days: i64, rows_a_day: i64, at_once: usize, comes: impl Fn(Window) -> bool) -> Backfill {
    let due = Due { window: Window::new(0, days * DAY_MS), reason: Reason::Gap };
    let mut cutter = Cutter::new(vec![due], Vec::new(), PAGE_ROWS, true);
    let mut under_way: VecDeque<(Due, u32)> = VecDeque::new();
    let mut done = Backfill { windows: 0, failed: 0, came: IntervalSet::default(), missing: Vec::new() };
    loop {
        while under_way.len() < at_once && (under_way.is_empty() || !cutter.is_blind()) {
            let Some(due) = cutter.next_window() else { break };
            done.windows += 1;
            under_way.push_back((due, if comes(due.window) { 0 } else { 3 }));
        }
        let Some((due, turns)) = under_way.pop_front() else { return done };
        if turns > 0 {
            under_way.push_back((due, turns - 1));
        } else if comes(due.window) {
            assert!(done.came.gaps_in(due.window) == [due.window], "{} came twice", due.window);
            done.came = done.came.windows().iter().copied().chain([due.window]).collect();
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
    fn assert_whole(&self, days: i64) {
        let all: IntervalSet = self.came.windows().iter().copied().chain(self.missing.iter().copied()).collect();
        assert_eq!(all.gaps_in(Window::new(0, days * DAY_MS)), [], "left out");
    }
}

#[test]
fn p3_one_record_that_never_comes_costs_its_second_alone() {
    for (days, rows_a_day) in [(12, 300), (365, 300), (365, 200_000)] {
        for at_once in [1, 4] {
            let well = backfill(days, rows_a_day, at_once, |_| true);
            let bad_ms = days * DAY_MS * 3 / 7 + 123_456;
            let ill = backfill(days, rows_a_day, at_once, |window| !window.contains(bad_ms));
            ill.assert_whole(days);
            assert!(ill.missing.iter().all(|window| window.len_ms() <= 2 * HALF_MIN_MS), "{:?}", ill.missing);
            assert_eq!(ill.missing.len(), 1);
            let bisection = 2 * ill.failed;
            assert!(
                ill.windows as f64 <= 1.2 * well.windows as f64 + bisection as f64,
                "{} windows for {}, {} of them failed",
                ill.windows,
                well.windows,
                ill.failed
            );
            assert!(ill.failed <= 32, "{} failed", ill.failed);
        }
    }
}

#[test]
fn windows_that_became_short_become_long_again() {
    // Two records on both sides of where windows are halved: neither half comes, whatever its length.
    let days = 365;
    let bad = |window: Window| (1..20).any(|at| window.contains(at * DAY_MS) || window.contains(at * DAY_MS - 1));
    let well = backfill(days, 300, 1, |_| true);
    let ill = backfill(days, 300, 1, |window| !bad(window));
    ill.assert_whole(days);
    assert!(ill.windows <= well.windows + 2 * ill.failed + 40, "{} of {}", ill.windows, ill.failed);
    let longest_ms = ill.came.windows().iter().map(|window| window.len_ms()).max().unwrap();
    assert!(longest_ms > 300 * DAY_MS);
}

#[test]
fn a_service_that_delivers_only_short_windows_gets_short_ones() {
    for limit_ms in [40 * HOUR_MS, 7 * HOUR_MS, 50 * MINUTE_MS] {
        let days = 60;
        let done = backfill(days, 300, 1, |window| window.len_ms() <= limit_ms);
        done.assert_whole(days);
        assert_eq!(done.missing, []);
        let needed = (days * DAY_MS / limit_ms) as usize;
        assert!(done.windows <= 4 * needed + 40, "{} windows where {needed} would do", done.windows);
        assert!(done.failed * 8 <= done.windows + 100, "{} of {} failed", done.failed, done.windows);
    }
}
