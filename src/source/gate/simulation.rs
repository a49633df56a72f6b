//! Hours of workers before a gate before a service with a rate limit, in milliseconds: how much of the limit is used,
//! how often the service has to refuse, and whether anything is sent before its time.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::*;

const WORKERS: usize = 4;

/// A token bucket: `rate` tokens a second, at most `burst` saved up.
struct Service {
    rate: f64,
    burst: f64,
    tokens: f64,
    filled_at: Duration,
    /// What a refusal says about when to come back.
    retry_after: Option<Duration>,
}

impl Service {
    fn admits(&mut self, at: Duration) -> bool {
        let secs = at.saturating_sub(self.filled_at).as_secs_f64();
        self.tokens = (self.tokens + secs * self.rate).min(self.burst);
        self.filled_at = at;
        let admits = self.tokens >= 1.0;
        if admits {
            self.tokens -= 1.0;
        }
        admits
    }
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Ask { worker: usize },
    Arrive { worker: usize },
    Answer { worker: usize, admitted: bool },
}

#[derive(Default)]
struct Outcome {
    admitted: u64,
    refused: u64,
    sent_while_closed: u64,
}

/// A small linear congruential generator: the same run every time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Runs the workers from 0 to `end` and counts what came in from `count_from` on.
fn simulate(
    gate: &mut GateState,
    service: &mut Service,
    latency: Duration,
    count_from: Duration,
    end: Duration,
) -> Outcome {
    let start = Instant::now();
    let mut random = Random(7);
    let mut tickets: Vec<Option<Ticket>> = (0..WORKERS).map(|_| None).collect();
    let mut parked: Vec<usize> = Vec::new();
    let mut events = BinaryHeap::new();
    let mut order = 0_u64;
    let mut outcome = Outcome::default();
    let mut closed_until = Duration::ZERO;
    let mut later = |events: &mut BinaryHeap<_>, at: Duration, event: Event| {
        order += 1;
        events.push(Reverse((at, order, event)));
    };
    (0..WORKERS).for_each(|worker| later(&mut events, Duration::ZERO, Event::Ask { worker }));
    while let Some(Reverse((at, _, event))) = events.pop() {
        if at > end {
            break;
        }
        let counts = u64::from(at >= count_from);
        match event {
            Event::Ask { worker } => match gate.ask(start + at) {
                Decision::Go(ticket) => {
                    tickets[worker] = Some(ticket);
                    outcome.sent_while_closed += u64::from(at < closed_until);
                    let travel = latency.mul_f64(0.5 * (0.5 + random.next()));
                    later(&mut events, at + travel, Event::Arrive { worker });
                }
                // A timer's millisecond late, at most.
                Decision::Wait(waiting) => {
                    let until = waiting.until - start + Duration::from_micros((random.next() * 1_000.0) as u64);
                    later(&mut events, until, Event::Ask { worker });
                }
                Decision::Crowded => parked.push(worker),
                Decision::Stop(halt) => panic!("stopped: {halt:?}"),
            },
            Event::Arrive { worker } => {
                let admitted = service.admits(at);
                let travel = latency.mul_f64(0.5 * (0.5 + random.next()));
                later(&mut events, at + travel, Event::Answer { worker, admitted });
            }
            Event::Answer { worker, admitted } => {
                let ticket = tickets[worker].take().expect("an answer has a request");
                if admitted {
                    outcome.admitted += counts;
                    gate.admitted(&ticket, start + at);
                } else {
                    outcome.refused += counts;
                    let closed = gate.refused(&ticket, start + at, service.retry_after, true, random.next());
                    closed_until = closed.map_or(closed_until, |closed| closed.until - start);
                }
                gate.released(ticket);
                later(&mut events, at, Event::Ask { worker });
                parked.drain(..).for_each(|worker| later(&mut events, at, Event::Ask { worker }));
            }
        }
    }
    outcome
}

fn fresh_gate(learned: Option<f64>) -> GateState {
    let limits =
        Limits { in_flight_max: WORKERS, patience: Duration::from_secs(3600), deadline: None, requests_max: None };
    GateState::new(limits, Pace::new(learned, None), Backoff::default())
}

/// Fast enough for the workers to exceed the limit twice over.
fn latency(rate: f64) -> Duration {
    Duration::from_secs_f64((WORKERS as f64 / rate / 2.0).min(0.2))
}

/// A service of `rate` requests a second, used for ten minutes after two minutes to settle. Returns the share of the
/// limit that was used and the share of requests that were refused.
fn steady_state(rate: f64, burst: f64, retry_after: Option<Duration>, learned: Option<f64>) -> (f64, f64) {
    let mut service = Service { rate, burst, tokens: burst, filled_at: Duration::ZERO, retry_after };
    let (settle, measure) = (Duration::from_secs(120), Duration::from_secs(600));
    let outcome = simulate(&mut fresh_gate(learned), &mut service, latency(rate), settle, settle + measure);
    assert_eq!(outcome.sent_while_closed, 0, "limit {rate}/s: sent before its time");
    let asked = (outcome.admitted + outcome.refused) as f64;
    (outcome.admitted as f64 / (rate * measure.as_secs_f64()), outcome.refused as f64 / asked)
}

#[test]
fn p5_nine_tenths_of_a_limit_are_used_and_few_requests_are_refused() {
    for (rate, refused_max) in [(1.0, 0.04), (10.0, 0.01), (50.0, 0.005), (200.0, 0.005)] {
        for burst in [2.0_f64.max(rate / 5.0), rate.max(2.0)] {
            for hint in [None, Some(Duration::from_secs(1))] {
                let (used, refused) = steady_state(rate, burst, hint, None);
                let case =
                    format!("limit {rate}/s, burst {burst}, hint {hint:?}: {used:.3} used, {refused:.4} refused");
                assert!(used >= 0.9, "{case}");
                assert!(refused <= refused_max, "{case}");
            }
        }
    }
}

#[test]
fn p5_a_service_without_burst_is_used_as_jitter_allows() {
    // Requests a second apart arrive up to a tenth of a second early or late, and early is too early.
    let (used, refused) = steady_state(1.0, 1.0, Some(Duration::from_secs(1)), None);
    assert!(used >= 0.8 && refused <= 0.05, "{used:.3} used, {refused:.4} refused");
}

#[test]
fn p5_a_learned_rate_that_is_wrong_by_far_does_no_lasting_harm() {
    for (rate, learned) in [(50.0, 0.1), (50.0, 5_000.0), (1.0, 1_000.0), (200.0, 1.0)] {
        let (used, refused) = steady_state(rate, rate.max(2.0), Some(Duration::from_secs(1)), Some(learned));
        let case = format!("limit {rate}/s, learned {learned}/s: {used:.3} used, {refused:.4} refused");
        assert!(used >= 0.9 && refused <= 0.04, "{case}");
    }
}

#[test]
fn p5_an_allowance_by_the_window_is_used_up_and_waited_out() {
    // 1,000 requests in 5 minutes, and a refusal says when the next 5 minutes begin: as an older document has it.
    let mut gate = fresh_gate(None);
    let start = Instant::now();
    let span = Duration::from_secs(300);
    let (mut at, mut window, mut used, mut refused) = (Duration::ZERO, 0, 0, 0);
    let mut admitted = 0;
    while at < span * 12 {
        match gate.ask(start + at) {
            Decision::Go(ticket) => {
                let now_in = at.as_secs() / 300;
                if now_in != window {
                    (window, used) = (now_in, 0);
                }
                at += Duration::from_millis(25);
                if used < 1_000 {
                    used += 1;
                    admitted += 1;
                    gate.admitted(&ticket, start + at);
                } else {
                    refused += 1;
                    let next = span * u32::try_from(window + 1).unwrap() - at;
                    gate.refused(&ticket, start + at, Some(next), true, 0.5);
                }
                gate.released(ticket);
            }
            Decision::Wait(waiting) => at = waiting.until - start,
            other => panic!("{other:?}"),
        }
    }
    assert!(admitted >= 12 * 900, "{admitted} of 12,000");
    assert!(refused <= 24, "{refused} refusals in 12 windows");
}

/// What a gate that knows nothing yet makes of a service of `rate` requests a second between two moments, in seconds.
/// Returns the share of the limit that was used, the requests that were refused, and all that in words.
fn search(rate: f64, burst: f64, from_secs: u64, to_secs: u64) -> (f64, u64, String) {
    let retry_after = Some(Duration::from_secs(1));
    let mut service = Service { rate, burst, tokens: burst, filled_at: Duration::ZERO, retry_after };
    let (from, to) = (Duration::from_secs(from_secs), Duration::from_secs(to_secs));
    let Outcome { admitted, refused, .. } = simulate(&mut fresh_gate(None), &mut service, latency(rate), from, to);
    let used = admitted as f64 / (rate * (to - from).as_secs_f64());
    (used, refused, format!("limit {rate}/s, burst {burst}: {used:.3} used, {refused} refused"))
}

#[test]
fn p5_a_limit_is_found_within_half_a_minute() {
    for (rate, burst) in [(20.0, 4.0), (50.0, 10.0), (50.0, 50.0), (200.0, 40.0)] {
        let (used, _, case) = search(rate, burst, 30, 60);
        assert!(used >= 0.9, "{case}");
    }
}

#[test]
fn p5_a_search_is_refused_few_times_however_much_is_saved_up() {
    for (rate, burst) in
        [(5.0, 2.0), (10.0, 2.0), (10.0, 10.0), (20.0, 20.0), (50.0, 10.0), (50.0, 50.0), (200.0, 200.0)]
    {
        let (used, refused, case) = search(rate, burst, 0, 20);
        assert!(used >= 0.65 && refused <= if rate > 5.0 { 5 } else { 8 }, "{case}");
    }
}

#[test]
fn p5_one_refusal_after_the_burst_finds_a_limit_with_small_burst() {
    for (rate, burst) in [(20.0, 4.0), (50.0, 10.0), (200.0, 40.0)] {
        let (used, refused, case) = search(rate, burst, 10, 20);
        assert!(used >= 0.95 && refused == 0, "{case}");
    }
}
