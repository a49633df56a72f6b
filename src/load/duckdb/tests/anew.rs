//! A file that is built anew, which two sessions fill.

use super::*;
use crate::load::{
    CommitOptions, RowCounts, VanishPolicy,
    conformance::{answer, answers_scan, identity, page},
};

fn apply(warehouse: &mut DuckDbDestination, (hour, first, end): (i64, i64, i64), text: &str) -> RowCounts {
    let scan = answers_scan(hour, first, end);
    warehouse.begin(&scan).unwrap();
    warehouse.stage(&page(&[answer("a", 0, text), answer("b", 1, "same")])).unwrap();
    let options = CommitOptions { vanish: VanishPolicy::Accept, record_unchanged: true, ..CommitOptions::default() };
    warehouse.apply(&scan, &options).unwrap().counts
}

#[test]
fn p1_rows_of_the_other_session_are_found_by_a_scan_of_their_window() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("w.duckdb");
    let mut warehouse = DuckDbDestination::open(&path, &identity("test"), &options(folder.path())).unwrap();
    warehouse.build_anew().unwrap();
    assert_eq!(apply(&mut warehouse, (0, 0, 3), "x").inserted, 2);
    warehouse.write_pending().unwrap();
    assert!(warehouse.below.as_ref().unwrap().is_filled());
    let again = apply(&mut warehouse, (1, 0, 2), "an edit");
    assert_eq!((again.inserted, again.updated, again.unchanged), (0, 1, 1), "{again:?}");
    warehouse.publish().unwrap();
    drop(warehouse);
    let mut reader = Reader::open(Some(&path), None).unwrap();
    assert_eq!(reader.query("SELECT 1 FROM responses", 10).unwrap().rows(), 2);
}
