//! Pages that come again as they were are not read again, and that makes no difference to any number (P4).

use serde_json::Value;
use studysync::sandbox::ChangeRequest;

use crate::harness::{
    DAY_MS, Place, Service, assert_holds,
    expected::{Expected, Seen, settled_ms},
    small,
};

/// All history is looked at again by each run; the visitors' snapshots, for which pages are read each time, are not asked for.
const AGAIN_EVERY_RUN: &str = "[streams.responses]\nflags = []\nrescan = [\"all every run\"]\n\
    [streams.themes]\nrescan = [\"all every run\"]\n";

/// A place whose last two runs found every page as it was.
fn settled(responses: u64) -> (Service, Place) {
    let service = Service::start(small(responses, 24));
    let place = Place::new(&service).with_config(AGAIN_EVERY_RUN);
    // The second looks at windows that are cut otherwise than those of the load, and reads them.
    for _ in 0..2 {
        place.report(&["sync"], 0);
    }
    (service, place)
}

fn now(service: &Service) -> Expected {
    let until_ms = settled_ms(service.control().now_ms());
    Expected::of(service, Seen { until_ms, with_flags: false })
}

/// Looks at all of it again. Returns the counts, and how many windows came as they were before, page by page, and how many otherwise.
fn look_again(place: &Place) -> (Value, usize, usize) {
    let done = place.run(&["-vv", "sync", "--stream", "responses", "--json"]).expect(0);
    let count = |text: &str| done.stderr.lines().filter(|line| line.contains("pulled") && line.contains(text)).count();
    let (report, same, others) = (done.json(), count("is_as_before=true"), count("is_as_before=false"));
    assert_ne!(report["requests"]["ties_probed"], 0, "no edge was looked at");
    assert_eq!(report["streams"]["responses"]["windows"].as_u64().unwrap() as usize, same + others, "{}", done.stderr);
    (report["streams"]["responses"].clone(), same, others)
}

#[test]
fn p4_a_page_is_not_read_again_until_something_on_it_changes() {
    let (service, place) = settled(12_000);
    let (counts, same, others) = look_again(&place);
    assert!(same > 0 && others == 0, "pages that came as they were are read: {others} windows of {}", same + others);
    assert!(counts["unchanged"].as_u64().unwrap() > 10_000, "{counts}");

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
    let held = held.next_morning(now(&service));
    assert_holds(&place, &held, "after changes");
    // What was new is a window of its own no more.
    look_again(&place);
    let (_, same, others) = look_again(&place);
    assert!(others == 0, "what was changed is not known again: {others} of {}", same + others);
}

#[test]
fn p4_a_warehouse_that_lost_rows_gets_them_back_from_pages_that_are_known() {
    let (service, place) = settled(3_000);
    let file = duckdb::Connection::open(place.duckdb()).unwrap();
    let lost = file.execute("DELETE FROM responses WHERE question_id % 7 = 0", []).unwrap();
    assert!(lost > 0);
    let changed = file.execute("UPDATE responses SET _row_hash = _row_hash + 1 WHERE question_id % 7 = 1", []).unwrap();
    assert!(changed > 0);
    drop(file);
    let (counts, _, others) = look_again(&place);
    assert_eq!(others, 0, "the pages were not known");
    assert_eq!(counts["inserted"].as_u64().unwrap() as usize, lost, "{counts}");
    assert_eq!(counts["updated"].as_u64().unwrap() as usize, changed, "{counts}");
    let content = "SELECT response_group_uid, question_id, answer_json, _row_hash FROM responses ORDER BY ALL";
    assert_eq!(place.duckdb_tables().rows_of(content), place.parquet_tables().rows_of(content));
    drop(service);
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p1_slow_what_is_known_wrongly_is_not_believed() {
    let (service, place) = settled(3_000);
    let held = now(&service);
    let state = rusqlite::Connection::open(place.state()).unwrap();
    let known = state.execute("UPDATE known_pages SET sum = randomblob(16), records = records + 1", []).unwrap();
    assert!(known > 0);
    drop(state);
    let (counts, same, _) = look_again(&place);
    assert!(counts["unchanged"].as_u64().unwrap() > 2_900 && same > 0, "{counts}");
    assert!(counts["inserted"] == 0 && counts["updated"] == 0 && counts["vanished"] == 0, "{counts}");
    assert_holds(&place, &held.next_morning(now(&service)), "with wrong knowledge");
}

#[test]
fn an_erasure_leaves_no_hash_of_a_page() {
    let (service, place) = settled(2_000);
    let known = || -> i64 {
        let state = rusqlite::Connection::open(place.state()).unwrap();
        state.query_row("SELECT count(*) FROM known_pages", [], |row| row.get(0)).unwrap()
    };
    assert!(known() > 0);
    let users = "SELECT external_user_id FROM responses WHERE external_user_id <> '' ORDER BY 1 LIMIT 1";
    let who = place.duckdb_tables().value(users).unwrap();
    place.run(&["erase", "--user-id", &who, "--yes", "--local-only"]).expect(0);
    assert_eq!(known(), 0);
    drop(service);
}
