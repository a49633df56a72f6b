//! `verify` finds each difference between the service and a warehouse, by row and column, and changes nothing (P1, P3).
//! `status` says of any day whether it is complete, since when, and which scan proved it.

use std::{collections::BTreeMap, path::PathBuf};

use serde_json::{Value, json};
use studysync_sandbox::{ChangeRequest, ListName};

use crate::harness::{DAY_MS, Done, KEY_VARIABLE, NOW_MS, Place, Service, days_ago, small};

const DAYS: i64 = 20;

fn filled(responses: u64) -> (Service, Place) {
    let service = Service::start(small(responses, DAYS as u32));
    let place = Place::new(&service);
    place.run(&["backfill", "--from", &days_ago(DAYS), "--to", &days_ago(1)]).expect(0);
    (service, place)
}

fn verify(place: &Place, more: &[&str], exit_code: i32) -> Value {
    let range = ["verify", "--json", "--from", &days_ago(DAYS), "--to", &days_ago(1)];
    place.run(&[&range, more].concat()).expect(exit_code).json()
}

/// Returns every file of the warehouses and of the archive, with its bytes.
fn bytes(place: &Place) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = place.files("parquet");
    files.extend(place.files("archive"));
    files.push(place.duckdb());
    files.into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

fn sums<'a>(report: &'a Value, warehouse: &str) -> &'a Value {
    &report["totals"]["warehouses"][warehouse]
}

#[test]
fn p1_verify_finds_equal_data_equal_and_changes_nothing() {
    let (service, place) = filled(3000);
    let (before, status) = (bytes(&place), place.run(&["status", "--json"]).expect(0).json());
    // The warehouse is read-only, so that a write would fail.
    let mut only_read = std::fs::metadata(place.duckdb()).unwrap().permissions();
    only_read.set_readonly(true);
    std::fs::set_permissions(place.duckdb(), only_read).unwrap();
    let report = verify(&place, &[], 0);
    assert_eq!(report["outcome"], "done", "{report}");
    let held = place.duckdb_tables().count(
        "SELECT (SELECT count(*) FROM responses) + (SELECT count(*) FROM themes)
        + (SELECT count(*) FROM surveys)",
    );
    assert_eq!(report["totals"]["service_rows"], held, "{report}");
    for warehouse in ["duckdb", "parquet"] {
        assert_eq!(sums(&report, warehouse)["rows"], held, "{report}");
    }
    assert!(report["windows"].as_array().unwrap().len() >= 3 && report["requests"]["total"].as_u64().unwrap() > 5);
    assert_eq!(bytes(&place), before, "a verify wrote");
    let after = place.run(&["status", "--json"]).expect(0).json();
    assert_eq!(after["proofs"], status["proofs"], "the checkpoints changed");
    let text = place.run(&["verify", "--from", &days_ago(3), "--to", &days_ago(2)]).expect(0).stdout;
    assert!(text.contains("duckdb") && text.contains(": equal"), "{text}");
    drop(service);
}

#[test]
fn p4_verify_reports_exactly_what_changed_at_the_service() {
    let (service, place) = filled(3000);
    let changed = service.change(&ChangeRequest {
        seed: 3,
        edits: 40,
        soft_deletes: 10,
        theme_edits: 3,
        vanish_visitors: 2,
        within_ms: Some(DAYS * DAY_MS),
        ..ChangeRequest::default()
    });
    let late = r#"{"createdAt":"2026-01-20T12:00:00Z","responseGroupUid":"late","questionId":1,"surveyId":7,"visitorId":1,
        "visitorUuid":"v","questionText":"q","questionType":"OPEN","response":"late"}"#;
    service.control().plant(ListName::Responses, late, None).unwrap();
    let before = bytes(&place);
    let report = verify(&place, &["--stream", "responses"], 3);
    let gone: Vec<String> = changed.vanished.iter().map(|key| format!("{} / {}", key.group, key.question)).collect();
    let is_settled = |key: &String| {
        place.duckdb_tables().count(&format!(
            "SELECT count(*) FROM responses WHERE concat_ws(' / ', response_group_uid, question_id) = '{key}'"
        )) == 1
    };
    let gone: Vec<&String> = gone.iter().filter(|key| is_settled(key)).collect();
    let edited: std::collections::BTreeSet<String> = (changed.edits_bumped.iter().chain(&changed.edits_silent))
        .chain(&changed.soft_deletes)
        .map(|key| format!("{} / {}", key.group, key.question))
        .filter(|key| !gone.contains(&key) && is_settled(key))
        .collect();
    for warehouse in ["duckdb", "parquet"] {
        let found = sums(&report, warehouse);
        assert_eq!(found["missing"], 1, "{warehouse}: {found}");
        assert_eq!(found["extra"], gone.len(), "{warehouse}: {found}");
        assert_eq!(found["stale"], edited.len(), "{warehouse}: {found}");
    }
    let text = report.to_string();
    assert!(text.contains("\"late / 1\"") && text.contains("deleted_at"), "{text}");
    assert!(edited.iter().any(|key| text.contains(key)) && gone.iter().any(|key| text.contains(*key)), "{text}");
    assert_eq!(bytes(&place), before, "a verify wrote");
    // The next scan adds all missing rows.
    service.advance_days(1);
    place.run(&["sync"]).expect(0);
    let settled = verify(&place, &["--stream", "responses"], 0);
    assert_eq!(settled["totals"]["windows_differing"], 0);
}

#[test]
fn p1_verify_reports_only_the_damaged_warehouse() {
    let (_service, place) = filled(2000);
    let file = duckdb::Connection::open(place.duckdb()).unwrap();
    file.execute_batch(
        "CREATE TEMP TABLE victims AS SELECT response_group_uid, question_id, row_number() OVER (ORDER BY response_group_uid, question_id) AS n
            FROM responses WHERE question_type = 'MULTIPLECHOICE' AND deleted_at IS NULL
            ORDER BY response_group_uid, question_id LIMIT 9;
         DELETE FROM responses r USING victims v WHERE r.response_group_uid = v.response_group_uid
            AND r.question_id = v.question_id AND v.n <= 2;
         UPDATE responses r SET answer_text = 'tampered' FROM victims v WHERE r.response_group_uid = v.response_group_uid
            AND r.question_id = v.question_id AND v.n IN (3, 4, 5);
         DELETE FROM response_choices r USING victims v WHERE r.response_group_uid = v.response_group_uid
            AND r.question_id = v.question_id AND v.n = 6;
         INSERT INTO responses SELECT r.* REPLACE ('invented' AS response_group_uid) FROM responses r SEMI JOIN victims v
            ON r.response_group_uid = v.response_group_uid AND r.question_id = v.question_id AND v.n = 7;
         DROP TABLE victims",
    )
    .unwrap();
    drop(file);
    let report = verify(&place, &[], 3);
    let found = sums(&report, "duckdb");
    assert_eq!(
        (found["missing"].as_u64(), found["extra"].as_u64(), found["stale"].as_u64()),
        (Some(2), Some(1), Some(4)),
        "{report}"
    );
    let found = sums(&report, "parquet");
    assert_eq!((&found["missing"], &found["extra"], &found["stale"]), (&0.into(), &0.into(), &0.into()), "{report}");
    let columns: BTreeMap<String, u64> = report["windows"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|window| window["warehouses"]["duckdb"]["columns"].as_object())
        .flatten()
        .fold(BTreeMap::new(), |mut sums, (name, rows)| {
            *sums.entry(name.clone()).or_default() += rows.as_u64().unwrap();
            sums
        });
    // The test did not change the hash of the row: `verify` compares the columns themselves.
    assert_eq!(columns, [("answer_text".to_owned(), 3), ("response_choices".to_owned(), 1)].into());
    let text = place.run(&["verify", "--from", &days_ago(DAYS), "--to", &days_ago(1)]).expect(3).stdout;
    assert!(text.contains("invented / ") && text.contains("answer_text (") && text.contains("last read"), "{text}");
    // The archive has all rows: a replay repairs the warehouse.
    place.run(&["replay"]).expect(0);
    verify(&place, &[], 0);
}

#[test]
fn p3_verify_reports_unread_windows_and_resumes() {
    let (service, place) = filled(3000);
    let wide = ["verify", "--json", "--from", &days_ago(DAYS + 5), "--to", &days_ago(1), "--stream", "responses"];
    let report = place.run(&wide).expect(3).json();
    assert_eq!(report["never_read"].as_array().unwrap().len(), 1, "{report}");
    assert_eq!(
        (&report["totals"]["windows_differing"], &report["never_read"][0]["stream"]),
        (&0.into(), &"responses".into())
    );
    // A verification that stops early reports the compared windows, and where to resume.
    let stopped = verify(&place, &["--stream", "responses", "--max-requests", "3", "--concurrency", "1"], 6);
    let looked = stopped["windows"].as_array().unwrap().len();
    let resume_from = stopped["resume_from"].as_str().unwrap();
    let rest = place
        .run(&["verify", "--json", "--from", resume_from, "--to", &days_ago(1), "--stream", "responses"])
        .expect(0);
    let whole = verify(&place, &["--stream", "responses"], 0);
    let windows = |report: &Value| report["windows"].as_array().unwrap().len();
    assert_eq!(looked + windows(&rest.json()), windows(&whole), "{stopped}");
    let refused = place.command(&["verify", "--from", &days_ago(5)]).env(KEY_VARIABLE, "wrong").output().unwrap();
    Done::from(refused).expect(4);
    place.run(&["verify", "--from", &days_ago(2), "--to", &days_ago(3)]).expect(2);
    // No open scan is left for a run to resume.
    assert_eq!(place.files("archive/under-way"), Vec::<PathBuf>::new());
    drop(service);
}

#[test]
fn p3_a_failed_verify_resumes_at_the_window_that_failed() {
    let (service, place) = filled(3000);
    // The service refuses the key from the second window on.
    let refusal = json!({"server_error": {"when": {"every": 1, "skip": 3, "path": "/v1/responses"}, "status": 401}});
    service.set_faults(service.control().faults().merged(refusal).unwrap());
    let failed = verify(&place, &["--stream", "responses", "--concurrency", "1"], 1);
    let compared = failed["windows"].as_array().unwrap();
    let end = compared.last().unwrap()["end"].as_str().unwrap();
    assert_eq!((compared.len(), failed["resume_from"].as_str()), (1, Some(end)), "{failed}");
}

#[test]
fn p3_verify_skips_only_the_second_that_the_service_cannot_deliver() {
    let (service, place) = filled(600);
    let created =
        place.duckdb_tables().count("SELECT epoch_ms(created_at) FROM responses ORDER BY 1 OFFSET 300 LIMIT 1");
    let broken = json!({"broken_records": {"created_ms": [created], "fault": "no_page", "path": "/v1/responses"}});
    service.set_faults(service.control().faults().merged(broken).unwrap());
    // A short range needs few halvings. No half begins at the record, because the service would then send it for both
    // halves.
    let (from, to) = ((created - 2700).to_string(), (created + 3300).to_string());
    let range = ["verify", "--stream", "responses", "--from", &from, "--to", &to];
    let report = place.run(&[&range[..], &["--json"]].concat()).expect(1).json();
    assert!(report["windows"].as_array().unwrap().len() >= 2 && report["resume_from"].is_null(), "{report}");
    assert_eq!(report["not_compared"].as_array().map(Vec::len), Some(1), "{report}");
    let failed = &report["not_compared"][0];
    let ms = |name: &str| studysync::model::parse_date(failed[name].as_str().unwrap()).unwrap();
    assert!(ms("start") <= created && created < ms("end") && ms("end") - ms("start") <= 1000, "{report}");
    let note = report["notes"][0].as_str().unwrap();
    assert!(note.contains("were not compared") && !note.contains("next run"), "{note}");
    let text = place.run(&range).expect(1).stdout;
    let end = text.lines().last().unwrap();
    assert!(end.starts_with("not compared: responses ") && end.ends_with(" (failed)"), "{text}");
}

#[test]
fn p3_status_shows_when_and_how_a_day_was_proven() {
    let (service, place) = filled(2000);
    service.advance_days(2);
    place.run(&["sync", "--stream", "responses"]).expect(0);
    let range = ["status", "--json", "--from", &days_ago(DAYS + 3), "--to", &days_ago(0), "--stream", "responses"];
    let status = place.run(&range).expect(0).json();
    let proofs = status["proofs"].as_array().unwrap();
    let states: Vec<&str> = proofs.iter().map(|proof| proof["state"].as_str().unwrap()).collect();
    assert_eq!(states[0], "never_read", "{status}");
    assert!(states.len() >= 3 && states[1..].iter().all(|state| *state == "complete"), "{status}");
    // The ranges have no gaps: each begins where the one before ends.
    for pair in proofs.windows(2) {
        assert_eq!(pair[0]["end"], pair[1]["start"], "{status}");
    }
    // Times are compared to the minute, because each request advances the service's clock a little.
    let at = |ms: i64| studysync::model::format_ms(ms)[..16].to_owned();
    let since = |proof: &Value| proof["complete_since"].as_str().unwrap()[..16].to_owned();
    let (first, last) = (&proofs[1], proofs.last().unwrap());
    assert_eq!((since(first), since(last)), (at(NOW_MS), at(NOW_MS + 2 * DAY_MS)));
    for proof in &proofs[1..] {
        assert_eq!(proof["ends"], serde_json::json!(["null"]), "{proof}");
        assert!(proof["pages"].as_u64().unwrap() >= 1 && proof["scans"].as_u64().unwrap() >= 1, "{proof}");
        assert_eq!(proof["flags"].as_array().unwrap().len(), 5);
    }
    // The ledger has the same proof for the scans that changed rows.
    let of_scan = "SELECT count(*) FROM sync_windows WHERE pages >= 1 AND end_style = 'null'";
    let scans = place.duckdb_tables().count("SELECT count(*) FROM sync_windows");
    assert_eq!(place.duckdb_tables().count(of_scan), scans);
    let text = place.run(&["status", "--from", &days_ago(3)]).expect(0).stdout;
    assert!(text.contains("complete since") && text.contains("to the end of results (cursor: null)"), "{text}");
    assert!(text.contains(" of 6 days ") && text.contains(" missing, in whole or in part, between "), "{text}");
    let (from, to) = (days_ago(DAYS - 1), days_ago(2));
    let text = place.run(&["status", "--from", &from, "--to", &to]).expect(0).stdout;
    assert!(text.starts_with("complete: nothing is missing between 2"), "{text}");
    assert!(text.lines().count() <= 24, "{text}");
}

#[test]
fn p4_a_doubt_survives_a_kill_before_its_checkpoint() {
    let (service, place) = filled(2000);
    service.advance_days(3);
    let now_ms = service.control().now_ms();
    let window = (now_ms - 20 * DAY_MS, now_ms - 8 * DAY_MS);
    let gone =
        service.change(&ChangeRequest { vanish_window_ms: Some(window), edits: 400, ..ChangeRequest::default() });
    assert!(gone.vanished.len() > 100);
    place.run(&["sync", "--stream", "responses"]).expect(3);
    let state = rusqlite::Connection::open(place.state()).unwrap();
    // The commits of the withheld windows are in the ledgers. The test undoes their checkpoints, as if a kill had come
    // just before them.
    let tables = place.duckdb_tables();
    let scans = tables.rows_of(
        "SELECT scan_id, _run_id, epoch_ms(window_start), epoch_ms(window_end), flags, epoch_ms(scanned_at), rows_read, pages
         FROM sync_windows WHERE withheld > 0",
    );
    drop(tables);
    assert!(!scans.is_empty(), "no withheld scan wrote anything");
    for scan in &scans {
        let cell = |at: usize| scan[at].clone().unwrap();
        let sql = "INSERT INTO scans (scan_id, run_id, stream, survey_id, start_ms, end_ms, flags, started_ms, page_rows, pages, rows_read)
                   VALUES (?1, ?2, 'responses', -1, ?3, ?4, ?5, ?6, 1000, ?7, ?8)";
        let number = |at: usize| cell(at).parse::<i64>().unwrap();
        state
            .execute(
                sql,
                rusqlite::params![cell(0), cell(1), number(2), number(3), number(4), number(5), number(7), number(6)],
            )
            .unwrap();
    }
    state.execute("UPDATE coverage SET scanned_ms = read_ms WHERE stream = 'responses'", []).unwrap();
    drop(state);
    assert!(!place.run(&["status"]).expect(0).stdout.contains("RECHECK"));
    // The range is covered. The backfill only repairs what the kill left, and scans the windows that need a recheck.
    place.run(&["backfill", "--from", &days_ago(DAYS), "--to", &days_ago(1), "--stream", "responses"]);
    assert!(place.run(&["status"]).expect(0).stdout.contains("RECHECK"), "the doubt was lost");
}
