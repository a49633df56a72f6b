//! One part of a setup is lost, replaced or added between two runs. The ledgers prove what is complete, and the next
//! run pulls the rest again.

use super::{
    MANY_WINDOWS, backfill,
    killer::{Killer, Measured},
    run_to_the_end, service_with_latency, slow_service,
    witness::{Before, assert_same, assert_settled_but, window},
};
use crate::harness::{Place, Service};
use studysync_sandbox::Latency;

const DAYS: i64 = 12;

/// One window per day, so that a run has committed some windows while others are pending.
fn place(service: &Service) -> Place {
    Place::new(service).with_config(&MANY_WINDOWS.replace("page_rows = 9", "page_rows = 3"))
}

/// A service, an undisturbed place, and a place whose backfill was killed several times before its end.
fn half_done(seed: u64) -> (Service, Place, Place) {
    // The service is so slow that windows become durable during the run, and not all at the end.
    let service = service_with_latency(360, DAYS as u32, Latency { ms: 80, jitter_ms: 40, per_row_us: 0 });
    let calm = place(&service);
    let mut killer = Killer::new(seed);
    let measured = killer.measure(&service, &calm, &backfill(DAYS));
    let stormy = kill_half_way(&service, &mut killer, &measured, || place(&service));
    (service, calm, stormy)
}

/// Repeats until a kill hits a run that has committed some windows and not all.
fn kill_half_way(service: &Service, killer: &mut Killer, calm: &Measured, place: impl Fn() -> Place) -> Place {
    for _ in 0..20 {
        let stormy = place();
        let is_killed = killer.kill_after_requests(
            service,
            &stormy,
            &backfill(DAYS),
            calm.requests * 6 / 10,
            std::time::Duration::ZERO,
        );
        if is_killed && stormy.duckdb_tables().count("SELECT count(*) FROM sync_windows WHERE stream = 'responses'") > 1
        {
            return stormy;
        }
    }
    panic!("no kill hit a run half-way");
}

#[test]
fn p2_p6_lost_checkpoints_are_rebuilt_from_the_ledgers() {
    let (service, calm, stormy) = half_done(0x5eed_0011);
    // The coverage that both ledgers prove. Parquet commits are pending outside of the table folders, so a run without
    // other work publishes them first.
    let before = Before::read(&stormy, service.control().stats().requests);
    std::fs::remove_dir_all(stormy.path("state")).unwrap();
    run_to_the_end(&stormy, &backfill(DAYS));
    assert_same(&calm, &stormy, "after the checkpoints were lost");
    assert_settled_but(&stormy, 1);
    // One commit may be in one warehouse and not in the other. Only that window is requested again.
    let again: Vec<_> = service.log().into_iter().filter(|entry| before.is_covered(entry)).collect();
    // A tie probe requests one millisecond of its window.
    let windows = again.iter().filter_map(window).filter(|window| window.len_ms() > 1);
    let windows: std::collections::BTreeSet<_> = windows.collect();
    assert!(windows.len() <= 1, "{windows:?}");
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p2_slow_the_next_backfill_fills_a_new_warehouse() {
    let service = slow_service(900, DAYS as u32);
    let calm = place(&service);
    run_to_the_end(&calm, &backfill(DAYS));
    let alone = place(&service).without_parquet();
    run_to_the_end(&alone, &backfill(DAYS));
    let both = super::killer::copy_of(&alone, place(&service));
    service.clear_log();
    run_to_the_end(&both, &backfill(DAYS));
    assert!(!service.log().is_empty(), "the new warehouse cannot be filled without asking");
    assert_same(&calm, &both, "with Parquet added later");
    service.clear_log();
    run_to_the_end(&both, &backfill(DAYS));
    assert_eq!(service.log(), [], "now both are filled");
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p2_slow_a_deleted_warehouse_is_refilled_despite_checkpoints() {
    let (_service, calm, stormy) = half_done(0x5eed_0012);
    std::fs::remove_file(stormy.duckdb()).unwrap();
    let _ = std::fs::remove_file(stormy.path("warehouse.duckdb.wal"));
    run_to_the_end(&stormy, &backfill(DAYS));
    assert_same(&calm, &stormy, "after the DuckDB file was deleted");
    std::fs::remove_dir_all(stormy.parquet()).unwrap();
    run_to_the_end(&stormy, &backfill(DAYS));
    assert_same(&calm, &stormy, "after the Parquet folder was deleted");
}
