//! Drift over several nights: a discarded value edits no row, and a new mode updates rows and deletes none (P4).

use serde_json::Value;

use crate::harness::{Place, assert_warehouses_equal, expected::Expected};

use super::{STREAMS, config, drifting, plant, with_mode};

const ALL: [&str; 3] = ["responses", "surveys", "themes"];

fn count(report: &Value, stream: &str, fate: &str) -> u64 {
    report["streams"][stream][fate].as_u64().unwrap()
}

#[test]
fn p4_a_change_in_a_discarded_value_is_no_edit() {
    let service = drifting();
    let place = Place::new(&service).with_config(&config(&ALL, "discard_value"));
    place.report(&["sync"], 0);
    plant(&service, "\"another value\"");
    let report = place.report(&["sync"], 0);
    for stream in ALL {
        let fates = ["inserted", "updated", "vanished"].map(|fate| count(&report, stream, fate));
        assert_eq!(fates, [0, 0, 0], "{stream}: {report}");
    }
    // With `evolve`, the same change is an edit.
    let place = with_mode(place, &[], "evolve");
    let report = place.report(&["sync"], 0);
    assert!(ALL.iter().all(|stream| count(&report, stream, "updated") == 2), "{report}");
    plant(&service, "\"a third value\"");
    let report = place.report(&["sync"], 0);
    assert!(ALL.iter().all(|stream| count(&report, stream, "updated") == 1), "{report}");
    assert_warehouses_equal(&place, &Expected::now(&service), "evolve again");
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p4_slow_a_new_drift_mode_updates_rows_and_deletes_none() {
    let service = drifting();
    let place = Place::new(&service);
    place.report(&["sync"], 0);
    // The service still has the rows: rows that are already stored stay, and do not count as vanished.
    let place = with_mode(place, &ALL, "discard_row");
    let report = place.report(&["sync"], 3);
    for stream in ALL {
        let fates = ["inserted", "updated", "vanished", "withheld"].map(|fate| count(&report, stream, fate));
        assert_eq!(fates, [0, 0, 0, 0], "{stream}: {report}");
        assert_eq!(count(&report, stream, "rejected"), 2, "{report}");
    }
    place.run(&["verify", "--from", "2026-01-28"]).expect(0);
    let place = with_mode(place, &ALL, "discard_value");
    let report = place.report(&["sync"], 0);
    for stream in &STREAMS {
        assert_eq!(count(&report, stream.name, "updated"), 2, "{report}");
        for (name, tables) in place.warehouses() {
            let sql = format!("SELECT count(*) FROM {} WHERE extra IS NOT NULL", stream.name);
            assert_eq!(tables.count(&sql), 0, "{name}: {sql}");
        }
    }
    for (name, tables) in place.warehouses() {
        let sql = "SELECT count(*) FROM response_history WHERE response_group_uid = 'drift' AND reason = 'edited'
            AND extra IS NOT NULL";
        assert_eq!(tables.count(sql), 2, "{name}: the earlier versions");
    }
    let place = with_mode(place, &[], "evolve");
    place.report(&["sync"], 0);
    assert_warehouses_equal(&place, &Expected::now(&service), "evolve again");
}
