//! Locks of other processes: a run and a reader wait for the warehouse, then give up with exit code 5. No run waits for
//! the lease.

use std::{
    fs::File,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, Command, Stdio},
    time::{Duration, Instant},
};

use crate::harness::{ALL_FLAGS, Done, KEY, Place, Service, assert_warehouses_equal, expected::Expected, small};

use super::{assert_mended, assert_says};

/// Set for the copy of this test binary that acts as the analyst.
const HOLDER_FILE: &str = "STUDYSYNC_TEST_HOLDS_FILE";
const HOLDER_MODE: &str = "STUDYSYNC_TEST_HOLDS_MODE";

/// Another process with the DuckDB file open, until it is dropped or released.
pub struct Holder {
    child: Child,
    input: Option<ChildStdin>,
}

impl Holder {
    pub fn of(place: &Place, mode: &str) -> Holder {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "world::locks::acts_as_the_analyst_for_other_tests", "--nocapture", "--test-threads=1"])
            .env(HOLDER_FILE, place.duckdb())
            .env(HOLDER_MODE, mode)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("the file is open")), "the analyst has no file");
        // Reads the rest of the output, so that the process does not block.
        std::thread::spawn(move || lines.for_each(drop));
        let input = child.stdin.take();
        Holder { child, input }
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    fn let_go(&mut self) {
        drop(self.input.take());
        self.child.wait().unwrap();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.let_go();
    }
}

/// Not a test: the process that [`Holder`] starts. Without its variables it does nothing.
#[test]
#[expect(clippy::disallowed_methods, reason = "the one way to tell a copy of this binary what it is")]
fn acts_as_the_analyst_for_other_tests() {
    let (Some(file), Some(mode)) = (std::env::var_os(HOLDER_FILE), std::env::var_os(HOLDER_MODE)) else { return };
    let mode = if mode == "reads" { duckdb::AccessMode::ReadOnly } else { duckdb::AccessMode::ReadWrite };
    let config = duckdb::Config::default().access_mode(mode).unwrap();
    let connection = duckdb::Connection::open_with_flags(file, config).unwrap();
    println!("the file is open");
    std::io::stdout().flush().unwrap();
    // Holds the file until standard input ends.
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
    drop(connection);
}

fn place_that_waits(service: &Service, secs: u32) -> Place {
    Place::new(service).with_config(&format!("{ALL_FLAGS}[warehouse]\nlock_wait_secs = {secs}\n"))
}

#[test]
fn exit_5_a_locked_warehouse_times_out_as_configured() {
    let service = Service::start(small(400, 8));
    let place = place_that_waits(&service, 1);
    place.report(&["sync"], 0);
    for mode in ["reads", "writes"] {
        let holder = Holder::of(&place, mode);
        let started = Instant::now();
        let done = place.run(&["sync"]).expect(5);
        assert!(started.elapsed() >= Duration::from_secs(1), "{mode}: nobody waited");
        assert!(started.elapsed() < Duration::from_secs(60), "{mode}: {:?}", started.elapsed());
        assert_says(&done, &["warehouse.duckdb", &holder.pid(), "waiting up to 1 s", "lock_wait_secs"]);
        // A run that cannot begin prints the same JSON as the history has.
        let report = place.report(&["sync"], 5);
        assert_eq!((report["reason"].as_str(), report["outcome"].as_str()), (Some("warehouse_locked"), Some("failed")));
        assert_eq!(place.run(&["status", "--json"]).expect(0).json()["runs"][0]["run_id"], report["run_id"]);
    }
    service.advance_days(1);
    assert_mended(&service, &place, "after the analyst went home");
}

#[test]
fn a_run_waits_for_a_locked_warehouse() {
    let service = Service::start(small(400, 8));
    let place = place_that_waits(&service, 120);
    place.report(&["sync"], 0);
    service.advance_days(1);
    for mode in ["reads", "writes"] {
        let mut holder = Holder::of(&place, mode);
        let run = place.spawn(&["sync"]);
        std::thread::sleep(Duration::from_millis(1500));
        holder.let_go();
        let done = Done::from(run.wait_with_output().unwrap()).expect(0);
        assert!(done.stderr.contains("waiting up to 120 s"), "{mode}: it did not have to wait: {}", done.stderr);
        assert_warehouses_equal(&place, &Expected::now(&service), mode);
    }
}

const READERS: [&[&str]; 3] =
    [&["query", "SELECT count(*) AS answers FROM responses"], &["report"], &["diff", "--since", "1d"]];

#[test]
fn readers_wait_for_a_run_that_has_the_file() {
    let service = Service::start(small(400, 8));
    let place = place_that_waits(&service, 120);
    place.report(&["sync"], 0);
    for command in READERS {
        let mut holder = Holder::of(&place, "writes");
        let reader = place.spawn(command);
        std::thread::sleep(Duration::from_millis(1500));
        holder.let_go();
        let done = Done::from(reader.wait_with_output().unwrap()).expect(0);
        assert!(done.stderr.contains("waiting up to 120 s"), "{command:?}: {}", done.stderr);
        assert!(!done.stdout.is_empty(), "{command:?}");
    }
}

#[test]
fn exit_5_readers_give_up_as_configured() {
    let service = Service::start(small(400, 8));
    let place = place_that_waits(&service, 1);
    place.report(&["sync"], 0);
    let holder = Holder::of(&place, "writes");
    for command in READERS {
        let done = place.run(command).expect(5);
        assert_says(&done, &["waiting up to 1 s", &holder.pid(), "lock_wait_secs"]);
        assert!(done.stdout.is_empty(), "{}", done.stdout);
    }
}

#[test]
fn readers_take_the_copy_while_a_run_has_the_file() {
    let service = Service::start(small(400, 8));
    let config = format!("{ALL_FLAGS}[warehouse]\nlock_wait_secs = 1\npublish = \"copy.duckdb\"\n");
    let place = Place::new(&service).with_config(&config);
    place.report(&["sync"], 0);
    let at_rest = place.run(READERS[0]).expect(0);
    assert!(!at_rest.stderr.contains("copy"), "{}", at_rest.stderr);
    let _holder = Holder::of(&place, "writes");
    for command in READERS {
        let done = place.run(command).expect(0);
        let is_of_copy = done.stderr.contains("reading the copy copy.duckdb, last changed at 20");
        assert!(is_of_copy && !done.stderr.contains("waiting"), "{}", done.stderr);
    }
    assert_eq!(place.run(READERS[0]).expect(0).stdout, at_rest.stdout);
    // A query that needs more memory than it has runs again, on the copy.
    let large = "SELECT sum(length(text)) FROM (SELECT list(repeat('x', 1000000) || range) AS text FROM range(1000))";
    assert_says(&place.run(&["query", large]).expect(1), &["memory_limit_mb"]);
    // An erasure leaves an empty file in place of the copy.
    std::fs::remove_file(place.path("copy.duckdb")).unwrap();
    std::fs::write(place.path("copy.duckdb"), "").unwrap();
    assert_says(&place.run(READERS[0]).expect(5), &["waiting up to 1 s"]);
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn slow_a_busy_backfill_lets_readers_in() {
    let service = Service::start(small(150_000, 300));
    // Slow enough for two turns of readers, and so fast that no pause releases the file.
    service.control().merge_faults(serde_json::json!({"latency": {"per_row_us": 500}})).unwrap();
    let place = place_that_waits(&service, 120);
    let mut run = place.spawn(&["backfill", "--from", "2025-01-01"]);
    let mut seen = Vec::new();
    while run.try_wait().unwrap().is_none() {
        let done = place.run(&["query", "--format", "csv", "SELECT count(*) AS answers FROM responses"]);
        seen.extend(done.stdout.lines().nth(1).and_then(|count| count.parse::<u64>().ok()));
    }
    Done::from(run.wait_with_output().unwrap()).expect(0);
    assert!(seen.iter().any(|answers| (20_000..140_000).contains(answers)), "{seen:?}");
}

#[test]
fn ctrl_c_ends_the_wait_for_a_warehouse() {
    let service = Service::start(small(100, 4));
    let place = place_that_waits(&service, 120);
    place.report(&["sync"], 0);
    let _holder = Holder::of(&place, "reads");
    let mut run = place.spawn(&["sync"]);
    // The message shows that the run is waiting.
    let mut errors = BufReader::new(run.stderr.take().unwrap()).lines();
    assert!(errors.any(|line| line.unwrap().contains("waiting up to")));
    let started = Instant::now();
    rustix::process::kill_process(rustix::process::Pid::from_child(&run), rustix::process::Signal::INT).unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(5));
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
}

#[test]
fn exit_5_a_concurrent_run_names_the_lease_holder() {
    let service = Service::start(small(400, 8));
    let place = Place::new(&service);
    service.control().merge_faults(serde_json::json!({"latency": {"ms": 1500}})).unwrap();
    let first = place.spawn(&["sync"]);
    let started = Instant::now();
    while service.control().stats().requests == 0 {
        assert!(started.elapsed() < Duration::from_secs(60), "the first run asks for nothing");
        std::thread::sleep(Duration::from_millis(10));
    }
    let done = place.run(&["backfill", "--from", "2026-01-20"]).expect(5);
    assert_says(&done, &["studysync sync", &format!("process {}", first.id()), "wait for it"]);
    assert!(!done.stderr.contains(KEY));
    service.set_faults(Default::default());
    Done::from(first.wait_with_output().unwrap()).expect(0);
    assert_warehouses_equal(&place, &Expected::now(&service), "after both");
}

#[test]
fn the_lease_of_a_dead_process_is_ignored() {
    let service = Service::start(small(400, 8));
    let place = Place::new(&service);
    place.report(&["sync"], 0);
    // The row of a killed run, whose process id another process has now. The kill released its lock.
    let state = rusqlite::Connection::open(place.state()).unwrap();
    let sql = "INSERT OR REPLACE INTO lease (id, run_id, pid, host, command, started_ms) VALUES (1, 'dead', ?1, 'here', 'sync', 1)";
    state.execute(sql, [std::process::id()]).unwrap();
    drop(state);
    assert!(File::open(place.path("state/checkpoints.sqlite.lock")).is_ok(), "the lock's file stays, and is no lock");
    assert_mended(&service, &place, "with the lease of a dead run");
}
