//! Several workers with a state file each, which share a backfill into one warehouse.

use std::{fmt::Write as _, process::Stdio, thread, time::Duration};

use serde_json::json;

use crate::{
    gate::{assert_obeyed_after, refusing_once},
    harness::{ObjectServer, Place, Service, all_contracts, content_columns, days_ago, small},
};

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
pub fn assert_same(place: &Place, file: &Place, when: &str) {
    let (found, expected) = (content(place), content(file));
    let differing = found.lines().zip(expected.lines()).find(|(found, expected)| found != expected);
    assert!(
        found == expected,
        "{when}: {differing:?}\n{} and {} lines",
        found.lines().count(),
        expected.lines().count()
    );
}

/// Four workers with a state file each share a backfill. Two are killed, one of them goes on with its state, and the
/// other has lost its disk. In the end the warehouse has what one undisturbed run loads. Returns this run.
pub fn share_a_backfill(place: impl Fn(&Service) -> Place) -> (Service, Place) {
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
        running[killed].wait().unwrap();
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
    (service, file)
}

/// The service tells one of two workers to wait, once, and accepts all other requests. The other worker reads that in
/// the warehouse, and waits too.
pub fn obey_a_wait_of_one(place: impl Fn(&Service) -> Place) {
    let service = refusing_once(small(2400, 90), 10, 15_000);
    service.control().merge_faults(json!({"latency": {"ms": 500}})).unwrap();
    let from = days_ago(90);
    let spawn = |shard: &str| {
        let place = place(&service).with_config("[streams.responses]\npage_rows = 20\n");
        let arguments = ["backfill", "--from", &from, "--shard", shard, "--stream", "responses"];
        let child = place.command(&arguments).stdout(Stdio::null()).spawn().unwrap();
        (place, child)
    };
    let mut workers = ["1/2", "2/2"].map(spawn);
    let ended = workers.each_mut().map(|(_, child)| child.wait().unwrap().code());
    assert_eq!(ended, [Some(0), Some(0)]);
    let log = service.log();
    assert_eq!(log.iter().filter(|entry| entry.status == 429).count(), 1);
    // A worker reads the wait of others every three seconds, and has sent requests before.
    assert_obeyed_after(&log, 8_000_000, "the worker that was not told");
    let told_us = log.iter().find(|entry| entry.status == 429).unwrap().arrived_us;
    let later = log.iter().filter(|entry| entry.arrived_us > told_us + 15_000_000).count();
    assert!(later > 50, "{later} requests were left when the wait was over");
}

#[test]
fn p5_a_wait_that_one_worker_is_told_binds_the_other() {
    let server = ObjectServer::start();
    obey_a_wait_of_one(|service| Place::new(service).in_bucket(&server, "s3://tests/waits/warehouse"));
}

#[test]
fn p1_four_workers_share_a_bucket() {
    let server = ObjectServer::start();
    let place = |service: &Service| {
        let place = Place::new(service).in_bucket(&server, "s3://tests/shared/warehouse");
        place.archive_in_bucket(&server, "s3://tests/shared/archive")
    };
    let (service, file) = share_a_backfill(place);
    // The archive has the pages of all workers.
    let fresh = place(&service);
    fresh.run(&["replay"]).expect(0);
    assert_same(&fresh, &file, "after a replay");
}
