//! Empty lists, at services that answer 404 for an empty list: a company without themes, a new environment, or a key
//! that may not read a list. The other lists prove that the address is right.

use serde_json::{Value, json};
use studysync_sandbox::{ChangeRequest, ListName, Settings};

use super::{assert_says, assert_warehouses_equal};
use crate::harness::{Place, Service, days_ago, expected::Expected, small};

/// A service with answers and surveys, and without themes.
fn without_themes() -> Settings {
    Settings { theme_share: 0.0, ..small(300, 5) }
}

fn set(service: &Service, patch: &Value) {
    service.set_faults(service.control().faults().merged(patch.clone()).unwrap());
}

/// Returns the number of requests for a list since the last call.
fn requests(service: &Service, path: &str) -> usize {
    let count = service.log().iter().filter(|entry| entry.path == path).count();
    service.clear_log();
    count
}

fn known(place: &Place, name: &str) -> Value {
    let traits = place.run(&["status", "--json"]).expect(0).json()["traits"].clone();
    let found = traits.as_array().unwrap().iter().find(|one| one["trait"] == name);
    found.map_or(Value::Null, |one| one["value"].clone())
}

#[test]
fn p3_a_company_without_themes_has_quiet_nights() {
    for habit in [
        json!({"missing_lists": ["themes"]}),
        json!({"not_found_when_empty": true}),
        json!({"not_found_when_empty": true, "invalid_query_status": 404}),
        json!({"not_found_when_empty": true, "invalid_query_status": 500}),
    ] {
        let service = Service::start(without_themes());
        set(&service, &habit);
        let place = Place::new(&service);
        let checked = place.run(&["check"]).expect(0).stdout;
        assert!(!checked.contains("FAIL"), "{habit}: {checked}");
        let report = place.report(&["backfill", "--from", &days_ago(10)], 0);
        let is_known = habit["invalid_query_status"].is_number() || habit["missing_lists"].is_array();
        assert_eq!(report["notes"].to_string().contains("every request for themes with 404"), is_known, "{report:#}");
        assert_eq!(known(&place, "themes_taken_as_empty"), json!(is_known.then_some(true)), "{habit}");
        requests(&service, "");
        for _ in 0..3 {
            service.advance_days(1);
            place.report(&["sync"], 0);
            let asked = requests(&service, "/v1/themes");
            assert!(asked <= 8, "{habit}: {asked} requests");
        }
        place.run(&["verify", "--from", &days_ago(4)]).expect(0);

        // Themes appear, also for answers in complete windows. The run stores all of them.
        set(&service, &json!({"missing_lists": []}));
        service.change(&ChangeRequest { new_themes: 30, ..ChangeRequest::default() });
        service.advance_days(1);
        let report = place.report(&["sync"], 0);
        let themes = service.truth(ListName::Themes).len();
        assert!(themes > 0);
        if is_known {
            assert_eq!(report["streams"]["themes"]["inserted"], themes, "{habit}: {report:#}");
            assert_warehouses_equal(&place, &Expected::now(&service), &habit.to_string());
            assert_eq!(known(&place, "themes_taken_as_empty"), json!(false));
        }
        place.report(&["sync"], 0);
    }
}

#[test]
fn p3_a_new_environment_begins_without_rows() {
    for (habit, lists) in [
        (json!({"missing_lists": ["responses", "themes"]}), 2),
        (json!({"missing_lists": ["surveys", "studies"]}), 1),
        (json!({"missing_lists": ["themes", "surveys", "studies"], "invalid_query_status": 500}), 2),
    ] {
        let service = Service::start(small(200, 5));
        set(&service, &habit);
        let place = Place::new(&service);
        place.run(&["check"]).expect(0);
        let report = place.report(&["sync"], 0);
        let notes = report["notes"].to_string();
        assert_eq!(notes.matches("with 404, and they count as empty").count(), lists, "{notes}");
        service.advance_days(1);
        place.report(&["sync"], 0);
        set(&service, &json!({"missing_lists": []}));
        place.report(&["sync"], 0);
        assert_warehouses_equal(&place, &Expected::now(&service), &habit.to_string());
    }
}

#[test]
fn p3_a_service_without_any_row_is_content() {
    for (status, exit_code) in [(400, 0), (500, 0), (404, 1)] {
        let service = Service::start(small(0, 5));
        let empty = json!({"not_found_when_empty": true, "has_no_surveys": true, "invalid_query_status": status});
        set(&service, &empty);
        let place = Place::new(&service);
        let done = place.run(&["sync"]);
        assert_eq!(done.code, exit_code, "{status}: {}", done.stderr);
        if exit_code == 1 {
            // The answers do not distinguish this from a wrong address.
            assert_says(&done, &["with 404", "check --base-url", "If the environment is new"]);
        }
        set(&service, &json!({"has_no_surveys": false}));
        place.report(&["sync"], 0);
        assert_warehouses_equal(&place, &Expected::now(&service), &status.to_string());
    }
}

#[test]
fn p4_a_list_that_disappears_deletes_no_row() {
    let service = Service::start(small(300, 5));
    let place = Place::new(&service);
    place.report(&["sync"], 0);
    let held = Expected::now(&service);
    set(&service, &json!({"missing_lists": ["themes"]}));
    for _ in 0..2 {
        service.advance_days(1);
        let done = place.run(&["sync"]).expect(1);
        assert!(done.stderr.contains("as if the list were empty, although it had rows before"), "{}", done.stderr);
        assert!(
            done.stderr.contains("hint: ask the operator of the service whether the key may still read"),
            "{}",
            done.stderr
        );
    }
    for (name, tables) in place.warehouses() {
        let live = tables.count("SELECT count(*) FROM themes WHERE _vanished_at IS NULL");
        assert_eq!(live as usize, held.rows("themes").len(), "{name}");
    }
    set(&service, &json!({"missing_lists": []}));
    place.report(&["sync"], 0);
    assert_warehouses_equal(&place, &held, "the list is there again");
}

#[test]
fn p6_a_proven_end_costs_no_proof_each_night() {
    let nights = |end: Value| -> (usize, i64) {
        let service = Service::start(Settings { theme_share: 1.0, ..small(1500, 30) });
        set(&service, &end);
        let place = Place::new(&service);
        place.report(&["backfill", "--from", &days_ago(40)], 0);
        requests(&service, "");
        for _ in 0..3 {
            service.advance_days(1);
            service.change(&ChangeRequest { new_answers: 40, new_themes: 20, ..ChangeRequest::default() });
            place.report(&["sync"], 0);
        }
        let count = requests(&service, "/v1/themes");
        let live = place.duckdb_tables().count("SELECT count(*) FROM themes WHERE _vanished_at IS NULL");
        (count, live)
    };
    let (usual, usual_themes) = nights(json!({}));
    let (not_found, themes) = nights(json!({"themes_end_mark": "not_found"}));
    assert_eq!(themes, usual_themes, "a 404 hid a theme");
    println!("{usual} requests, {not_found} with 404 at the end");
    // A list that ends with 404 needs one more request, for the page that does not exist.
    assert!(not_found <= 2 * usual + 10, "{not_found} requests, {usual} with an end");
}
