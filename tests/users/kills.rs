//! A pull of users that is killed several times ends like an undisturbed one, and requests few users twice (P2, P6).

use std::{collections::BTreeSet, time::Duration};

use studysync_sandbox::{Faults, Latency, Settings};

use super::{asked, assert_users_equal, people_of};
use crate::{
    harness::{ALL_FLAGS, Place, Service, days_ago, small},
    kills::killer::{Killer, Random},
};

const KILLS: u64 = 5;
/// The maximum number of users that a kill makes the next run request again: one unwritten page, and the requests in
/// flight.
const LOST_BY_A_KILL_MAX: usize = 100 + 8;

#[test]
fn p2_p6_five_kills_leave_each_user_in_the_warehouses_once() {
    let settings = small(12_000, 20);
    let faults = Faults { latency: Latency { ms: 4, ..Latency::default() }, ..settings.faults.clone() };
    let service = Service::start(Settings { faults, ..settings });
    let place = Place::new(&service).with_config(ALL_FLAGS);
    place.report(&["backfill", "--from", &days_ago(21)], 0);
    let people: BTreeSet<String> = people_of(&service).into_keys().collect();
    assert!(people.len() > 800, "{}", people.len());
    service.clear_log();
    let command = ["users", "pull", "--concurrency", "8"].map(str::to_owned);
    let (mut killer, mut random) = (Killer::new(7), Random(7));
    let mut kills = 0;
    for _ in 0..KILLS {
        let after_requests = random.below(people.len() as u64 / KILLS);
        let after = Duration::from_micros(random.below(60_000));
        kills += usize::from(killer.kill_after_requests(&service, &place, &command, after_requests, after));
    }
    assert!(kills >= 3, "{kills} kills");
    place.report(&["users", "pull"], 0);
    assert_users_equal(&place, &people, "_vanished_at IS NULL");
    let log = service.log();
    let twice = asked(&log).len() - people.len();
    assert!(twice <= kills * LOST_BY_A_KILL_MAX, "{twice} people were asked for twice");
    for (name, tables) in place.warehouses() {
        assert_eq!(tables.count("SELECT count(*) FROM users"), people.len() as i64, "{name}");
        let current = "SELECT count(*) - count(DISTINCT (external_user_id, name)) FROM user_attributes";
        assert_eq!(tables.count(current), 0, "{name}: every value has one version");
    }
    service.clear_log();
    place.report(&["users", "pull"], 0);
    assert_eq!(asked(&service.log()).len(), 0);
}

#[test]
fn a_pull_of_users_says_what_it_stored_of_other_streams() {
    let settings = small(2_000, 20);
    let faults = Faults { latency: Latency { ms: 60, ..Latency::default() }, ..settings.faults.clone() };
    let service = Service::start(Settings { faults, ..settings });
    let sync = ["sync", "--concurrency", "4"].map(str::to_owned);
    let mut stored = 0;
    for after_requests in [6, 9, 12, 15] {
        let place = Place::new(&service);
        Killer::new(1).kill_after_requests(&service, &place, &sync, after_requests, Duration::from_millis(20));
        // The run commits the scans whose pages the killed run had written.
        let report = place.report(&["users", "pull"], 0);
        for (stream, counts) in report["streams"].as_object().unwrap() {
            assert!(counts["rows_read"] == 0 || counts["reached"] != "none", "{stream}: {report}");
            stored += u64::from(stream != "users" && counts["rows_read"] != 0);
        }
    }
    assert!(stored > 0, "no kill left a complete scan");
}
