//! Placeholders instead of an address, and addresses that many people share, identify nobody.

use serde_json::{Value, json};
use studysync_sandbox::ListName;

use super::{
    erase,
    grep::{Needle, found},
    people::{identity, record},
    write,
};
use crate::harness::{Place, Service, days_ago, small};

fn session(number: u32) -> String {
    format!("eeeeeeee-0000-4000-8000-{number:012}")
}

fn uuid(number: u32) -> String {
    format!("6d1c9d6e-0b7a-4c55-9a40-{number:012}")
}

/// Visitors without a user id, three for each of these texts in the address field.
fn filled(addresses: &[Value]) -> (Service, Place) {
    let service = Service::start(small(40, 3));
    for (at, address) in addresses.iter().enumerate() {
        for number in (at as u32 * 3 + 1)..=(at as u32 * 3 + 3) {
            let mut who = identity(None, 7000 + number, &uuid(number), &session(number), None);
            who["visitorSnapshot"]["attributes"]["email"] = address.clone();
            let record = record(&session(number), 1, &who, "hello", 2);
            service.control().plant(ListName::Responses, &record, None).unwrap();
        }
    }
    let place = Place::new(&service);
    place.run(&["backfill", "--from", &days_ago(14)]).expect(0);
    (service, place)
}

fn sessions(place: &Place) -> Vec<i64> {
    let sql = "SELECT count(DISTINCT response_group_uid) FROM responses WHERE response_group_uid LIKE 'eeee%'";
    place.warehouses().iter().map(|(_, tables)| tables.count(sql)).collect()
}

#[test]
fn p9_a_placeholder_address_identifies_nobody() {
    let placeholders =
        ["on file", "n/a", "redacted@", "@example.com", "Anna <a@b.de>", "[deleted]", ""].map(|text| json!(text));
    let placeholders = [&placeholders[..], &[json!(0), json!(null)]].concat();
    let (service, place) = filled(&placeholders);
    let first: Vec<String> = (0..placeholders.len() as u32).map(|at| uuid(at * 3 + 1)).collect();
    let named: Vec<&str> = first.iter().flat_map(|uuid| ["--visitor-id", uuid.as_str()]).collect();
    let done = erase(&place, &named);
    assert_eq!((done.code, &done.json()["not_followed"]), (0, &json!(0)), "{}", done.stderr);
    assert_eq!(sessions(&place), vec![2 * placeholders.len() as i64; 2]);
    service.advance_days(11);
    let left = service.truth(ListName::Responses);
    for at in 0..placeholders.len() as u32 {
        let is_there = |number: u32| left.iter().any(|record| record.contains(&uuid(number)));
        let there = [1, 2, 3].map(|number| is_there(at * 3 + number));
        assert_eq!(there, [false, true, true], "{}", placeholders[at as usize]);
    }
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p9_slow_a_shared_address_is_shown_but_not_followed() {
    let (service, place) = filled(&[json!("test@example.com")]);
    let plan = place.run(&["erase", "--dry-run", "--visitor-id", &uuid(1)]).expect(3);
    let shown = "mail address: test@example.com: visitors without a user id have it too";
    assert!(plan.stdout.contains(shown) && !plan.stdout.contains(&uuid(2)), "{}", plan.stdout);
    let done = erase(&place, &["--visitor-id", &uuid(1)]);
    assert_eq!((done.code, &done.json()["not_followed"]), (3, &json!(1)), "{}", done.stderr);
    assert_eq!(sessions(&place), [2, 2]);
    assert_eq!(found(&place, &[Needle::new(&uuid(1))]), [""; 0]);
    place.run(&["sync"]).expect(0);
    assert_eq!(sessions(&place), [2, 2]);
    // If the request names the address itself, the erasure includes everybody who has it, and the plan names each of
    // them.
    let plan = place.run(&["erase", "--dry-run", "--email", "test@example.com"]).expect(0);
    for number in [2, 3] {
        assert!(plan.stdout.contains(&format!("visitor UUID: {}", uuid(number))), "{}", plan.stdout);
    }
    assert_eq!(erase(&place, &["--email", "test@example.com"]).code, 0);
    assert_eq!(sessions(&place), [0, 0]);
    drop(service);
}

#[test]
fn p9_erase_removes_rows_from_push_results() {
    let (_service, place) = filled(&[]);
    let needle = [Needle::new("zoe-4711"), Needle::new("zoë-4711@example.com")];
    let lines =
        "userId,email,attributes.plan:integer\nzoe-4711,zoë-4711@example.com,1\nbert,b@example.com,2\nzoe-4711,,many\n";
    for (results, dry) in [("state/sent.csv", false), ("planned.csv", true)] {
        let input = write(&place, "in.csv", lines);
        let mut arguments = vec!["users", "push", &input, "--results", results];
        arguments.extend(dry.then_some("--dry-run"));
        place.run(&arguments).expect(3);
    }
    std::fs::remove_file(place.path("in.csv")).unwrap();
    // The temporary file of a push that was killed.
    std::fs::copy(place.path("state/sent.csv"), place.path("state/sent.csv.part")).unwrap();
    assert_eq!(found(&place, &needle).len(), 3);
    let plan = place.run(&["erase", "--dry-run", "--json", "--user-id", "zoe-4711"]).expect(3).json();
    assert_eq!(plan["push_result_rows"], 6);
    let done = erase(&place, &["--user-id", "zoe-4711", "--email", "zoë-4711@example.com"]);
    let receipt = done.json();
    assert_eq!((done.code, &receipt["removed"]["push results"]), (0, &json!(6)), "{receipt:#}");
    assert_eq!(receipt["verified"]["places"]["push results"]["searched"], 3);
    assert_eq!(found(&place, &needle), [""; 0]);
    let sent = std::fs::read_to_string(place.path("state/sent.csv")).unwrap();
    assert!(sent.lines().count() == 2 && sent.contains("bert,accepted"), "{sent}");
}
