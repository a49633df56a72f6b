//! Windows that are looked at again: what changed at the service arrives, and what a warehouse lost comes back (P4).

use studysync::sandbox::ChangeRequest;

use crate::harness::{
    DAY_MS, Place, Service, assert_holds,
    expected::{Expected, Seen, settled_ms},
    small,
};

/// All history is looked at again by each run.
const AGAIN_EVERY_RUN: &str = "[streams.responses]\nflags = []\nrescan = [\"all every run\"]\n\
    [streams.themes]\nrescan = [\"all every run\"]\n";

fn synced(responses: u64) -> (Service, Place) {
    let service = Service::start(small(responses, 24));
    let place = Place::new(&service).with_config(AGAIN_EVERY_RUN);
    place.report(&["sync"], 0);
    (service, place)
}

fn now(service: &Service) -> Expected {
    let until_ms = settled_ms(service.control().now_ms());
    Expected::of(service, Seen { until_ms, with_flags: false })
}

#[test]
fn p4_a_second_look_brings_what_changed_and_nothing_else() {
    let (service, place) = synced(12_000);
    let counts = &place.report(&["sync", "--stream", "responses"], 0)["streams"]["responses"];
    assert!(counts["unchanged"].as_u64().unwrap() > 10_000, "{counts}");
    assert_eq!((&counts["updated"], &counts["vanished"]), (&0.into(), &0.into()), "{counts}");

    let held = now(&service);
    service.advance_days(1);
    let change = ChangeRequest {
        edits: 40,
        soft_deletes: 5,
        vanish_visitors: 2,
        late: 3,
        within_ms: Some(20 * DAY_MS),
        ..ChangeRequest::default()
    };
    service.change(&change);
    let report = place.report(&["sync"], 0);
    assert!(report["streams"]["responses"]["updated"].as_u64().unwrap() >= 30, "{report}");
    assert_holds(&place, &held.next_morning(now(&service)), "after changes");
}

#[test]
fn p4_a_warehouse_that_lost_rows_gets_them_back() {
    let (service, place) = synced(3_000);
    let file = duckdb::Connection::open(place.duckdb()).unwrap();
    let lost = file.execute("DELETE FROM responses WHERE question_id % 7 = 0", []).unwrap();
    assert!(lost > 0);
    let changed = file.execute("UPDATE responses SET _row_hash = _row_hash + 1 WHERE question_id % 7 = 1", []).unwrap();
    assert!(changed > 0);
    drop(file);
    let counts = &place.report(&["sync", "--stream", "responses"], 0)["streams"]["responses"];
    assert_eq!(counts["inserted"].as_u64().unwrap() as usize, lost, "{counts}");
    assert_eq!(counts["updated"].as_u64().unwrap() as usize, changed, "{counts}");
    let content = "SELECT response_group_uid, question_id, answer_json, _row_hash FROM responses ORDER BY ALL";
    assert_eq!(place.duckdb_tables().rows_of(content), place.parquet_tables().rows_of(content));
    drop(service);
}
