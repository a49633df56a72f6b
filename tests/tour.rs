//! Read this first: the main job of the program from start to end, as a user does it.
//!
//! The test starts a service (the sandbox, on a real port), then runs the real binary step by step. `Service` and
//! `Place` come from `tests/harness`, which the other tests use as well.

use serde_json::{Value, json};
use studysync_sandbox::ListName;

use crate::harness::{Done, Place, Service, small};

#[test]
fn a_tour_from_the_first_backfill_to_the_replay() {
    // A sandbox service without generated answers; the test plants three answers of two people.
    // The clock of the service stands at 2026-01-31 08:00 UTC, so every run of this test is alike.
    let service = Service::start(small(0, 2));
    for (session, user, score) in [("s1", "anna", 9), ("s2", "anna", 3), ("s3", "ben", 7)] {
        plant(&service, answer(session, user, score));
    }

    // A folder with a configuration, as `studysync init` would write it. The key is in the environment of each run.
    // `with_deleted_responses` asks the service to list deleted answers too; without it they are only missing.
    let place = Place::new(&service).with_config(&format!(
        r#"
        [service]
        base_url = "{}"
        [warehouse]
        duckdb = "warehouse.duckdb"
        parquet = "parquet"
        [streams.responses]
        flags = ["with_deleted_responses"]
        "#,
        service.base_url()
    ));

    // `backfill` pulls the history window by window. Each window is one transaction in each warehouse.
    // The report (`--json`) counts what the run did; docs/reference/run-json.md explains it.
    let report = run(&place, &["backfill", "--from", "2026-01-01", "--json"]).json();
    assert_eq!(report["streams"]["responses"]["inserted"], 3, "{report}");

    // The tables are plain SQL tables. `query` reads the DuckDB file; any other DuckDB client can read it too.
    // `answer_number` is a typed column that `flatten` derives from the `response` of an NPS answer.
    let scores = "SELECT response_group_uid, answer_number FROM responses ORDER BY 1";
    assert_eq!(query(&place, scores), "s1,9.0\ns2,3.0\ns3,7.0\n");

    // A day passes. At the service Anna changes one answer and deletes another.
    // No filter of the service finds such changes: its lists filter by creation time only.
    service.advance_days(1);
    plant(&service, edited(answer("s1", "anna", 10)));
    plant(&service, deleted(answer("s2", "anna", 3)));

    // `sync` is the nightly run. It pulls new windows, and scans recent windows again to find changes.
    // Both answers count as updated: the deletion is a new value of `deletedAt`.
    let report = run(&place, &["sync", "--json"]).json();
    assert_eq!(report["streams"]["responses"]["updated"], 2, "{report}");

    // The table has the new score, and `deleted_at` says that the second answer was deleted.
    // A deleted answer stays in `responses`, so that earlier reports can be explained.
    assert_eq!(query(&place, scores), "s1,10.0\ns2,3.0\ns3,7.0\n");
    let deleted_sessions = "SELECT response_group_uid FROM responses WHERE deleted_at IS NOT NULL";
    assert_eq!(query(&place, deleted_sessions), "s2\n");

    // The row from before the edit is in `response_history`.
    // Views such as `responses_as_of` use it to return what was known at an earlier time.
    let earlier = "SELECT answer_number FROM response_history WHERE response_group_uid = 's1'";
    assert_eq!(query(&place, earlier), "9.0\n");

    // `verify` pulls everything again and compares each row and column with each warehouse.
    // Exit code 0 means equal; a difference would be exit code 3. It writes nothing.
    let range = ["--from", "2026-01-01", "--to", "2026-01-31"];
    let report = run(&place, &[&["verify", "--json"], &range[..]].concat()).json();
    assert_eq!(report["totals"]["windows_differing"], 0, "{report}");

    // Anna asks to be forgotten. The dry run lists what would go, and changes nothing here or at the service.
    // Always start with it: an erasure cannot be undone.
    let plan = run(&place, &["erase", "--user-id", "anna", "--dry-run", "--json"]).json();
    assert_eq!(plan["rows"]["duckdb"]["responses"], 2, "{plan}");
    assert_eq!(query(&place, "SELECT count(*) FROM responses"), "3\n");

    // `erase --yes` asks the service to purge her, then removes her from each table, file and archived page.
    // It searches every byte afterwards and prints a receipt. Ben's answer stays.
    let receipt = run(&place, &["erase", "--user-id", "anna", "--yes", "--json"]).json();
    assert_eq!(receipt["outcome"], "done", "{receipt}");
    assert_eq!(query(&place, scores), "s3,7.0\n");

    // The service purges later than it accepts the request, so it still lists her answers.
    // The next `sync` leaves them out: she is on the suppression list.
    run(&place, &["sync", "--json"]);
    assert_eq!(query(&place, scores), "s3,7.0\n");

    // The archive has the exact pages of each scan. `replay` builds every table from it, without a request.
    // This restores a lost or damaged warehouse. Anna is in no page any more, so she does not return.
    std::fs::remove_file(place.duckdb()).unwrap();
    service.clear_log();
    run(&place, &["replay"]);
    assert_eq!(query(&place, scores), "s3,7.0\n");
    assert_eq!(service.log(), [], "a replay sends no request");
}

/// Runs the program in the folder of the place, which must end with exit code 0.
fn run(place: &Place, arguments: &[&str]) -> Done {
    Done::from(place.bare(arguments).output().unwrap()).expect(0)
}

/// Returns the rows of a query as CSV, without the header.
fn query(place: &Place, sql: &str) -> String {
    let csv = run(place, &["query", sql, "--format", "csv"]).stdout;
    csv.split_once('\n').map_or(String::new(), |(_header, rows)| rows.to_owned())
}

/// Puts a record into the service, or replaces the record with the same session and question.
fn plant(service: &Service, record: Value) {
    service.control().plant(ListName::Responses, &record.to_string(), None).unwrap();
}

/// An NPS answer of 30 January, as the service writes it.
fn answer(session: &str, user: &str, score: u32) -> Value {
    let visitor = if user == "anna" { 1 } else { 2 };
    json!({
        "responseGroupUid": session, "questionId": 1, "surveyId": 900, "visitorId": visitor,
        "visitorUuid": format!("00000000-0000-4000-8000-00000000000{visitor}"), "externalUserId": user,
        "createdAt": "2026-01-30T12:00:00.000Z", "updatedAt": "2026-01-30T12:00:00.000Z", "deletedAt": null,
        "questionType": "NPS", "questionText": "How likely are you to recommend us?", "response": score,
    })
}

fn edited(mut answer: Value) -> Value {
    answer["updatedAt"] = json!("2026-01-31T20:00:00.000Z");
    answer
}

fn deleted(mut answer: Value) -> Value {
    answer["deletedAt"] = json!("2026-01-31T21:00:00.000Z");
    edited(answer)
}
