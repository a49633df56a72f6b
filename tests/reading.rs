//! Analysts read while runs write: they see complete files, and neither side waits longer than necessary.

use std::{
    collections::{BTreeMap, BTreeSet},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use studysync_sandbox::ChangeRequest;

use crate::harness::{
    ALL_FLAGS, DAY_MS, Done, Place, Service, Tables, all_contracts, assert_equal, assert_rows_equal, connect, days_ago,
    expected::Expected, small,
};

/// Tables about the runs. They are written once more at the very end of a run.
const ABOUT_RUNS: [&str; 2] = ["sync_runs", "sync_windows"];
const COPY: &str = "analytics.duckdb";

fn place_with_copy(service: &Service) -> Place {
    Place::new(service).with_config(&format!("{ALL_FLAGS}[warehouse]\npublish = \"{COPY}\"\n"))
}

fn night_of_changes(service: &Service) {
    service.advance_days(1);
    let changed = service.change(&ChangeRequest {
        seed: 3,
        new_answers: 200,
        edits: 150,
        soft_deletes: 30,
        late: 20,
        status_changes: 2,
        question_edits: 2,
        theme_edits: 2,
        new_themes: 5,
        within_ms: Some(25 * DAY_MS),
        ..ChangeRequest::default()
    });
    assert!(changed.edits_bumped.len() + changed.edits_silent.len() > 40, "next to nothing changed: {changed:?}");
}

/// DuckDB opens a file once for its footer and again for its rows. If the file is replaced in between, DuckDB reports
/// an invalid Parquet file, and a retry reads the new file. It never mixes the two files.
fn digest_of_files(connection: &duckdb::Connection, from: &str, refusals: &mut u64) -> String {
    const TRIES: u32 = 3;
    for _ in 1..TRIES {
        match digest(connection, from) {
            Ok(digest) => return digest,
            Err(error) => println!("asked again, {from}: {error}"),
        }
        *refusals += 1;
    }
    digest(connection, from).unwrap_or_else(|error| panic!("{from}: {error}"))
}

/// Returns count and content of some rows as one text.
fn digest(connection: &duckdb::Connection, from: &str) -> Result<String, duckdb::Error> {
    let sql = format!("SELECT concat(count(*), ':', coalesce(bit_xor(hash(t)), 0)) FROM {from} t");
    connection.query_row(&sql, [], |row| row.get(0))
}

/// Returns the files of the data set, which are read one by one.
fn files_of(place: &Place) -> Vec<PathBuf> {
    let is_data = |path: &PathBuf| {
        let is_about_runs = || ABOUT_RUNS.iter().any(|table| path.starts_with(place.parquet().join(table)));
        path.file_name().is_some_and(|name| name == "data.parquet") && !is_about_runs()
    };
    let files: Vec<PathBuf> = place.files("parquet").into_iter().filter(is_data).collect();
    assert!(files.len() > 20, "{files:?}");
    files
}

/// Returns the number of rows and their content, for each file and for each table with all of its files.
fn read_files(connection: &duckdb::Connection, place: &Place, refusals: &mut u64) -> BTreeMap<String, String> {
    let quoted = |path: &Path| format!("read_parquet('{}')", path.display());
    let each = files_of(place).into_iter().map(|path| quoted(&path));
    let tables = ["responses", "response_choices", "visitor_snapshots"];
    let whole = tables.map(|table| quoted(&place.parquet().join(table).join("*/data.parquet")));
    each.chain(whole)
        .map(|from| {
            let digest = digest_of_files(connection, &from, refusals);
            (from, digest)
        })
        .collect()
}

/// Returns the content of every table of a DuckDB file.
fn read_database(connection: &duckdb::Connection, path: &Path) -> Result<Vec<String>, duckdb::Error> {
    connection.execute_batch(&format!("ATTACH '{}' AS w (READ_ONLY)", path.display()))?;
    let read = all_contracts().keys().map(|table| digest(connection, &format!("w.main.\"{table}\""))).collect();
    connection.execute_batch("DETACH w")?;
    read
}

#[test]
fn p2_constant_readers_see_complete_partitions_and_copies() {
    let service = Service::start(small(4000, 60));
    let place = place_with_copy(&service);
    place.run(&["backfill", "--from", &days_ago(61)]).expect(0);
    place.run(&["sync"]).expect(0);
    let connection = connect();
    let mut refusals = 0;
    let (files_before, copy_before) =
        (read_files(&connection, &place, &mut refusals), read_database(&connection, &place.path(COPY)).unwrap());
    night_of_changes(&service);

    let is_over = AtomicBool::new(false);
    let seen_of_files = |rounds: &mut u64, refusals: &mut u64| {
        let connection = connect();
        let mut seen: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        while !is_over.load(Ordering::Relaxed) {
            for (file, digest) in read_files(&connection, &place, refusals) {
                seen.entry(file).or_default().insert(digest);
            }
            *rounds += 1;
        }
        seen
    };
    let seen_of_copy = |rounds: &mut u64| {
        let connection = connect();
        let mut seen = BTreeSet::new();
        while !is_over.load(Ordering::Relaxed) {
            seen.insert(read_database(&connection, &place.path(COPY)).unwrap());
            *rounds += 1;
        }
        seen
    };
    let (mut file_rounds, mut copy_rounds, mut night_refusals) = (0, 0, 0);
    let (files_seen, copies_seen) = std::thread::scope(|scope| {
        let files = scope.spawn(|| seen_of_files(&mut file_rounds, &mut night_refusals));
        let copies = scope.spawn(|| seen_of_copy(&mut copy_rounds));
        let night = place.run(&["sync"]);
        // Continue to read after the end of the run.
        std::thread::sleep(Duration::from_millis(500));
        is_over.store(true, Ordering::Relaxed);
        let seen = (files.join().unwrap(), copies.join().unwrap());
        night.expect(0);
        seen
    });
    assert!(file_rounds > 3 && copy_rounds > 3, "they hardly read: {file_rounds}, {copy_rounds}");
    println!("{file_rounds} rounds over the files, {night_refusals} reads had to be asked again");
    let (files_after, copy_after) =
        (read_files(&connection, &place, &mut refusals), read_database(&connection, &place.path(COPY)).unwrap());
    assert_eq!(refusals, 0, "while nobody wrote");
    let mut replaced = 0;
    for (file, seen) in files_seen {
        let (before, after) = (files_before.get(&file), files_after.get(&file));
        replaced += u32::from(before != after);
        // The glob over a table sees some partitions before the change and some after it.
        if !file.contains('*') {
            assert!(seen.iter().all(|seen| Some(seen) == before || Some(seen) == after), "{file}: {seen:?}");
        }
    }
    assert!(replaced > 5, "the night replaced {replaced} files only");
    assert_ne!(copy_before, copy_after);
    assert!(copies_seen.iter().all(|seen| *seen == copy_before || *seen == copy_after), "a copy of neither state");
    assert_equal(&place.duckdb_tables(), &Tables::duckdb(&place.path(COPY)), "the warehouse and its copy");
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn slow_a_waiting_run_leaves_the_file_open_to_readers() {
    let service = Service::start(small(600, 40));
    let place = Place::new(&service).without_parquet();
    // Windows are committed one after the other, seconds apart.
    let place = place.with_config(&format!("{ALL_FLAGS}page_rows = 40\n[throttle]\nin_flight_max = 1\n"));
    service.control().merge_faults(serde_json::json!({"latency": {"ms": 1300}})).unwrap();
    let mut run = place.spawn(&["sync"]);
    let connection = connect();
    let mut seen = BTreeSet::new();
    let started = Instant::now();
    while run.try_wait().unwrap().is_none() {
        assert!(started.elapsed() < Duration::from_secs(240), "the run does not end");
        std::thread::sleep(Duration::from_millis(50));
        let attach = format!("ATTACH '{}' AS w (READ_ONLY)", place.duckdb().display());
        if place.duckdb().exists() && connection.execute_batch(&attach).is_ok() {
            let both = "SELECT (SELECT count(*) FROM w.main.responses), \
                        (SELECT coalesce(sum(inserted), 0)::BIGINT FROM w.main.sync_windows WHERE stream = 'responses')";
            let found: (i64, i64) =
                connection.query_row(both, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap_or_default();
            connection.execute_batch("DETACH w").unwrap();
            assert_eq!(found.0, found.1, "rows in the table, and in the ledger");
            seen.insert(found.0);
        }
    }
    Done::from(run.wait_with_output().unwrap()).expect(0);
    let all = place.duckdb_tables().count("SELECT count(*) FROM responses");
    let under_way = seen.iter().filter(|rows| **rows > 0 && **rows < all).count();
    assert!(under_way >= 2, "seen while the run was at work: {seen:?} of {all}");
}

/// Identifies a copy: each new copy has another inode.
fn inode(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().ino()
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p6_slow_the_copy_is_replaced_only_after_a_change() {
    let service = Service::start(small(1500, 28));
    let place = place_with_copy(&service);
    let copy = place.path(COPY);
    place.run(&["sync"]).expect(0);
    let first = inode(&copy);
    assert_eq!(std::fs::metadata(&copy).unwrap().permissions().mode() & 0o222, 0, "nobody writes to a copy");
    place.run(&["sync"]).expect(0);
    assert_eq!(inode(&copy), first, "an idle run replaced the copy");

    let reader = Tables::duckdb(&copy);
    let count = "SELECT count(*) FROM responses";
    let before = reader.count(count);
    night_of_changes(&service);
    place.run(&["sync"]).expect(0);
    assert_ne!(inode(&copy), first);
    assert_eq!(reader.count(count), before, "the open session sees another state");
    drop(reader);
    assert!(Tables::duckdb(&copy).count(count) > before);

    // A run replaces a lost copy even if nothing else is to do. A replay writes a copy too.
    std::fs::remove_file(&copy).unwrap();
    std::fs::write(place.path("analytics.duckdb.wal"), "of a session that wrote to an earlier copy").unwrap();
    std::fs::write(place.path("analytics.duckdb.unfinished"), "of a run that was killed").unwrap();
    place.run(&["sync"]).expect(0);
    assert!(Tables::duckdb(&copy).count(count) > before);
    assert!(!place.path("analytics.duckdb.unfinished").exists());
    let second = inode(&copy);
    place.run(&["replay"]).expect(0);
    assert_ne!(inode(&copy), second, "a replay left the copy of the warehouse that it replaced");
    let copy = Tables::duckdb(&copy);
    assert_rows_equal(|table| copy.rows(table), &Expected::now(&service), "after a replay");
}

#[test]
fn exit_2_the_copy_never_overwrites_a_foreign_file() {
    let service = Service::start(small(100, 4));
    let mut place = place_with_copy(&service);
    let others = connect();
    let path = place.path(COPY).display().to_string();
    others
        .execute_batch(&format!("ATTACH '{path}' AS o; CREATE TABLE o.mine AS SELECT 42 AS answer; DETACH o"))
        .unwrap();
    let bytes = std::fs::read(place.path(COPY)).unwrap();
    let done = place.run(&["sync"]).expect(2);
    assert!(done.stderr.contains(COPY) && done.stderr.contains("studysync did not create"), "{}", done.stderr);
    assert_eq!(std::fs::read(place.path(COPY)).unwrap(), bytes);
    std::fs::write(place.path(COPY), "a text").unwrap();
    place.run(&["sync"]).expect(2);
    assert_eq!(std::fs::read(place.path(COPY)).unwrap(), b"a text");
    // An erasure and a change of the address empty a file that is a copy of the warehouse, but no other file.
    let erased = place.run(&["erase", "--user-id", "nobody-0", "--local-only", "--yes"]).expect(2);
    place.set_base_url("http://127.0.0.1:9");
    let rebound = place.run(&["rebind", "--from", &service.base_url()]).expect(2);
    place.set_base_url(service.base_url());
    assert!(erased.stderr.contains(COPY) && rebound.stderr.contains(COPY), "{}{}", erased.stderr, rebound.stderr);
    assert_eq!(std::fs::read(place.path(COPY)).unwrap(), b"a text");
    // The data of the run itself is committed.
    assert_rows_equal(|table| place.duckdb_tables().rows(table), &Expected::now(&service), "without a copy");

    let itself = Place::new(&service).with_config("[warehouse]\npublish = \"warehouse.duckdb\"\n");
    let done = itself.run(&["sync"]).expect(2);
    assert!(
        done.stderr.contains("[warehouse] publish") && done.stderr.contains("the warehouse itself"),
        "{}",
        done.stderr
    );
    let without = Place::new(&service).without_duckdb().with_config("[warehouse]\npublish = \"copy.duckdb\"\n");
    let done = without.run(&["sync"]).expect(2);
    assert!(done.stderr.contains("no [warehouse] duckdb is set"), "{}", done.stderr);
}

#[test]
fn p10_a_copy_without_rows_follows_the_warehouse_to_another_service() {
    let (wrong, right) = (Service::start(small(0, 3)), Service::start(small(60, 3)));
    let mut place = place_with_copy(&wrong);
    place.run(&["backfill", "--from", &days_ago(4), "--stream", "responses"]).expect(0);
    assert!(place.path(COPY).exists());
    place.set_base_url(right.base_url());
    place.run(&["backfill", "--from", &days_ago(4)]).expect(0);
    let copy = Tables::duckdb(&place.path(COPY));
    assert_rows_equal(|table| copy.rows(table), &Expected::now(&right), "in the copy");
}
