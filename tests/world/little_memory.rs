//! The minimum memory setting is enough to load 400,000 answers, compare them column by column, rebuild them and erase
//! from them. A load uses at most a quarter more (P8).

use crate::harness::{ALL_FLAGS, Done, Place, Service, days_ago, small};

const RESPONSES: u64 = 400_000;
const DAYS: u32 = 365;
/// The least for one warehouse.
const MEMORY: &str = "[warehouse]\nmemory_limit_mb = 256\n";

fn assert_within_a_quarter(done: &Done) {
    let peak = done.json()["peak_rss_bytes"].as_u64().unwrap();
    assert!(peak <= (256 * 5 / 4) << 20, "{} MiB", peak >> 20);
}

fn works_in_the_least_memory(choose: fn(Place) -> Place) {
    let mut settings = small(RESPONSES, DAYS);
    settings.hostile_share = 0.002;
    let service = Service::start(settings);
    let since = days_ago(i64::from(DAYS) + 1);
    let backfill = ["backfill", "--from", &since];
    let place = choose(Place::new(&service)).with_config(MEMORY);
    let done = place.run(&[&backfill[..], &["--json"]].concat());
    assert!(matches!(done.code, 0 | 3), "rejects need a look, nothing else: {}", done.stderr);
    assert_within_a_quarter(&done);
    // With flags each row is compared with the one that is there.
    let place = place.with_config(&format!("{ALL_FLAGS}{MEMORY}"));
    let done = place.run(&[&backfill[..], &["--json"]].concat());
    assert!(matches!(done.code, 0 | 3), "{}", done.stderr);
    assert_within_a_quarter(&done);
    let done = place.run(&["replay"]);
    assert!(matches!(done.code, 0 | 3), "{}", done.stderr);
    let counts = place.run(&["query", "SELECT count(*) FROM responses", "--format", "csv"]).expect(0);
    let rows: u64 = counts.stdout.lines().last().unwrap().parse().unwrap();
    assert!(rows > RESPONSES * 9 / 10, "{rows}");
    let done = place.run(&["erase", "--user-id", "user-17", "--local-only", "--yes"]);
    assert!(matches!(done.code, 0 | 3), "{}", done.stderr);
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p8_slow_duckdb_works_with_the_minimum_memory() {
    works_in_the_least_memory(Place::without_parquet);
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p8_slow_parquet_works_with_the_minimum_memory() {
    works_in_the_least_memory(Place::without_duckdb);
}
