//! Two processes and one file: locks, and a killed writer (promise P2). The second process is this test binary. Its
//! working directory tells it which file to use.

use std::{
    process::{Child, Command},
    thread::sleep,
    time::{Duration, Instant},
};

use super::*;
use crate::load::{
    CommitOptions,
    conformance::{answer, answers_scan, page},
};

const FILE: &str = "w.duckdb";
/// Marks a folder in which the second process may run; anywhere else it does nothing.
const STAGE_DOOR: &str = "second_process_here";
/// Long enough for a machine that stalls: the tests do not measure time.
const PATIENCE: Duration = Duration::from_secs(600);

/// Standard error of the second process, shown if it ends early.
const SAID: &str = "said";

/// Runs one of the ignored tests below as a process of its own.
fn start(role: &str, folder: &Path) -> Child {
    std::fs::write(folder.join(STAGE_DOOR), "").unwrap();
    let said = std::fs::File::create(folder.join(SAID)).unwrap();
    Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", &format!("load::store::duckdb::tests::crashes::{role}")])
        .current_dir(folder)
        .stdout(said.try_clone().unwrap())
        .stderr(said)
        .spawn()
        .unwrap()
}

fn wait_for(path: &Path, mut meanwhile: impl FnMut()) {
    let start = Instant::now();
    while !path.exists() {
        assert!(start.elapsed() < PATIENCE, "{} never came", path.display());
        meanwhile();
        sleep(Duration::from_millis(2));
    }
}

/// Waits for a file that the second process writes.
fn wait_for_its(child: &mut Child, path: &Path) {
    wait_for(path, || {
        if let Some(status) = child.try_wait().unwrap() {
            let said = std::fs::read_to_string(path.with_file_name(SAID)).unwrap();
            assert!(path.exists(), "the other process ended before its time, {status}: {said}");
        }
    });
}

#[test]
#[ignore = "the other process of a_locked_file_names_its_holder"]
fn role_holder() {
    if !Path::new(STAGE_DOOR).exists() {
        return;
    }
    let warehouse = open(&std::path::absolute(FILE).unwrap()).unwrap();
    std::fs::write("ready", "").unwrap();
    wait_for(Path::new("done"), || ());
    drop(warehouse);
}

#[test]
fn a_locked_file_names_its_holder() {
    let folder = TempDir::new().unwrap();
    let mut child = start("role_holder", folder.path());
    wait_for_its(&mut child, &folder.path().join("ready"));
    let path = folder.path().join(FILE);
    let errors = [open(&path).err(), Reader::open(&WarehouseKind::DuckDb.at(&path)).err()];
    std::fs::write(folder.path().join("done"), "").unwrap();
    assert!(child.wait().unwrap().success());
    for error in errors {
        match error {
            Some(LoadError::Locked { holder, .. }) => {
                let holder = holder.unwrap();
                assert!(holder.starts_with(&format!("process {}, ", child.id())), "{holder}");
            }
            other => panic!("{other:?}"),
        }
    }
    // The holder is gone: both can open the file.
    open(&path).unwrap().publish().unwrap();
    Reader::open(&WarehouseKind::DuckDb.at(&path)).unwrap();
}

#[test]
#[ignore = "the other process of p2_a_killed_writer_leaves_whole_scans"]
fn role_writer() {
    if !Path::new(STAGE_DOOR).exists() {
        return;
    }
    let mut warehouse = open(&std::path::absolute(FILE).unwrap()).unwrap();
    for hour in 0.. {
        let scan = answers_scan(hour, hour, hour + 1);
        let rows: Vec<_> = (0..40).map(|at| answer(&format!("g{hour}-{at}"), hour, "x")).collect();
        let options = CommitOptions { record_unchanged: true, ..CommitOptions::default() };
        let applied = warehouse.apply_and_commit(&scan, &[page(&rows)].as_slice(), &options).unwrap();
        assert!(applied.wrote || applied.already_applied);
        std::fs::write("acknowledged", hour.to_string()).unwrap();
        if hour % 5 == 4 {
            warehouse.publish().unwrap();
        }
    }
}

#[test]
fn p2_a_killed_writer_leaves_whole_scans() {
    let folder = TempDir::new().unwrap();
    let acknowledged = folder.path().join("acknowledged");
    for after_ms in [3, 40, 90, 170] {
        let mut child = start("role_writer", folder.path());
        wait_for_its(&mut child, &acknowledged);
        sleep(Duration::from_millis(after_ms));
        child.kill().unwrap();
        child.wait().unwrap();
        let last: i64 = std::fs::read_to_string(&acknowledged).unwrap().parse().unwrap_or(0);
        std::fs::remove_file(&acknowledged).unwrap();

        let mut warehouse = open(&folder.path().join(FILE)).unwrap();
        let held = warehouse.ledger().unwrap().len() as u64;
        assert!(held > last as u64, "{held} scans of {} that were acknowledged", last + 1);
        warehouse.publish().unwrap();
        let mut reader = Reader::open(&WarehouseKind::DuckDb.at(folder.path().join(FILE))).unwrap();
        let torn = "SELECT 1 FROM sync_windows w FULL JOIN (SELECT created_at, count(*) AS rows FROM responses GROUP BY ALL) r
            ON r.created_at = w.window_start + INTERVAL 12 HOUR WHERE r.rows IS DISTINCT FROM w.rows_read OR r.rows <> 40";
        assert_eq!(reader.query(torn, 10).unwrap().rows(), 0);
    }
}
