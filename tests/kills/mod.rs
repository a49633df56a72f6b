//! Promises P2 and P6 with real kills: SIGKILL ends the program at any time, it runs again, and the warehouses equal
//! those of a run that was not killed. The service's log shows that no stored data was requested again.
//!
//! These tests do not cover the loss of unsynced bytes at a power failure: the system keeps what a killed process has
//! written.

mod copies;
pub mod killer;
mod lost;
pub mod witness;

use studysync::model::Stream;
use studysync_sandbox::{ChangeRequest, Faults, Latency, Settings};

use crate::harness::{DAY_MS, NOW_MS, Place, Service, small};

use killer::{Killer, Random};
use witness::{Before, assert_same, assert_settled, repeats};

/// Concurrent windows, and therefore requests in flight at a kill.
const IN_FLIGHT_MAX: usize = 4;
/// Small pages and small windows, so that there is much to interrupt.
const MANY_WINDOWS: &str = r#"
[throttle]
in_flight_max = 4

[streams.responses]
flags = ["with_snapshots", "with_urls", "with_meta", "with_custom_metadata", "with_deleted_responses"]
page_rows = 9
"#;

/// A slow service whose clock is a few minutes past the hour, so that all runs of a test have the same end of settled
/// data.
fn slow_service(responses: u64, days: u32) -> Service {
    service_with_latency(responses, days, Latency { ms: 10, jitter_ms: 15, per_row_us: 0 })
}

fn service_with_latency(responses: u64, days: u32, latency: Latency) -> Service {
    let settings = small(responses, days);
    let faults = Faults { latency, ..settings.faults.clone() };
    Service::start(Settings { now_ms: NOW_MS + 2 * 60_000, faults, ..settings })
}

fn place(service: &Service) -> Place {
    Place::new(service).with_config(MANY_WINDOWS)
}

/// A backfill of whole days, all of them settled.
fn backfill(days: i64) -> Vec<String> {
    let day = |ago: i64| ((NOW_MS / DAY_MS - ago) * DAY_MS).to_string();
    ["backfill", "--from", &day(days), "--to", &day(0)].map(str::to_owned).into()
}

fn run_to_the_end(place: &Place, command: &[String]) {
    let arguments: Vec<&str> = command.iter().map(String::as_str).collect();
    place.run(&arguments).expect(0);
}

#[test]
fn p2_p6_a_repeatedly_killed_backfill_equals_an_unkilled_one() {
    killed_so_often(8, 1000, 10);
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p2_p6_slow_a_backfill_killed_fifty_times_equals_an_unkilled_one() {
    killed_so_often(50, 3000, 30);
}

fn killed_so_often(kills_wanted: usize, responses: u64, days: i64) {
    let service = slow_service(responses, days as u32);
    let command = backfill(days);
    let calm = place(&service);
    let mut killer = Killer::new(0x5eed_0001);
    let calm_run = killer.measure(&service, &calm, &command);

    let (mut kills, mut rounds, mut cut_short) = (0, 0, 0);
    while kills < kills_wanted {
        // A round is one backfill. If it ends early, another round begins, so that kills hit every part of it.
        let stormy = place(&service);
        service.clear_log();
        let mut known = Vec::new();
        let mut round = 0;
        while kills < kills_wanted && killer.run_and_kill(&service, &stormy, &command, &calm_run, 6) {
            kills += 1;
            round += 1;
            let before = Before::read(&stormy, service.control().stats().requests);
            before.assert_readable(&stormy);
            cut_short += before.cut_short;
            known.push(before);
        }
        run_to_the_end(&stormy, &command);
        rounds += 1;
        assert_same(&calm, &stormy, &format!("after {round} kills in round {rounds}"));
        assert_settled(&stormy);
        let log = service.log();
        for before in &known {
            before.assert_not_asked_again(&log);
        }
        // A page is requested again only if its answer was in flight at a kill.
        let repeated = repeats(&log);
        assert!(repeated.len() <= round * IN_FLIGHT_MAX, "{round} kills, {} repeated: {repeated:?}", repeated.len());
        // Window sizes depend on what a run has learned, so the number of pages varies a little.
        assert!(log.len() as u64 >= calm_run.requests * 3 / 4, "{} requests of {calm_run:?}", log.len());
        service.clear_log();
        run_to_the_end(&stormy, &command);
        assert_eq!(service.log(), [], "a finished backfill asks for nothing");
    }
    assert!(cut_short >= kills_wanted / 5, "only {cut_short} windows were cut short in the middle");
    assert!(
        rounds >= kills_wanted.div_ceil(25),
        "the kills came so early that no backfill came to its end between them"
    );
}

#[test]
fn p2_a_killed_night_of_edits_is_applied_once() {
    killed_at_night(3, 20);
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p2_slow_a_night_of_edits_killed_fifteen_times_is_applied_once() {
    killed_at_night(15, 40);
}

fn killed_at_night(kills_wanted: usize, days: u32) {
    let service = slow_service(1500, days);
    let calm = place(&service);
    run_to_the_end(&calm, &["sync".to_owned()]);
    let evening = killer::copy_of(&calm, place(&service));
    service.advance_days(1);
    let changed = service.change(&ChangeRequest {
        seed: 7,
        new_answers: 60,
        edits: 80,
        soft_deletes: 20,
        vanish_visitors: 3,
        late: 20,
        status_changes: 3,
        question_edits: 2,
        theme_edits: 2,
        new_themes: 5,
        within_ms: Some(20 * DAY_MS),
        ..ChangeRequest::default()
    });
    assert!(
        changed.edits_bumped.len() + changed.edits_silent.len() > 40,
        "the night changed next to nothing: {changed:?}"
    );
    let command = ["sync".to_owned()];
    let mut killer = Killer::new(0x5eed_0002);
    let night = killer.measure(&service, &calm, &command);
    let mut kills = 0;
    while kills < kills_wanted {
        let stormy = killer::copy_of(&evening, place(&service));
        // Each run scans the last days first. If all kills came early, they would never hit the older days.
        while kills < kills_wanted && killer.run_and_kill(&service, &stormy, &command, &night, 1) {
            kills += 1;
            Before::read(&stormy, 0).assert_readable(&stormy);
        }
        run_to_the_end(&stormy, &command);
        assert_same(&calm, &stormy, &format!("after {kills} kills"));
        assert_settled(&stormy);
        for (name, tables) in stormy.warehouses() {
            let versions = tables.count("SELECT count(*) FROM response_history");
            assert!(versions > 60, "{name}: {versions} earlier versions");
        }
    }
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p2_slow_a_kill_during_publish_leaves_old_or_new_files() {
    const KILLS: u64 = 6;
    const TRIES_MAX: u64 = 4 * KILLS;
    let service = slow_service(600, 6);
    let command = backfill(6);
    let calm = place(&service).without_duckdb();
    let mut killer = Killer::new(0x5eed_0003);
    let calm_run = killer.measure(&service, &calm, &command);
    let mut random = Random(0x5eed_0004);
    let mut hits = 0;
    for _ in 0..TRIES_MAX {
        if hits == KILLS {
            break;
        }
        let stormy = place(&service).without_duckdb();
        // After its last request, a run does its last commits and then publishes.
        let tail_us = calm_run.tail.as_micros() as u64;
        let after = std::time::Duration::from_micros(tail_us * hits / KILLS + random.below(tail_us / KILLS + 1));
        // Window sizes depend on what a run has learned, so it may send a few requests fewer than the undisturbed run.
        if !killer.kill_after_requests(&service, &stormy, &command, calm_run.requests * 9 / 10, after) {
            continue;
        }
        hits += 1;
        Before::read(&stormy, 0).assert_readable(&stormy);
        run_to_the_end(&stormy, &command);
        assert_same(&calm, &stormy, &format!("killed {after:?} into its tail"));
        assert_settled(&stormy);
    }
    assert!(hits >= KILLS / 2, "only {hits} of {TRIES_MAX} kills hit");
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p2_slow_the_spool_resumes_a_killed_run_without_an_archive() {
    let service = slow_service(800, 12);
    let command = backfill(12);
    let calm = place(&service);
    let mut killer = Killer::new(0x5eed_0005);
    let calm_run = killer.measure(&service, &calm, &command);
    let stormy = place(&service).without_archive();
    let mut kills = 0;
    while kills < 6 && killer.run_and_kill(&service, &stormy, &command, &calm_run, 6) {
        kills += 1;
    }
    assert!(kills > 0);
    run_to_the_end(&stormy, &command);
    assert_same(&calm, &stormy, "without an archive");
    let mut left = stormy.files("state/spool");
    // The file that says who owns the folder stays.
    left.retain(|path| !path.ends_with("owner.json"));
    assert!(left.is_empty(), "pages of committed scans stay: {left:?}");
    let state = studysync::state::State::open_read_only(&stormy.state()).unwrap().unwrap();
    let scope = studysync::model::Scope::all(Stream::Responses);
    assert!(!state.coverage(scope).unwrap().is_empty());
}
