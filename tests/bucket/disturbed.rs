//! Requests that fail, whose answers are lost, or that are the last before a kill.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use super::{ADDRESS, BELOW, assert_same_content, load, tables};
use crate::harness::{Meets, ObjectServer, Place, Service, days_ago, small};

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
