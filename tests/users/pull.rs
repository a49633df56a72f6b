//! Users named in answers are in the warehouse, with attributes, history and events. No user is requested without need.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use studysync_sandbox::{ChangeRequest, Faults, ListName, Settings};

use super::{asked, assert_users_equal, each, people_of, with_people};
use crate::{
    harness::{Place, Service, days_ago, small},
    replay::Before,
};

const DAYS: u32 = 20;

fn service(responses: u64) -> Service {
    Service::start(small(responses, DAYS))
}

fn place(service: &Service) -> Place {
    Place::new(service).with_config(&with_people())
}

fn pulled(place: &Place) -> Value {
    place.report(&["backfill", "--from", &days_ago(i64::from(DAYS) + 1)], 0)
}

/// Advances the service's clock by days, and lets the program learn the time.
fn pass(service: &Service, place: &Place, days: u64) {
    service.advance_days(days);
    place.report(&["sync", "--stream", "surveys"], 0);
}

#[test]
fn p1_users_named_in_answers_are_stored_as_the_service_has_them() {
    let service = service(1500);
    let place = place(&service);
    let people = people_of(&service);
    assert!(people.len() > 100 && people.keys().any(|user_id| user_id.contains('/')), "{}", people.len());
    service.control().upsert_user(
        &json!({"userId": people.keys().next().unwrap(), "attributes": {"note": "x"}, "events": [
            {"event": "login", "timestamp": 1000}, {"event": "login", "timestamp": 3000}, {"event": "buy", "timestamp": 2000}]})
        .to_string(),
    );
    let report = pulled(&place);
    assert_eq!(report["streams"]["users"]["inserted"], people.len());
    assert_eq!(asked(&service.log()).len(), people.len(), "one request a person");
    assert_users_equal(&place, &people.keys().cloned().collect(), "_vanished_at IS NULL");
    for (name, tables) in place.warehouses() {
        let rows = tables.rows_of("SELECT external_user_id, user_id, attributes, extra FROM users");
        for row in rows {
            let [user_id, id, attributes, extra] = row.try_into().unwrap();
            let record = &people[&user_id.unwrap()];
            assert_eq!(id.as_deref(), record["visitorUuid"].as_str(), "{name}");
            assert_eq!(extra, None);
            let mut attributes: Value = serde_json::from_str(&attributes.unwrap()).unwrap();
            attributes.as_object_mut().unwrap().remove("note");
            let snapshot = &record["visitorSnapshot"];
            let wanted = snapshot.get("attributes").or(snapshot.get("attribtues")).unwrap();
            assert_eq!(&attributes, wanted, "{name}");
        }
        let kinds = "SELECT count(*) FROM user_attributes WHERE is_current AND valid_to IS NULL AND CASE name
            WHEN 'plan' THEN json_type = 'string' AND value_text IS NOT NULL AND value_number IS NULL
            WHEN 'seats' THEN json_type = 'number' AND value_number >= 0
            WHEN 'is_admin' THEN value_bool IS NOT NULL AND json_type = 'boolean' ELSE false END";
        assert_eq!(tables.count(kinds), 3 * people.len() as i64, "{name}");
        let events = "SELECT string_agg(event || ' ' || \"count\" || ' ' || epoch_ms(created_at) || ' ' || epoch_ms(updated_at), ', '
            ORDER BY event_ordinal) FROM user_events";
        assert_eq!(tables.value(events).as_deref(), Some("buy 1 2000 2000, login 2 1000 3000"), "{name}");
    }
    let ledger = "SELECT count(*) FROM sync_windows WHERE stream = 'users' AND window_start = window_end";
    assert!(place.duckdb_tables().count(ledger) > 0);
}

#[test]
fn p6_a_user_is_requested_again_only_when_due() {
    let service = service(300);
    let place = place(&service);
    let people = people_of(&service).len();
    pulled(&place);
    service.clear_log();
    let idle = place.report(&["sync"], 0);
    assert_eq!(asked(&service.log()).len(), 0);
    assert_eq!(idle["streams"]["users"]["rows_read"], 0);
    service.clear_log();
    let backfill = place.report(&["backfill", "--from", &days_ago(i64::from(DAYS) + 1)], 0);
    assert_eq!(backfill["requests"]["total"], 0, "a finished backfill asks for nothing");
    let plan = place.run(&["plan", "--json"]).expect(0).json();
    assert_eq!((&plan["users"]["named"], &plan["users"]["due"]), (&json!(people), &json!(0)), "{plan}");

    service.advance_days(29);
    service.clear_log();
    place.report(&["sync"], 0);
    assert_eq!(asked(&service.log()).len(), 0, "not after 29 days");
    service.advance_days(2);
    let refreshed = place.report(&["sync"], 0);
    assert_eq!(asked(&service.log()).len(), people);
    assert_eq!(refreshed["streams"]["users"]["unchanged"], people);
    let status = place.run(&["status", "--json"]).expect(0).json();
    assert_eq!((&status["users"]["found"], &status["users"]["due"]), (&json!(people), &json!(0)), "{status}");
}

#[test]
fn p4_user_changes_are_history_and_missing_users_are_rechecked() {
    let service = service(300);
    let place = place(&service);
    let mut people: BTreeSet<String> = people_of(&service).into_keys().collect();
    pulled(&place);
    pass(&service, &place, 31);
    let changed = people.iter().find(|user_id| user_id.starts_with("user-")).unwrap().clone();
    let body = json!({"userId": changed, "attributes": {"plan": "gold", "seats": true}});
    assert_eq!(service.control().upsert_user(&body.to_string()), 202);
    let before = people.clone();
    service.change(&ChangeRequest { seed: 3, vanish_visitors: 8, ..ChangeRequest::default() });
    let left = people_of(&service);
    people.retain(|user_id| left.contains_key(user_id));
    let gone: BTreeSet<String> = before.difference(&people).cloned().collect();
    assert!(!gone.is_empty() && people.contains(&changed), "{gone:?}");
    let report = place.report(&["users", "pull"], 0);
    assert_eq!(report["streams"]["users"]["vanished"], gone.len(), "{report}");
    assert_users_equal(&place, &gone, "_vanished_at IS NOT NULL");
    for gone in &gone {
        let quoted = gone.replace('\'', "''");
        let sql = format!("SELECT count(*) FROM user_attributes WHERE external_user_id = '{quoted}' AND is_current");
        assert!(each(&place, &sql).iter().all(|found| found[0].as_deref() == Some("0")), "{gone}");
    }
    let versions = format!(
        "SELECT name || ' ' || value_text || ' ' || json_type || ' ' || is_current || ' ' || (valid_to IS NULL)
         FROM user_attributes WHERE external_user_id = '{changed}' AND name IN ('plan', 'seats') ORDER BY name, valid_from"
    );
    for found in each(&place, &versions) {
        let found: Vec<String> = found.into_iter().flatten().collect();
        assert!(found.len() == 4 && found[0].ends_with("string false false"), "{found:?}");
        assert_eq!(
            (found[1].as_str(), found[3].as_str()),
            ("plan gold string true true", "seats true boolean true true")
        );
    }
    let view = format!(
        "SELECT name || ' ' || value_text FROM current_user_attributes WHERE external_user_id = '{changed}' AND name = 'plan'"
    );
    assert_eq!(place.duckdb_tables().value(&view).as_deref(), Some("plan gold"));
    let unchanged =
        format!("SELECT count(*) FROM user_attributes WHERE external_user_id = '{changed}' AND name = 'country'");
    assert!(
        each(&place, &unchanged).iter().all(|found| found[0].as_deref() == Some("1")),
        "what stayed has one version"
    );

    // A 404 is remembered for a shorter time. The program requests a missing user again only if answers still name the
    // user.
    pass(&service, &place, 8);
    service.clear_log();
    place.report(&["users", "pull"], 0);
    let again = asked(&service.log()).len();
    let named =
        "SELECT count(DISTINCT external_user_id) FROM responses WHERE _vanished_at IS NULL AND external_user_id <> ''";
    let still_named = place.duckdb_tables().count(named) - people.len() as i64;
    assert_eq!(again as i64, still_named, "those of whom there are answers here");
    assert!(again > 0);
}

#[test]
fn p4_mass_disappearances_of_users_are_withheld() {
    let service = service(600);
    let place = place(&service);
    let people: BTreeSet<String> = people_of(&service).into_keys().collect();
    pulled(&place);
    pass(&service, &place, 31);
    let window = (0, crate::harness::NOW_MS);
    let vanish = ChangeRequest { vanish_visitors: 100_000, vanish_window_ms: Some(window), ..ChangeRequest::default() };
    service.change(&vanish);
    assert_eq!(people_of(&service).len(), 0);
    let withheld = place.report(&["users", "pull"], 3);
    assert_eq!(withheld["streams"]["users"]["withheld"], people.len(), "{withheld}");
    assert_users_equal(&place, &people, "_vanished_at IS NULL");
    let believed = place.report(&["users", "pull", "--accept-vanished"], 0);
    assert_eq!(believed["streams"]["users"]["vanished"], people.len(), "{believed}");
    assert_users_equal(&place, &BTreeSet::new(), "_vanished_at IS NULL");
}

#[test]
fn users_with_odd_characters_in_their_ids_are_pulled() {
    let settings = small(50, 5);
    let faults = Faults { auth: studysync_sandbox::Auth::Strict, iso_user_times: true, ..Faults::default() };
    let service = Service::start(Settings { faults, ..settings });
    let place = Place::new(&service);
    let odd = ["a/b", "../../v1/surveys", "?x=1#y", "50%", "%2e%2e", "日本 é", "...", "a\\b", "quo\"te", " "];
    for user_id in odd {
        let body =
            json!({"userId": user_id, "attributes": {"id": user_id}, "events": [{"event": "e", "timestamp": 1500}]});
        assert_eq!(service.control().upsert_user(&body.to_string()), 202);
    }
    let arguments = ["users", "pull", "--user-id"].into_iter().chain(odd).chain(["nobody"]).collect::<Vec<_>>();
    let report = place.report(&arguments, 0);
    assert_eq!(report["streams"]["users"]["inserted"], odd.len(), "{report}");
    assert_eq!(report["requests"]["by_status"]["404"], 1);
    assert_users_equal(&place, &odd.iter().map(|id| (*id).to_owned()).collect(), "_vanished_at IS NULL");
    for found in each(&place, "SELECT count(*) FROM user_attributes WHERE external_user_id = value_text") {
        assert_eq!(found[0], Some(odd.len().to_string()), "each got their own");
    }
    for found in each(&place, "SELECT count(*) FROM user_events WHERE epoch_ms(created_at) = 1500") {
        assert_eq!(found[0], Some(odd.len().to_string()), "ISO times");
    }
    let log = service.log();
    assert!(asked(&log).iter().all(|entry| entry.path.matches('/').count() == 3), "each is one segment");
    for wrong in ["", ".", "..", &"x".repeat(257)] {
        let refused = place.run(&["users", "pull", "--user-id", wrong]).expect(2);
        assert!(refused.stderr.contains("256 bytes"), "{}", refused.stderr);
    }
    // The bearer form of the key, if the service requires it.
    let bearer = Place::new(&service).with_config("[service]\nauth = \"bearer\"\n");
    let refused = bearer.run(&["users", "pull", "--user-id", "a/b"]).expect(4);
    assert!(refused.stderr.contains("key"), "{}", refused.stderr);
}

#[test]
fn p1_unknown_fields_of_a_user_are_kept() {
    let service = service(50);
    let place = Place::new(&service).with_config(&with_people());
    // An answer of a user whom the service does not know, and an answer of a user whose id cannot be part of a URL.
    let record: Value = serde_json::from_str(&service.truth(ListName::Responses)[0]).unwrap();
    for (at, user_id) in ["unknown to the service", ".."].into_iter().enumerate() {
        let mut record = record.clone();
        record["externalUserId"] = json!(user_id);
        record["responseGroupUid"] = json!(format!("0000000{at}-0000-4000-8000-000000000000"));
        record.as_object_mut().unwrap().remove("visitorSnapshot");
        service.control().plant(ListName::Responses, &record.to_string(), None).unwrap();
    }
    let report = pulled(&place);
    let notes = report["notes"].to_string();
    assert!(notes.contains("cannot request 1 user"), "{notes}");
    assert_eq!(report["requests"]["by_status"]["404"], 1);
    service.clear_log();
    place.report(&["users", "pull"], 0);
    assert_eq!(asked(&service.log()).len(), 0, "404 is remembered");
}

#[test]
fn p2_replay_rebuilds_users_without_a_request() {
    let service = service(400);
    let place = place(&service);
    pulled(&place);
    service.advance_days(31);
    for user_id in people_of(&service).keys().take(20) {
        service.control().upsert_user(&json!({"userId": user_id, "attributes": {"plan": "gold"}}).to_string());
    }
    service.change(&ChangeRequest { seed: 3, vanish_visitors: 8, ..ChangeRequest::default() });
    place.report(&["sync", "--accept-vanished"], 0);
    let before = Before::of(&place, "before");
    assert!(before.duckdb().count("SELECT count(*) FROM user_attributes WHERE NOT is_current") > 20);
    service.stop();
    place.run(&["replay"]).expect(0);
    before.assert_is(&place, "replayed");
}

#[test]
fn a_new_warehouse_receives_users_pulled_before() {
    let service = service(200);
    let place = place(&service).without_parquet();
    let people: BTreeSet<String> = people_of(&service).into_keys().collect();
    pulled(&place);
    std::fs::remove_file(place.duckdb()).unwrap();
    pulled(&place);
    assert_users_equal(&place, &people, "_vanished_at IS NULL");
    // A warehouse of a version without these tables gets them automatically.
    let connection = crate::harness::connect();
    let path = place.duckdb().to_string_lossy().into_owned();
    let sql = "DROP TABLE w.users; DROP TABLE w.user_attributes; DROP TABLE w.user_events; DETACH w";
    connection.execute_batch(&format!("ATTACH '{path}' AS w; {sql}")).unwrap();
    drop(connection);
    place.report(&["users", "pull", "--user-id", people.iter().next().unwrap()], 0);
    assert_eq!(place.duckdb_tables().count("SELECT count(*) FROM users"), 1);
}

#[test]
fn naming_the_users_stream_pulls_only_users() {
    let service = service(600);
    // The stream is off: no user is requested unless the command names the stream.
    let place = Place::new(&service).with_config(&format!("{}page_rows = 25\n", crate::harness::ALL_FLAGS));
    place.report(&["backfill", "--from", &days_ago(8)], 0);
    place.run(&["backfill", "--from", &days_ago(21), "--max-requests", "3", "--concurrency", "1"]).expect(6);
    let under_way = || place.run(&["status", "--json"]).expect(0).json()["under_way"].clone();
    let before = under_way();
    assert!(before.as_array().is_some_and(|scans| !scans.is_empty()), "{before}");
    service.clear_log();
    let done = place.run(&["sync", "--stream", "users"]).expect(0);
    let log = service.log();
    let people = asked(&log).len();
    assert!(people > 30, "{people}");
    assert!(done.stderr.contains(&format!("requesting {people} users, one request each")), "{}", done.stderr);
    let others = log.iter().filter(|entry| entry.path != "/v1/surveys" && !entry.path.starts_with("/v2/users/"));
    assert_eq!(others.count(), 0, "{log:?}");
    assert_eq!(under_way(), before, "what was begun of other streams waits");
    place.report(&["backfill", "--from", &days_ago(21)], 0);
    assert_eq!(under_way(), json!([]));
}
