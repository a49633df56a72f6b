//! The gate as tasks see it: waiting, cancelling, several at once.

use std::time::Instant as WallInstant;

use super::*;
use crate::source::{
    backoff::Backoff,
    gate::{Limits, Pace},
};

fn gate_with(limits: Limits, stop: &CancellationToken) -> Gate {
    let state = GateState::new(limits, Pace::new(None, None), Backoff::default());
    Gate::new(state, TimeAccount::default(), stop.clone(), Machine::default())
}

fn limits() -> Limits {
    Limits { in_flight_max: 1, patience: Duration::from_secs(3600), deadline: None, requests_max: None }
}

#[tokio::test]
async fn p5_every_wait_ends_within_milliseconds_of_a_cancellation() {
    for wait in ["crowded", "told", "nap", "work"] {
        let stop = CancellationToken::new();
        let gate = gate_with(limits(), &stop);
        let held = gate.permit().await.unwrap();
        if wait == "told" {
            held.refused(429, Some(Duration::from_secs(600)));
        }
        let waiting = async {
            match wait {
                "nap" => gate.nap(Duration::from_secs(600)).await,
                "work" => gate.unless_stopped(std::future::pending()).await,
                _ => gate.permit().await.map(drop),
            }
        };
        let started = WallInstant::now();
        let cancelling = async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            stop.cancel();
        };
        let (outcome, ()) = tokio::join!(waiting, cancelling);
        assert_eq!(outcome, Err(Stop::Cancelled), "{wait}");
        assert!(started.elapsed() < Duration::from_millis(500), "{wait}: {:?}", started.elapsed());
    }
}

#[tokio::test]
async fn p5_a_cancelled_gate_gives_no_permit() {
    let stop = CancellationToken::new();
    stop.cancel();
    assert_eq!(gate_with(limits(), &stop).permit().await.map(drop), Err(Stop::Cancelled));
}

#[tokio::test]
async fn a_permit_that_comes_back_wakes_who_waits_for_it() {
    let gate = gate_with(limits(), &CancellationToken::new());
    let held = gate.permit().await.unwrap();
    let waiting = tokio::spawn({
        let gate = gate.clone();
        async move { gate.permit().await.map(drop) }
    });
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!waiting.is_finished());
    drop(held);
    assert_eq!(waiting.await.unwrap(), Ok(()));
}

#[tokio::test]
async fn p5_waiting_ends_at_the_deadline_even_for_a_place() {
    let deadline = Some(Instant::now() + Duration::from_millis(50));
    let gate = gate_with(Limits { deadline, ..limits() }, &CancellationToken::new());
    let _held = gate.permit().await.unwrap();
    assert!(matches!(gate.permit().await.map(drop), Err(Stop::Deadline { .. })));
    let gate = gate_with(Limits { deadline, ..limits() }, &CancellationToken::new());
    assert!(matches!(gate.nap(Duration::from_secs(5)).await, Err(Stop::Deadline { .. })));
}

#[tokio::test]
async fn p5_work_under_way_ends_at_the_deadline() {
    let deadline = Some(Instant::now() + Duration::from_millis(50));
    let gate = gate_with(Limits { deadline, ..limits() }, &CancellationToken::new());
    assert!(matches!(gate.unless_stopped(std::future::pending::<()>()).await, Err(Stop::Deadline { .. })));
    assert_eq!(gate.unless_stopped(async { 7 }).await, Ok(7), "what is done already is kept");
}

#[tokio::test]
async fn p5_waits_are_booked_by_who_chose_them() {
    let gate = gate_with(limits(), &CancellationToken::new());
    gate.permit().await.unwrap().refused(429, Some(Duration::from_millis(150)));
    gate.permit().await.map(drop).unwrap();
    let parts = gate.account().parts();
    assert!((140..2_000).contains(&parts.told_to_wait) && parts.chose_to_wait == 0, "{parts:?}");

    gate.nap(Duration::from_millis(150)).await.unwrap();
    let parts = gate.account().parts();
    assert!((140..2_000).contains(&parts.chose_to_wait), "{parts:?}");
}

#[tokio::test]
async fn p5_stops_say_until_when() {
    let gate = gate_with(limits(), &CancellationToken::new());
    gate.permit().await.unwrap().refused(429, Some(Duration::from_secs(7_200)));
    let Err(Stop::Patience { until_ms, told: true }) = gate.permit().await.map(drop) else {
        panic!("expected to run out of patience");
    };
    let ahead_ms = until_ms - crate::clock::now_ms();
    assert!((7_190_000..=7_200_000).contains(&ahead_ms), "{ahead_ms} ms");
}
