//! The pace against made-up answers, on a clock that is handed in.

use super::*;

fn secs(secs: f64) -> Duration {
    Duration::from_secs_f64(secs)
}

/// Sends a request as soon as it is due and has it admitted at once; returns when.
fn send_when_due(pace: &mut Pace, mut now: Instant) -> Instant {
    if let Some(due) = pace.hold_back(now) {
        now = due;
    }
    assert_eq!(pace.hold_back(now), None);
    pace.sent(now, false);
    pace.admitted(now);
    now
}

#[test]
fn there_is_no_pacing_before_the_first_refusal() {
    let (mut pace, now) = (Pace::new(None, None), Instant::now());
    for _ in 0..1_000 {
        assert_eq!(send_when_due(&mut pace, now), now);
    }
    assert_eq!(pace.learned(), (None, false));
}

fn assert_close(rate: Option<f64>, expected: f64) {
    assert!(rate.is_some_and(|rate| (rate / expected - 1.0).abs() < 0.02), "{rate:?}, expected {expected}");
}

#[test]
fn p5_the_first_refusal_starts_from_the_measured_rate() {
    let (mut pace, start) = (Pace::new(None, None), Instant::now());
    (0..40).for_each(|at| _ = send_when_due(&mut pace, start + secs(f64::from(at) / 10.0)));
    pace.refused(start + secs(4.0));
    assert_close(pace.learned().0, 8.5);
    assert!(pace.learned().1);
}

#[test]
fn p5_what_was_under_way_at_the_first_refusal_counts_for_the_guess() {
    let (mut pace, start) = (Pace::new(None, None), Instant::now());
    (0..40).for_each(|_| pace.sent(start, false));
    (0..5).for_each(|_| pace.admitted(start + secs(0.2)));
    pace.refused(start + secs(0.2));
    assert!(pace.learned().0.unwrap() < 5.0, "{:?}", pace.learned());
    (5..20).for_each(|_| pace.admitted(start + secs(0.2)));
    let guessed = pace.learned().0;
    assert!(guessed.is_some_and(|rate| (15.0..20.0).contains(&rate)), "{guessed:?}");
    // Another one of the same moment is not another refusal.
    pace.refused(start + secs(0.2));
    assert_eq!(pace.learned().0, guessed);
    // From the next request on it is the guess that is tried.
    let next = start + secs(1.3);
    pace.sent(next, false);
    pace.admitted(next + secs(0.2));
    assert_eq!(pace.learned().0, guessed);
}

#[test]
fn p5_an_early_refusal_teaches_nothing() {
    let (mut pace, start) = (Pace::new(None, None), Instant::now());
    for at in 0..5 {
        assert_eq!(pace.learned(), (None, false), "after {at} admissions");
        let now = send_when_due(&mut pace, start + secs(f64::from(at)));
        pace.refused(now);
    }
    let (rate, _) = pace.learned();
    assert!(rate.is_some_and(|rate| (0.8..1.2).contains(&rate)), "five admissions in four seconds: {rate:?}");
}

#[test]
fn p5_nothing_is_extrapolated_from_less_than_a_second() {
    let (mut pace, start) = (Pace::new(None, None), Instant::now());
    (0..20).for_each(|_| _ = send_when_due(&mut pace, start));
    pace.refused(start + secs(0.1));
    assert!(pace.learned().0.unwrap() < 20.0, "{:?}", pace.learned());
}

#[test]
fn p5_a_refusal_takes_off_a_tenth_of_a_rate_that_was_used() {
    let (mut pace, mut now) = (Pace::new(Some(10.0), None), Instant::now());
    for _ in 0..60 {
        now = send_when_due(&mut pace, now);
    }
    let before = pace.rate.unwrap();
    pace.hold_back(now);
    pace.refused(now);
    assert_close(pace.learned().0, before * 0.9);
}

#[test]
fn p5_a_refusal_takes_off_at_most_a_half_of_a_rate_that_was_tried() {
    let (mut pace, start) = (Pace::new(Some(10.0), None), Instant::now());
    let now = send_when_due(&mut pace, start + secs(1.0));
    pace.sent(now + secs(20.0), false);
    pace.hold_back(now + secs(20.0)).expect("the next one is not due");
    pace.refused(now + secs(20.0));
    assert_eq!(pace.learned().0, Some(5.0));
}

#[test]
fn p5_a_rate_that_held_nobody_back_is_replaced_by_the_measured_one() {
    let (mut pace, start) = (Pace::new(Some(5_000.0), None), Instant::now());
    (0..40).for_each(|at| _ = send_when_due(&mut pace, start + secs(f64::from(at) / 10.0)));
    pace.refused(start + secs(4.0));
    assert_close(pace.learned().0, 8.5);
}

#[test]
fn p5_refusals_without_a_success_between_are_one() {
    let (mut pace, start) = (Pace::new(None, None), Instant::now());
    (0..30).for_each(|_| _ = send_when_due(&mut pace, start));
    pace.refused(start + secs(1.0));
    let learned = pace.learned();
    (2..10).for_each(|at| pace.refused(start + secs(f64::from(at))));
    assert_eq!(pace.learned(), learned);
}

#[test]
fn p5_a_raised_limit_is_found_within_a_minute() {
    let (mut pace, start) = (Pace::new(Some(1.0), None), Instant::now());
    let mut now = start;
    while pace.learned().0.unwrap() < 10.0 {
        now = send_when_due(&mut pace, now);
        assert!(now < start + secs(90.0), "still at {:?}", pace.learned());
    }
}

/// A rate of fifty that is used for ten seconds;
/// then nothing comes through for half a second, and what waited is refused.
fn after_an_accident() -> (Pace, Instant) {
    let (mut pace, mut now) = (Pace::new(Some(50.0), None), Instant::now());
    let start = now;
    while now < start + secs(10.0) {
        now = send_when_due(&mut pace, now);
    }
    let _ = pace.hold_back(now);
    pace.refused(now + secs(0.5));
    assert!(pace.learned().0.is_some_and(|rate| rate < 44.0), "{:?}", pace.learned());
    (pace, now + secs(1.5))
}

fn used_for(pace: &mut Pace, mut now: Instant, time: Duration) -> Instant {
    let end = now + time;
    while now < end {
        now = send_when_due(pace, now);
    }
    now
}

#[test]
fn p5_an_accident_is_made_up_for_within_seconds() {
    let (mut pace, now) = after_an_accident();
    used_for(&mut pace, now, secs(6.0));
    assert!(pace.learned().0.is_some_and(|rate| (47.5..52.0).contains(&rate)), "{:?}", pace.learned());
}

#[test]
fn p5_a_limit_that_is_met_lower_twice_is_believed() {
    let (mut pace, now) = after_an_accident();
    let now = used_for(&mut pace, now, secs(3.0));
    let _ = pace.hold_back(now);
    pace.refused(now);
    let met = pace.learned().0.unwrap();
    used_for(&mut pace, now + secs(1.0), secs(6.0));
    assert!(pace.learned().0.is_some_and(|rate| rate < met * 1.13), "{met} and then {:?}", pace.learned());
}

#[test]
fn p5_a_first_guess_forgets_a_limit_that_was_doubted() {
    let (mut pace, now) = after_an_accident();
    let idle = now + secs(60.0);
    let (answered, refused) = (idle + secs(0.9), idle + secs(1.0));
    pace.sent(idle, true);
    (0..30).for_each(|_| pace.admitted(answered));
    pace.refused(refused);
    let guess = pace.learned().0.unwrap();
    assert!(guess < 30.0, "{guess}");
    used_for(&mut pace, refused + secs(1.0), secs(6.0));
    assert!(pace.learned().0.is_some_and(|rate| rate > 75.0), "{guess} and then {:?}", pace.learned());
}

#[test]
fn p5_another_run_begins_at_the_learned_limit() {
    let (mut pace, now) = (Pace::new(Some(50.0), None), Instant::now());
    let now = used_for(&mut pace, now, secs(20.0));
    assert!(pace.rate.is_some_and(|rate| rate > 51.0));
    assert_close(pace.learned().0, 49.0);
    used_for(&mut pace, now, secs(60.0));
    assert!(pace.learned().0.is_some_and(|rate| rate > 60.0), "{:?}", pace.learned());
}

#[test]
fn p5_a_rate_that_holds_nobody_back_does_not_grow() {
    let (mut pace, mut now) = (Pace::new(Some(10.0), None), Instant::now());
    for _ in 0..1_000 {
        now = send_when_due(&mut pace, now + secs(1.0));
    }
    assert_eq!(pace.learned().0, Some(10.0));
    let mut capped = Pace::new(Some(10.0), Some(5.0));
    for _ in 0..1_000 {
        now = send_when_due(&mut capped, now);
    }
    assert_eq!(capped.learned().0, Some(10.0), "only the settings' ceiling held it back");
}

#[test]
fn p5_the_ceiling_is_kept_whatever_is_learned() {
    let (mut pace, start) = (Pace::new(Some(50.0), Some(5.0)), Instant::now());
    let mut now = start;
    for _ in 0..500 {
        now = send_when_due(&mut pace, now);
    }
    // 500 requests take 499 intervals, less what slack allows.
    assert!(now - start >= secs(99.8 - 0.05), "{:?}", now - start);
}

#[test]
fn lateness_is_made_up_for_but_idleness_is_not() {
    let (mut pace, start) = (Pace::new(None, Some(10.0)), Instant::now());
    let first = send_when_due(&mut pace, start);
    let late = first + secs(0.13);
    assert_eq!(send_when_due(&mut pace, late), late);
    let next = send_when_due(&mut pace, late);
    assert_eq!(next, first + secs(0.2), "30 ms late: the one after is due as if it had been on time");
    let idle = next + secs(3600.0);
    let after: Vec<Duration> = (0..3).map(|_| send_when_due(&mut pace, idle) - idle).collect();
    assert_eq!(after, [secs(0.0), secs(0.05), secs(0.15)], "an idle hour saves up no more than the slack");
}

#[test]
fn p5_a_learned_rate_is_forgotten_within_a_day() {
    let hours = |hours: u64| Pace::aged(10.0, Duration::from_secs(hours * 3600));
    assert_eq!(hours(0), Some(10.0));
    assert_eq!(hours(12), Some(20.0));
    assert!(hours(23).unwrap() > 200.0);
    assert_eq!(hours(24), None);
    assert_eq!(hours(1_000), None);
}

#[test]
fn what_was_stored_is_brought_into_bounds() {
    for nonsense in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert_eq!(Pace::new(Some(nonsense), None).learned().0, None);
    }
    assert_eq!(Pace::new(Some(1e-300), None).learned().0, Some(RATE_MIN));
    assert_eq!(Pace::new(Some(1e300), None).learned().0, Some(RATE_MAX));
}
