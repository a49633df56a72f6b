//! A place that an earlier version left behind: this version opens, reads and writes its warehouses, checkpoints and
//! archive without a conversion (P1, P2, P4).
//!
//! `place.tar.gz` was made by the version before scans were compared without an SQL engine (commit a805264). It has
//! rough data, a `sync` with all flags, changes at the service, and another `sync` a day later.
//!
//! ```text
//! studysync sandbox --responses 600 --days 12 --surveys 6 --seed 5 --now 2026-06-15T00:00:00Z --frozen-clock \
//!     --data rough --listen 127.0.0.1:18787
//! studysync sync; POST /_sandbox/changes {"edits": 12, "soft_deletes": 4, "vanish_visitors": 1, "late": 3}
//! POST /_sandbox/clock {"advance_ms": 90000000}; studysync sync
//! ```

use std::{path::Path, process::Command};

use studysync_sandbox::{ChangeRequest, Rough, Settings};

use crate::{
    harness::{Done, KEY, Place, Service, Tables, all_contracts, assert_equal_without, connect},
    replay::Before,
};

/// Tables that the earlier version did not have, or had with fewer columns.
const NEWER_TABLES: [&str; 15] = [
    "erasures",
    "response_custom_metadata",
    "response_history",
    "response_media",
    "survey_constraint_history",
    "survey_history",
    "survey_question_history",
    "survey_question_option_history",
    "survey_status_changes",
    "surveys",
    "sync_windows",
    "theme_history",
    "visitor_snapshot_history",
    "webhook_events",
    "webhook_questions",
];

/// The service's address when the place was made.
const ADDRESS: &str = "http://127.0.0.1:18787";
const NOW_MS: i64 = 1_781_481_600_000;
const CONFIG: &str = "[streams.responses]\n\
    flags = [\"with_snapshots\", \"with_urls\", \"with_meta\", \"with_custom_metadata\", \"with_deleted_responses\"]\n\
    rescan = [\"all every run\"]\nsince = \"2026-06-01\"\n";

fn left_behind() -> Place {
    let place = Place::at(ADDRESS);
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/earlier_version/place.tar.gz");
    let unpacked = Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(place.root()).status().unwrap();
    assert!(unpacked.success());
    place.with_config(CONFIG)
}

/// The service in the state in which the place was left.
fn service() -> Service {
    let service = Service::start(Settings {
        seed: 5,
        now_ms: NOW_MS,
        frozen_clock: true,
        responses: 600,
        days: 12,
        surveys: 6,
        rough: Some(Rough::default()),
        api_key: KEY.into(),
        ..Settings::default()
    });
    let change = ChangeRequest { edits: 12, soft_deletes: 4, vanish_visitors: 1, late: 3, ..ChangeRequest::default() };
    service.change(&change);
    service.control().advance_clock(90_000_000);
    service
}

#[test]
fn p2_replay_rebuilds_a_warehouse_of_an_earlier_version() {
    let place = left_behind();
    let before = Before::of(&place, "before");
    assert_eq!(before.duckdb().count("SELECT count(*) FROM responses"), 603);
    assert!(before.duckdb().count("SELECT count(*) FROM response_history") > 30);
    place.run(&["status"]).expect(0);
    let assert_is_as_before = |except: Option<&str>, when: &str| {
        let known = || all_contracts().keys().filter(|table| !NEWER_TABLES.contains(&table.as_str()));
        let [in_duckdb, in_parquet] = ["DuckDB", "Parquet"].map(|name| format!("{when}, {name}"));
        assert_equal_without(except, known(), &before.duckdb(), &place.duckdb_tables(), &in_duckdb);
        assert_equal_without(except, known(), &before.parquet(), &place.parquet_tables(), &in_parquet);
        // This table has more columns now, so there is no recorded answer for it.
        let media = "SELECT count(*) FROM response_media";
        let tables = [before.duckdb(), before.parquet(), place.duckdb_tables(), place.parquet_tables()];
        assert!(tables.iter().all(|tables| tables.count(media) == 0), "{when}");
        for table in ["sync_windows", "surveys", "survey_history"] {
            let known = format!(
                "SELECT COLUMNS(name -> name NOT IN ('filled_in', 'keys_checked', 'survey_id', '_row_hash'))::VARCHAR FROM {table} ORDER BY ALL"
            );
            assert_eq!(before.duckdb().rows_of(&known), place.duckdb_tables().rows_of(&known), "{when}, DuckDB");
            assert_eq!(before.parquet().rows_of(&known), place.parquet_tables().rows_of(&known), "{when}, Parquet");
        }
    };
    assert_is_as_before(None, "looked at");
    place.run(&["replay"]).expect(0);
    // A replay writes the hashes of this version. They hash JSON values, not their texts.
    assert_is_as_before(Some("_row_hash"), "replayed");
    // A replay fills the tables that are newer than the place.
    for (name, is) in [("DuckDB", place.duckdb_tables()), ("Parquet", place.parquet_tables())] {
        for (current, history) in [
            ("survey_questions", "survey_question_history"),
            ("survey_question_options", "survey_question_option_history"),
            ("survey_constraints", "survey_constraint_history"),
        ] {
            let stands = is.count(&format!("SELECT count(*) FROM {history} WHERE is_current"));
            assert_eq!(stands, is.rows(current).len() as i64, "{name}: {history}");
        }
        let keys = "SELECT sum(len(json_keys(custom_metadata))) FROM responses WHERE custom_metadata LIKE '{%'";
        assert_eq!(is.count(keys), is.rows("response_custom_metadata").len() as i64, "{name}");
        assert!(is.count(keys) > 0);
    }
}

#[test]
fn p1_parquet_files_without_a_new_column_are_readable() {
    let place = left_behind();
    let count = "SELECT count(*) AS n FROM response_history WHERE returned_at IS NULL";
    let found = place.run_on_parquet(&["query", count, "--format", "csv"]).expect(0).stdout;
    let found: i64 = found.lines().nth(1).unwrap().parse().unwrap();
    assert!(found > 30);
    assert_eq!(Tables::parquet_with_views(&place.parquet()).count(count), found);
}

#[test]
fn p1_surveys_of_an_earlier_version_have_their_survey_id() {
    let (mut place, service) = (left_behind(), service());
    let surveys = |place: &Place, when: &str| {
        let sql = "SELECT count(*) AS rows, count_if(survey_id = id) AS filled FROM (
                   SELECT id, survey_id FROM surveys UNION ALL SELECT id, survey_id FROM survey_history)";
        let csv = |done: Done| done.expect(0).stdout.lines().nth(1).unwrap().to_owned();
        for found in [
            csv(place.run(&["query", sql, "--format", "csv"])),
            csv(place.run_on_parquet(&["query", sql, "--format", "csv"])),
        ] {
            let (rows, filled) = found.split_once(',').unwrap();
            assert!(rows == filled && rows != "0", "{when}: {found}");
        }
    };
    place.set_base_url(service.base_url());
    place.run(&["rebind", "--from", ADDRESS]).expect(0);
    place.report(&["sync"], 0);
    surveys(&place, "after the first run");
    let file = "SELECT count(*) FROM read_parquet($FILE) WHERE survey_id IS DISTINCT FROM id";
    service.change(&ChangeRequest { status_changes: 2, ..ChangeRequest::default() });
    place.report(&["sync"], 0);
    surveys(&place, "after a change");
    // Other programs read the files themselves.
    for table in ["surveys", "survey_history"] {
        let path = place.parquet().join(table).join("data.parquet");
        let sql = file.replace("$FILE", &format!("'{}'", path.display()));
        let unfilled: i64 = connect().query_row(&sql, [], |row| row.get(0)).unwrap();
        assert_eq!(unfilled, 0, "{table}");
    }
}

#[test]
fn p4_sync_continues_a_warehouse_of_an_earlier_version() {
    let (mut place, service) = (left_behind(), service());
    place.set_base_url(service.base_url());
    place.run(&["rebind", "--from", ADDRESS]).expect(0);
    let before = Before::of(&place, "before");
    // Nothing changed at the service. An edit or a vanished row would be a fault of this version.
    let report = place.report(&["sync"], 0);
    for stream in ["responses", "surveys", "themes"] {
        let counts = &report["streams"][stream];
        assert!(counts["unchanged"].as_u64().unwrap() > 0, "{counts}");
        for what in ["inserted", "updated", "soft_deleted", "vanished", "withheld"] {
            assert_eq!(counts[what], 0, "{stream} {what}: {counts}");
        }
    }
    assert_eq!(before.duckdb().count("SELECT count(*) FROM responses"), 603);
    let verified = place.run(&["verify", "--from", "2026-06-03", "--json"]).expect(0).json();
    assert_eq!(verified["outcome"], "done", "{verified}");
    // The rows of child tables at the time of the upgrade are their first version.
    for (name, tables) in place.warehouses() {
        let questions = tables.rows("survey_questions").len() as i64;
        let first = "SELECT count(*) FROM survey_question_history JOIN survey_questions USING (survey_id, question_ordinal, question_text)
                     WHERE is_current AND valid_from = survey_questions._synced_at";
        assert!(questions > 0 && tables.count(first) == questions, "{name}");
    }

    // Edits and an erasure apply to the old files.
    service.change(&ChangeRequest { edits: 6, vanish_visitors: 1, ..ChangeRequest::default() });
    let report = place.report(&["sync"], 0);
    let counts = &report["streams"]["responses"];
    assert!(counts["updated"].as_u64().unwrap() >= 6 && counts["vanished"].as_u64().unwrap() > 0, "{counts}");
    let who = "SELECT external_user_id FROM responses WHERE external_user_id <> '' ORDER BY 1 LIMIT 1";
    let who = place.duckdb_tables().value(who).unwrap();
    place.run(&["erase", "--user-id", &who, "--yes", "--local-only"]).expect(0);
    for (name, tables) in place.warehouses() {
        let left = tables.count(&format!("SELECT count(*) FROM responses WHERE external_user_id = '{who}'"));
        assert_eq!(left, 0, "{name}");
    }
}
