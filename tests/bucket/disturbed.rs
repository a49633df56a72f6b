//! Requests that fail, whose answers are lost, or that are the last before a kill.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use studysync_sandbox::ChangeRequest;

use super::{ADDRESS, BELOW, assert_same_content, load, tables};
use crate::harness::{DAY_MS, Done, Meets, ObjectServer, Place, Service, days_ago, small};

/// The bucket after undisturbed runs, and the number of requests of the last night.
fn calm() -> (Service, ObjectServer, Place) {
    let (service, server) = (Service::start(small(120, 40)), ObjectServer::start());
    let place = Place::new(&service).in_bucket(&server, ADDRESS);
    load(&service, &[&place]);
    (service, server, place)
}

#[test]
fn p2_a_night_killed_at_each_request_ends_the_same() {
    let (service, server, place) = calm();
    let before = server.objects();
    service.advance_days(1);
    service.change(&super::changes());
    server.take_requests();
    place.run(&["sync"]).expect(0);
    let requests = server.take_requests().len();
    let expected = tables(&server);
    assert!(requests > 10, "{requests}");
    let step = (requests / 9).max(1);
    for last in (1..requests).step_by(step) {
        server.replace_all(&before);
        let _ = std::fs::remove_dir_all(place.path("state"));
        // The state is rebuilt from the bucket, so that each turn begins as the first.
        server.take_requests();
        server.meet(move |number, _| if number >= last { Meets::Silence } else { Meets::Success });
        let mut child = place.spawn(&["sync"]);
        while server.requests() <= last && child.try_wait().unwrap().is_none() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        server.meet(|_, _| Meets::Success);
        place.run(&["sync"]).expect(0);
        let found = tables(&server);
        assert_same_content(&expected.0, &found.0, &format!("killed at request {last} of {requests}"));
        assert_eq!(server.uploads(), 0);
    }
}

#[test]
fn p2_lost_answers_and_refusals_change_nothing() {
    let (service, server, place) = calm();
    service.advance_days(1);
    service.change(&super::changes());
    server.meet(|number, _| match number % 5 {
        1 => Meets::Refusal,
        3 => Meets::LostAnswer,
        _ => Meets::Success,
    });
    place.run(&["sync"]).expect(0);
    server.meet(|_, _| Meets::Success);
    let folder = Place::new(&service).without_duckdb();
    folder.run(&["backfill", "--from", &days_ago(30)]).expect(0);
    let count = "SELECT count(*) FROM responses WHERE _vanished_at IS NULL";
    assert_eq!(tables(&server).0.count(count), folder.parquet_tables().count(count));
    assert!(server.objects().keys().all(|key| key.starts_with(BELOW)));
}

#[test]
fn p1_a_replay_killed_while_it_replaces_is_ended_by_a_run() {
    let (_service, server, place) = calm();
    let before = tables(&server);
    for last in [0, 4, 12] {
        let since = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&since);
        server.meet(move |_, request| {
            let is_begin = request.starts_with("PUT") && request.contains("replacement.json");
            let number = match counter.load(Ordering::Relaxed) {
                0 if !is_begin => return Meets::Success,
                _ => counter.fetch_add(1, Ordering::Relaxed),
            };
            if number > last { Meets::Silence } else { Meets::Success }
        });
        let mut child = place.spawn(&["replay"]);
        while since.load(Ordering::Relaxed) <= last + 1 {
            assert_eq!(child.try_wait().unwrap(), None, "the replay has ended before request {last}");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        server.meet(|_, _| Meets::Success);
        let done = place.run(&["query", "SELECT count(*) FROM responses"]);
        assert_ne!(done.code, 0, "killed at request {last}");
        assert!(done.stderr.contains("a replay was stopped"), "{}", done.stderr);
        place.run(&["sync"]).expect(0);
        assert_same_content(&before.0, &tables(&server).0, &format!("killed at request {last}"));
        place.run(&["query", "SELECT count(*) FROM responses"]).expect(0);
    }
}

/// Lets two runs write at the same time: the lease of the first is lost. Returns how many runs were refused.
fn race(server: &ObjectServer, places: [&Place; 2]) -> usize {
    let runs = places.map(|place| place.spawn(&["sync"]));
    let ids = runs.each_ref().map(std::process::Child::id);
    let ended = std::thread::scope(|scope| {
        let waits = runs.map(|run| scope.spawn(|| Done::from(run.wait_with_output().unwrap())));
        let mut is_lost = false;
        while !is_lost && waits.iter().any(|wait| !wait.is_finished()) {
            is_lost = server.remove(&format!("{BELOW}/.studysync/lease.json"));
            std::thread::sleep(Duration::from_millis(1));
        }
        waits.map(|wait| wait.join().unwrap())
    });
    let refused = ended.into_iter().zip([ids[1], ids[0]]).filter(|(done, winner)| {
        let is_told = done.stderr.contains(&format!("process {winner} on "));
        assert!(done.code == 0 || (done.code == 5 && is_told), "exit code {}: {}", done.code, done.stderr);
        done.code == 5
    });
    refused.count()
}

fn let_runs_race(races: u64) {
    let (service, server) = (Service::start(small(200, 20)), ObjectServer::start());
    let config = "[warehouse]\nlock_wait_secs = 0\n[streams.surveys]\nenabled = false\n";
    let places = [(); 2].map(|()| Place::new(&service).in_bucket(&server, ADDRESS).with_config(config));
    places.iter().for_each(|place| drop(place.run(&["backfill", "--from", &days_ago(20)]).expect(0)));
    let mut refused = 0;
    for seed in 1..=races {
        service.advance_days(1);
        // A sync scans the last three days again.
        service.change(&ChangeRequest {
            seed,
            new_answers: 10,
            edits: 5,
            within_ms: Some(DAY_MS),
            ..ChangeRequest::default()
        });
        refused += race(&server, places.each_ref());
    }
    assert!(refused > 0, "no run met the other");
    places.iter().for_each(|place| drop(place.run(&["sync"]).expect(0)));
    let folder = Place::new(&service).without_duckdb().with_config(config);
    folder.run(&["backfill", "--from", &days_ago(20)]).expect(0);
    assert_same_content(&folder.parquet_tables(), &tables(&server).0, &format!("{refused} runs were refused"));
}

#[test]
fn p2_two_runs_in_a_bucket_lose_nothing() {
    let_runs_race(6);
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p2_slow_two_runs_in_a_bucket_race_200_times() {
    let_runs_race(200);
}
