//! The report through the real binary, parsed as a browser parses it: its numbers equal the views, its texts are
//! escaped, and it needs no other file.

mod analysts;
mod changes;
mod harmless;
mod page;
mod truth;

use studysync_sandbox::Settings;

use crate::harness::{Place, Service, days_ago, small};
use page::Page;

/// Runs a command on one of the warehouses.
type Run = fn(&Place, &[&str]) -> crate::harness::Done;
const KINDS: [(&str, Run); 2] = [("DuckDB", Place::run), ("Parquet", Place::run_on_parquet)];

fn report(place: &Place, run: Run, arguments: &[&str]) -> Page {
    let done = run(place, &[&["report"], arguments].concat()).expect(0);
    assert_eq!(done.stderr, "");
    Page::parse(&done.stdout)
}

/// A warehouse of several weeks with hostile rows.
fn rich() -> (Service, Place) {
    let service = Service::start(Settings { hostile_share: 0.05, ..small(7000, 45) });
    let place = Place::new(&service);
    let done = place.run(&["backfill", "--from", &days_ago(50)]);
    assert!(done.code == 0 || done.code == 3, "{}", done.stderr);
    (service, place)
}
