//! The minimum memory setting is enough to load 400,000 answers, compare them column by column, rebuild them and erase
//! from them. A load uses at most a quarter more (P8).

use super::assert_live_rows;
use crate::harness::{ALL_FLAGS, Done, Place, Service, days_ago, small};

const RESPONSES: u64 = 400_000;
const DAYS: u32 = 365;
/// The least for one warehouse.
const MEMORY: &str = "[warehouse]\nmemory_limit_mb = 256\n";

const MIB: u64 = 1 << 20;
/// A quarter more than [`MEMORY`].
const PEAK_BYTES_MAX: u64 = 256 * 5 / 4 * MIB;

fn peak_bytes(done: &Done) -> u64 {
    done.json()["peak_rss_bytes"].as_u64().unwrap()
}

fn assert_within_a_quarter(done: &Done) {
    assert!(peak_bytes(done) <= PEAK_BYTES_MAX, "{} MiB", peak_bytes(done) / MIB);
}

/// Loads records that each have a text of `text_bytes`, with all flags, and requires that all of them are there.
/// Returns the peak memory in bytes.
fn peak_with_wide_records(choose: fn(Place) -> Place, records: u64, text_bytes: u32) -> u64 {
    let mut settings = small(records, 20);
    settings.text_bytes = text_bytes;
    let service = Service::start(settings);
    let place = choose(Place::new(&service)).with_config(&format!("{ALL_FLAGS}{MEMORY}"));
    let done = place.run(&["backfill", "--from", &days_ago(21), "--json"]).expect(0);
    assert_live_rows(&place, &service, "wide records");
    peak_bytes(&done)
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
fn p8_slow_parquet_loads_records_of_any_width() {
    for (records, text_bytes) in [(16_000, 30 << 10), (2_000, 304 << 10), (600, 1 << 20)] {
        let peak = peak_with_wide_records(Place::without_duckdb, records, text_bytes);
        assert!(peak <= PEAK_BYTES_MAX, "{text_bytes}: {} MiB", peak / MIB);
    }
}

/// DuckDB reads and writes 2,048 rows of a column together, so wider records need more than the limit.
#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p8_slow_duckdb_loads_records_of_any_width() {
    for (records, text_bytes, peak_mib) in [(100_000, 4 << 10, 320), (16_000, 30 << 10, 512), (600, 1 << 20, 2048)] {
        let peak = peak_with_wide_records(Place::without_parquet, records, text_bytes);
        assert!(peak <= peak_mib * MIB, "{text_bytes}: {} MiB", peak / MIB);
    }
}

#[test]
fn p8_windows_of_wide_records_are_cut_until_they_fit() {
    peak_with_wide_records(Place::without_parquet, 120, 512 << 10);
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
