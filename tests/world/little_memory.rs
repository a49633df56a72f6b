//! The minimum memory setting is enough to load 400,000 answers, compare them column by column, rebuild them and erase
//! from them. A load uses at most a quarter more (P8). Wide records may need more, but no command fails because of
//! them.

use studysync_sandbox::ChangeRequest;

use super::assert_live_rows;
use crate::harness::{ALL_FLAGS, DAY_MS, Done, Place, Service, days_ago, small};

const RESPONSES: u64 = 400_000;
const DAYS: u32 = 365;
/// The minimum for one warehouse.
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

/// Loads records with a text of `text_bytes` each, with all flags, and asserts that all of them are stored. Returns the
/// peak memory in bytes.
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
    // With flags, each row is compared with the stored row.
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

/// Loads wide records with the minimum memory, which is less than DuckDB needs to read 2,048 of them together, and
/// edits some of them. The windows are cut until they fit.
fn synced_wide_records() -> (Service, Place) {
    let mut settings = small(250, 20);
    settings.text_bytes = 512 << 10;
    let service = Service::start(settings);
    let place = Place::without_parquet(Place::new(&service)).with_config(&format!("{ALL_FLAGS}{MEMORY}"));
    place.run(&["backfill", "--from", &days_ago(21)]).expect(0);
    assert_live_rows(&place, &service, "wide records");
    service.advance_days(1);
    let within_ms = Some(20 * DAY_MS);
    service.change(&ChangeRequest { seed: 3, edits: 12, soft_deletes: 3, within_ms, ..ChangeRequest::default() });
    let done = place.run(&["sync"]).expect(0);
    // Which of the two limits is met first depends on the order in which windows arrive.
    let limits = ["DuckDB needs more memory than memory_limit_mb leaves it", "take too much memory; it is cut"];
    assert!(limits.iter().any(|limit| done.stderr.contains(limit)), "{}", done.stderr);
    assert_live_rows(&place, &service, "edited wide records");
    (service, place)
}

#[test]
fn p8_edits_of_wide_records_are_applied() {
    synced_wide_records();
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p8_slow_every_command_works_on_wide_records() {
    let (service, place) = synced_wide_records();
    place.run(&["verify", "--from", &days_ago(21)]).expect(0);
    place.run(&["replay"]).expect(0);
    assert_live_rows(&place, &service, "replayed wide records");
    place.run(&["erase", "--user-id", "user-000008", "--local-only", "--yes"]).expect(0);
    place.run(&["backfill", "--from", &days_ago(21)]).expect(0);
    place.run(&["verify", "--from", &days_ago(21)]).expect(0);
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
