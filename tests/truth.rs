//! The warehouse against what the service says that it holds, row by row and column by column.

use crate::harness::{Place, Service, days_ago, small};

#[test]
fn p1_smoke() {
    let service = Service::start(small(3_000, 60));
    let place = Place::new(&service);
    let report = place.report(&["backfill", "--from", &days_ago(61)], 0);
    for (name, tables) in place.warehouses() {
        let rows = tables.rows("responses");
        assert_eq!(rows.len(), 3_000, "{name} {report}");
    }
}
