//! Each drift mode in each stream, and the change back to `evolve`.

use serde_json::Value;

use crate::harness::{
    DAY_MS, NOW_MS, Place, Service, Tables, assert_equal, assert_warehouses_equal, expected::Expected,
};

use super::{Drifting, STREAMS, config, drifting, with_mode};

/// Returns the drift entries of a stream: kind, path, records, fate.
fn told(report: &Value, stream: &str) -> Vec<(String, String, u64, String)> {
    let text = |entry: &Value, name: &str| entry[name].as_str().unwrap().to_owned();
    let entries = report["drift"].as_array().unwrap().iter().filter(|entry| entry["stream"] == stream);
    entries
        .map(|entry| {
            (text(entry, "kind"), text(entry, "where"), entry["records"].as_u64().unwrap(), text(entry, "fate"))
        })
        .collect()
}

fn assert_told(report: &Value, stream: &Drifting, fate: &str) {
    let path = |place: &str| format!("{}.{place}", stream.name);
    let expected = [
        ("new_field".to_owned(), path(stream.unknown_place), 1, fate.to_owned()),
        ("type_clash".to_owned(), path(stream.clash_place), 1, fate.to_owned()),
    ];
    assert_eq!(told(report, stream.name), expected, "{report}");
}

/// Asserts that in each warehouse this many rows satisfy a condition.
fn assert_count(place: &Place, table: &str, condition: &str, rows: i64) {
    for (name, tables) in place.warehouses() {
        let sql = format!("SELECT count(*) FROM {table} WHERE {condition}");
        assert_eq!(tables.count(&sql), rows, "{name}: {sql}");
    }
}

/// With `evolve` again, a replay rebuilds all rows from the archive, and they equal the service's.
fn assert_comes_back(place: Place, service: &Service, when: &str) {
    let place = with_mode(place, &[], "evolve");
    service.clear_log();
    place.run(&["replay"]).expect(0);
    assert!(service.log().is_empty(), "{when}: a replay asked the service");
    assert_warehouses_equal(&place, &Expected::now(service), when);
    assert_count(&place, "rejects", "true", 0);
}

#[test]
fn p1_evolve_is_the_default_and_loses_nothing() {
    let service = drifting();
    let place = Place::new(&service);
    let report = place.report(&["sync"], 0);
    assert_warehouses_equal(&place, &Expected::now(&service), "evolve");
    for stream in &STREAMS {
        assert_told(&report, stream, "kept");
        for (name, tables) in place.warehouses() {
            let extra = |row| tables.value(&format!("SELECT extra FROM {} WHERE {row}", stream.name)).unwrap();
            assert!(extra(stream.unknown).contains(&format!("\"{}\"", stream.unknown_place)), "{name}");
            assert!(extra(stream.clash).contains(&format!("\"{}\"", stream.clash_place)), "{name}");
        }
    }
    let again = place.report(&["sync"], 0);
    assert_eq!(again["streams"]["surveys"]["updated"], 0, "{again}");
    assert_told(&again, &STREAMS[1], "kept");
}

#[test]
fn p1_replay_restores_a_discarded_row_from_the_rejects() {
    let service = drifting();
    for stream in &STREAMS {
        let place = Place::new(&service).with_config(&config(&[stream.name], "discard_row"));
        let report = place.report(&["sync"], 3);
        assert_eq!(report["streams"][stream.name]["rejected"], 2, "{report}");
        for other in &STREAMS {
            assert_told(&report, other, if other.name == stream.name { "row_rejected" } else { "kept" });
            let rows = i64::from(other.name != stream.name);
            assert_count(&place, other.name, other.unknown, rows);
            assert_count(&place, other.name, other.clash, rows);
        }
        for (reason, field) in [("unknown_field", stream.unknown_place), ("type_clash", stream.clash_place)] {
            let of_stream = format!("stream = '{}' AND reason = '{reason}' AND field = '{field}'", stream.name);
            assert_count(&place, "rejects", &of_stream, 1);
            let raw = place.duckdb_tables().value(&format!("SELECT raw FROM rejects WHERE {of_stream}")).unwrap();
            assert!(service.truth(stream.list).contains(&raw), "{raw}");
        }
        // Known rejects are not reported again, and no row counts as edited.
        let again = place.report(&["sync"], 0);
        assert_eq!(
            (&again["streams"][stream.name]["updated"], &again["streams"][stream.name]["rejected"]),
            (&0.into(), &0.into())
        );
        place.run(&["verify", "--from", &(NOW_MS - 3 * DAY_MS).to_string()]).expect(0);
        assert_comes_back(place, &service, stream.name);
    }
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p1_slow_replay_restores_a_discarded_value() {
    let service = drifting();
    for stream in &STREAMS {
        let place = Place::new(&service).with_config(&config(&[stream.name], "discard_value"));
        let report = place.report(&["sync"], 0);
        for other in &STREAMS {
            let is_kept = other.name != stream.name;
            assert_told(&report, other, if is_kept { "kept" } else { "value_discarded" });
            for row in [other.unknown, other.clash] {
                assert_count(&place, other.name, &format!("{row} AND (extra IS NOT NULL) = {is_kept}"), 1);
            }
        }
        assert_count(&place, "rejects", "true", 0);
        place.run(&["verify", "--from", &(NOW_MS - 3 * DAY_MS).to_string()]).expect(0);
        assert_comes_back(place, &service, stream.name);
    }
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p1_slow_a_frozen_stream_holds_drifted_windows_until_unfrozen() {
    let service = drifting();
    for stream in &STREAMS {
        let place = Place::new(&service).with_config(&config(&[stream.name], "freeze"));
        let report = place.report(&["sync"], 1);
        assert_eq!(report["outcome"], "failed");
        let failure = &report["failures"][0];
        assert_eq!(failure["stream"], stream.name);
        let error = failure["error"].as_str().unwrap();
        let (unknown, clash) =
            (format!("{}.{}", stream.name, stream.unknown_place), format!("{}.{}", stream.name, stream.clash_place));
        let setting = format!("[streams.{}.drift]", stream.name);
        for words in [&unknown, &clash, &setting, "in 1 record", "another mode", "pages are kept"] {
            assert!(error.contains(words), "'{words}' is missing in {error}");
        }
        for other in &STREAMS {
            let is_frozen = other.name == stream.name;
            assert_told(&report, other, if is_frozen { "frozen" } else { "kept" });
            assert_count(&place, other.name, other.unknown, i64::from(!is_frozen));
            let at = "TIMESTAMP '2026-01-30 08:00:00'";
            let sql = format!(
                "SELECT count(*) FROM sync_windows WHERE stream = '{}' AND window_start <= {at} AND {at} < window_end",
                other.name
            );
            assert_eq!(place.duckdb_tables().count(&sql) == 0, is_frozen, "{sql}");
        }
        // The stream stays frozen, sends no request, and reports this in each run.
        service.clear_log();
        let again = place.report(&["sync"], 1);
        assert!(again["failures"][0]["error"].as_str().unwrap().contains(&unknown), "{again}");
        assert_eq!(asked_for(&service, stream), 0);
        assert!(place.run(&["status"]).expect(0).words().contains("NOT APPLIED"));
        // With another mode, the run resumes with the archived pages.
        let place = with_mode(place, &[], "evolve");
        service.clear_log();
        place.report(&["sync"], 0);
        assert_warehouses_equal(&place, &Expected::now(&service), stream.name);
    }
}

#[test]
fn p1_the_committing_run_sets_the_mode_of_a_frozen_scan() {
    let service = drifting();
    let place = Place::new(&service).with_config(&config(&["responses"], "freeze"));
    place.report(&["sync"], 1);
    let place = with_mode(place, &["responses"], "discard_row");
    let report = place.report(&["sync"], 3);
    // The window is so young that the same run scans it a second time.
    let fates: Vec<_> = told(&report, "responses").into_iter().map(|(.., fate)| fate).collect();
    assert_eq!(fates, ["row_rejected", "row_rejected"], "{report}");
    assert_count(&place, "responses", "response_group_uid = 'drift'", 0);
    assert_count(&place, "rejects", "stream = 'responses'", 2);
    assert_comes_back(place, &service, "after all");
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p2_slow_replay_uses_the_configured_drift_modes() {
    let service = drifting();
    for (mode, code, rows, rejects) in [("discard_row", 3, 0, 6), ("discard_value", 0, 2, 0)] {
        let place = Place::new(&service).with_config(&config(&["responses", "surveys", "themes"], mode));
        place.run(&["sync"]).expect(code);
        let before = place.path("before");
        std::fs::copy(place.duckdb(), &before).unwrap();
        place.run(&["replay"]).expect(0);
        assert_equal(&Tables::duckdb(&before), &place.duckdb_tables(), mode);
        for stream in &STREAMS {
            let found = format!("({}) OR ({})", stream.unknown, stream.clash);
            assert_count(&place, stream.name, &found, rows);
        }
        assert_count(&place, "rejects", "true", rejects);
    }
}

/// Counts the requests for rows of a stream. It ignores the request for one row that a run sends to learn the service's
/// time.
fn asked_for(service: &Service, stream: &Drifting) -> usize {
    let path = format!("/v1/{}", stream.name);
    let is_probe = |query: &[(String, String)]| query.iter().any(|(name, value)| name == "limit" && value == "1");
    service.log().iter().filter(|entry| entry.path == path && !is_probe(&entry.query)).count()
}

#[test]
fn p1_replay_refuses_a_frozen_stream_and_changes_nothing() {
    let service = drifting();
    let place = Place::new(&service);
    place.run(&["sync"]).expect(0);
    let place = with_mode(place, &["themes"], "freeze");
    let done = place.run(&["replay"]).expect(1);
    assert!(done.stderr.contains("themes.score") && done.stderr.contains("another mode"), "{}", done.stderr);
    assert_warehouses_equal(&place, &Expected::now(&service), "a refused replay");
    let done = place.run(&["sync"]);
    assert_eq!(done.code, 1, "{}", done.stderr);
    assert_warehouses_equal(&place, &Expected::now(&service), "a frozen night");
}
