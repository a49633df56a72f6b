//! Example plans with the windows that a user expects, and properties of all plans.

use proptest::prelude::*;

use super::*;
use crate::model::{
    CoverageInterval, DAY_MS, Flag, FlagSet, HOUR_MS, IntervalSet, MINUTE_MS, Scope, Stream, Window, format_ms,
    parse_date,
};

fn at(text: &str) -> i64 {
    parse_date(text).unwrap()
}

fn rules() -> DueRules {
    DueRules { flags: FlagSet::EMPTY, lag_ms: 10 * MINUTE_MS, rescan: RescanRules::default() }
}

fn covered(start: &str, end: &str, scanned: &str) -> CoverageInterval {
    CoverageInterval {
        window: Window::new(at(start), at(end)),
        flags: FlagSet::EMPTY,
        scanned_ms: at(scanned),
        rows: 1000,
    }
}

fn show(due: &[Due]) -> Vec<String> {
    let line =
        |due: &Due| format!("{} {} {}", due.reason, format_ms(due.window.start_ms), format_ms(due.window.end_ms));
    due.iter().map(line).collect()
}

const SYNC: PlanRequest = PlanRequest::Sync(SyncStart { first_ms: 0, earliest_covered_ms: None });
const RESPONSES: Scope = Scope { stream: Stream::Responses, survey_id: None };

#[test]
fn p4_a_nightly_sync_scans_again_by_age() {
    let last_night = "2026-06-30T02:00:00Z";
    let covered = [
        covered("2025-01-01", "2026-06-25", "2026-06-25T02:00:00Z"),
        covered("2026-06-25", "2026-06-29", last_night),
        covered("2026-06-29", "2026-06-30T01:50:00Z", last_night),
    ];
    // Ten minutes less than a day after last night's run: daily re-scans are due anyway.
    let now = at("2026-07-01T01:50:00Z");
    let due = due(RESPONSES, &covered, &rules(), SYNC, now);
    let expected = [
        "new 2026-06-30T01:50:00Z 2026-07-01T01:40:00Z",
        "re-scan 2026-06-28 2026-06-30T01:50:00Z",
        "re-scan 2026-06-01 2026-06-28",
    ];
    assert_eq!(show(&due), expected);
    let a_day_later = super::due(RESPONSES, &covered, &rules(), SYNC, now + 2 * DAY_MS);
    assert!(show(&a_day_later).iter().any(|line| line.starts_with("re-scan 2025-07-03 ")), "{a_day_later:?}");
}

#[test]
fn a_sync_plans_every_gap() {
    let covered =
        [covered("2026-01-01", "2026-01-05", "2026-01-20"), covered("2026-01-07", "2026-01-19", "2026-01-20")];
    let now = at("2026-01-20T01:00:00Z");
    let rules = DueRules { rescan: RescanRules::never(), ..rules() };
    let due = due(RESPONSES, &covered, &rules, SYNC, now);
    assert_eq!(show(&due), ["new 2026-01-19 2026-01-20T00:50:00Z", "never scanned 2026-01-05 2026-01-07"]);
}

#[test]
fn lost_coverage_counts_as_a_gap() {
    let rules = DueRules { rescan: RescanRules::never(), ..rules() };
    let now = at("2026-01-20T01:00:00Z");
    let request =
        PlanRequest::Sync(SyncStart { first_ms: at("2026-01-10"), earliest_covered_ms: Some(at("2025-06-01")) });
    assert_eq!(show(&due(RESPONSES, &[], &rules, request, now)), ["new 2025-06-01 2026-01-20T00:50:00Z"]);
    let covered = [covered("2026-01-01", "2026-01-19", "2026-01-20")];
    let expected = ["new 2026-01-19 2026-01-20T00:50:00Z", "never scanned 2025-06-01 2026-01-01"];
    assert_eq!(show(&due(RESPONSES, &covered, &rules, request, now)), expected);
}

#[test]
fn coverage_of_future_times_proves_nothing() {
    let rules = DueRules { rescan: RescanRules::try_from(vec!["all monthly".parse().unwrap()]).unwrap(), ..rules() };
    let covered = [covered("2026-01-01", "2026-03-01", "2026-03-01")];
    let now = at("2026-01-20T01:00:00Z");
    assert_eq!(show(&due(RESPONSES, &covered, &rules, SYNC, now)), ["re-scan 2026-01-01 2026-01-20T00:50:00Z"]);
    let backfill = PlanRequest::Backfill { window: Window::new(at("2026-01-01"), at("2026-03-01")) };
    assert!(due(RESPONSES, &covered, &rules, backfill, now).is_empty());
    assert_eq!(due(RESPONSES, &covered, &rules, backfill, at("2026-03-05")).len(), 0);
}

#[test]
fn p6_a_scan_a_moment_ahead_of_the_service_is_not_repeated() {
    let rules = DueRules { rescan: RescanRules::try_from(vec!["all monthly".parse().unwrap()]).unwrap(), ..rules() };
    let covered = [covered("2026-01-01", "2026-01-20T00:50:00Z", "2026-01-20T01:00:40Z")];
    assert!(due(RESPONSES, &covered, &rules, SYNC, at("2026-01-20T01:00:00Z")).is_empty(), "two machines, 40 s apart");
    let wrong = at("2026-01-20T01:00:40Z") - 61 * 60_000;
    assert_eq!(due(RESPONSES, &covered, &rules, SYNC, wrong).len(), 1, "a clock that was an hour ahead");
}

#[test]
fn p6_a_finished_backfill_requests_nothing() {
    let covered = [covered("2026-01-01", "2026-02-01", "2026-02-02")];
    let request = PlanRequest::Backfill { window: Window::new(at("2026-01-01"), at("2026-02-01")) };
    let now = at("2026-06-01");
    assert!(due(RESPONSES, &covered, &rules(), request, now).is_empty());
    assert!(due(Scope::all(Stream::Surveys), &covered, &rules(), request, now).is_empty());
    let with_meta = DueRules { flags: FlagSet::EMPTY.with(Flag::WithMeta), ..rules() };
    assert_eq!(due(RESPONSES, &covered, &with_meta, request, now).len(), 1, "another flag makes the window due again");
    let longer = PlanRequest::Backfill { window: Window::new(at("2025-12-01"), at("2027-02-01")) };
    let expected = ["never scanned 2025-12-01 2026-01-01", "never scanned 2026-02-01 2026-05-31T23:50:00Z"];
    assert_eq!(show(&due(RESPONSES, &covered, &rules(), longer, now)), expected);
}

#[test]
fn two_runs_within_five_minutes_plan_no_new_window() {
    let covered = [covered("2026-01-01", "2026-01-02T00:50:00Z", "2026-01-02T01:00:00Z")];
    let rules = DueRules { rescan: RescanRules::never(), ..rules() };
    assert!(due(RESPONSES, &covered, &rules, SYNC, at("2026-01-02T01:04:59Z")).is_empty());
    assert_eq!(due(RESPONSES, &covered, &rules, SYNC, at("2026-01-02T01:05:00Z")).len(), 1);
}

#[test]
fn windows_end_on_days_and_months_and_follow_the_density() {
    let due = vec![Due { window: Window::new(at("2026-01-10T05:00:00Z"), at("2026-06-01")), reason: Reason::Gap }];
    let mut cutter = Cutter::new(due, Vec::new(), 1000, true);
    let mut ends = Vec::new();
    while let Some(due) = cutter.next_window() {
        ends.push(format_ms(due.window.end_ms));
        cutter.learn(due.window, (due.window.len_ms() / HOUR_MS * 200) as u64);
    }
    // 200 rows an hour and 24,000 rows a window: five days.
    assert_eq!(ends[..4], ["2026-01-11", "2026-01-16", "2026-01-21", "2026-01-26"]);
    for month in ["2026-02-01", "2026-03-01", "2026-04-01", "2026-05-01", "2026-06-01"] {
        assert!(ends.iter().any(|end| end == month), "{ends:?}");
    }
}

#[test]
fn p4_rescans_of_two_nights_share_their_windows() {
    // 3,000 rows a day and 24,000 rows a window; and so few that a month is the limit.
    for rows in [365 * 3000, 365 * 100] {
        let covered = vec![CoverageInterval { rows, ..covered("2025-06-01", "2026-06-01", "2026-06-01") }];
        let cuts = |from: &str| -> Vec<Window> {
            let window = Window::new(at(from), at("2026-05-20T05:00:00Z"));
            let mut cutter = Cutter::new(vec![Due { window, reason: Reason::Rescan }], covered.clone(), 1000, true);
            std::iter::from_fn(|| cutter.next_window()).map(|due| due.window).collect()
        };
        let (tonight, tomorrow) = (cuts("2026-01-03T02:00:00Z"), cuts("2026-01-04T02:00:00Z"));
        let same = tonight.iter().filter(|window| tomorrow.contains(window)).count();
        assert!(same + 2 >= tomorrow.len() && tomorrow.len() >= 5, "{tonight:?} {tomorrow:?}");
        assert!(tonight.len() < 30, "windows are short: {tonight:?}");
    }
}

#[test]
fn lengths_are_guessed_until_a_scan_has_a_page_of_rows() {
    let due = || vec![Due { window: Window::new(at("2026-01-10"), at("2026-06-01")), reason: Reason::Gap }];
    let mut cutter = Cutter::new(due(), Vec::new(), 1000, true);
    let mut ends = Vec::new();
    while cutter.is_length_guessed() {
        let window = cutter.next_window().unwrap().window;
        ends.push(format_ms(window.end_ms));
        cutter.learn(window, 0);
    }
    assert_eq!(ends, ["2026-01-11", "2026-01-15", "2026-01-31"], "an empty history does not stay blind");
    let mut cutter = Cutter::new(due(), Vec::new(), 1000, true);
    let first = cutter.next_window().unwrap().window;
    cutter.learn(first, 999);
    assert!(cutter.is_length_guessed(), "less than a page");
    let second = cutter.next_window().unwrap().window;
    cutter.learn(second, 4000);
    assert!(!cutter.is_length_guessed());
    let third = cutter.next_window().unwrap().window;
    assert_eq!(format_ms(third.end_ms), "2026-02-01", "at a thousand rows a day the month is the limit");
    assert!(
        !Cutter::new(due(), Vec::new(), 1000, false).is_length_guessed(),
        "a stream without windows needs no guess"
    );
    let known = vec![covered("2025-12-01", "2025-12-02", "2026-01-01")];
    assert!(!Cutter::new(due(), known, 1000, true).is_length_guessed(), "an earlier run has seen rows");
}

#[test]
fn a_window_that_is_too_large_is_cut_in_halves() {
    let window = Window::new(at("2026-01-01"), at("2026-01-02"));
    let mut cutter = Cutter::new(Vec::new(), Vec::new(), 1000, true);
    let expected = ["never scanned 2026-01-01 2026-01-01T12:00:00Z", "never scanned 2026-01-01T12:00:00Z 2026-01-02"];
    assert!(cutter.cut(window, Reason::Gap));
    let parts: Vec<Due> = std::iter::from_fn(|| cutter.next_window()).collect();
    assert_eq!(show(&parts), expected);
    assert!(parts.iter().all(|part| !cutter.is_half(part.window)), "the window has not failed");
    assert!(cutter.halve(window, Reason::Gap));
    let halves: Vec<Due> = std::iter::from_fn(|| cutter.next_window()).collect();
    assert_eq!(show(&halves), expected);
    assert!(halves.iter().all(|half| cutter.is_half(half.window)));
    assert!(cutter.halve(Window::new(0, MINUTE_MS), Reason::Gap), "down to the second around a record");
    assert!(!cutter.halve(Window::new(0, 1999), Reason::Gap));
}

#[test]
fn rescan_rules_are_parsed() {
    let texts = ["3d every run", "30d daily", "365d weekly", "all monthly"];
    let tiers: Vec<Tier> = texts.iter().map(|text| text.parse().unwrap()).collect();
    assert_eq!(RescanRules::try_from(tiers).unwrap(), RescanRules::default());
    assert_eq!("7d every 12h".parse::<Tier>().unwrap().to_string(), "7d every 12h");
    for wrong in ["", "3d", "3 daily", "x daily", "3d often", "-3d daily", "3d every 0h", "999999999d daily"] {
        assert!(wrong.parse::<Tier>().unwrap_err().contains("not a re-scan rule"), "{wrong}");
    }
    let tiers = vec!["30d daily".parse().unwrap(), "3d every run".parse().unwrap()];
    assert!(RescanRules::try_from(tiers).is_err());
}

fn intervals() -> impl Strategy<Value = Vec<CoverageInterval>> {
    prop::collection::vec((0..60i64, 1..20i64, 0..70i64, 0..100_000u64), 0..6).prop_map(|parts| {
        let mut from = at("2026-01-01");
        let interval = |(gap, len, scanned, rows): (i64, i64, i64, u64)| {
            let start_ms = from + gap * 6 * HOUR_MS;
            from = start_ms + len * 6 * HOUR_MS;
            let scanned_ms = from + scanned * DAY_MS;
            CoverageInterval { window: Window::new(start_ms, from), flags: FlagSet::EMPTY, scanned_ms, rows }
        };
        parts.into_iter().map(interval).collect()
    })
}

proptest! {
    /// Windows are disjoint, not empty, older than the lag, within one month, and leave no gap.
    #[test]
    fn p3_a_plan_leaves_no_gap_and_has_no_overlap(covered in intervals(), later in 0..400i64) {
        let now = at("2026-01-01") + later * 7 * HOUR_MS;
        let since = at("2025-12-20");
        let rules = rules();
        let due = due(RESPONSES, &covered, &rules, PlanRequest::Sync(SyncStart { first_ms: since, earliest_covered_ms: None }), now);
        let mut cutter = Cutter::new(due, covered.clone(), 1000, true);
        let mut asked = IntervalSet::new();
        while let Some(due) = cutter.next_window() {
            let window = due.window;
            prop_assert!(!window.is_empty());
            prop_assert!(due.reason == Reason::Rescan || window.end_ms <= now - rules.lag_ms);
            prop_assert_eq!(asked.gaps_in(window), vec![window], "asked twice");
            let month = |at_ms: i64| format_ms(at_ms - at_ms.rem_euclid(DAY_MS))[..7].to_owned();
            prop_assert_eq!(month(window.start_ms), month(window.end_ms - 1));
            asked.insert(window);
        }
        for interval in &covered {
            asked.insert(interval.window);
        }
        let newest = covered.last().map_or(i64::MIN, |interval| interval.window.end_ms);
        prop_assert!(asked.windows().len() <= 1 || newest > now - rules.lag_ms, "{:?}", asked);
    }
}
