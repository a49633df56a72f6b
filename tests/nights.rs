//! Several nights: edits, deletions and purges at the service reach the tables (P4), a night without changes writes
//! nothing (P2, P6), and the machine's time zone has no effect (P7).

use std::{collections::BTreeMap, path::PathBuf, time::SystemTime};

use serde_json::Value;
use studysync_sandbox::{ChangeRequest, ChangeSummary, RowKey};

use crate::harness::{
    Cell, DAY_MS, Place, Row, Service, Tables, all_contracts, assert_covers_every_case, assert_warehouses_equal,
    contract, days_ago, different_rows,
    expected::{Entity, Expected},
    key_text, small,
};

/// Days of history, few enough that each night's sync scans all of them again.
const DAYS: u32 = 24;

/// The expected rows of the history tables.
#[derive(Default)]
struct Past {
    /// Rows of `response_history`: key, reason, and the earlier content.
    versions: Vec<(String, &'static str, Row)>,
    /// Rows of `survey_history`: each version by survey.
    surveys: BTreeMap<String, Vec<Entity>>,
    /// Rows of `survey_status_changes`: survey, status before, status after.
    statuses: Vec<(String, Cell, Cell)>,
}

impl Past {
    /// Adds a night's changes: the stored rows, the service's rows, and the changes that the service reports.
    fn turn(&mut self, held: &Expected, today: &Expected, summary: &ChangeSummary) {
        let (mut unseen, mut seen) = (0, 0);
        for (keys, reason) in [
            (&summary.vanished, "vanished"),
            (&summary.soft_deletes, "deleted"),
            (&summary.edits_bumped, "edited"),
            (&summary.edits_silent, "edited"),
        ] {
            assert!(!keys.is_empty(), "nothing was {reason}");
            for key in keys {
                let key = key_of(key);
                let is_gone = today.entity("responses", &key).is_none();
                match held.entity("responses", &key).filter(|entity| !entity.has_vanished) {
                    // The row vanished after the edit in the same night, so no scan saw the edit.
                    Some(_) if is_gone && reason != "vanished" => {}
                    Some(entity) => {
                        seen += 1;
                        self.versions.push((key, reason, entity.row.clone()));
                    }
                    None => unseen += 1,
                }
            }
        }
        // The rows were too young for the scan of the night before, or vanished on the day on which they were created.
        assert!(unseen * 5 < seen, "{unseen} of {} changed rows were never seen before", unseen + seen);
        for (id, entity) in today.entities("surveys") {
            let versions = self.surveys.entry(id.clone()).or_default();
            let before = versions.last().map(|entity| entity.row["status"].clone());
            let is_new = versions.last().is_none_or(|last| last.row != entity.row || last.children != entity.children);
            if is_new {
                versions.push(entity.clone());
            }
            if before.as_ref() != Some(&entity.row["status"]) {
                self.statuses.push((id.clone(), before.flatten(), entity.row["status"].clone()));
            }
        }
        for change in &summary.status_changes {
            let last = summary.status_changes.iter().rev().find(|other| other.survey == change.survey).unwrap();
            let entity = today.entity("surveys", &change.survey.to_string()).unwrap();
            assert_eq!(entity.row["status"].as_ref(), Some(&last.status));
        }
    }

    fn assert_is_in(&self, tables: &Tables, when: &str) {
        self.assert_versions(tables, when);
        self.assert_surveys(tables, when);
    }

    fn assert_versions(&self, tables: &Tables, when: &str) {
        let columns: Vec<&str> = (contract("response_history").columns.iter())
            .filter(|column| column.origin != "load" && column.name != "_row_hash" || column.name == "reason")
            .map(|column| column.name.as_str())
            .collect();
        let found = tables.rows("response_history");
        for row in &found {
            let at = |name: &str| row[name].as_deref().unwrap().parse::<i64>().unwrap();
            assert!(at("valid_from") < at("valid_to"), "{when}: {row:?}");
        }
        // A row may have several versions. Each version with its content is a row here.
        let mut wanted: Vec<Vec<Cell>> = Vec::new();
        for (_, reason, row) in &self.versions {
            let value = |column: &&str| match *column {
                "reason" => Some((*reason).to_owned()),
                column => row[column].clone(),
            };
            wanted.push(columns.iter().map(value).collect());
        }
        let mut found: Vec<Vec<Cell>> =
            found.iter().map(|row| columns.iter().map(|column| row[*column].clone()).collect()).collect();
        wanted.sort();
        found.sort();
        if wanted != found {
            let missing = wanted.iter().find(|row| !found.contains(row));
            let surplus = found.iter().find(|row| !wanted.contains(row));
            panic!(
                "{when}: response_history has {} versions, {} are due\n  columns:  {columns:?}\n  missing:  {missing:?}\n  not due:  {surplus:?}",
                found.len(),
                wanted.len()
            );
        }
    }

    fn assert_surveys(&self, tables: &Tables, when: &str) {
        let columns: Vec<&str> = (contract("survey_history").columns.iter())
            .filter(|column| column.origin != "load" && column.name != "_row_hash")
            .map(|column| column.name.as_str())
            .collect();
        let mut found = tables.rows("survey_history");
        found.sort_by_key(|row| (row["id"].clone(), row["valid_from"].as_deref().unwrap().parse::<i64>().unwrap()));
        let versions: usize = self.surveys.values().map(Vec::len).sum();
        assert_eq!(found.len(), versions, "{when}: versions of surveys");
        for (id, versions) in &self.surveys {
            let of_survey: Vec<&Row> = found.iter().filter(|row| row["id"].as_deref() == Some(id)).collect();
            assert_eq!(of_survey.len(), versions.len(), "{when}: versions of survey {id}");
            for (at, (row, version)) in of_survey.iter().zip(versions).enumerate() {
                for column in &columns {
                    assert_eq!(row[*column], version.row[*column], "{when}: {column} of version {at} of survey {id}");
                }
                let next = of_survey.get(at + 1).map(|next| next["valid_from"].clone());
                assert_eq!(row["valid_to"], next.clone().flatten(), "{when}: version {at} of survey {id}");
                assert_eq!(row["is_current"].as_deref(), Some(if next.is_some() { "false" } else { "true" }));
            }
        }
        let mut statuses: Vec<(String, Cell, Cell)> = (tables.rows("survey_status_changes").iter())
            .map(|row| (row["survey_id"].clone().unwrap(), row["old_status"].clone(), row["new_status"].clone()))
            .collect();
        let mut wanted = self.statuses.clone();
        statuses.sort();
        wanted.sort();
        assert_eq!(statuses, wanted, "{when}: changes of status");
    }
}

fn key_of(key: &RowKey) -> String {
    format!("{} / {}", key.group, key.question)
}

#[test]
fn p4_three_nights_of_changes_reach_the_tables() {
    changes_arrive(2500);
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p4_slow_three_nights_of_many_changes_reach_the_tables() {
    changes_arrive(6000);
}

fn changes_arrive(responses: u64) {
    let service = Service::start(small(responses, DAYS));
    let place = Place::new(&service);
    let mut past = Past::default();
    place.report(&["sync"], 0);
    let mut held = Expected::now(&service);
    assert_covers_every_case(&held);
    assert_warehouses_equal(&place, &held, "after the first sync");
    for (id, entity) in held.entities("surveys") {
        past.surveys.insert(id.clone(), vec![entity.clone()]);
        past.statuses.push((id.clone(), None, entity.row["status"].clone()));
    }
    for night in 1..=3 {
        service.advance_days(1);
        let summary = service.change(&ChangeRequest {
            seed: night,
            new_answers: 300,
            edits: 60,
            soft_deletes: 15,
            vanish_visitors: 3,
            late: 12,
            status_changes: 3,
            question_edits: 2,
            theme_edits: 1,
            new_themes: 6,
            within_ms: Some(25 * DAY_MS),
            ..ChangeRequest::default()
        });
        let report = place.report(&["sync"], 0);
        let today = Expected::now(&service);
        past.turn(&held, &today, &summary);
        let before = held.clone();
        held = held.next_morning(today);
        let when = format!("morning {night}");
        assert_warehouses_equal(&place, &held, &when);
        for (name, tables) in place.warehouses() {
            past.assert_is_in(&tables, &format!("{when}, {name}"));
        }
        assert_children_were_replaced(&before, &held, &summary);
        let counts = &report["streams"]["responses"];
        assert!(counts["soft_deleted"].as_u64().unwrap() >= 11 && counts["vanished"].as_u64().unwrap() > 0, "{report}");
        assert_eq!(counts["withheld"], 0, "{report}");
    }
}

/// Asserts that the night had an edit that changes the parts of an answer. Otherwise equal parts would prove nothing.
fn assert_children_were_replaced(before: &Expected, after: &Expected, summary: &ChangeSummary) {
    let edits = summary.edits_bumped.iter().chain(&summary.edits_silent).map(key_of);
    let changed = edits.filter(|key| {
        let [old, new] = [before, after].map(|expected| expected.entity("responses", key));
        old.zip(new).is_some_and(|(old, new)| !old.children.is_empty() && old.children != new.children)
    });
    assert!(changed.count() >= 5, "hardly any edit changed the parts of an answer");
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p4_slow_mass_deletions_are_withheld_until_accepted() {
    let service = Service::start(small(2000, DAYS));
    let place = Place::new(&service);
    place.report(&["sync"], 0);
    let held = Expected::now(&service);
    service.advance_days(1);
    let now_ms = service.control().now_ms();
    let window = (now_ms - 12 * DAY_MS, now_ms - 6 * DAY_MS);
    let summary = service.change(&ChangeRequest { vanish_window_ms: Some(window), ..ChangeRequest::default() });
    assert!(summary.vanished.len() > 200, "{}", summary.vanished.len());
    let report = place.report(&["sync"], 3);
    let withheld = report["streams"]["responses"]["withheld"].as_u64().unwrap() as usize;
    assert_eq!(withheld, summary.vanished.len(), "{report}");
    assert_eq!(report["streams"]["responses"]["vanished"], 0, "{report}");
    for (name, tables) in place.warehouses() {
        let vanished = tables.count("SELECT count(*) FROM responses WHERE _vanished_at IS NOT NULL");
        assert_eq!(vanished, 0, "{name}: what is withheld stays");
    }
    service.advance_days(1);
    let report = place.report(&["sync", "--accept-vanished"], 0);
    assert_eq!(
        report["streams"]["responses"]["vanished"].as_u64().unwrap() as usize,
        summary.vanished.len(),
        "{report}"
    );
    assert_warehouses_equal(&place, &held.next_morning(Expected::now(&service)), "after accepting");
}

/// Returns the bytes and modification time of every file, without the lock file, which names its latest holder.
fn fingerprints(place: &Place, below: &str) -> BTreeMap<PathBuf, (Vec<u8>, SystemTime)> {
    let read = |path: PathBuf| {
        let written = std::fs::metadata(&path).unwrap().modified().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        (path, (bytes, written))
    };
    place.files(below).into_iter().filter(|path| !path.ends_with("lock")).map(read).collect()
}

/// Describes the files that differ in bytes or modification time.
fn changed(
    before: &BTreeMap<PathBuf, (Vec<u8>, SystemTime)>,
    after: &BTreeMap<PathBuf, (Vec<u8>, SystemTime)>,
) -> Vec<String> {
    let fate = |path: &PathBuf| match (before.get(path), after.get(path)) {
        (Some(before), Some(after)) if before == after => None,
        (Some(before), Some(after)) if before.0 == after.0 => Some("rewritten with the same bytes"),
        (Some(_), Some(_)) => Some("changed"),
        (Some(_), None) => Some("gone"),
        (None, _) => Some("new"),
    };
    let paths: std::collections::BTreeSet<&PathBuf> = before.keys().chain(after.keys()).collect();
    paths.into_iter().filter_map(|path| fate(path).map(|fate| format!("{}: {fate}", path.display()))).collect()
}

#[test]
fn p6_an_idle_run_writes_nothing_and_a_done_backfill_asks_nothing() {
    let service = Service::start(small(3000, DAYS));
    let place = Place::new(&service);
    place.report(&["backfill", "--from", &days_ago(26)], 0);
    service.clear_log();
    let again = place.report(&["backfill", "--from", &days_ago(26)], 0);
    assert_eq!(service.log(), [], "a finished backfill asks for something");
    assert_eq!(again["requests"]["total"], 0);

    place.report(&["sync"], 0);
    let parquet = fingerprints(&place, "parquet");
    let duckdb =
        (std::fs::read(place.duckdb()).unwrap(), std::fs::metadata(place.duckdb()).unwrap().modified().unwrap());
    let archive = fingerprints(&place, "archive");
    assert!(parquet.len() > 10 && !archive.is_empty());
    service.clear_log();
    let report = place.report(&["sync"], 0);
    for stream in report["streams"].as_object().unwrap().values() {
        for count in ["inserted", "updated", "soft_deleted", "vanished", "withheld", "rejected", "collisions"] {
            assert_eq!(stream[count], 0, "{report}");
        }
    }
    assert!(
        report["streams"]["responses"]["unchanged"].as_u64().unwrap() > 100,
        "nothing was looked at again: {report}"
    );
    let now = (std::fs::read(place.duckdb()).unwrap(), std::fs::metadata(place.duckdb()).unwrap().modified().unwrap());
    assert!(duckdb == now, "the idle sync wrote to the DuckDB file");
    assert_eq!(changed(&parquet, &fingerprints(&place, "parquet")), Vec::<String>::new(), "written by the idle sync");
    assert_eq!(changed(&archive, &fingerprints(&place, "archive")), Vec::<String>::new(), "written by the idle sync");
    // Each run scans only the last three days again; surveys are scanned completely.
    let now_ms = service.control().now_ms();
    let youngest_ms = (now_ms - 3 * DAY_MS).div_euclid(DAY_MS) * DAY_MS;
    let log = service.log();
    assert!(!log.is_empty());
    for entry in log.iter().filter(|entry| entry.path != "/v1/surveys") {
        let start =
            entry.query.iter().find(|(name, _)| name == "start").map(|(_, value)| value.parse::<i64>().unwrap());
        assert!(start.is_some_and(|start| start >= youngest_ms - 1), "more than the re-scan was asked for: {entry:?}");
    }
}

/// Returns whether a column says which run wrote a row, or when.
fn is_of_the_run(column: &str) -> bool {
    ["_run_id", "run_id", "scan_id", "_synced_at", "_first_seen_at", "scanned_at", "valid_from", "changed_at"]
        .contains(&column)
}

/// Returns all tables as CSV text, without the values that differ in every run.
fn dump(tables: &Tables) -> String {
    let mut text = String::new();
    for contract in all_contracts().values().filter(|contract| contract.name != "sync_runs") {
        let columns: Vec<&str> = contract
            .columns
            .iter()
            .map(|column| column.name.as_str())
            .filter(|column| !is_of_the_run(column))
            .collect();
        text.push_str(&format!("{}\n{}\n", contract.name, columns.join(",")));
        let mut lines: Vec<String> = (tables.rows(&contract.name).iter())
            .map(|row| columns.iter().map(|column| format!("{:?}", row[*column])).collect::<Vec<_>>().join(","))
            .collect();
        lines.sort();
        text.push_str(&lines.join("\n"));
        text.push('\n');
    }
    text
}

#[test]
fn p7_the_machine_time_zone_changes_nothing() {
    let service = Service::start(small(1500, DAYS));
    let expected = Expected::now(&service);
    let query = "SELECT created_at, created_at::VARCHAR AS text, date_trunc('day', created_at) AS day, \
        created_at::DATE AS date, hour(created_at) AS hour FROM responses ORDER BY created_at, response_group_uid, question_id";
    let mut seen: Vec<(&str, String, String)> = Vec::new();
    for zone in ["UTC", "Asia/Kolkata", "America/St_Johns"] {
        let place = Place::new(&service).with_env("TZ", zone);
        // Window sizes depend on the order in which windows are pulled. With one window at a time, they are the same in
        // every run.
        let report = |arguments: &[&str]| place.report(&[arguments, &["--concurrency", "1"]].concat(), 0);
        // A date without a time is a UTC day.
        report(&["backfill", "--from", "2026-01-05"]);
        report(&["backfill", "--from", "2025-12-20", "--to", "2026-01-31T12:00:00+05:30"]);
        report(&["sync"]);
        assert_warehouses_equal(&place, &expected, zone);
        let mut dumps = String::new();
        for (_, tables) in place.warehouses() {
            dumps.push_str(&dump(&tables));
        }
        let mut answers = String::new();
        for format in ["csv", "json", "table"] {
            answers.push_str(&place.run(&["query", query, "--format", format, "--rows", "100000"]).expect(0).stdout);
        }
        let place = place.without_duckdb();
        answers.push_str(&place.run(&["query", query, "--format", "csv", "--rows", "100000"]).expect(0).stdout);
        seen.push((zone, dumps, answers));
    }
    let (_, dumps, answers) = &seen[0];
    assert!(
        dumps.len() > 1_000_000 && answers.lines().count() > 4 * 1400,
        "{} {}",
        dumps.len(),
        answers.lines().count()
    );
    let first_us: i64 = expected
        .rows("responses")
        .iter()
        .map(|row| row["created_at"].as_deref().unwrap().parse().unwrap())
        .min()
        .unwrap();
    let first = chrono::DateTime::from_timestamp_micros(first_us).unwrap().format("%Y-%m-%dT%H:%M:%S%.3f").to_string();
    assert!(answers.lines().nth(1).unwrap().starts_with(&first), "{:?} is not {first} in UTC", answers.lines().nth(1));
    for (zone, other_dumps, other_answers) in &seen[1..] {
        let difference = |left: &str, right: &str| {
            left.lines()
                .zip(right.lines())
                .find(|(left, right)| left != right)
                .map(|(left, right)| format!("\n{left}\n{right}"))
        };
        assert!(
            dumps == other_dumps,
            "{zone}: the tables differ from those in UTC: {:?}",
            difference(dumps, other_dumps)
        );
        assert!(answers == other_answers, "{zone}: the answers differ: {:?}", difference(answers, other_answers));
    }
}

#[test]
fn p4_a_scan_without_flags_keeps_values_of_an_earlier_scan() {
    let service = Service::start(small(1500, DAYS));
    let place = Place::new(&service);
    place.report(&["sync"], 0);
    let before = Expected::now(&service);
    service.advance_days(1);
    let edits = ChangeRequest { edits: 200, within_ms: Some(20 * DAY_MS), ..ChangeRequest::default() };
    let summary = service.change(&edits);
    assert_eq!(summary.edits_silent.len() + summary.edits_bumped.len(), 200);
    let place = place.with_config("[streams.responses]\nflags = []\n");
    let report: Value = place.report(&["sync"], 0);
    assert_eq!(report["streams"]["responses"]["vanished"], 0, "deleted rows were not asked for: {report}");
    assert!(report["streams"]["responses"]["updated"].as_u64().unwrap() > 150, "{report}");
    let is_known = |row: &Row| before.entity("responses", &key_text(contract("responses"), row)).is_some();
    let of_known = |rows: Vec<Row>| rows.into_iter().filter(&is_known).collect::<Vec<Row>>();
    let kept = ["url", "meta_browser", "meta_client_width", "custom_metadata", "deleted_at", "answer_json"];
    let wanted = of_known(Expected::now(&service).rows("responses"));
    for (name, tables) in place.warehouses() {
        let found = of_known(tables.rows("responses"));
        assert_eq!(different_rows("responses", &kept, &wanted, &found), None, "{name}");
    }
}
