//! Windows that are scanned again: changes at the service arrive, and lost rows return (P4).

use studysync_sandbox::ChangeRequest;

use crate::harness::{
    DAY_MS, Place, Service, assert_warehouses_equal, days_ago,
    expected::{Expected, Seen, settled_ms},
    small,
};

/// Each run scans all history again.
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
fn p4_a_second_scan_applies_only_what_changed() {
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
    assert_warehouses_equal(&place, &held.next_morning(now(&service)), "after changes");
}

#[test]
fn p4_a_rescan_restores_lost_rows() {
    let (service, place) = synced(3_000);
    let file = duckdb::Connection::open(place.duckdb()).unwrap();
    let lost = file.execute("DELETE FROM responses WHERE question_id % 7 = 0", []).unwrap();
    assert!(lost > 0);
    let damaged = "UPDATE responses SET question_text = 'damaged', _row_hash = _row_hash + 1 WHERE question_id % 7 = 1";
    let changed = file.execute(damaged, []).unwrap();
    assert!(changed > 0);
    drop(file);
    let counts = &place.report(&["sync", "--stream", "responses"], 0)["streams"]["responses"];
    assert_eq!(counts["inserted"].as_u64().unwrap() as usize, lost, "{counts}");
    assert_eq!(counts["updated"].as_u64().unwrap() as usize, changed, "{counts}");
    let content =
        "SELECT response_group_uid, question_id, question_text, answer_json, _row_hash FROM responses ORDER BY ALL";
    assert_eq!(place.duckdb_tables().rows_of(content), place.parquet_tables().rows_of(content));
    drop(service);
}

/// Makes the file look like that of a version without these columns: their values are in `extra`.
const FEWER_COLUMNS: &str = r#"
    UPDATE responses SET extra = '{"visitorId":' || visitor_id || CASE WHEN extra IS NULL THEN '}' ELSE ',' || extra[2:] END,
        _row_hash = _row_hash + 1 WHERE visitor_id IS NOT NULL;
    ALTER TABLE responses DROP COLUMN visitor_id;
    UPDATE surveys SET extra = '{"status":"' || status || '"' || CASE WHEN extra IS NULL THEN '}' ELSE ',' || extra[2:] END,
        _row_hash = _row_hash + 1 WHERE status IS NOT NULL;
    ALTER TABLE surveys DROP COLUMN status;
    UPDATE themes SET extra = '{"theme":"' || theme || '"}', _row_hash = _row_hash + 1 WHERE theme IS NOT NULL AND extra IS NULL;
    ALTER TABLE themes ALTER COLUMN theme DROP NOT NULL; UPDATE themes SET theme = NULL WHERE extra LIKE '{"theme":%';"#;

#[test]
fn p4_a_version_with_more_columns_reports_no_edit() {
    let (service, place) = synced(3_000);
    let all = ["responses", "surveys", "themes", "response_history", "survey_history", "survey_status_changes"];
    let content = |place: &Place| {
        let columns = |table: &str| match table {
            "responses" => {
                "response_group_uid, question_id, visitor_id, answer_json, extra, _row_hash, _synced_at, _run_id"
            }
            "surveys" => "id, status, extra, _row_hash, _synced_at, _run_id",
            "themes" => "id, theme, extra, _row_hash, _synced_at, _run_id",
            _ => "*",
        };
        let rows = |table: &&str| {
            place.duckdb_tables().rows_of(&format!("SELECT {} FROM {table} ORDER BY ALL", columns(table)))
        };
        all.iter().map(rows).collect::<Vec<_>>()
    };
    let before = content(&place);
    duckdb::Connection::open(place.duckdb()).unwrap().execute_batch(FEWER_COLUMNS).unwrap();

    let verified = place.run(&["verify", "--json", "--from", &days_ago(24), "--to", &days_ago(1)]).expect(0).json();
    assert_eq!(verified["outcome"], "done", "{verified}");
    let report = place.report(&["sync"], 0);
    for stream in ["responses", "surveys", "themes"] {
        let counts = &report["streams"][stream];
        assert!(counts["unchanged"].as_u64().unwrap() > 0, "{counts}");
        for what in ["inserted", "updated", "vanished"] {
            assert_eq!(counts[what], 0, "{stream} {what}: {counts}");
        }
    }
    assert_eq!(content(&place), before, "every field is in its column, and nothing else has changed");
    drop(service);
}
