//! The arguments that `erase` refuses, the requests that it sends, and its exit codes.

use serde_json::json;
use studysync_sandbox::{Faults, ListName, LogEntry, RetryAfter, RetryAfterForm};

use super::{
    erase,
    people::{ZOE, ZOE_MAIL, identity, plant, record},
    receipt,
};
use crate::harness::{Done, Place, Service, copy_folder, days_ago, small};

fn small_place() -> (Service, Place) {
    let service = Service::start(small(60, 3));
    plant(&service);
    let place = Place::new(&service);
    place.run(&["backfill", "--from", &days_ago(14)]).expect(0);
    service.clear_log();
    (service, place)
}

fn purges(service: &Service) -> Vec<LogEntry> {
    service.log().into_iter().filter(|entry| entry.path == "/v2/purge/visitors").collect()
}

#[test]
fn exit_2_erase_refuses_an_unusable_name_or_flag() {
    let (service, place) = small_place();
    std::fs::write(place.path("people.txt"), "user-id a\nnickname b\n").unwrap();
    for (arguments, expected) in [
        (&["erase", "--yes"][..], "name a person"),
        (&["erase", "--user-id", "a"], "--dry-run"),
        (&["erase", "--yes", "--user-id", "anonymous"], "names nobody in particular"),
        (&["erase", "--yes", "--email", "anna"], "no @"),
        (&["erase", "--yes", "--file", "people.txt"], "people.txt, line 2: 'nickname'"),
        (&["erase", "--yes", "--user-id", "a", "--stream", "themes"], "no --stream"),
        (&["erase", "--yes", "--user-id", "a", "--local-only", "--delay-seconds", "5"], "cannot be used with"),
        (&["erase", "--yes", "--user-id", "a", "--delay-seconds", "99999999999"], "99999999999"),
    ] {
        let done = place.run(arguments).expect(2);
        assert!(done.stderr.contains(expected), "{arguments:?}: {}", done.stderr);
    }
    // The command omits a warehouse, or names one that is missing.
    let done = place.run_on_parquet(&["erase", "--yes", "--user-id", "a"]).expect(2);
    assert!(done.stderr.contains("warehouse.duckdb was filled as well"), "{}", done.stderr);
    // The command names another warehouse of the same kind.
    copy_folder(&place.parquet(), &place.path("copy"));
    let (base_url, state) = (service.base_url(), place.state());
    let flags = ["erase", "--yes", "--user-id", "a", "--base-url", &base_url, "--parquet", "copy"];
    let done = place.bare(&flags).arg("--state").arg(state).arg("--duckdb").arg(place.duckdb()).output().unwrap();
    let done = Done::from(done).expect(2);
    assert!(done.stderr.contains("the parquet warehouse") && done.stderr.contains("filled as well"), "{}", done.stderr);
    std::fs::rename(place.parquet(), place.path("elsewhere")).unwrap();
    let done = place.run(&["erase", "--yes", "--user-id", "a"]).expect(2);
    assert!(done.stderr.contains("parquet is not there"), "{}", done.stderr);
    drop(service);
}

#[test]
fn a_dry_run_lists_what_would_go_and_changes_nothing() {
    let (service, place) = small_place();
    let before = place.duckdb_tables().count("SELECT count(*) FROM responses");
    let done = place.run(&["erase", "--dry-run", "--email", ZOE_MAIL]).expect(0);
    for expected in
        ["mail address: zoë.müller+news@example.com", &format!("user id: {ZOE}"), "responses: 5", "archived records: 5"]
    {
        assert!(done.stdout.contains(expected), "{expected}: {}", done.stdout);
    }
    let plan = place.run(&["erase", "--dry-run", "--json", "--user-id", ZOE]).expect(0).json();
    assert_eq!(plan["rows"]["parquet"], plan["rows"]["duckdb"]);
    assert_eq!((plan["rows"]["duckdb"]["responses"].as_i64(), plan["archive_records"].as_i64()), (Some(5), Some(5)));
    assert_eq!(place.duckdb_tables().count("SELECT count(*) FROM responses"), before);
    assert_eq!(purges(&service), []);
    assert_eq!(place.duckdb_tables().count("SELECT count(*) FROM erasures"), 0);
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn exit_3_slow_a_dry_run_lists_names_that_match_nobody() {
    let (service, place) = small_place();
    let done = place.run(&["erase", "--dry-run", "--user-id", "nosuch"]).expect(3);
    assert!(done.stdout.contains("NO MATCH HERE\n    user id: nosuch"), "{}", done.stdout);
    let named = ["erase", "--dry-run", "--json", "--user-id", ZOE, "--user-id", "nosuch", "--email", "no@such.example"];
    let plan = place.run(&named).expect(3).json();
    assert_eq!(plan["unknown"], json!(["user_id nosuch", "email no@such.example"]), "{plan}");
    let plan = place.run(&["erase", "--dry-run", "--json", "--user-id", ZOE]).expect(0).json();
    assert_eq!(plan["unknown"], json!([]));
    // A real erasure sends the request even if no row matches, because the service may know more. It reports that
    // nothing matched here.
    let done = place.run(&["erase", "--yes", "--user-id", "nosuch"]);
    assert_eq!(purges(&service).len(), 1, "{}", done.stderr);
    assert!(done.stderr.contains("NO MATCH HERE"), "{}", done.stderr);
}

#[test]
fn the_receipt_counts_the_rows_of_each_warehouse_like_the_plan() {
    let (_service, place) = small_place();
    let rows = |text: &str| -> Vec<String> {
        text.lines().map(str::trim).filter(|line| line.starts_with("rows in ")).map(str::to_owned).collect()
    };
    let planned = rows(&place.run(&["erase", "--dry-run", "--user-id", ZOE]).expect(0).stdout);
    assert_eq!(planned.len(), 2, "{planned:?}");
    let done = place.run(&["erase", "--yes", "--user-id", ZOE]);
    let receipt = done.stderr.split_once("erase done").unwrap_or_else(|| panic!("{}", done.stderr)).1;
    assert_eq!(rows(receipt), planned, "{receipt}");
    assert!(receipt.contains("archive records: 5\n"), "{receipt}");
}

#[test]
fn p9_unknown_names_in_a_batch_do_not_shield_known_people() {
    let (service, place) = small_place();
    // 251 people, most of them unknown to the service. Unknown names in a request must not protect the others.
    let mut people: String = (0..250).map(|at| format!("user-id stranger-{at}\n")).collect();
    people.push_str(&format!("user-id {ZOE}\n"));
    std::fs::write(place.path("people.txt"), people).unwrap();
    service.set_faults(Faults { quoted_request_id: true, ..Faults::default() });
    let done = erase(&place, &["--file", "people.txt", "--delay-seconds", "3600"]);
    let receipt = receipt(&done);
    let asked = purges(&service);
    assert!(asked.len() > 200, "each stranger was asked for alone in the end: {}", asked.len());
    assert!(asked.iter().all(|entry| entry.method == "POST" && [200, 400].contains(&entry.status)), "{asked:?}");
    assert!(
        receipt["unknown_to_the_service"].as_u64().unwrap() >= 200,
        "all but those of the batch with her name: {receipt:#}"
    );
    let requests = receipt["purge_requests"].as_array().unwrap();
    assert!(!requests.is_empty());
    for request in requests {
        let id = request["request_id"].as_str().unwrap();
        assert!(uuid::Uuid::try_parse(id).is_ok(), "quotes are taken off: {id}");
    }
    let is_there = || service.truth(ListName::Responses).iter().any(|record| record.contains(ZOE));
    assert!(is_there());
    service.control().advance_clock(3_599_000);
    assert!(is_there(), "the delay that was asked for");
    service.control().advance_clock(1000);
    assert!(!is_there());
    // The receipt is the same in the table and in the file, and names nobody.
    let file = std::fs::read_to_string(
        place
            .path("state/checkpoints.sqlite.erasures")
            .join(format!("{}.json", receipt["erasure_id"].as_str().unwrap())),
    );
    let file = file.unwrap();
    assert!(!file.contains("stranger") && !file.contains("4711"), "{file}");
    for (name, tables) in place.warehouses() {
        let row = tables.rows("erasures").pop().unwrap();
        assert_eq!(row["erasure_id"].as_deref(), receipt["erasure_id"].as_str(), "{name}");
        assert_eq!((row["people"].as_deref(), row["delay_seconds"].as_deref()), (Some("251"), Some("3600")), "{name}");
        assert_eq!(row["removed"].as_deref(), Some(receipt["removed"].to_string().as_str()), "{name}");
    }
}

#[test]
fn p9_the_receipt_reports_names_that_the_service_refuses() {
    let (service, place) = small_place();
    let who = identity(
        Some("unpurgeable"),
        7,
        "0c1c9d6e-0b7a-4c55-9a40-1d2e3f405163",
        "bbbbbbbb-0000-4000-8000-000000000001",
        None,
    );
    service
        .control()
        .plant(ListName::Responses, &record("bbbbbbbb-0000-4000-8000-000000000001", 1, &who, "hello", 2), None)
        .unwrap();
    place.run(&["sync"]).expect(0);
    // The sandbox purges planted people by their records. This record is removed, so the person cannot be purged.
    service.control().remove_row(
        &serde_json::from_value(json!({ "group": "bbbbbbbb-0000-4000-8000-000000000001", "question": "1" })).unwrap(),
    );
    let done = erase(&place, &["--user-id", "unpurgeable"]);
    assert_eq!((done.code, done.json()["service_refused_all"].as_bool()), (3, Some(true)), "{}", done.stderr);
    assert!(done.stderr.contains("ACCEPTED NO IDENTIFIER"), "{}", done.stderr);
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn exit_4_5_6_slow_nothing_is_removed_before_the_service_accepts() {
    let (service, place) = small_place();
    let is_held = || {
        place.duckdb_tables().count(&format!("SELECT count(*) FROM responses WHERE external_user_id = '{ZOE}'")) == 4
    };
    let wrong_key = Place::at(service.base_url()).with_env(crate::harness::KEY_VARIABLE, "wrong");
    let arguments = ["erase", "--yes", "--user-id", ZOE];
    let mut command = place.command(&arguments);
    command.env(crate::harness::KEY_VARIABLE, "wrong");
    assert_eq!(command.output().unwrap().status.code(), Some(4));
    assert!(is_held());
    drop(wrong_key);
    // Another run holds the lease.
    let lock = std::fs::File::options().write(true).open(place.path("state/checkpoints.sqlite.lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let done = place.run(&arguments).expect(5);
    assert!(done.stderr.contains("another run holds the lease"), "{}", done.stderr);
    drop(lock);
    // The service's `Retry-After` exceeds the longest wait of a run; the same command resumes later.
    let mut faults = Faults::default();
    faults.too_many_requests.when.count = 1;
    faults.too_many_requests.retry_after = RetryAfter { form: RetryAfterForm::Seconds, wait_ms: 7_200_000 };
    service.set_faults(faults);
    let done = place.run(&arguments).expect(6);
    assert!(done.stderr.contains("run the same command again"), "{}", done.stderr);
    assert!(is_held());
    let left = place.files("state/checkpoints.sqlite.erasures");
    assert_eq!(left.iter().filter(|path| path.extension().is_some_and(|is| is == "journal")).count(), 1, "{left:?}");
    let plan = place.run(&["erase", "--dry-run", "--json", "--user-id", ZOE]).json();
    assert_eq!(plan["resumes"], true);
    let done = receipt(&erase(&place, &["--ignore-rate-limit", "--user-id", ZOE]));
    assert_eq!(done["erasure_id"], plan["erasure_id"], "it went on with what was begun");
    assert!(!is_held());
    assert!(
        !place
            .files("state/checkpoints.sqlite.erasures")
            .iter()
            .any(|path| path.extension().is_some_and(|is| is == "journal"))
    );
}
