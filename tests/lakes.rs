//! Warehouses in catalogs: the real binary against DuckLake, PostgreSQL and Iceberg. `scripts/lakes.sh` starts the servers
//! and installs the extensions.

use std::{fmt::Write as _, process::Stdio, thread, time::Duration};

use serde_json::json;
use studysync_sandbox::ChangeRequest;

use crate::harness::{Place, Service, all_contracts, content_columns, days_ago, small};

#[expect(clippy::disallowed_methods, reason = "the script names servers and folders")]
fn variable(name: &str) -> String {
    std::env::var(name).expect("run by scripts/lakes.sh, which starts the servers")
}

/// A name that no other test has.
fn new_name(test: &str) -> String {
    format!("t{}_{test}", std::process::id())
}

/// The flag and the address of a new warehouse of each kind.
fn catalogs(test: &str) -> Vec<(&'static str, String)> {
    let (name, postgres, iceberg) =
        (new_name(test), variable("STUDYSYNC_TEST_POSTGRES"), variable("STUDYSYNC_TEST_ICEBERG"));
    vec![
        ("--ducklake", "warehouse.ducklake".to_owned()),
        ("--ducklake", format!("{postgres}?schema=lake_{name}&data=data")),
        ("--postgres", format!("{postgres}?schema={name}")),
        ("--iceberg", format!("{iceberg}?warehouse=lakehouse&namespace={name}")),
    ]
}

/// A place whose warehouse is in a catalog.
fn place(service: &Service, flag: &str, address: &str) -> Place {
    let credential = format!("{}:{}", variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY"));
    Place::new(service)
        .in_catalog(flag, address)
        .with_env("STUDYSYNC_WAREHOUSE_EXTENSION_DIRECTORY", &variable("STUDYSYNC_TEST_EXTENSIONS"))
        .with_env("STUDYSYNC_ICEBERG_CREDENTIAL", &credential)
}

fn answer(place: &Place, sql: &str) -> String {
    place.run(&["query", sql, "--format", "csv"]).expect(0).stdout
}

/// Returns the content of all tables of the service, and the answers of the views that people use most.
fn content(place: &Place) -> String {
    let tables = all_contracts().values().filter(|contract| matches!(contract.kind.as_str(), "base" | "child"));
    let of_table = |name: &String| {
        let columns: Vec<String> = content_columns(name).iter().map(|column| format!("\"{column}\"")).collect();
        format!("SELECT '{name}', {} FROM {name} ORDER BY ALL;\n", columns.join(", "))
    };
    let mut sql: String = tables.map(|contract| of_table(&contract.name)).collect();
    for view in ["nps_by_week", "nps_per_question", "choice_share", "survey_funnel", "response_rates"] {
        writeln!(sql, "SELECT '{view}', * FROM {view} ORDER BY ALL;").unwrap();
    }
    std::fs::write(place.path("content.sql"), sql).unwrap();
    place.run(&["query", "-f", "content.sql", "--format", "csv"]).expect(0).stdout
}

#[track_caller]
fn assert_same(place: &Place, file: &Place, when: &str) {
    let (found, expected) = (content(place), content(file));
    let differing = found.lines().zip(expected.lines()).find(|(found, expected)| found != expected);
    assert!(
        found == expected,
        "{when}: {differing:?}\n{} and {} lines",
        found.lines().count(),
        expected.lines().count()
    );
}

/// Loads the history and two nights with edits and deletions, builds all again from the archive, and forgets a person.
/// After each step a catalog has what a DuckDB file has.
fn nights(test: &str, index: usize) {
    let service = Service::start(small(300, 40));
    let (flag, address) = &catalogs(test)[index];
    let (file, catalog) = (Place::new(&service).without_parquet(), place(&service, flag, address));
    let both = [&file, &catalog];
    for place in both {
        place.run(&["backfill", "--from", &days_ago(30)]).expect(0);
    }
    for _ in 0..2 {
        service.advance_days(1);
        service.change(&ChangeRequest {
            new_answers: 30,
            edits: 12,
            soft_deletes: 5,
            late: 3,
            ..ChangeRequest::default()
        });
        for place in both {
            place.run(&["sync"]).expect(0);
        }
    }
    assert_same(&catalog, &file, "after two nights");
    service.clear_log();
    for arguments in
        [&["status"][..], &["check"], &["plan"], &["verify", "--from", &days_ago(20), "--to", &days_ago(10)]]
    {
        catalog.run(arguments).expect(0);
    }
    let shown = catalog.run(&["status", "--json"]).expect(0);
    assert!(!shown.stdout.contains(&variable("AWS_SECRET_ACCESS_KEY")));
    for place in both {
        place.run(&["replay"]).expect(0);
    }
    assert_same(&catalog, &file, "after a replay");
    let person = answer(&catalog, "SELECT min(visitor_id) FROM responses").lines().nth(1).unwrap().to_owned();
    file.run(&["erase", "--visitor-id", &person, "--local-only", "--yes"]).expect(0);
    let erased = catalog.run(&["erase", "--visitor-id", &person, "--local-only", "--yes"]);
    // DuckDB cannot remove the old snapshots of Iceberg, and the receipt says so.
    erased.expect(if *flag == "--iceberg" { 3 } else { 0 });
    let left = answer(&catalog, &format!("SELECT count(*) FROM responses WHERE visitor_id = '{person}'"));
    assert_eq!(left.lines().nth(1), Some("0"));
    assert_same(&catalog, &file, "after an erasure");
    catalog.run(&["sync"]).expect(0);
}

#[test]
#[ignore = "slow: run by `make lakes`"]
fn a_ducklake_with_a_catalog_file_has_what_a_file_has() {
    nights("nights", 0);
}

#[test]
#[ignore = "slow: run by `make lakes`"]
fn a_ducklake_in_postgres_has_what_a_file_has() {
    nights("nights", 1);
}

#[test]
#[ignore = "slow: run by `make lakes`"]
fn postgres_has_what_a_file_has() {
    nights("nights", 2);
}

#[test]
#[ignore = "slow: run by `make lakes`"]
fn iceberg_has_what_a_file_has() {
    nights("nights", 3);
}

/// Four workers with a state file each share a backfill. Two are killed, one of them goes on with its state, and the
/// other has lost its disk. In the end the warehouse has what one undisturbed run loads.
fn shards(place: impl Fn(&Service) -> Place) {
    let service = Service::start(small(1200, 240));
    let file = Place::new(&service).without_parquet();
    let from = days_ago(250);
    file.run(&["backfill", "--from", &from]).expect(0);
    service.control().merge_faults(json!({"latency": {"ms": 150}})).unwrap();
    let workers: Vec<Place> = (0..4).map(|_| place(&service)).collect();
    let shards: Vec<String> = (1..=4).map(|index| format!("{index}/4")).collect();
    let backfill = |index: usize| ["backfill", "--from", &from, "--shard", &shards[index]];
    let spawn = |index: usize| workers[index].command(&backfill(index)).stdout(Stdio::null()).spawn().unwrap();
    let mut running: Vec<_> = (0..4).map(spawn).collect();
    thread::sleep(Duration::from_millis(2500));
    for killed in [1, 2] {
        running[killed].kill().unwrap();
    }
    let ended: Vec<Option<i32>> = running.iter_mut().map(|child| child.wait().unwrap().code()).collect();
    assert_eq!((ended[0], ended[3]), (Some(0), Some(0)), "{ended:?}");
    workers[1].run(&backfill(1)).expect(0);
    let fresh = place(&service);
    fresh.run(&backfill(2)).expect(0);
    // Whoever comes next finds nothing left to do, and reads the first state of a worker that knows only its share.
    service.clear_log();
    for worker in [&workers[0], &fresh] {
        worker.run(&["backfill", "--from", &from, "--to", &days_ago(1)]).expect(0);
    }
    assert_eq!(service.log().len(), 0, "{:?}", service.log());
    assert_same(&workers[3], &file, "after four workers");
}

#[test]
#[ignore = "slow: run by `make lakes`"]
fn four_workers_share_an_iceberg_catalog() {
    let (flag, address) = catalogs("shards").remove(3);
    shards(|service| place(service, flag, &address));
}

#[test]
#[ignore = "slow: run by `make lakes`"]
fn four_workers_share_a_postgres_schema() {
    let (flag, address) = catalogs("shards").remove(2);
    shards(|service| place(service, flag, &address));
}
