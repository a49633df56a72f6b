//! What is kept of a partition while scans are compared with it.

use super::*;
use crate::load::conformance::{answer as row, answers_scan, page};

/// A look at two days of the first month, whose answers have these texts; an empty one is gone.
fn scan(warehouse: &mut ParquetDestination, number: i64, first_day: i64, texts: [&str; 2]) -> RowCounts {
    let scan = answers_scan(number, first_day, first_day + 2);
    let rows: Vec<_> = (first_day..).zip(texts).filter(|(_, text)| !text.is_empty()).collect();
    let rows: Vec<_> = rows.into_iter().map(|(day, text)| row(&format!("g{day}"), day, text)).collect();
    warehouse.begin(&scan).unwrap();
    warehouse.stage(&page(&rows)).unwrap();
    let options = CommitOptions { vanish: crate::load::VanishPolicy::Accept, ..CommitOptions::default() };
    warehouse.apply(&scan, &options).unwrap().counts
}

#[test]
fn p1_what_is_kept_of_a_partition_is_forgotten_when_it_changes() {
    let root = new_folder();
    let mut warehouse = open(&root);
    for (number, first_day) in [(0, 0), (1, 2)] {
        assert_eq!(scan(&mut warehouse, number, first_day, ["x", "x"]).inserted, 2);
    }
    warehouse.publish().unwrap();
    assert_eq!(scan(&mut warehouse, 2, 0, ["x", "x"]).unchanged, 2);
    assert!(warehouse.tree.kept.is_some(), "read once");
    assert_eq!(scan(&mut warehouse, 3, 2, ["x", "x"]).unchanged, 2);
    // Edited: what waits for publish is not in the file.
    let counts = scan(&mut warehouse, 4, 2, ["x", "edited"]);
    assert_eq!((counts.unchanged, counts.updated), (1, 1));
    // As it was, and as the file still has it.
    assert_eq!(scan(&mut warehouse, 5, 2, ["x", "x"]).updated, 1);
    assert_eq!(scan(&mut warehouse, 10, 2, ["x", "edited"]).updated, 1);
    warehouse.publish().unwrap();
    assert!(warehouse.tree.kept.is_none());
    assert_eq!(scan(&mut warehouse, 6, 2, ["x", "edited"]).unchanged, 2);
    // A row of the other window is not expected in this one, and one that is gone is missed.
    assert!(warehouse.tree.kept.is_some());
    let counts = scan(&mut warehouse, 7, 0, ["", "x"]);
    assert_eq!((counts.unchanged, counts.vanished), (1, 1));
    assert_eq!(scan(&mut warehouse, 8, 2, ["x", "edited"]).unchanged, 2);
}

#[test]
fn a_window_across_partitions_and_one_without_a_file_are_asked_for() {
    let root = new_folder();
    let by_day = ParquetOptions { partition_by: PartitionBy::Day, ..options() };
    let mut warehouse = ParquetDestination::open(root.path(), &identity(), &by_day).unwrap();
    assert_eq!(scan(&mut warehouse, 0, 0, ["x", "x"]).inserted, 2);
    warehouse.publish().unwrap();
    assert_eq!(scan(&mut warehouse, 1, 0, ["x", "x"]).unchanged, 2);
    assert_eq!(scan(&mut warehouse, 2, 40, ["x", "x"]).inserted, 2);
    assert!(warehouse.tree.kept.is_none());
}
