//! Lost ties under SIGKILL: a kill may prevent the tie probe at a page boundary.

use serde_json::json;
use studysync_sandbox::Settings;

use crate::{
    harness::{NOW_MS, Place, Service, assert_warehouses_equal, days_ago, expected::Expected, small},
    kills::{
        killer::Killer,
        witness::{assert_same, assert_settled, repeats},
    },
};

/// Concurrent windows, and therefore requests in flight at a kill.
const IN_FLIGHT_MAX: usize = 4;

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p2_p3_slow_a_killed_backfill_recovers_lost_ties() {
    const KILLS: usize = 12;
    let settings = small(1500, 20);
    let service = Service::start(Settings { now_ms: NOW_MS + 2 * 60_000, ties_per_ms: 4, ..settings });
    let faults = json!({"ties": "lost", "latency": {"ms": 8, "jitter_ms": 10}, "default_page_rows": 10});
    service.control().merge_faults(faults).unwrap();
    let place = || Place::new(&service).with_config(&super::paged(12));
    let command = ["backfill", "--from", &days_ago(21), "--to", &days_ago(0)].map(str::to_owned);
    let calm = place();
    let mut killer = Killer::new(0x5eed_0011);
    let calm_run = killer.measure(&service, &calm, &command);
    assert_warehouses_equal(&calm, &Expected::now(&service), "undisturbed");
    let mut kills = 0;
    while kills < KILLS {
        let stormy = place();
        service.clear_log();
        let mut round = 0;
        while kills < KILLS && killer.run_and_kill(&service, &stormy, &command, &calm_run, 5) {
            kills += 1;
            round += 1;
        }
        let arguments: Vec<&str> = command.iter().map(String::as_str).collect();
        stormy.run(&arguments).expect(0);
        assert_same(&calm, &stormy, &format!("after {round} kills"));
        assert_settled(&stormy);
        let repeated = repeats(&service.log());
        assert!(
            repeated.len() <= (round + 1) * IN_FLIGHT_MAX,
            "{round} kills, {} repeated: {repeated:?}",
            repeated.len()
        );
    }
}
