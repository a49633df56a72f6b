//! The gate's decisions, one by one, on a clock that is handed in.

use super::*;

fn limits() -> Limits {
    Limits { in_flight_max: 4, patience: Duration::from_secs(3600), deadline: None, requests_max: None }
}

fn gate(limits: Limits) -> GateState {
    GateState::new(limits, Pace::new(None, None), Backoff::default())
}

fn go(gate: &mut GateState, now: Instant) -> Ticket {
    match gate.ask(now) {
        Decision::Go(ticket) => ticket,
        other => panic!("expected to go, got {other:?}"),
    }
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn told(until: Instant) -> Decision {
    Decision::Wait(Waiting { until, why: WaitReason::Told })
}

/// Sends one request and has it refused.
fn refuse(gate: &mut GateState, now: Instant, told: Option<Duration>) -> Waiting {
    let ticket = go(gate, now);
    let waiting = gate.refused(&ticket, now, told, true, 1.0).expect("a refusal closes the gate");
    gate.released(ticket);
    waiting
}

#[test]
fn p8_no_more_requests_are_under_way_than_allowed() {
    let (mut gate, now) = (gate(limits()), Instant::now());
    let tickets: Vec<Ticket> = (0..4).map(|_| go(&mut gate, now)).collect();
    assert_eq!(gate.ask(now), Decision::Crowded);
    tickets.into_iter().for_each(|ticket| gate.released(ticket));
    go(&mut gate, now);
}

#[test]
fn p5_one_refusal_closes_the_gate_for_all_until_the_told_time() {
    let (mut gate, now) = (gate(limits()), Instant::now());
    let (first, _second) = (go(&mut gate, now), go(&mut gate, now));
    let closed = gate.refused(&first, now, Some(secs(7)), true, 1.0).unwrap();
    assert_eq!(closed, Waiting { until: now + secs(7), why: WaitReason::Told });
    gate.released(first);
    assert_eq!(gate.ask(now), told(now + secs(7)));
    let just_before = now + secs(7) - Duration::from_nanos(1);
    assert_eq!(gate.ask(just_before), told(now + secs(7)));
    assert_eq!(gate.waiting(just_before), Some(closed));
    go(&mut gate, now + secs(7));
}

#[test]
fn p5_after_a_wait_one_request_goes_first() {
    let (mut gate, mut now) = (gate(limits()), Instant::now());
    refuse(&mut gate, now, Some(secs(1)));
    now += secs(1);
    let probe = go(&mut gate, now);
    assert_eq!(gate.ask(now), Decision::Crowded, "half open: one at a time");
    gate.admitted(&probe, now);
    gate.released(probe);
    // The learned rate spaces what follows, but the gate is open.
    let decision = gate.ask(now);
    assert!(
        matches!(decision, Decision::Go(_) | Decision::Wait(Waiting { why: WaitReason::Pace, .. })),
        "{decision:?}"
    );
}

#[test]
fn p5_a_probe_that_comes_to_nothing_leaves_the_gate_half_open() {
    let (mut gate, mut now) = (gate(limits()), Instant::now());
    refuse(&mut gate, now, Some(secs(1)));
    now += secs(1);
    let probe = go(&mut gate, now);
    gate.released(probe);
    let probe = go(&mut gate, now + secs(1));
    assert_eq!(gate.ask(now + secs(1)), Decision::Crowded);
    gate.released(probe);
}

#[test]
fn p5_answers_to_earlier_requests_do_not_open_the_gate() {
    let (mut gate, now) = (gate(limits()), Instant::now());
    let (first, second) = (go(&mut gate, now), go(&mut gate, now));
    gate.refused(&first, now, Some(secs(9)), true, 1.0);
    gate.admitted(&second, now);
    assert_eq!(gate.ask(now), told(now + secs(9)));
}

#[test]
fn p5_a_burst_of_refusals_is_one_refusal_with_the_latest_time() {
    let (mut gate, now) = (gate(limits()), Instant::now());
    let tickets: Vec<Ticket> = (0..4).map(|_| go(&mut gate, now)).collect();
    gate.refused(&tickets[0], now, None, true, 1.0);
    assert_eq!(gate.refused(&tickets[1], now, None, true, 1.0), None, "the first wait answers it");
    assert!(gate.refused(&tickets[2], now, Some(secs(5)), true, 1.0).is_some());
    assert_eq!(gate.refused(&tickets[3], now, Some(secs(2)), true, 1.0), None, "never sooner than told before");
    assert_eq!(gate.ask(now), told(now + secs(5)));
    tickets.into_iter().for_each(|ticket| gate.released(ticket));
    let closed = refuse(&mut gate, now + secs(5), None);
    assert_eq!(closed.until, now + secs(5) + secs(2), "the second wait of the series, not the fifth");
}

#[test]
fn p5_a_late_refusal_closes_an_open_gate() {
    let (mut gate, mut now) = (gate(limits()), Instant::now());
    let (first, late) = (go(&mut gate, now), go(&mut gate, now));
    gate.refused(&first, now, Some(secs(1)), true, 1.0);
    gate.released(first);
    now += secs(1);
    let probe = go(&mut gate, now);
    gate.admitted(&probe, now);
    gate.released(probe);
    now += secs(1);
    let under_way = go(&mut gate, now);
    gate.refused(&late, now, Some(secs(5)), true, 1.0).expect("what was told counts");
    gate.admitted(&under_way, now);
    assert_eq!(gate.ask(now), told(now + secs(5)));
    go(&mut gate, now + secs(5));
}

#[test]
fn p5_a_longer_late_retry_after_counts_at_a_half_open_gate() {
    let (mut gate, mut now) = (gate(limits()), Instant::now());
    let (first, late) = (go(&mut gate, now), go(&mut gate, now));
    gate.refused(&first, now, Some(secs(1)), true, 1.0);
    gate.released(first);
    now += secs(1);
    let probe = go(&mut gate, now);
    gate.refused(&late, now, Some(secs(5)), true, 1.0).expect("what was told counts");
    gate.released(late);
    gate.admitted(&probe, now);
    gate.released(probe);
    assert_eq!(gate.ask(now), told(now + secs(5)));
    go(&mut gate, now + secs(5));
}

#[test]
fn p5_waits_without_a_told_time_grow_and_a_success_begins_anew() {
    let (mut gate, mut now) = (gate(limits()), Instant::now());
    let mut waits = Vec::new();
    for _ in 0..4 {
        let closed = refuse(&mut gate, now, None);
        assert_eq!(closed.why, WaitReason::Backoff);
        waits.push(closed.until - now);
        now = closed.until;
    }
    assert_eq!(waits, [secs(1), secs(2), secs(4), secs(8)]);
    let probe = go(&mut gate, now);
    gate.admitted(&probe, now);
    gate.released(probe);
    now += secs(60);
    assert_eq!(refuse(&mut gate, now, None).until, now + secs(1));
}

#[test]
fn p5_a_wait_past_the_deadline_is_not_begun() {
    let now = Instant::now();
    let mut gate = gate(Limits { deadline: Some(now + secs(60)), ..limits() });
    refuse(&mut gate, now, Some(secs(61)));
    for at in [0, 30, 59] {
        assert_eq!(gate.ask(now + secs(at)), Decision::Stop(Halt::Deadline { until: now + secs(61) }));
    }
    assert!(matches!(gate.ask(now + secs(60)), Decision::Stop(Halt::Deadline { .. })));
}

#[test]
fn p5_nothing_is_sent_at_or_after_the_deadline() {
    let now = Instant::now();
    let mut gate = gate(Limits { deadline: Some(now + secs(60)), ..limits() });
    let ticket = go(&mut gate, now + secs(59));
    gate.released(ticket);
    assert!(matches!(gate.ask(now + secs(60)), Decision::Stop(Halt::Deadline { .. })));
}

#[test]
fn p5_a_wait_past_patience_ends_the_run_at_once_and_for_everybody() {
    let (mut gate, now) = (gate(limits()), Instant::now());
    refuse(&mut gate, now, Some(secs(7200)));
    let halt = Decision::Stop(Halt::Patience { until: now + secs(7200), told: true });
    assert_eq!(gate.ask(now), halt);
    // Still so when less than an hour is left: the run has been told to stop.
    assert_eq!(gate.ask(now + secs(7000)), halt);
}

#[test]
fn p5_patience_counts_over_refusals_without_a_success() {
    let (mut gate, start) = (gate(limits()), Instant::now());
    let mut now = start;
    while let Decision::Go(ticket) = gate.ask(now) {
        let closed = gate.refused(&ticket, now, Some(secs(600)), true, 1.0).unwrap();
        gate.released(ticket);
        if let Decision::Stop(halt) = gate.ask(now) {
            assert_eq!(halt, Halt::Patience { until: start + secs(4200), told: true });
            return assert_eq!(now, start + secs(3600));
        }
        now = closed.until;
    }
    panic!("the run should have ended");
}

#[test]
fn p5_a_success_renews_patience() {
    let (mut gate, mut now) = (gate(limits()), Instant::now());
    for _ in 0..20 {
        now = refuse(&mut gate, now, Some(secs(1800))).until;
        let probe = go(&mut gate, now);
        gate.admitted(&probe, now);
        gate.released(probe);
        now += secs(60);
    }
}

#[test]
fn p5_the_allowance_of_requests_counts_what_was_sent() {
    let (mut gate, now) = (gate(Limits { requests_max: Some(2), ..limits() }), Instant::now());
    for _ in 0..2 {
        let ticket = go(&mut gate, now);
        gate.released(ticket);
    }
    assert_eq!(gate.ask(now), Decision::Stop(Halt::Budget { requests: 2 }));
}

#[test]
fn p5_a_closed_service_does_not_teach_a_rate() {
    let (mut gate, now) = (gate(limits()), Instant::now());
    let (first, second) = (go(&mut gate, now), go(&mut gate, now));
    gate.admitted(&first, now);
    assert!(gate.refused(&second, now, Some(secs(30)), false, 1.0).is_some());
    assert_eq!(gate.learned(), (None, false));
}

#[test]
fn p5_a_ceiling_spaces_requests_from_the_first_on() {
    let now = Instant::now();
    let mut gate = GateState::new(limits(), Pace::new(None, Some(2.0)), Backoff::default());
    let ticket = go(&mut gate, now);
    gate.released(ticket);
    let due = now + Duration::from_millis(500);
    assert_eq!(gate.ask(now), Decision::Wait(Waiting { until: due, why: WaitReason::Pace }));
    assert_eq!(gate.waiting(now), Some(Waiting { until: due, why: WaitReason::Pace }));
    go(&mut gate, due);
    assert_eq!(gate.waiting(due), None, "a request is under way");
}

#[test]
fn naps_are_shown_while_nothing_else_goes_on() {
    let (mut gate, now) = (gate(limits()), Instant::now());
    gate.nap_begins(now + secs(5));
    gate.nap_begins(now + secs(3));
    assert_eq!(gate.waiting(now), Some(Waiting { until: now + secs(3), why: WaitReason::Backoff }));
    gate.nap_ends(now + secs(3));
    assert_eq!(gate.waiting(now), Some(Waiting { until: now + secs(5), why: WaitReason::Backoff }));
    gate.nap_ends(now + secs(5));
    assert_eq!(gate.waiting(now), None);
}
