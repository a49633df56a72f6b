//! A replay that is killed, or meets another run: either the old or the new warehouse is there, complete, and the next
//! run works.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use super::{Before, hostile_service, leftovers, night, place_after_three_nights, replay};
use crate::harness::{Service, assert_equal, notes, small};

#[test]
fn p2_a_replay_killed_at_any_time_leaves_the_old_warehouse() {
    is_killed(4, 500);
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p2_slow_a_replay_killed_at_more_times_leaves_the_old_one() {
    is_killed(8, 1200);
}

fn is_killed(kills: u32, responses: u64) {
    let service = hostile_service(responses);
    let place = place_after_three_nights(&service);
    let before = Before::of(&place, "before");
    let begun = std::time::Instant::now();
    replay(&service, &place, &[]).expect(0);
    let calm = begun.elapsed();
    let (mut killed, mut had_leftovers) = (0, 0);
    for turn in 0..kills {
        let mut child = place.command(&["replay", "--quiet"]).stdout(Stdio::null()).spawn().unwrap();
        if turn % 2 == 0 {
            std::thread::sleep(calm.mul_f64(f64::from(turn + 1) / f64::from(kills + 4)));
        } else {
            wait_for_the_swap(&place.path("warehouse.duckdb.replay"), u64::from(turn / 2));
        }
        child.kill().unwrap();
        killed += u32::from(child.wait().unwrap().code().is_none());
        had_leftovers += u32::from(!leftovers(&place).is_empty());
        before.assert_is(&place, &format!("after kill {turn}"));
    }
    assert!(killed >= kills / 2 && had_leftovers > 0, "{killed} kills, {had_leftovers} with leftovers");
    // A sync starts without leftovers, and pulls only what is new.
    night(&service, 9);
    service.clear_log();
    let report = place.run(&["sync", "--json"]).json();
    assert_eq!(notes(&report), [""; 0], "{report}");
    assert_eq!(leftovers(&place), Vec::<PathBuf>::new());
    assert_equal(&place.duckdb_tables(), &place.parquet_tables(), "the night after the kills");
    let after = Before::of(&place, "after");
    replay(&service, &place, &[]).expect(0);
    after.assert_is(&place, "replayed after the kills");
}

/// Waits until the new DuckDB file was complete and has been moved to its final path. Parquet is next.
fn wait_for_the_swap(fresh: &Path, after_ms: u64) {
    let begun = Instant::now();
    let until = |is_there: bool| {
        while fresh.exists() != is_there {
            assert!(begun.elapsed() < Duration::from_secs(120), "the replay does not come to its swap");
            std::thread::sleep(Duration::from_micros(200));
        }
    };
    until(true);
    until(false);
    std::thread::sleep(Duration::from_millis(after_ms));
}

#[test]
fn p2_replay_refuses_to_run_beside_another_writer() {
    let service = Service::start(small(300, 5));
    let place = crate::harness::Place::new(&service);
    place.run(&["sync"]).expect(0);
    let before = Before::of(&place, "before");
    let state = studysync::state::State::open(&place.state(), &service.base_url(), "default").unwrap();
    let lease = state.take_lease(&studysync::model::RunId::new(1), "sync", 1).unwrap();
    let refused = replay(&service, &place, &[]).expect(5);
    assert!(refused.stderr.contains("sync"), "{}", refused.stderr);
    drop(lease);
    before.assert_is(&place, "after a refusal");
}
