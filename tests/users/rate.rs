//! Users under a rate limit: pulled at the allowed rate, and no request too early (P5).

use studysync_sandbox::{Faults, RateLimit, RetryAfterForm, Settings};

use super::asked;
use crate::{
    gate::assert_obeyed,
    harness::{Place, Service, small},
};

/// Pulls this many users under a rate limit, and returns the seconds from the first request to the last.
fn pull_under(people: usize, per_second: f64) -> f64 {
    let service = Service::start(Settings { frozen_clock: false, ..small(50, 5) });
    let place = Place::new(&service).without_parquet();
    let ids: Vec<String> = (0..people).map(|number| format!("person-{number}")).collect();
    for user_id in &ids {
        assert_eq!(service.control().upsert_user(&format!("{{\"userId\":\"{user_id}\"}}")), 202);
    }
    let limit = RateLimit { per_second, burst: 10, form: RetryAfterForm::Fraction, ..RateLimit::default() };
    service.set_faults(Faults { rate_limit: limit, ..Faults::default() });
    service.clear_log();
    let arguments = ["users", "pull", "--user-id"].into_iter().chain(ids.iter().map(String::as_str));
    let report = place.report(&arguments.collect::<Vec<_>>(), 0);
    assert_eq!(report["streams"]["users"]["inserted"], people, "{report}");
    let log = service.log();
    assert_obeyed(&log, "people");
    let asked = asked(&log);
    assert!(asked.iter().filter(|entry| entry.status == 200).count() == people);
    (asked.last().unwrap().arrived_us - asked[0].arrived_us) as f64 / 1e6
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p5_slow_users_are_pulled_at_the_rate_limit_and_never_early() {
    let (people, per_second) = (400, 25.0);
    let secs = pull_under(people, per_second);
    let least = (people as f64 - 10.0) / per_second;
    assert!(secs < least * 1.7, "{secs:.1} s; the limit allows {least:.1}");
}

/// The performance goal of pulling users. Takes two minutes, nearly all of them waiting.
#[test]
#[ignore = "takes two minutes"]
fn p5_a_thousand_users_are_pulled_at_ten_a_second() {
    let secs = pull_under(1000, 10.0);
    eprintln!("1000 people in {secs:.1} s; the limit allows 99");
    assert!(secs < 99.0 * 1.25, "{secs:.1} s");
}
