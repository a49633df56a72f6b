//! Promise P9: an erased person is in no table, page or byte that the program stores, and does not return. These tests
//! search with their own code; they share only the decompression of pages with `erase`.

mod asked;
mod files;
pub mod grep;
mod kills;
mod objects;
mod others;
pub mod people;
mod person;
mod placeholders;
mod purged;
mod search;
mod spelled;
mod users;
mod vanished;
mod webhooks;

use serde_json::Value;
use studysync_sandbox::{ChangeRequest, ListName};

use crate::harness::{Done, Place, Service, small};

use grep::{Needle, found};
use people::{Everybody, Person, plant};

/// A service with four people to erase, and a place that has scanned it twice, with edits in between.
fn filled(responses: u64) -> (Service, Place) {
    let service = Service::start(small(responses, 12));
    plant(&service);
    let place = Place::new(&service);
    place.run(&["backfill", "--from", &crate::harness::days_ago(14)]).expect(0);
    service.advance_days(1);
    service.change(&ChangeRequest { seed: 3, edits: 200, soft_deletes: 20, ..ChangeRequest::default() });
    people::edit(&service);
    place.run(&["sync", "-vv"]);
    (service, place)
}

fn erase(place: &Place, arguments: &[&str]) -> Done {
    place.run(&[&["erase", "--yes", "--json"], arguments].concat())
}

fn write(place: &Place, name: &str, text: &str) -> String {
    let path = place.path(name);
    std::fs::write(&path, text).unwrap();
    path.to_string_lossy().into_owned()
}

fn receipt(done: &Done) -> Value {
    assert!(done.code == 0 || done.code == 3, "{}: {}", done.code, done.stderr);
    done.json()
}

#[test]
fn p9_an_erased_person_leaves_no_byte_and_does_not_return() {
    is_gone_on(500, &[1, 2, 11]);
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p9_slow_an_erased_person_leaves_no_byte_on_any_day() {
    is_gone_on(1500, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
}

/// Searches for the erased people after a `sync` on each of these days; the service purges them on the tenth.
fn is_gone_on(responses: u64, days: &[u64]) {
    let (service, place) = filled(responses);
    let everybody = Everybody::read(&place);
    let gone: Vec<Person> = everybody.to_erase();
    let needles: Vec<Needle> = gone.iter().flat_map(Person::needles).collect();
    for person in &gone {
        let places = found(&place, &person.needles());
        for expected in ["DuckDB responses", "DuckDB response_history", "Parquet responses", "archive page"] {
            assert!(
                places.iter().any(|place| place.starts_with(expected)),
                "{person:?} is not in {expected}: {places:?}"
            );
        }
    }

    let arguments: Vec<&str> = gone.iter().flat_map(|person| person.arguments()).collect();
    let done = erase(&place, &arguments);
    let receipt = receipt(&done);
    assert_eq!(done.code, 0, "{receipt:#}");
    assert_eq!(found(&place, &needles), [""; 0], "right after");
    let told = receipt.to_string();
    assert!(needles.iter().all(|needle| !needle.is_in(told.as_bytes())), "{told}");
    everybody.assert_others_are_left(&place, &gone, "right after");
    assert_eq!(service.control().stats().pending_purges, receipt["purge_requests"].as_array().unwrap().len());

    let mut today = 0;
    for &day in days {
        service.advance_days(day - today);
        today = day;
        let synced = place.run(&["sync", "-vv", "--json"]);
        assert!(synced.code == 0, "day {day}: {}", synced.stderr);
        for needle in &needles {
            assert!(
                !needle.is_in(synced.stderr.as_bytes()),
                "day {day}: a log line names {needle:?}: {}",
                synced.stderr
            );
        }
        if [2, 10].contains(&day) {
            place.run(&["replay"]).expect(0);
        }
        assert_eq!(found(&place, &needles), [""; 0], "day {day}");
    }
    everybody.assert_others_are_left(&place, &gone, "after the service's delay");
    assert_eq!(service.control().stats().pending_purges, 0);
    let left: Vec<String> = service.truth(ListName::Responses);
    assert!(left.iter().all(|record| needles.iter().all(|needle| !needle.is_in(record.as_bytes()))));
    place.run(&["verify", "--from", &crate::harness::days_ago(14)]).expect(0);
    // The same erasure again finds nothing.
    let again = erase(&place, &arguments);
    assert_eq!(again.json()["removed"], serde_json::json!({}), "{}", again.stderr);
}
