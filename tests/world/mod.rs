//! The environment of a run: full disks, torn and missing files, locks, clocks, and a service that sends anything. In
//! each case the error names the cause and the action, nothing is lost, and the next run repairs what it can.

mod clocks;
mod empty_lists;
pub mod full_disk;
mod hostile;
mod little_memory;
pub mod locks;
mod long_values;
mod read_only;
mod refusals;
mod shifting;
mod spools;
mod state_file;
mod tls;
mod torn_warehouse;
mod wire;

use crate::harness::{Done, Place, Service, assert_warehouses_equal, contract, different_rows, expected::Expected};

/// Asserts that an error contains these words, and says what to do.
fn assert_says(done: &Done, words: &[&str]) {
    for word in words.iter().chain(&["hint:"]) {
        assert!(done.stderr.contains(word), "'{word}' is missing in:\n{}", done.stderr);
    }
    assert!(!done.stderr.contains("panicked"), "{}", done.stderr);
}

/// Asserts that the next run succeeds, and that the warehouses then equal the service.
fn assert_mended(service: &Service, place: &Place, when: &str) {
    let done = place.run(&["sync"]);
    assert_eq!(done.code, 0, "{when}: {}", done.stderr);
    assert_warehouses_equal(place, &Expected::now(service), when);
}

/// Asserts that each warehouse has exactly the service's rows, ignoring vanished rows: whether a scan saw a row before
/// it vanished depends on timing.
fn assert_live_rows(place: &Place, service: &Service, when: &str) {
    let expected = Expected::now(service);
    for (name, tables) in place.warehouses() {
        for table in ["responses", "themes", "surveys"] {
            let columns = contract(table).columns.iter();
            let content = columns.filter(|column| column.origin != "load" && column.name != "_row_hash");
            let content: Vec<&str> = content.map(|column| column.name.as_str()).collect();
            let live = tables.rows_where(table, "_vanished_at IS NULL");
            if let Some(difference) = different_rows(table, &content, &expected.rows(table), &live) {
                panic!("{when}, {name}: {difference}");
            }
        }
    }
}
