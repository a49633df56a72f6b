//! The erasure of users who were pulled or pushed one by one: their tables, their pages, and later requests.

use super::{
    erase,
    grep::{Needle, found},
    people::{ZOE, ZOE_MAIL, plant},
    receipt,
};
use crate::{
    harness::{Place, Service, days_ago, small},
    users::{asked, each, with_people},
};

/// An answer in the warehouse names this user; the service's list of users does not have it.
const ABSENT: &str = "nobody+there@example.com";

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p9_slow_erased_users_leave_no_row_and_are_not_pulled_or_pushed() {
    let service = Service::start(small(300, 5));
    plant(&service);
    let person =
        format!(r#"{{"userId":"{ZOE}","email":"{ZOE_MAIL}","attributes":{{"email":"{ZOE_MAIL}","plan":"gold"}}}}"#);
    assert!(service.control().upsert_user(&person) < 300);
    let place = Place::new(&service).with_config(&with_people());
    place.run(&["backfill", "--from", &days_ago(14)]).expect(0);
    place.run(&["users", "pull", "--user-id", ABSENT]);
    let input = place.path("in.ndjson");
    std::fs::write(&input, &person).unwrap();
    let input = input.to_str().unwrap().to_owned();
    place.run(&["users", "push", &input, "--results", "/dev/null"]).expect(0);

    let needles = [ZOE, ZOE_MAIL, ABSENT].map(Needle::new);
    let before = found(&place, &needles);
    for expected in ["DuckDB users.", "DuckDB user_attributes.", "Parquet users.", "archive page"] {
        assert!(before.iter().any(|place| place.starts_with(expected)), "{expected} is not among {before:?}");
    }
    let others = each(&place, "SELECT external_user_id FROM users ORDER BY 1");
    std::fs::remove_file(&input).unwrap();
    let done = erase(&place, &["--user-id", ZOE, "--user-id", ABSENT]);
    let receipt = receipt(&done);
    assert_eq!(done.code, 0, "{receipt:#}");
    assert_eq!(found(&place, &needles), [""; 0], "right after");
    assert_eq!(receipt["removed"]["state people"], 3, "asked for twice, sent once: {receipt:#}");
    for (left, before) in each(&place, "SELECT external_user_id FROM users ORDER BY 1").iter().zip(&others) {
        let expected: Vec<_> = before.iter().filter(|name| name.as_deref() != Some(ZOE)).collect();
        assert_eq!(left.iter().collect::<Vec<_>>(), expected);
    }

    service.clear_log();
    service.advance_days(1);
    place.run(&["sync"]).expect(0);
    place.run(&["users", "pull", "--user-id", ZOE]).expect(0);
    let again = place.root().parent().unwrap().join(format!("{}.ndjson", std::process::id()));
    std::fs::write(&again, &person).unwrap();
    place.run(&["users", "push", again.to_str().unwrap(), "--results", "/dev/null"]).expect(3);
    std::fs::remove_file(&again).unwrap();
    let log = service.log();
    assert!(asked(&log).is_empty(), "nobody else is due");
    assert!(!log.iter().any(|entry| entry.method == "POST"), "who was erased is not sent");
    place.run(&["replay"]).expect(0);
    assert_eq!(found(&place, &needles), [""; 0], "after a night and a replay");
}
