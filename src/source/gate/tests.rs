//! The state machine and the waiting tasks, on a clock that the test controls.

mod simulation;

pub(super) use std::sync::{Arc, Mutex};

use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    clock::Clock,
    model::{Rng, TimeAccount},
    source::Stop,
};

pub(super) fn limits() -> Limits {
    Limits { in_flight_max: 4, patience: Duration::from_secs(3600), deadline: None, requests_max: None }
}

pub(super) fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(super) fn gate(state: GateState) -> (Gate, CancellationToken) {
    let stop = CancellationToken::new();
    (Gate::new(state, TimeAccount::default(), stop.clone(), Clock::default(), Rng::seeded(7)), stop)
}

pub(super) fn state(limits: Limits, stored: Option<f64>, rate_max: Option<f64>) -> GateState {
    GateState::new(limits, RequestRate::new(stored, rate_max), Backoff::default())
}

fn send(state: &mut GateState, now: Instant) -> Ticket {
    let decision = state.try_acquire(now);
    let Decision::Send(ticket) = decision else { panic!("expected to send, got {decision:?}") };
    ticket
}

fn accept(state: &mut GateState, now: Instant) {
    let ticket = send(state, now);
    state.accepted(&ticket, now);
    state.release(ticket);
}

/// Sends one request, which gets a 429. Returns how long the gate is blocked.
fn rate_limit(state: &mut GateState, now: Instant, retry_after: Option<Duration>) -> Duration {
    let ticket = send(state, now);
    let waiting = state.rate_limited(&ticket, now, retry_after, true, 1.0).unwrap();
    state.release(ticket);
    waiting.until - now
}

#[test]
fn p5_p8_no_request_is_early_and_no_limit_is_exceeded() {
    for seed in 0..300 {
        let (rng, mut now) = (Rng::seeded(seed), Instant::now());
        let mut state = state(Limits { requests_max: Some(60), ..limits() }, None, None);
        // The model: the end of the latest Retry-After, and which requests in flight are older than the latest block.
        let (mut until, mut in_flight, mut sent, mut is_blocked) = (now, Vec::<(Ticket, bool)>::new(), 0, false);
        for _ in 0..400 {
            now += Duration::from_millis(rng.bits() % 400);
            let draw = rng.bits() % 8;
            if draw < 4 || in_flight.is_empty() {
                let Decision::Send(ticket) = state.try_acquire(now) else { continue };
                assert!(now >= until, "seed {seed}: {:?} early", until - now);
                assert!(!is_blocked || in_flight.iter().all(|(_, is_old)| *is_old), "seed {seed}: two probes");
                sent += 1;
                in_flight.push((ticket, false));
                assert!(in_flight.len() <= 4 && sent <= 60, "seed {seed}: {in_flight:?}, {sent} sent");
                continue;
            }
            let (ticket, is_old) = in_flight.swap_remove(rng.bits() as usize % in_flight.len());
            if draw < 6 {
                let retry_after = (draw == 4).then(|| Duration::from_millis(rng.bits() % 3_000 + 1));
                until = until.max(now + retry_after.unwrap_or_default());
                if state.rate_limited(&ticket, now, retry_after, true, rng.fraction()).is_some() {
                    is_blocked = true;
                    in_flight.iter_mut().for_each(|(_, is_old)| *is_old = true);
                }
            } else if draw == 6 {
                state.accepted(&ticket, now);
                is_blocked &= is_old;
            }
            state.release(ticket);
        }
        assert!(sent > 5, "seed {seed}: {sent} sent");
    }
}

#[test]
fn p5_requests_from_before_a_429_share_its_wait() {
    let (mut state, now) = (state(limits(), None, None), Instant::now());
    let tickets: Vec<Ticket> = (0..4).map(|_| send(&mut state, now)).collect();
    let mut limited = |at: usize, wait: Option<u64>| state.rate_limited(&tickets[at], now, wait.map(secs), true, 1.0);
    assert!(limited(0, None).is_some() && limited(1, None).is_none() && limited(2, Some(5)).is_some());
    assert_eq!(limited(3, Some(2)), None, "a shorter Retry-After changes nothing");
    tickets.into_iter().for_each(|ticket| state.release(ticket));
    let (mut at, waiting) = (now + secs(5), RequestWait { until: now + secs(5), reason: WaitReason::RateLimited });
    let just_before = at - Duration::from_nanos(1);
    assert_eq!(
        (state.try_acquire(just_before), state.current_wait(just_before)),
        (Decision::Wait(waiting), Some(waiting))
    );
    let probe = send(&mut state, at);
    assert_eq!(state.try_acquire(at), Decision::Full);
    state.release(probe);
    // The probe got no answer: another request takes its place. The backoff doubles until a request is accepted.
    for wait in [2, 4, 8] {
        assert_eq!(rate_limit(&mut state, at, None), secs(wait));
        at += secs(wait);
    }
    accept(&mut state, at);
    assert_eq!(rate_limit(&mut state, at, None), secs(1));
}

#[test]
fn p5_waits_past_the_deadline_or_patience_are_not_begun() {
    let now = Instant::now();
    let stop = |after: u64| Decision::Stop(StopCause::Deadline { until: now + secs(after) });
    for (wait, asked, decision) in [(61, 0, stop(61)), (61, 59, stop(61)), (10, 60, stop(60))] {
        let mut state = state(Limits { deadline: Some(now + secs(60)), ..limits() }, None, None);
        rate_limit(&mut state, now, Some(secs(wait)));
        assert_eq!(state.try_acquire(now + secs(asked)), decision, "{wait} s, asked after {asked} s");
    }
    // Patience counts over 429s in a row: the seventh wait of ten minutes exceeds an hour.
    // It stays so when the wait is nearly over.
    let (mut state, mut at) = (state(limits(), None, None), now);
    accept(&mut state, at);
    for _ in 0..7 {
        at += rate_limit(&mut state, at, Some(secs(600)));
    }
    let stop = Decision::Stop(StopCause::Patience { until: now + secs(4200), is_retry_after: true });
    assert_eq!((state.try_acquire(at - secs(600)), state.try_acquire(at)), (stop, state.blocked(at).unwrap()));
}

#[test]
fn p5_only_a_rate_that_paces_requests_changes() {
    let (mut paced, now) = (RequestRate::new(Some(10.0), None), Instant::now());
    [0, 3600, 3600].iter().for_each(|at| paced.sent(now + secs(*at)));
    let next = now + secs(3600) + Duration::from_millis(150);
    assert_eq!(paced.next_token(now + secs(3600)), Some(next), "an hour without requests allows no burst");
    for (stored, rate_max, ms) in [(Some(10.0), None, 1_000), (Some(10.0), Some(5.0), 0), (None, Some(5.0), 0)] {
        let (mut state, mut at) = (state(limits(), stored, rate_max), now);
        for _ in 0..100 {
            at += Duration::from_millis(ms);
            if let Decision::Wait(waiting) = state.try_acquire(at) {
                assert_eq!(state.current_wait(at), Some(waiting));
                at = waiting.until;
                accept(&mut state, at);
            }
            state.in_flight = 0;
        }
        assert!(rate_max.is_none() || at - now >= secs(18), "the ceiling paces from the first request on");
        assert_eq!(state.rate.learned(), (stored, false), "{stored:?}, {rate_max:?}");
    }
    // Neither a 503 nor a few requests teach a rate. The first rate is a share of the measured one.
    for (status, accepted, rate) in [(503, 40, None), (429, 4, None), (429, 40, Some(8.5))] {
        let mut state = state(limits(), Some(f64::NAN), None);
        (0..accepted).for_each(|_| accept(&mut state, now));
        let ticket = send(&mut state, now + secs(4));
        state.rate_limited(&ticket, now + secs(4), Some(secs(1)), status == 429, 1.0);
        assert_eq!(state.rate.learned(), (rate, rate.is_some()), "{status}, {accepted}");
    }
}

/// Waits for a place, a `Retry-After`, a retry delay or a download.
async fn wait_for(gate: &Gate, what: &str) -> Result<(), Stop> {
    let permit = gate.permit().await?;
    match what {
        "retry delay" => return gate.retry_delay(secs(600)).await,
        "download" => return gate.unless_stopped(std::future::pending()).await,
        "Retry-After" => permit.rate_limited(429, Some(secs(600))),
        _ => {}
    }
    gate.permit().await.map(drop)
}

#[tokio::test(start_paused = true)]
async fn p5_every_wait_ends_at_a_cancellation_or_the_deadline() {
    for what in ["place", "Retry-After", "retry delay", "download"] {
        let limits = Limits { in_flight_max: 1, ..limits() };
        let (one, stop) = gate(state(limits, None, None));
        let (stopped, _) = tokio::join!(wait_for(&one, what), async { (sleep(secs(5)).await, stop.cancel()) });
        assert_eq!(stopped, Err(Stop::Cancelled), "{what}");
        let (one, _) = gate(state(Limits { deadline: Some(Instant::now() + secs(60)), ..limits }, None, None));
        let stopped = timeout(secs(61), wait_for(&one, what)).await.unwrap();
        assert!(matches!(stopped, Err(Stop::Deadline { .. })), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn p5_tasks_are_served_in_order_and_their_waits_are_booked() {
    let (gate, _) = gate(state(Limits { in_flight_max: 1, ..limits() }, None, None));
    let (order, first) = (Arc::new(Mutex::new(Vec::new())), gate.permit().await.unwrap());
    let mut tasks = Vec::new();
    for number in 0..8 {
        let (gate, order) = (gate.clone(), Arc::clone(&order));
        tasks.push(tokio::spawn(async move {
            let permit = gate.permit().await.unwrap();
            order.lock().unwrap().push(number);
            permit.accepted();
        }));
        tokio::task::yield_now().await;
    }
    // A task that is cancelled in the queue delays nobody. A task that must not wait for the service leaves the queue.
    tasks.remove(3).abort();
    let rate_limited = async {
        first.rate_limited(429, Some(secs(7)));
        drop(first);
    };
    let (permit, ()) = tokio::join!(gate.permit_if_open(), rate_limited);
    assert!(permit.unwrap().is_none());
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 4, 5, 6, 7]);
    gate.retry_delay(secs(3)).await.unwrap();
    let parts = gate.account().parts();
    assert_eq!((parts.told_to_wait / 10, parts.chose_to_wait / 10), (700, 300));
}
