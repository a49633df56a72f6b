//! Each key is in `responses` exactly once, in whatever windows its records came (P1, P2).

use std::collections::BTreeMap;

use serde_json::{Value, json};
use studysync_sandbox::{ListName, RowKey};

use crate::harness::{ALL_FLAGS, Place, Service, Tables, assert_equal_in, days_ago, small};

const AGAIN_EVERY_RUN: &str = "rescan = [\"all every run\"]\n";
/// Spellings of one question number. The service then has several records with one key.
const SPELLINGS: [&str; 3] = ["7", "7.0", "7e0"];
const KEYS: i64 = 12;

/// Plants a record of a key. `version` selects the spelling of its question, and its time.
fn plant(service: &Service, key: i64, version: usize, text: &str) {
    let (day, hour) = (2 + (key * 5 + version as i64 * 9) % 27, (key + version as i64) % 24);
    let updated = 10 + (key * 7 + version as i64 * 11) % 19;
    let record = format!(
        r#"{{"createdAt":"2026-01-{day:02}T{hour:02}:00:00.000Z","updatedAt":"2026-01-{updated}T00:00:00.000Z","responseGroupUid":"twin-{key}",
            "questionId":{},"surveyId":5,"questionText":"q","questionType":"MULTIPLESELECT","response":["{text}"],"url":"/{text}"}}"#,
        SPELLINGS[version]
    );
    service.control().plant(ListName::Responses, &record, None).unwrap();
}

/// Computes, from the service's records alone, the current answer of each key and the records that lost the collision.
fn expected(service: &Service) -> (BTreeMap<String, String>, Vec<String>) {
    let mut by_key: BTreeMap<String, Vec<(String, String, String)>> = BTreeMap::new();
    for record in service.truth(ListName::Responses) {
        let record: Value = serde_json::from_str(&record).unwrap();
        let text = |name: &str| record[name].as_str().unwrap_or_default().to_owned();
        if text("responseGroupUid").starts_with("twin-") {
            let answer = record["response"].to_string();
            by_key.entry(text("responseGroupUid")).or_default().push((text("updatedAt"), text("createdAt"), answer));
        }
    }
    let (mut current, mut losers) = (BTreeMap::new(), Vec::new());
    for (key, mut records) in by_key {
        records.sort();
        let (_, _, answer) = records.pop().unwrap();
        losers.extend(records.into_iter().map(|(_, _, answer)| format!("{key} {answer}")));
        current.insert(key, answer);
    }
    losers.sort();
    (current, losers)
}

fn texts(tables: &Tables, sql: &str) -> Vec<String> {
    tables
        .rows_of(sql)
        .into_iter()
        .map(|row| row.into_iter().map(Option::unwrap_or_default).collect::<Vec<_>>().join(" "))
        .collect()
}

fn assert_unique(place: &Place, service: &Service, when: &str) {
    let (current, losers) = expected(service);
    for (name, tables) in place.warehouses() {
        let twice = "SELECT count(*) - count(DISTINCT (response_group_uid, question_id)) FROM responses";
        assert_eq!(tables.count(twice), 0, "{when}, {name}: a key is there twice");
        let found = texts(
            &tables,
            "SELECT response_group_uid, answer_json FROM responses
            WHERE response_group_uid LIKE 'twin-%' AND _vanished_at IS NULL ORDER BY ALL",
        );
        let wanted: Vec<String> = current.iter().map(|(key, answer)| format!("{key} {answer}")).collect();
        assert_eq!(found, wanted, "{when}, {name}");
        let found = texts(
            &tables,
            "SELECT DISTINCT response_group_uid, answer_json FROM response_history WHERE reason = 'collision' ORDER BY ALL",
        );
        assert!(losers.iter().all(|loser| found.contains(loser)), "{when}, {name}: {found:?} {losers:?}");
        let children = texts(
            &tables,
            "SELECT response_group_uid, label FROM response_choices WHERE response_group_uid LIKE 'twin-%' ORDER BY ALL",
        );
        assert_eq!(
            children.len(),
            tables.count("SELECT count(*) FROM responses WHERE response_group_uid LIKE 'twin-%'") as usize,
            "{when}, {name}"
        );
    }
}

fn twins() -> Service {
    let service = Service::start(small(2000, 30));
    for key in 0..KEYS {
        (0..SPELLINGS.len()).for_each(|version| plant(&service, key, version, &format!("{key}-{version}")));
    }
    service
}

#[test]
fn p1_p2_a_key_of_several_windows_is_one_row() {
    let service = twins();
    let place = Place::new(&service).with_config(&format!("{ALL_FLAGS}{AGAIN_EVERY_RUN}"));
    // First the newest days, then all others in one run.
    let mut collisions = 0;
    for (from, to) in [(10, 0), (40, 10)] {
        let (from, to) = (days_ago(from), days_ago(to));
        let done = place.run(&["backfill", "--from", &from, "--to", &to, "--json"]);
        assert!([0, 3].contains(&done.code), "{}", done.stderr);
        collisions += done.json()["streams"]["responses"]["collisions"].as_u64().unwrap();
    }
    assert_eq!(collisions as i64, KEYS * 2, "each loser is reported once");
    assert_unique(&place, &service, "after the backfills");
    for (name, tables) in place.warehouses() {
        let listed = "SELECT count(*), sum(lost_records)::BIGINT, count(current_created_at) FROM key_collisions";
        if name == "DuckDB" {
            assert_eq!(texts(&tables, listed), ["12 24 12"]);
        }
        assert_eq!(tables.count("SELECT sum(collisions) FROM sync_windows"), KEYS * 2, "{name}");
    }
    // The next nights find no change, and write nothing.
    place.report(&["sync"], 0);
    let before = std::fs::read(place.duckdb()).unwrap();
    let report = place.report(&["sync"], 0);
    let counts = &report["streams"]["responses"];
    assert_eq!(
        (&counts["inserted"], &counts["updated"], &counts["collisions"]),
        (&json!(0), &json!(0), &json!(0)),
        "{counts}"
    );
    assert!(std::fs::read(place.duckdb()).unwrap() == before, "an unchanged night wrote to the DuckDB file");
    place.run(&["verify", "--from", &days_ago(40), "--to", &days_ago(1)]).expect(0);

    // At the service, winners are purged and losers are edited.
    for key in 0..KEYS {
        match key % 3 {
            0 => (0..3).for_each(|version| {
                let row = RowKey { group: format!("twin-{key}"), question: SPELLINGS[version].into() };
                if expected(&service)
                    .0
                    .get(&row.group)
                    .is_some_and(|answer| answer.contains(&format!("{key}-{version}")))
                {
                    service.control().remove_row(&row);
                }
            }),
            1 => plant(&service, key, 1, &format!("{key}-edited")),
            _ => {}
        }
    }
    place.run(&["sync", "--accept-vanished"]);
    place.run(&["sync"]);
    assert_unique(&place, &service, "after purges and edits");
    place.run(&["verify", "--from", &days_ago(40), "--to", &days_ago(1)]).expect(0);
}

#[test]
fn p2_a_replay_gives_the_same_keys() {
    let service = twins();
    let place = Place::new(&service).with_config(&format!("{ALL_FLAGS}{AGAIN_EVERY_RUN}"));
    for (from, to) in [(10, 0), (25, 10), (40, 25)] {
        place.run(&["backfill", "--from", &days_ago(from), "--to", &days_ago(to)]);
    }
    let names = ["responses", "response_choices", "response_history", "sync_windows"].map(str::to_owned);
    let (duckdb, parquet) = (place.duckdb_tables(), place.parquet_tables());
    assert_equal_in(&names, &duckdb, &parquet, "both warehouses");
    let kept = place.path("kept.duckdb");
    drop(duckdb);
    std::fs::copy(place.duckdb(), &kept).unwrap();
    place.run(&["replay"]).expect(0);
    assert_equal_in(&names, &Tables::duckdb(&kept), &place.duckdb_tables(), "replay into DuckDB");
    assert_equal_in(&names, &Tables::duckdb(&kept), &place.parquet_tables(), "replay into Parquet");
}

/// The state after an earlier version: each collision loser has its row, and the ledger does not mention keys.
const EARLIER_VERSION: &str = "
    INSERT INTO responses BY NAME SELECT * EXCLUDE (valid_from, valid_to, reason, collided_with, returned_at), valid_from AS _first_seen_at, 31 AS _flags
        FROM response_history WHERE reason = 'collision';
    DELETE FROM response_history WHERE reason = 'collision';
    UPDATE sync_windows SET keys_checked = NULL";

#[test]
fn p2_an_older_warehouse_is_put_right_by_the_next_run() {
    let service = twins();
    let place = Place::new(&service).without_parquet().with_config(&format!("{ALL_FLAGS}{AGAIN_EVERY_RUN}"));
    place.run(&["backfill", "--from", &days_ago(40)]);
    duckdb::Connection::open(place.duckdb()).unwrap().execute_batch(EARLIER_VERSION).unwrap();
    let twice = "SELECT count(*) - count(DISTINCT (response_group_uid, question_id)) FROM responses";
    assert_eq!(place.duckdb_tables().count(twice), KEYS * 2);
    let report = place.report(&["sync"], 3);
    assert_eq!(report["streams"]["responses"]["collisions"], KEYS * 2, "{report}");
    assert_eq!(report["streams"]["responses"]["updated"], 0, "{report}");
    assert_unique(&place, &service, "after the first run");
    let report = place.report(&["sync"], 0);
    assert_eq!(report["streams"]["responses"]["collisions"], 0, "{report}");
    assert_unique(&place, &service, "after the second run");
}
