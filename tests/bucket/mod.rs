//! A Parquet warehouse and an archive in a bucket: the real binary against a server of objects, which counts and
//! disturbs requests.

mod archive;
mod disturbed;
mod real;

use std::path::Path;

use studysync_sandbox::{ChangeRequest, Faults, RetryAfter, RetryAfterForm};
use tempfile::TempDir;

use crate::harness::{
    ALL_FLAGS, Done, Meets, ObjectServer, Place, Service, Tables, all_contracts, assert_equal, content_columns,
    days_ago, different_rows, small,
};

/// The address of the warehouse, and the same in the server.
const ADDRESS: &str = "s3://tests/data/warehouse";
const BELOW: &str = "tests/data/warehouse";

type Objects = std::collections::BTreeMap<String, bytes::Bytes>;

/// Changes of one day.
fn changes() -> ChangeRequest {
    ChangeRequest { new_answers: 40, edits: 12, soft_deletes: 5, late: 3, ..ChangeRequest::default() }
}

/// Loads the history, and then the changes of two days.
fn load(service: &Service, places: &[&Place]) {
    places.iter().for_each(|place| drop(place.run(&["backfill", "--from", &days_ago(30)]).expect(0)));
    for _ in 0..2 {
        service.advance_days(1);
        service.change(&changes());
        places.iter().for_each(|place| drop(place.run(&["sync"]).expect(0)));
    }
}

/// Reads the objects of the warehouse as other programs do.
fn tables(server: &ObjectServer) -> (Tables, TempDir) {
    let mirror = TempDir::new().unwrap();
    server.mirror(BELOW, mirror.path());
    (Tables::parquet(mirror.path()), mirror)
}

/// Asserts that two warehouses, written by different runs, have the same content of the service.
fn assert_same_content(left: &Tables, right: &Tables, when: &str) {
    for contract in all_contracts().values().filter(|contract| matches!(contract.kind.as_str(), "base" | "child")) {
        let name = &contract.name;
        if let Some(difference) = different_rows(name, &content_columns(name), &left.rows(name), &right.rows(name)) {
            panic!("{when}: {difference}");
        }
    }
}

/// Removes everything that a run keeps on this machine.
fn forget_disk(place: &Place) {
    for name in ["state", "archive"] {
        let _ = std::fs::remove_dir_all(place.path(name));
    }
}

fn files_with(folder: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if std::fs::read(&path).unwrap().windows(text.len()).any(|bytes| bytes == text.as_bytes()) {
                found.push(path.display().to_string());
            }
        }
    }
    found
}

#[test]
fn a_bucket_has_the_rows_and_answers_of_a_folder() {
    let (service, server) = (Service::start(small(600, 40)), ObjectServer::start());
    let folder = Place::new(&service).without_duckdb();
    let bucket = Place::new(&service).in_bucket(&server, ADDRESS);
    load(&service, &[&folder, &bucket]);
    assert_same_content(&folder.parquet_tables(), &tables(&server).0, "after two nights");
    for arguments in [
        &["query", "SELECT count(*), sum(answer_number) FROM responses", "--format", "csv"][..],
        &["query", "SELECT * FROM nps_by_week ORDER BY ALL", "--format", "csv"],
        &[
            "query",
            "SELECT s.name, count(*) FROM responses r JOIN surveys s ON s.id = r.survey_id GROUP BY ALL ORDER BY ALL",
            "--format",
            "csv",
        ],
        &["diff", "--since", &days_ago(0)],
    ] {
        // The first two lines of a diff are times of the runs.
        let is_time = |line: &&str| !line.contains(" to 20") && !line.starts_with("the first load");
        let answer = |place: &Place| {
            place.run(arguments).expect(0).stdout.lines().filter(is_time).collect::<Vec<_>>().join("\n")
        };
        let [here, there] = [&folder, &bucket].map(answer);
        assert_eq!(here, there, "{arguments:?}");
    }
    for arguments in [&["status"][..], &["verify", "--from", &days_ago(20), "--to", &days_ago(10)], &["check"]] {
        bucket.run(arguments).expect(0);
    }
    bucket.run(&["report", "--out", "report.html"]).expect(0);
    assert!(std::fs::read_to_string(bucket.path("report.html")).unwrap().contains("</html>"));
    assert_eq!(files_with(bucket.root(), "s3cret-of-tests"), Vec::<String>::new());
}

#[test]
fn a_second_query_fetches_only_what_changed() {
    let (service, server) = (Service::start(small(300, 70)), ObjectServer::start());
    let place = Place::new(&service).in_bucket(&server, ADDRESS);
    load(&service, &[&place]);
    let reads = || {
        server.take_requests();
        place.run(&["query", "SELECT count(*) FROM responses"]).expect(0);
        let requests = server.take_requests();
        requests.iter().filter(|request| request.starts_with("GET") && request.contains("data.parquet")).count()
    };
    let months = tables(&server).0.count("SELECT count(DISTINCT date_trunc('month', created_at)) FROM responses");
    assert_eq!([reads(), reads()], [months as usize, 0]);
    service.advance_days(1);
    service.change(&ChangeRequest { new_answers: 20, ..ChangeRequest::default() });
    place.run(&["sync"]).expect(0);
    assert_eq!(reads(), 1);
}

#[test]
fn p6_a_worker_without_files_goes_on() {
    let (service, server) = (Service::start(small(400, 30)), ObjectServer::start());
    let place = Place::new(&service).in_bucket(&server, ADDRESS);
    load(&service, &[&place]);
    let before = tables(&server);
    forget_disk(&place);
    service.clear_log();
    place.run(&["backfill", "--from", &days_ago(30), "--to", &days_ago(5)]).expect(0);
    let lists = service.log().into_iter().filter(|entry| entry.path.starts_with("/v1/responses")).count();
    assert_eq!(lists, 0, "the ledger in the bucket proves the windows complete");
    assert_equal(&before.0, &tables(&server).0, "after the second backfill");
}

/// Nights of one worker with a disk and one without; both end with the same rows, and need the same requests.
fn nights_without_a_disk(nights: u64) {
    let (service, server) = (Service::start(small(400, 30)), ObjectServer::start());
    let kept = Place::new(&service).without_duckdb();
    let lost = Place::new(&service).in_bucket(&server, ADDRESS).without_archive();
    for place in [&kept, &lost] {
        place.run(&["backfill", "--from", &days_ago(30)]).expect(0);
    }
    for night in 0..nights {
        service.advance_days(1);
        service.change(&ChangeRequest { seed: night + 1, ..changes() });
        let requests = [&kept, &lost].map(|place| {
            service.clear_log();
            place.run(&["sync"]).expect(0);
            service.log().len()
        });
        assert_eq!(requests[0], requests[1], "night {night}");
        forget_disk(&lost);
    }
    assert_same_content(&kept.parquet_tables(), &tables(&server).0, "after the nights");
    service.clear_log();
    let status = lost.run(&["status", "--json"]).expect(0).json();
    assert_eq!(status["runs"][0]["outcome"], "done", "{status}");
    lost.run(&["plan", "--from", &days_ago(20)]).expect(0);
    assert_eq!(service.log().len(), 0);
}

#[test]
fn p6_nights_without_a_disk_end_like_those_with_one() {
    nights_without_a_disk(6);
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p6_slow_a_month_without_a_disk_ends_like_one_with_a_disk() {
    nights_without_a_disk(31);
}

#[test]
fn p5_a_worker_without_files_keeps_to_retry_after() {
    let (service, server) = (Service::start(small(200, 20)), ObjectServer::start());
    let place = Place::new(&service).in_bucket(&server, ADDRESS).with_config("[throttle]\npatience_secs = 0\n");
    place.run(&["backfill", "--from", &days_ago(20)]).expect(0);
    service.advance_days(1);
    let mut faults = Faults::default();
    faults.too_many_requests.when.count = 1;
    faults.too_many_requests.retry_after = RetryAfter { form: RetryAfterForm::Seconds, wait_ms: 3_600_000 };
    service.set_faults(faults);
    assert_ne!(place.run(&["sync"]).code, 0);
    forget_disk(&place);
    service.set_faults(Faults::default());
    service.clear_log();
    assert_ne!(place.run(&["sync"]).code, 0, "the hour is not over");
    assert_eq!(service.log().len(), 0);
}

#[test]
fn p9_an_erasure_reaches_every_object_and_names_old_versions() {
    for keeps_versions in [false, true] {
        let (service, server) = (Service::start(small(200, 20)), ObjectServer::start());
        if keeps_versions {
            server.keep_versions();
        }
        let place = Place::new(&service).in_bucket(&server, ADDRESS);
        load(&service, &[&place]);
        // Other programs put objects below the folder too.
        let mut objects = server.objects();
        let names = ["a", "a/b", "100% of #1 [old]?.txt", "caf\u{e9} ~*", &"x".repeat(300), "folder/"];
        let others = names.map(|name| (format!("{BELOW}/notes/{name}"), if name == "folder/" { "" } else { "text" }));
        objects.extend(others.map(|(key, text)| (key, text.into())));
        server.replace_all(&objects);
        place.run(&["query", "SELECT count(*) FROM responses"]).expect(0);
        let person = tables(&server).0.value("SELECT max(external_user_id) FROM responses").unwrap();
        let has_person = || {
            server.objects().values().any(|bytes| bytes.windows(person.len()).any(|found| found == person.as_bytes()))
        };
        assert!(
            has_person()
                || tables(&server)
                    .0
                    .count(&format!("SELECT count(*) FROM responses WHERE external_user_id = '{person}'"))
                    > 0
        );
        let done =
            place.run(&["erase", "--yes", "--json", "--user-id", &person]).expect(if keeps_versions { 3 } else { 0 });
        assert_eq!(done.json().to_string().contains(r#""old_versions":"kept""#), keeps_versions, "{}", done.stdout);
        assert_eq!(
            tables(&server).0.count(&format!("SELECT count(*) FROM responses WHERE external_user_id = '{person}'")),
            0
        );
        assert!(!has_person());
        let searched = done.json()["verified"]["places"]["files of warehouse objects"]["searched"].as_u64().unwrap();
        // All but the lease and the object without bytes, and those that were written afterwards.
        assert!(searched as usize > server.objects().len() - 10, "{searched}");
        assert_eq!(files_with(&place.path("state"), &person), Vec::<String>::new());
    }
}

#[test]
fn p9_a_machine_leaves_out_whom_another_one_erased() {
    let (service, server) = (Service::start(small(200, 20)), ObjectServer::start());
    let config = format!("{ALL_FLAGS}rescan = [\"all every 1h\"]\n");
    let places = [(); 2].map(|()| Place::new(&service).in_bucket(&server, ADDRESS).with_config(&config));
    load(&service, &[&places[0]]);
    places[1].run(&["sync"]).expect(0);
    let is_named = "length(external_user_id) > 8 AND _vanished_at IS NULL";
    let people = tables(&server)
        .0
        .rows_of(&format!("SELECT DISTINCT external_user_id FROM responses WHERE {is_named} ORDER BY ALL LIMIT 2"));
    let people: Vec<String> = people.into_iter().flatten().flatten().collect();
    for (turn, person) in people.iter().enumerate() {
        // Each machine has a state file of its own.
        let (eraser, other) = (&places[turn % 2], &places[(turn + 1) % 2]);
        eraser.run(&["erase", "--yes", "--user-id", person]).expect(0);
        let users = other.path("users.csv").display().to_string();
        std::fs::write(&users, format!("userId,attributes.plan\n{person},free\n")).unwrap();
        let pushed = other.report(&["users", "push", &users], 3);
        assert_eq!((&pushed["rows"]["set_aside"], &pushed["rows"]["accepted"]), (&1.into(), &0.into()), "{pushed}");
        // The service still sends the records, for ten days.
        service.advance_days(1);
        other.run(&["sync"]).expect(0);
        let erased = people[..=turn].iter().map(|person| format!("'{person}'")).collect::<Vec<_>>().join(", ");
        let rows = format!("SELECT count(*) FROM responses WHERE external_user_id IN ({erased})");
        assert_eq!(tables(&server).0.count(&rows), 0, "turn {turn}");
    }
}

#[test]
fn a_machine_that_only_reads_sees_the_last_run() {
    let (service, server) = (Service::start(small(60, 6)), ObjectServer::start());
    let [writer, reader] = [(); 2].map(|()| Place::new(&service).in_bucket(&server, ADDRESS));
    let runs = |place: &Place| place.run(&["status", "--json"]).json()["runs"].clone();
    for _ in 0..2 {
        writer.run(&["sync"]).expect(0);
        assert_eq!(runs(&reader), runs(&writer));
        service.advance_days(1);
    }
}

#[test]
fn p1_a_replay_builds_the_same_objects_anew() {
    let (service, server) = (Service::start(small(300, 70)), ObjectServer::start());
    let place = Place::new(&service).in_bucket(&server, ADDRESS);
    load(&service, &[&place]);
    let before = tables(&server);
    place.run(&["replay"]).expect(0);
    assert_equal(&before.0, &tables(&server).0, "after the replay");
    service.clear_log();
    place.run(&["sync"]).expect(0);
    assert_equal(&before.0, &tables(&server).0, "after a sync without changes");
}

#[test]
fn exit_5_a_second_writer_is_told_who_the_first_is() {
    let (service, server) = (Service::start(small(100, 10)), ObjectServer::start());
    let first = Place::new(&service).in_bucket(&server, ADDRESS);
    let second = Place::new(&service).in_bucket(&server, ADDRESS).with_config("[warehouse]\nlock_wait_secs = 0\n");
    first.run(&["backfill", "--from", &days_ago(10)]).expect(0);
    // The first run stays in its first write after the lease.
    server.meet(|_, request| match request.starts_with("PUT") && !request.contains("lease") {
        true => Meets::Silence,
        false => Meets::Success,
    });
    service.advance_days(1);
    service.change(&changes());
    server.take_requests();
    let mut child = first.spawn(&["sync"]);
    let id = child.id();
    while !server.take_requests().iter().any(|request| request.starts_with("PUT") && !request.contains("lease")) {
        assert_eq!(child.try_wait().unwrap(), None, "the first run has ended");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let done = second.run(&["sync"]).expect(5);
    assert!(done.stderr.contains(&format!("process {id} on ")), "{}", done.stderr);
    child.kill().unwrap();
    child.wait().unwrap();
    server.meet(|_, _| Meets::Success);
    // The lease of a process of this machine that has ended is taken at once.
    second.run(&["sync"]).expect(0);
}

#[test]
fn check_tries_each_right_and_refuses_a_careless_store() {
    let (service, server) = (Service::start(small(20, 3)), ObjectServer::start());
    let place = Place::new(&service).in_bucket(&server, ADDRESS);
    let warehouse_line =
        |done: &Done| done.stdout.lines().find(|line| line.contains(" warehouse ")).unwrap_or_default().to_owned();
    let done = place.run(&["check"]).expect(0);
    assert!(warehouse_line(&done).starts_with("ok"), "{}", done.stdout);
    assert_eq!((server.objects().len(), server.uploads()), (0, 0), "a check leaves nothing");
    server.ignore_conditions();
    for arguments in [&["check"][..], &["sync"]] {
        let done = place.run(arguments);
        assert_ne!(done.code, 0);
        let text = format!("{}{}", done.stdout, done.stderr);
        assert!(
            text.split_whitespace().collect::<Vec<_>>().join(" ").contains("ignores the conditions of writes"),
            "{arguments:?}: {text}"
        );
    }
    assert!(!server.objects().keys().any(|key| key.ends_with("warehouse.json")));
}

#[test]
fn exit_2_addresses_and_credentials_are_explained() {
    let (service, server) = (Service::start(small(20, 3)), ObjectServer::start());
    let place = Place::new(&service).in_bucket(&server, ADDRESS);
    for (arguments, expected) in [
        (&["sync", "--parquet", "s3://"][..], "it names no bucket"),
        (&["sync", "--parquet", "s3://key:s3cret-of-tests@tests/a"], "credentials and other parameters"),
        (&["sync", "--duckdb", "s3://tests/a"], "cannot be in a bucket"),
        (&["sync", "--state", "s3://tests/a"], "only [warehouse] parquet"),
        (&["sync", "--parquet", "http://tests/a"], "is an address"),
    ] {
        let base = ["--base-url", &service.base_url(), "--state"];
        let state = place.state();
        let mut command = place.bare(arguments);
        if !arguments.contains(&"--state") {
            command.args(base).arg(&state);
        }
        let done = Done::from(command.output().unwrap()).expect(2);
        assert!(done.stderr.contains(expected), "{arguments:?}: {}", done.stderr);
    }
}

#[test]
fn demo_shows_a_warehouse_in_a_bucket() {
    let server = ObjectServer::start();
    let place = Place::at("http://127.0.0.1:1").without_config().in_bucket(&server, ADDRESS);
    let demo = place.bare(&["demo", "--responses", "2000", "--folder", "demo", "--parquet", ADDRESS]).output().unwrap();
    let demo = Done::from(demo).expect(0);
    assert!(demo.stdout.contains(&format!("The warehouse is {ADDRESS}.\n")), "{}", demo.stdout);
    assert!(tables(&server).0.count("SELECT count(*) FROM responses") >= 2000);
    assert!(!place.path("demo/warehouse.duckdb").exists() && !place.path("demo/parquet").exists());
}

/// Requests by kind, in the order of `plan --json`: lists, reads, writes, removals.
fn counted(requests: &[String]) -> [u64; 4] {
    let kind = |request: &String| match request.split(' ').next().unwrap() {
        "GET" if request.contains("list-type") => 0,
        "GET" | "HEAD" => 1,
        "PUT" => 2,
        _ => 3,
    };
    let mut counts = [0; 4];
    requests.iter().for_each(|request| counts[kind(request)] += 1);
    counts
}

/// Returns the number of files of readers that a night has changed, without those of each commit: `sync_windows` and
/// `sync_runs`.
fn changed_files(before: &Objects, after: &Objects) -> u64 {
    let is_changed = |key: &&String| before.get(*key) != after.get(*key);
    let is_counted = |key: &&String| key.ends_with("/data.parquet") && !key.contains("/sync_");
    after.keys().filter(is_changed).filter(is_counted).count() as u64
}

#[test]
fn plan_and_docs_count_the_requests_of_a_night() {
    let (service, server) = (Service::start(small(600, 40)), ObjectServer::start());
    let place = Place::new(&service).in_bucket(&server, ADDRESS);
    load(&service, &[&place]);
    for (night, has_disk) in [true, true, false].into_iter().enumerate() {
        if !has_disk {
            // The state stays, and the working copy is lost.
            std::fs::remove_dir_all(place.path("state/parquet")).unwrap();
        }
        server.take_requests();
        let plan = place.run(&["plan", "--json"]).expect(0).json()["bucket"].clone();
        assert_eq!(counted(&server.take_requests()), [0, 1, 0, 0], "only whether there is a warehouse");
        service.advance_days(1);
        service.change(&ChangeRequest { seed: night as u64 + 1, ..changes() });
        let before = server.objects();
        place.run(&["sync"]).expect(0);
        let [lists, reads, writes, removals] = counted(&server.take_requests());
        let changed = changed_files(&before, &server.objects());
        assert!(changed > 5, "{changed}");
        // The formulas of docs/formats/bucket.md for a night with one commit of scans.
        assert_eq!((lists, writes, removals), (1, 9 + changed, 2), "night {night}");
        if has_disk {
            assert_eq!(reads, 1, "night {night}");
        }
        for (name, found) in [("lists", lists), ("reads", reads), ("writes", writes), ("removals", removals)] {
            let planned = plan[name].as_u64().unwrap();
            // The plan counts all files of the streams in the ranges of the scans. A night may scan a day more.
            assert!(found * 4 <= planned * 5 && planned <= found * 2, "night {night}: {found} {name}, and {plan}");
        }
        assert_eq!(plan["bytes"].is_u64(), has_disk, "{plan}");
    }
}
