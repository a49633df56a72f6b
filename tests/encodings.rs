//! Text files of editors and spreadsheets: byte order marks, UTF-16, quoted keys, times in another unit.

use serde_json::json;
use studysync_sandbox::{Faults, ListName};

use crate::{
    harness::{Done, KEY, KEY_VARIABLE, Place, Service, assert_warehouses_equal, days_ago, expected::Expected, small},
    users::{each, people_of, with_people},
};

fn utf16(text: &str) -> Vec<u8> {
    format!("\u{feff}{text}").encode_utf16().flat_map(u16::to_le_bytes).collect()
}

#[test]
fn p1_bodies_with_a_byte_order_mark_are_stored_and_erased() {
    let service = Service::start(small(60, 3));
    service.set_faults(Faults { byte_order_mark: true, ..Faults::default() });
    let place = Place::new(&service).with_config(&with_people());
    place.report(&["backfill", "--from", &days_ago(4)], 0);
    let people = people_of(&service);
    assert_eq!(each(&place, "SELECT count(*) FROM users")[0], [Some(people.len().to_string())]);
    assert_warehouses_equal(&place, &Expected::now(&service), "with marks");
    place.run(&["replay"]).expect(0);
    assert_warehouses_equal(&place, &Expected::now(&service), "replayed");

    let user_id = people.keys().find(|user_id| user_id.starts_with("user-")).unwrap();
    std::fs::write(place.path("people.txt"), utf16(&format!("user-id {user_id}\r\n"))).unwrap();
    let erased = place.run(&["erase", "--file", "people.txt", "--yes", "--json"]);
    assert!(erased.code == 0 || erased.code == 3, "{}", erased.stderr);
    let receipt = erased.json();
    assert_eq!(receipt["purge_requests"].as_array().unwrap().len(), 1, "{receipt}");
    place.run(&["replay"]).expect(0);
    let sql = format!("SELECT count(*) FROM responses WHERE external_user_id = '{user_id}'");
    assert!(each(&place, &sql).iter().all(|counted| counted == &[Some("0".to_owned())]), "a replay brings them back");
}

#[test]
fn a_key_is_sent_without_quotes_marks_or_blanks() {
    let service = Service::start(small(20, 3));
    let place = Place::new(&service).with_env(KEY_VARIABLE, "not-the-key");
    for (bytes, told) in [
        (format!("\u{feff}{KEY}\r\n").into_bytes(), ""),
        (utf16(&format!("{KEY}\r\n")), ""),
        (format!(" \"{KEY}\" \n").into_bytes(), "quotes"),
        (format!("Bearer {KEY}\n").into_bytes(), "the word 'Bearer'"),
    ] {
        std::fs::write(place.path("key.txt"), &bytes).unwrap();
        let done = place.run(&["check", "--api-key-file", "key.txt"]).expect(0);
        assert!(done.stderr.contains(told) && !done.stderr.contains(KEY), "{}", done.stderr);
    }
    place.run(&["check"]).expect(4);
    std::fs::write(place.path("key.txt"), format!("{KEY}\nanother\n")).unwrap();
    let refused = place.run(&["check", "--api-key-file", "key.txt"]).expect(2);
    assert!(refused.stdout.contains("more than one line") && !refused.stdout.contains(KEY), "{}", refused.stdout);
    let place = place.with_env(KEY_VARIABLE, &format!("\u{feff}Bearer \"{KEY}\""));
    place.run(&["check"]).expect(0);
}

#[test]
fn a_utf16_configuration_is_read() {
    let service = Service::start(small(20, 3));
    let place = Place::new(&service).with_config("");
    let text =
        format!("[service]\r\nbase_url = \"{}\"\r\n[warehouse]\r\nduckdb = \"w.duckdb\"\r\n", service.base_url());
    for bytes in [utf16(&text), format!("\u{feff}{text}").into_bytes()] {
        std::fs::write(place.path("studysync.toml"), bytes).unwrap();
        Done::from(place.bare(&["check"]).output().unwrap()).expect(0);
    }
}

#[test]
fn user_times_in_seconds_are_recognized_by_size() {
    let service = Service::start(small(60, 3));
    service.set_faults(Faults { user_times_in_seconds: true, ..Faults::default() });
    let place = Place::new(&service).with_config(&with_people());
    let user_id = people_of(&service).into_keys().next().unwrap();
    let event = json!({"userId": user_id, "events": [{"event": "login", "timestamp": 1_769_846_400_000_i64}]});
    service.control().upsert_user(&event.to_string());
    place.report(&["backfill", "--from", &days_ago(4)], 0);
    assert!(!service.truth(ListName::Responses).is_empty());
    for wrong in each(&place, "SELECT count(*) FROM users WHERE epoch_ms(created_at) < 1577836800000 OR extra IS NULL")
    {
        assert_eq!(wrong, [Some("0".to_owned())]);
    }
    for found in each(&place, "SELECT epoch_ms(created_at) || ' ' || extra FROM user_events") {
        let kept = r#"1769846400000 {"createdAt":1769846400,"updatedAt":1769846400}"#;
        assert_eq!(found, [Some(kept.to_owned())]);
    }
}
