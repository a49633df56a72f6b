//! Scans that are all new, from their apply to their seal.

use super::*;
use crate::load::{
    Reader,
    conformance::{answer as row, answers_scan, page},
};

fn apply(warehouse: &mut ParquetDestination, days: std::ops::Range<i64>) -> Result<Applied, LoadError> {
    let scan = answers_scan(days.start, days.start, days.end);
    let rows: Vec<_> = days.map(|day| row(&format!("g{day}"), day, "x")).collect();
    warehouse.begin(&scan)?;
    warehouse.stage(&page(&rows))?;
    warehouse.apply(&scan, &CommitOptions::default())
}

fn parts(warehouse: &ParquetDestination) -> usize {
    std::fs::read_dir(warehouse.root.parts()).unwrap().count()
}

/// Rows of the answers and of the ledger.
fn rows(root: &TempDir) -> (usize, usize) {
    let mut reader = Reader::open(None, Some(root.path())).unwrap();
    let mut count = |table: &str| reader.query(&format!("SELECT 1 FROM {table}"), 1000).unwrap().rows();
    (count("responses"), count("sync_windows"))
}

#[test]
fn scans_that_are_all_new_become_one_part() {
    let root = new_folder();
    let mut warehouse = open(&root);
    (0..3).for_each(|day| assert_eq!(apply(&mut warehouse, day..day + 1).unwrap().counts.inserted, 1));
    assert_eq!(parts(&warehouse), 0);
    assert!(warehouse.holds(&answers_scan(1, 1, 2).id).unwrap());
    warehouse.seal().unwrap();
    assert_eq!(parts(&warehouse), 1);
    assert_eq!(warehouse.ledger().unwrap().len(), 3);
    // Nothing is done for nothing.
    warehouse.seal().unwrap();
    assert_eq!(parts(&warehouse), 1);
}

#[test]
fn p2_scans_that_are_not_sealed_are_lost_together() {
    let root = new_folder();
    let mut warehouse = open(&root);
    apply(&mut warehouse, 0..1).unwrap();
    warehouse.seal().unwrap();
    apply(&mut warehouse, 1..2).unwrap();
    apply(&mut warehouse, 2..3).unwrap();
    // The process ends.
    drop(warehouse);
    let mut warehouse = open(&root);
    assert_eq!(warehouse.ledger().unwrap().len(), 1);
    (1..3).for_each(|day| assert!(apply(&mut warehouse, day..day + 1).unwrap().wrote));
    // A look at the ledger seals.
    assert_eq!(warehouse.ledger().unwrap().len(), 3);
    drop(warehouse);
    assert_eq!(open(&root).ledger().unwrap().len(), 3);
}

#[test]
fn p1_a_scan_meets_what_waits_of_its_window() {
    let root = new_folder();
    let mut warehouse = open(&root);
    apply(&mut warehouse, 0..3).unwrap();
    // The same rows again, and one that is gone: it is compared, not added.
    let scan = answers_scan(9, 0, 3);
    warehouse.begin(&scan).unwrap();
    warehouse.stage(&page(&[row("g0", 0, "x"), row("g1", 1, "edited")])).unwrap();
    let counts = warehouse.apply(&scan, &CommitOptions::default()).unwrap().counts;
    assert_eq!((counts.inserted, counts.updated, counts.unchanged, counts.vanished), (0, 1, 1, 1));
    warehouse.publish().unwrap();
    assert_eq!(rows(&root), (3, 2));
}

#[test]
fn p2_what_could_not_be_sealed_goes_on_waiting_and_is_there_once() {
    let mut fails = 0;
    loop {
        let root = new_folder();
        let mut warehouse = open(&root);
        apply(&mut warehouse, 0..2).unwrap();
        apply(&mut warehouse, 2..3).unwrap();
        warehouse.disk = kills::killed_after(fails).0;
        let failed = warehouse.seal().is_err();
        warehouse.disk = Disk::default();
        warehouse.publish().unwrap();
        assert_eq!(rows(&root), (3, 2), "failed at step {fails}");
        if !failed {
            assert!(fails >= 10, "only {fails} steps");
            return;
        }
        fails += 1;
    }
}

#[test]
fn p2_what_could_not_be_committed_on_the_way_goes_on_waiting_and_is_there_once() {
    is_there_once(3);
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p2_slow_what_could_not_be_committed_at_any_step_goes_on_waiting_and_is_there_once() {
    is_there_once(1);
}

fn is_there_once(stride: usize) {
    // Two months, the first of which is complete when the last scans come.
    let scans = [(0, 1), (1, 2), (40, 41), (41, 42), (42, 43)];
    let apply_all = |warehouse: &mut ParquetDestination| {
        scans.iter().try_for_each(|(start, end)| apply(warehouse, *start..*end).map(drop))
    };
    let mut fails = 0;
    loop {
        let root = new_folder();
        let mut warehouse = open(&root);
        // All that waits is less, and one scan is more than half of it.
        apply(&mut warehouse, 50..51).unwrap();
        warehouse.pending_bytes_max = 2 * warehouse.pending.bytes();
        warehouse.publish().unwrap();
        let (disk, steps) = kills::killed_after(fails);
        warehouse.disk = disk;
        let failed = apply_all(&mut warehouse).is_err();
        assert!(failed || steps.load(std::sync::atomic::Ordering::Relaxed) > 0, "nothing was committed on the way");
        warehouse.disk = Disk::default();
        // Those that were applied are held, and are not applied again.
        apply_all(&mut warehouse).unwrap();
        warehouse.publish().unwrap();
        assert_eq!(rows(&root), (6, 6), "failed at step {fails}");
        if !failed {
            assert!(fails >= 10, "only {fails} steps");
            return;
        }
        fails += stride;
    }
}
