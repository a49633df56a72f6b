//! The second receipt: after the purge delay, `sync` checks that the service has purged the person.

use super::{
    erase,
    grep::{Needle, found},
    people::{SESSIONS, ZOE, ZOE_MAIL, identity, plant, record},
    receipt,
};
use studysync_sandbox::ListName;

use crate::harness::{Place, Service, days_ago, small};

/// A place that re-scans all history in every run, and an erasure whose purge delay is an hour.
fn erased() -> (Service, Place, String) {
    let service = Service::start(small(300, 5));
    plant(&service);
    let person = format!(r#"{{"userId":"{ZOE}","email":"{ZOE_MAIL}","attributes":{{}}}}"#);
    assert!(service.control().upsert_user(&person) < 300);
    let place = Place::new(&service).with_config("[streams.responses]\nrescan = [\"all every run\"]\n");
    place.run(&["backfill", "--from", &days_ago(14)]).expect(0);
    let done = erase(&place, &["--user-id", ZOE, "--delay-seconds", "3600"]);
    let id = receipt(&done)["erasure_id"].as_str().unwrap().to_owned();
    (service, place, id)
}

/// The content of a receipt file, and the pending erasures.
fn state(place: &Place, id: &str) -> (serde_json::Value, serde_json::Value) {
    let folder = std::fs::read_dir(place.root()).unwrap().flat_map(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect()
        } else {
            vec![path]
        }
    });
    let folder = folder.into_iter().find(|path| path.to_string_lossy().ends_with(".erasures")).unwrap();
    let text = std::fs::read_to_string(folder.join(format!("{id}.json"))).unwrap();
    (
        serde_json::from_str(&text).unwrap(),
        place.run(&["status", "--json"]).expect(0).json()["erasures_waiting"].clone(),
    )
}

fn asked_for_users(service: &Service) -> usize {
    service.log().iter().filter(|entry| entry.method == "GET" && entry.path.starts_with("/v2/users/")).count()
}

#[test]
fn p9_a_receipt_says_when_the_service_purges() {
    let (service, place, id) = erased();
    let needles = [ZOE, ZOE_MAIL].map(Needle::new);
    service.advance_days(1);
    place.run(&["sync"]).expect(0);
    let (file, waiting) = state(&place, &id);
    assert!(file.get("service_has_purged").is_none(), "{file:#}");
    assert_eq!((waiting[0]["erasure_id"].as_str(), waiting[0]["people"].as_u64()), (Some(id.as_str()), Some(1)));
    let status = place.run(&["status"]).expect(0).words();
    assert!(
        status.contains("1 erasure waits for the service to purge: 1 named identifier suppressed until 20"),
        "{status}"
    );
    assert_eq!(found(&place, &needles), [""; 0], "who is to be asked for is sealed");
    assert_eq!(asked_for_users(&service), 0, "its time is not over");

    service.advance_days(2);
    let synced = place.run(&["sync", "-vv", "--json"]).expect(0);
    assert_eq!(asked_for_users(&service), 1);
    assert!(needles.iter().all(|needle| !needle.is_in(synced.stderr.as_bytes())), "{}", synced.stderr);
    let (file, waiting) = state(&place, &id);
    let check = &file["service_has_purged"];
    assert_eq!(
        (check["users_not_known"].as_u64(), check["scans_met_nobody"].as_bool()),
        (Some(1), Some(true)),
        "{file:#}"
    );
    assert!(waiting.is_null(), "{waiting}");
    assert!(!place.run(&["status"]).expect(0).stdout.contains("erasure wait"));
    for (name, tables) in place.warehouses() {
        let sql = "SELECT count(*) FROM erasures WHERE service_checked_at IS NOT NULL AND service_users_checked = 1";
        assert_eq!(tables.count(sql), 1, "{name}");
    }
    assert_eq!(found(&place, &needles), [""; 0], "afterwards");
    // The check happens once.
    place.run(&["sync"]).expect(0);
    assert_eq!(asked_for_users(&service), 1);
}

#[test]
fn p9_an_unpurged_user_is_reported_and_stays_suppressed() {
    let (service, place, id) = erased();
    service.advance_days(3);
    // A client sent the person to the service again.
    let person = format!(r#"{{"userId":"{ZOE}","attributes":{{}}}}"#);
    assert!(service.control().upsert_user(&person) < 300);
    let synced = place.run(&["sync", "--json"]).expect(3);
    let notes = synced.json()["notes"].to_string();
    assert!(notes.contains("still knows 1 user of the erasure") && notes.contains(&id), "{notes}");
    let (file, waiting) = state(&place, &id);
    assert!(file.get("service_has_purged").is_none() && waiting[0]["people"] == 1, "{file:#} {waiting}");
}

/// Counts the rows of the person's new session, by warehouse.
fn new_rows(place: &Place, session: &str) -> Vec<i64> {
    let sql = format!("SELECT count(*) FROM responses WHERE response_group_uid = '{session}'");
    place.warehouses().iter().map(|(_, tables)| tables.count(&sql)).collect()
}

#[test]
fn p9_a_person_who_signs_up_again_can_be_let_in() {
    const AGAIN: &str = "aaaaaaaa-0000-4000-8000-00000000000f";
    for by_erasure in [true, false] {
        let (service, place, id) = erased();
        service.advance_days(1);
        place.run(&["sync"]).expect(0);
        service.advance_days(3);
        let person = format!(r#"{{"userId":"{ZOE}","email":"{ZOE_MAIL}","attributes":{{}}}}"#);
        assert!(service.control().upsert_user(&person) < 300);
        let who = identity(Some(ZOE), 880_009, "7c1c9d6e-0b7a-4c55-9a40-1d2e3f405999", AGAIN, Some(ZOE_MAIL));
        service.control().plant(ListName::Responses, &record(AGAIN, 9001, &who, "I am back", 1), None).unwrap();
        for _ in 0..2 {
            let synced = place.run(&["sync", "--json"]).expect(3);
            let notes = synced.json()["notes"].to_string();
            let advice = format!("If these people signed up again, run `studysync erase --end {id}`");
            assert!(notes.contains(&advice) && notes.contains("without --local-only"), "{notes}");
            assert_eq!(new_rows(&place, AGAIN), [0, 0]);
        }
        let status = place.run(&["status"]).expect(0).words();
        assert!(status.contains("studysync erase --end ID"), "{status}");

        let refused = place.run(&["erase", "--end", "nobody-of-the-list"]).expect(2).stderr;
        assert!(
            refused.contains("cannot end the suppression: nobody is suppressed with 'nobody-of-the-list'"),
            "{refused}"
        );
        assert!(refused.contains("hint: name any identifier of the person"), "{refused}");
        let named = if by_erasure { id.as_str() } else { ZOE_MAIL };
        let plan = place.run(&["erase", "--end", named, "--dry-run"]).expect(0).stdout;
        assert!(plan.contains("identifiers would end"), "{plan}");
        let (file, waiting) = state(&place, &id);
        assert!(file.get("suppression_ended").is_none() && waiting[0]["people"] == 1, "{file:#} {waiting}");

        let ended = place.run(&["erase", "--end", named]).expect(0).stdout;
        assert!(ended.contains(&id) && ended.contains("store records of these people again"), "{ended}");
        let (file, waiting) = state(&place, &id);
        let note = &file["suppression_ended"][0];
        assert!(note["at"].is_string() && note["identifiers_left"] == 0 && waiting.is_null(), "{file:#} {waiting}");
        assert!(note["identifiers"].as_u64().unwrap() > 3, "{file:#}");
        for (name, tables) in place.warehouses() {
            let over =
                "SELECT count(*) FROM erasures WHERE suppression_ended_at IS NOT NULL AND service_checked_at IS NULL";
            assert_eq!(tables.count(over), 1, "{name}");
        }
        assert_eq!(new_rows(&place, AGAIN), [0, 0]);
        // A new scan also adds the rows that were suppressed when the window was complete.
        let place = place.with_config("");
        place.run(&["sync"]).expect(0);
        assert_eq!(new_rows(&place, AGAIN), [1, 1]);
        place.run(&["erase", "--end", named]).expect(2);
        // A missing list no longer stops a run, because it has no entries.
        std::fs::remove_file(place.path("state/checkpoints.sqlite.erasures/suppressed.json")).unwrap();
        place.run(&["sync"]).expect(0);
        // The erased rows do not come back, and the person can be erased again.
        assert_eq!(new_rows(&place, SESSIONS[0]), [0, 0]);
        let again = erase(&place, &["--user-id", ZOE, "--delay-seconds", "3600"]);
        assert_ne!(receipt(&again)["erasure_id"], id.as_str());
        assert_eq!(new_rows(&place, AGAIN), [0, 0]);
    }
}
