//! `[erase] on_vanish = "erase"`: people whom the service purged for another reason are erased here after a grace
//! period.

use std::collections::BTreeSet;

use studysync_sandbox::ChangeRequest;

use super::grep::{Needle, found};
use crate::{
    harness::{ALL_FLAGS, Place, Service, Tables, days_ago, small},
    serve::{
        Serving, place_for,
        schedules::{NIGHTLY, last_run_was},
        until,
    },
};

const GRACE: &str = "\n[erase]\non_vanish = \"erase\"\ngrace_days = 5\n";

fn texts(tables: &Tables, sql: &str) -> BTreeSet<String> {
    tables.rows_of(sql).into_iter().filter_map(|row| row.into_iter().next().flatten()).collect()
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p9_slow_vanished_people_are_erased_after_the_grace_period() {
    let service = Service::start(small(900, 12));
    let place = Place::new(&service).with_config(&format!("{ALL_FLAGS}{GRACE}"));
    place.run(&["backfill", "--from", &days_ago(14)]).expect(0);
    service.advance_days(1);
    service.change(&ChangeRequest { seed: 5, vanish_visitors: 2, ..ChangeRequest::default() });
    place.run(&["sync", "--accept-vanished"]).expect(0);
    let gone = texts(&place.duckdb_tables(), "SELECT response_group_uid FROM responses WHERE _vanished_at IS NOT NULL");
    assert!(gone.len() > 1, "somebody vanished");
    let needles: Vec<Needle> = gone.iter().map(|session| Needle::new(session)).collect();
    let others = |tables: &Tables| texts(tables, "SELECT r::VARCHAR FROM responses r WHERE _vanished_at IS NULL");
    let before: Vec<_> = place.warehouses().iter().map(|(_, tables)| others(tables)).collect();

    service.advance_days(4);
    place.run(&["sync"]).expect(0);
    assert!(!found(&place, &needles).is_empty(), "their time is not over");
    service.advance_days(2);
    let done = place.run(&["sync"]).expect(0);
    assert!(
        done.stderr.contains(&format!("{} sessions that the service no longer returns were erased", gone.len())),
        "{}",
        done.stderr
    );
    assert_eq!(found(&place, &needles), [""; 0]);
    let after: Vec<_> = place.warehouses().iter().map(|(_, tables)| others(tables)).collect();
    assert_eq!(before, after);
    for (name, tables) in place.warehouses() {
        let receipt = tables.rows("erasures").pop().unwrap_or_default();
        assert_eq!(
            (receipt["kind"].as_deref(), receipt["outcome"].as_deref()),
            (Some("vanished"), Some("done")),
            "{name}"
        );
        assert_eq!(tables.count("SELECT count(*) FROM responses WHERE _vanished_at IS NOT NULL"), 0, "{name}");
    }
    // The erasure adds nobody to the suppression list, and the next night has nothing to do.
    assert!(!place.path("state/checkpoints.sqlite.erasures/suppressed.json").exists());
    place.run(&["sync"]).expect(0);
    assert_eq!(place.duckdb_tables().count("SELECT count(*) FROM erasures"), 1);
    place.run(&["replay"]).expect(0);
    assert_eq!(found(&place, &needles), [""; 0]);
}

#[test]
fn an_unknown_value_of_on_vanish_is_refused() {
    let service = Service::start(small(10, 2));
    let place = Place::new(&service).with_config("[erase]\non_vanish = \"forget\"\n");
    let done = place.run(&["sync"]).expect(2);
    assert!(done.stderr.contains("'forget' is neither 'keep' nor 'erase'"), "{}", done.stderr);
}

#[test]
fn p9_a_night_of_serve_erases_vanished_people_too() {
    let service = Service::start(small(300, 8));
    let place = place_for(&service, &format!("{NIGHTLY}{GRACE}"));
    place.run(&["backfill", "--from", &days_ago(9)]).expect(0);
    service.advance_days(1);
    service.change(&ChangeRequest { seed: 5, vanish_visitors: 2, ..ChangeRequest::default() });
    place.run(&["sync", "--accept-vanished"]).expect(0);
    let gone = texts(&place.duckdb_tables(), "SELECT response_group_uid FROM responses WHERE _vanished_at IS NOT NULL");
    assert!(!gone.is_empty(), "somebody vanished");
    let needles: Vec<Needle> = gone.iter().map(|session| Needle::new(session)).collect();
    service.advance_days(6);
    last_run_was(&place, &service, 2);
    let serving = Serving::start(&place);
    until("the nightly run", || serving.health()["last_outcome"] == "done" && serving.health()["running"].is_null());
    // The erasure searches the state file and the inbox. `serve` has both open and keeps its locks on them. Another
    // process that closes the inbox must not remove its write-ahead log.
    place.run(&["sync", "--stream", "themes"]).expect(0);
    assert!(place.path("state/checkpoints.sqlite.inbox-wal").exists(), "{:?}", place.files("state"));
    assert_eq!(serving.stop(), 0);
    assert_eq!(found(&place, &needles), [""; 0]);
    assert_eq!(place.duckdb_tables().count("SELECT count(*) FROM erasures WHERE kind = 'vanished'"), 1);
}

#[test]
fn an_erasure_that_does_not_work_is_notified() {
    let service = Service::start(small(200, 8));
    let told = "\n[notify]\ncommand = [\"sh\", \"-c\", \"echo $STUDYSYNC_EVENT $STUDYSYNC_SUMMARY >> told\"]\n";
    let place = place_for(&service, &format!("{NIGHTLY}{GRACE}{told}"));
    place.run(&["backfill", "--from", &days_ago(9)]).expect(0);
    service.advance_days(1);
    service.change(&ChangeRequest { seed: 5, vanish_visitors: 2, ..ChangeRequest::default() });
    place.run(&["sync", "--accept-vanished"]).expect(0);
    service.advance_days(6);
    // An analyst's object that cannot be copied into a new file.
    let connection = crate::harness::connect();
    connection.execute_batch(&format!("ATTACH '{}' AS mine; USE mine", place.duckdb().display())).unwrap();
    connection
        .execute_batch("CREATE SEQUENCE numbers; CREATE TABLE notes (n BIGINT DEFAULT nextval('mine.main.numbers'))")
        .unwrap();
    drop(connection);
    let told = || std::fs::read_to_string(place.path("told")).unwrap_or_default();
    last_run_was(&place, &service, 2);
    let serving = Serving::start(&place);
    // A stop while the command ends leaves the message pending, and the next run repeats it.
    let is_sent = |outbox: String| outbox.contains("needs_a_look") && outbox.contains("\"waiting\":[]");
    let outbox = place.path("state/checkpoints.sqlite.notifications");
    until("the notification", || std::fs::read_to_string(&outbox).is_ok_and(is_sent));
    assert_eq!(serving.stop(), 0);
    assert!(told().starts_with("needs_a_look the vanished sessions were not erased: "), "{}", told());
    assert!(told().contains("the table notes"), "{}", told());
    // The next night has the same finding and does not notify again.
    place.run(&["sync"]).expect(2);
    assert_eq!(told().lines().count(), 1, "{}", told());
    // A single run notifies too.
    std::fs::remove_file(place.path("told")).unwrap();
    std::fs::remove_file(place.path("state/checkpoints.sqlite.notifications")).unwrap();
    place.run(&["sync"]).expect(2);
    assert!(told().starts_with("needs_a_look the vanished sessions were not erased: "), "{}", told());
}
