//! An archive in a bucket: the real binary against a server of objects.

use std::{collections::BTreeMap, path::Path};

use studysync::archive::{read_pages, summarize};
use tempfile::TempDir;

use super::{files_with, load};
use crate::harness::{Done, Meets, ObjectServer, Place, Service, Tables, assert_equal, days_ago, small};

/// The address of the archive, and the same in the server.
const ARCHIVE: &str = "s3://tests/data/archive";
const BELOW: &str = "tests/data/archive";

/// A place with a DuckDB file and its archive in a bucket.
fn place(service: &Service, server: &ObjectServer) -> Place {
    Place::new(service).without_parquet().archive_in_bucket(server, ARCHIVE)
}

/// Returns the number of files of pages in each folder of a stream and month.
fn counts<'a>(paths: impl Iterator<Item = &'a str>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for path in paths.filter(|path| path.ends_with(".pages")) {
        let folder = Path::new(path).parent().unwrap();
        *counts.entry(folder.display().to_string()).or_default() += 1;
    }
    counts
}

fn counts_in_bucket(server: &ObjectServer) -> BTreeMap<String, usize> {
    let objects = server.objects();
    counts(objects.keys().filter_map(|key| key.strip_prefix(BELOW)?.strip_prefix('/')))
}

/// Returns all archived pages that contain a text.
fn pages_with(server: &ObjectServer, text: &str) -> usize {
    let mirror = TempDir::new().unwrap();
    server.mirror(BELOW, mirror.path());
    let objects = server.objects();
    let keys = objects.keys().filter(|key| key.starts_with(BELOW) && key.ends_with(".pages"));
    let pages = keys.flat_map(|key| {
        let path = mirror.path().join(key.strip_prefix(BELOW).unwrap().trim_start_matches('/'));
        assert!(summarize(&path).unwrap().is_complete, "{key}");
        read_pages(&path).unwrap().map(Result::unwrap)
    });
    pages.filter(|page| String::from_utf8_lossy(page).contains(text)).count()
}

#[test]
fn p1_an_archive_in_a_bucket_replays_like_a_folder() {
    let (service, server) = (Service::start(small(300, 40)), ObjectServer::start());
    let (folder, bucket) = (Place::new(&service).without_parquet(), place(&service, &server));
    load(&service, &[&folder, &bucket]);
    let paths: Vec<String> = (folder.files("archive").iter())
        .filter_map(|path| Some(path.strip_prefix(folder.path("archive")).ok()?.display().to_string()))
        .collect();
    assert_eq!(counts_in_bucket(&server), counts(paths.iter().map(String::as_str)));
    assert_eq!(bucket.files("state/spool/under-way").len(), 0, "no page stays here");
    assert!(!bucket.path("archive").exists() && !bucket.path("state/archive").exists());

    let kept = TempDir::new().unwrap();
    std::fs::copy(bucket.duckdb(), kept.path().join("w.duckdb")).unwrap();
    let before = Tables::duckdb(&kept.path().join("w.duckdb"));
    service.clear_log();
    bucket.run(&["replay"]).expect(0);
    bucket.run(&["replay", "--from", &days_ago(20), "--to", &days_ago(15)]).expect(0);
    assert_equal(&before, &bucket.duckdb_tables(), "after the replays");
    std::fs::remove_file(bucket.duckdb()).unwrap();
    let status = bucket.run(&["status"]);
    assert!(status.stdout.contains("run `studysync replay`"), "{}", status.stdout);
    bucket.run(&["replay"]).expect(0);
    assert_eq!(service.log().len(), 0);
    let rows = "SELECT count(*) FROM responses";
    assert_eq!(bucket.duckdb_tables().count(rows), folder.duckdb_tables().count(rows));
    bucket.run(&["verify", "--from", &days_ago(20), "--to", &days_ago(10)]).expect(0);
    bucket.run(&["sync"]).expect(0);
    assert_eq!(files_with(bucket.root(), "s3cret-of-tests"), Vec::<String>::new());
}

#[test]
fn a_night_writes_each_scan_once_and_lists_nothing() {
    let (service, server) = (Service::start(small(200, 20)), ObjectServer::start());
    let place = place(&service, &server);
    place.run(&["backfill", "--from", &days_ago(20)]).expect(0);
    service.advance_days(1);
    service.change(&super::changes());
    let scans = counts_in_bucket(&server).values().sum::<usize>();
    server.take_requests();
    place.run(&["sync"]).expect(0);
    let requests = server.take_requests();
    let new = counts_in_bucket(&server).values().sum::<usize>() - scans;
    let (writes, others): (Vec<_>, Vec<_>) = requests.iter().partition(|request| request.starts_with("PUT"));
    assert!(new > 0 && writes.len() == new, "{new} scans: {writes:?}");
    assert_eq!(others.len(), 1, "{others:?}");
    assert!(others[0].starts_with("GET") && others[0].contains("owner.json"), "{others:?}");
}

#[test]
fn p2_a_run_killed_while_it_archives_goes_on() {
    let (service, server) = (Service::start(small(200, 20)), ObjectServer::start());
    let place = place(&service, &server);
    server.meet(|_, request| match request.starts_with("PUT") && request.contains("responses") {
        true => Meets::Silence,
        false => Meets::Success,
    });
    let mut child = place.spawn(&["backfill", "--from", &days_ago(20)]);
    while !server.take_requests().iter().any(|request| request.starts_with("PUT") && request.contains("responses")) {
        assert!(child.try_wait().unwrap().is_none(), "ended without a write");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!place.files("state/spool/under-way").is_empty());
    // Refused requests and lost answers do no harm.
    server.meet(|number, _| match number % 4 {
        1 => Meets::Refusal,
        3 => Meets::LostAnswer,
        _ => Meets::Success,
    });
    place.run(&["backfill", "--from", &days_ago(20)]).expect(0);
    server.meet(|_, _| Meets::Success);
    assert_eq!((place.files("state/spool/under-way").len(), server.uploads()), (0, 0));
    let rows = "SELECT count(*) FROM responses";
    let before = place.duckdb_tables().count(rows);
    assert!(before > 0);
    std::fs::remove_file(place.duckdb()).unwrap();
    place.run(&["replay"]).expect(0);
    assert_eq!(place.duckdb_tables().count(rows), before);
}

#[test]
fn p2_the_archive_has_each_scan_of_a_ledger() {
    let (service, server) = (Service::start(small(200, 20)), ObjectServer::start());
    let place = Place::new(&service).in_bucket(&server, super::ADDRESS).archive_in_bucket(&server, ARCHIVE);
    place.run(&["backfill", "--from", &days_ago(20)]).expect(0);
    service.advance_days(1);
    service.change(&super::changes());
    // The run is killed after its first commit, and its disk is lost.
    let is_committed = std::sync::atomic::AtomicBool::new(false);
    server.meet(move |_, request| {
        use std::sync::atomic::Ordering::SeqCst;
        let is_commit = request.starts_with("PUT") && request.contains("/parts/") && request.contains(".json");
        match is_committed.fetch_or(is_commit, SeqCst) {
            true => Meets::Silence,
            false => Meets::Success,
        }
    });
    server.take_requests();
    let mut child = place.spawn(&["sync"]);
    let is_commit =
        |request: &String| request.starts_with("PUT") && request.contains("/parts/") && request.contains(".json");
    while !server.take_requests().iter().any(is_commit) {
        assert!(child.try_wait().unwrap().is_none(), "ended without a commit");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    // The write takes effect after it is counted.
    std::thread::sleep(std::time::Duration::from_millis(200));
    child.kill().unwrap();
    child.wait().unwrap();
    super::forget_disk(&place);
    server.meet(|_, _| Meets::Success);
    place.run(&["sync"]).expect(0);
    place.run(&["replay"]).expect(0);
}

#[test]
fn p9_an_erasure_rewrites_archived_objects() {
    for keeps_versions in [false, true] {
        let (service, server) = (Service::start(small(200, 20)), ObjectServer::start());
        if keeps_versions {
            server.keep_versions();
        }
        let place = place(&service, &server);
        load(&service, &[&place]);
        let query = "SELECT max(external_user_id) FROM responses WHERE length(external_user_id) > 8";
        let person = place.duckdb_tables().value(query).unwrap();
        assert!(pages_with(&server, &person) > 0);
        let files = counts_in_bucket(&server);
        let done = place.run(&["erase", "--yes", "--json", "--user-id", &person]);
        let done = done.expect(if keeps_versions { 3 } else { 0 });
        let receipt = done.json();
        let verified = &receipt["verified"]["places"];
        assert!(receipt["removed"]["archive records"].as_u64().unwrap() > 0, "{receipt:#}");
        assert_eq!(verified["archive"]["left"], 0, "{receipt:#}");
        let searched = verified["files of archive objects"]["searched"].as_u64().unwrap();
        assert_eq!(searched as usize, files.values().sum::<usize>());
        assert_eq!(pages_with(&server, &person), 0);
        assert_eq!((counts_in_bucket(&server), server.uploads()), (files, 0));
        assert_eq!(files_with(&place.path("state"), &person), Vec::<String>::new());
        match keeps_versions {
            true => assert_eq!(receipt["unsearched"][0]["address"], ARCHIVE, "{receipt:#}"),
            false => assert_eq!(receipt.get("unsearched"), None, "{receipt:#}"),
        }
    }
}

#[test]
fn p10_an_archive_in_a_bucket_has_one_owner() {
    let (service, server) = (Service::start(small(60, 6)), ObjectServer::start());
    let place = place(&service, &server);
    let line = |done: &Done| done.stdout.lines().find(|line| line.contains(" archive ")).unwrap_or_default().to_owned();
    let done = place.run(&["check"]).expect(0);
    assert!(line(&done).starts_with("ok") && line(&done).contains("the first run can create s3://"), "{}", done.stdout);
    assert_eq!(server.objects().len(), 0, "a check leaves nothing");
    place.run(&["backfill", "--from", &days_ago(6)]).expect(0);
    let done = place.run(&["check"]).expect(0);
    assert!(line(&done).starts_with("ok") && line(&done).contains(ARCHIVE), "{}", done.stdout);

    let base_url = service.base_url();
    let other =
        ["sync", "--base-url", &base_url, "--state", "other.sqlite", "--duckdb", "o.duckdb", "--archive", ARCHIVE];
    let other = Done::from(place.bare(&other).output().unwrap()).expect(2);
    assert!(other.stderr.contains("holds the pages of the state file checkpoints.sqlite"), "{}", other.stderr);

    let renamed = "[service]\nenvironment = \"staging\"\n";
    let place = place.with_config(renamed);
    place.run(&["sync"]).expect(2);
    let rebound = place.run(&["rebind", "--from-environment", "default"]).expect(0);
    assert!(rebound.stdout.contains(ARCHIVE), "{}", rebound.stdout);
    place.run(&["sync"]).expect(0);
    std::fs::remove_file(place.duckdb()).unwrap();
    place.run(&["replay"]).expect(0);
}

#[test]
fn exit_2_an_archive_address_is_explained() {
    let (service, server) = (Service::start(small(20, 3)), ObjectServer::start());
    let place = place(&service, &server);
    for (archive, parquet, expected) in [
        ("s3://", "p", "error: --archive: 's3://' is no address of a bucket: it names no bucket"),
        ("s3://key:s3cret-of-tests@tests/a", "p", "credentials and other parameters"),
        ("http://tests/a", "p", "only [warehouse] parquet and [archive] path may be in a bucket"),
        ("s3://tests/a/archive", "s3://tests/a", "--archive: s3://tests/a/archive and the warehouse s3://tests/a"),
    ] {
        let base_url = service.base_url();
        let flags = ["sync", "--base-url", &base_url, "--state", "s.sqlite", "--archive", archive];
        let mut command = place.bare(&flags);
        command.env("STUDYSYNC_WAREHOUSE_PARQUET", parquet);
        let done = Done::from(command.output().unwrap()).expect(2);
        let text = done.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(expected), "{archive}: {text}");
    }
    assert_eq!(server.objects().len(), 0);
    server.ignore_conditions();
    let done = place.run(&["sync"]).expect(2);
    assert!(done.stderr.contains("ignores the conditions of writes"), "{}", done.stderr);
}
