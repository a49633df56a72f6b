//! Other people keep their data: people who share a device or an address, and people who mention the erased person.

use serde_json::json;
use studysync::archive::read_pages;
use studysync_sandbox::ListName;

use super::{
    erase,
    grep::{Needle, found},
    people::{identity, record},
};
use crate::harness::{Place, Service, days_ago, small};

const ANNA: &str = "anna-00017";
const BERT: &str = "bert-00018";
const MAIL: &str = "anna+x@example.com";
const SHARED: &str = "3a1c9d6e-0b7a-4c55-9a40-1d2e3f405163";
const OWN: &str = "4b1c9d6e-0b7a-4c55-9a40-1d2e3f405163";

fn session(number: u32) -> String {
    format!("cccccccc-0000-4000-8000-{number:012}")
}

/// Anna and Bert use one device; Bert writes about Anna.
fn shared_device() -> (Service, Place) {
    let service = Service::start(small(40, 3));
    let plant = |record: String| service.control().plant(ListName::Responses, &record, None).unwrap();
    let answer = |number: u32, who: serde_json::Value, text: &str| plant(record(&session(number), 1, &who, text, 2));
    answer(1, identity(Some(ANNA), 5001, SHARED, &session(1), Some(MAIL)), "annas, at the shared device");
    answer(2, identity(Some(ANNA), 5002, OWN, &session(2), None), "annas, at her own");
    answer(3, identity(Some(BERT), 5001, SHARED, &session(3), None), &format!("ask {MAIL}, or {ANNA}2 and {ANNA}!"));
    answer(4, identity(None, 5001, SHARED, &session(4), None), "somebody at the shared device");
    let place = Place::new(&service);
    place.run(&["backfill", "--from", &days_ago(14)]).expect(0);
    (service, place)
}

fn sessions(place: &Place) -> Vec<Vec<String>> {
    let sql = "SELECT DISTINCT response_group_uid FROM responses WHERE response_group_uid LIKE 'cccc%' ORDER BY ALL";
    let of = |(_, tables): (&str, crate::harness::Tables)| {
        tables.rows_of(sql).into_iter().map(|row| row[0].clone().unwrap()).collect()
    };
    place.warehouses().into_iter().map(of).collect()
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p9_slow_people_who_share_a_device_keep_everything() {
    let (service, place) = shared_device();
    // If the request names the device, the plan includes the answers from the device and lists the other users of it.
    let plan = place.run(&["erase", "--dry-run", "--json", "--visitor-id", SHARED]).expect(3).json();
    let left: Vec<&str> = plan["not_followed"].as_array().unwrap().iter().map(|one| one[0].as_str().unwrap()).collect();
    assert_eq!(left[..2], [format!("user_id {ANNA}"), format!("user_id {BERT}")], "{plan:#}");
    assert_eq!(plan["rows"]["duckdb"]["responses"], 3);
    let done = erase(&place, &["--user-id", ANNA]);
    assert_eq!(done.code, 3, "the device was not followed: {}", done.stderr);
    let receipt = done.json();
    assert_eq!(receipt["not_followed"], 2, "the number and the UUID of the device");
    assert_eq!(sessions(&place), vec![vec![session(3), session(4)]; 2]);
    let needles: Vec<Needle> = [OWN, &session(1), &session(2)].map(Needle::new).into();
    assert_eq!(found(&place, &needles), [""; 0]);
    // Bert continues to use the shared device, and also answers from Anna's own device.
    let who = identity(Some(BERT), 5001, SHARED, &session(5), None);
    service.control().plant(ListName::Responses, &record(&session(5), 1, &who, "bert again", 1), None).unwrap();
    let who = identity(Some(BERT), 5002, OWN, &session(6), None);
    service
        .control()
        .plant(ListName::Responses, &record(&session(6), 1, &who, "bert at what was annas", 1), None)
        .unwrap();
    let who = identity(Some(ANNA), 5009, SHARED, &session(7), None);
    service.control().plant(ListName::Responses, &record(&session(7), 1, &who, "anna again", 1), None).unwrap();
    place.run(&["sync"]).expect(0);
    assert_eq!(sessions(&place), vec![vec![session(3), session(4), session(5), session(6)]; 2]);
    // If the request names both people, all rows go.
    let done = erase(&place, &["--user-id", ANNA, "--user-id", BERT]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert_eq!(sessions(&place), vec![Vec::<String>::new(); 2]);
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p9_slow_mentions_by_others_are_replaced_only_on_request() {
    let (_service, place) = shared_device();
    let needle = [Needle::new(MAIL)];
    let berts = |place: &Place| -> Vec<String> {
        let sql = format!("SELECT answer_text FROM responses WHERE external_user_id = '{BERT}'");
        place.warehouses().into_iter().map(|(_, tables)| tables.value(&sql).unwrap()).collect()
    };
    let done = erase(&place, &["--user-id", ANNA]);
    assert_eq!(done.code, 3);
    let receipt = done.json();
    for name in ["duckdb", "parquet"] {
        let mentions = &receipt["verified"]["places"][name]["mentions"];
        assert_eq!(mentions, &json!({ "responses.answer_json": 1, "responses.answer_text": 1 }), "{receipt:#}");
    }
    assert_eq!(receipt["verified"]["places"]["archive"]["mentions"], json!({ "pages": 1 }));
    assert_eq!(berts(&place), vec![format!("ask {MAIL}, or {ANNA}2 and {ANNA}!"); 2], "it is his");
    assert!(done.stderr.contains("mentioned by others in parquet, responses.answer_text: 1"), "{}", done.stderr);

    let before = place.duckdb_tables().rows("responses").len();
    // No column identifies Anna any more: only the command line says her names.
    let done = erase(&place, &["--user-id", ANNA, "--email", MAIL, "--local-only", "--redact-mentions"]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert_eq!(done.json()["redacted"], 3, "a row in each warehouse, and a page");
    assert_eq!(berts(&place), vec![format!("ask [erased], or {ANNA}2 and [erased]!"); 2]);
    assert_eq!(found(&place, &needle), [""; 0]);
    assert_eq!(place.duckdb_tables().rows("responses").len(), before);
    // The page is still readable, and a replay gives the same rows.
    for path in place.files("archive").into_iter().filter(|path| path.extension().is_some_and(|is| is == "pages")) {
        read_pages(&path)
            .unwrap()
            .for_each(|body| drop(serde_json::from_slice::<serde_json::Value>(&body.unwrap()).unwrap()));
    }
    place.run(&["replay"]).expect(0);
    assert_eq!(berts(&place), vec![format!("ask [erased], or {ANNA}2 and [erased]!"); 2]);
}
