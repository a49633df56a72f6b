//! Promise P5 through the real program: it uses the rate that the service allows, and never sends a request too early.

use std::{collections::BTreeSet, thread};

use serde_json::Value;
use studysync_sandbox::{Faults, LogEntry, RateLimit, Refusal, RetryAfter, RetryAfterForm, Settings, When};

use crate::harness::{DAY_MS, NOW_MS, Place, Service, days_ago, small};

const PER_SECOND: f64 = 10.0;
const BURST: u32 = 10;
/// The minimum share of the allowed requests that a run must use on a busy machine. The simulation of the rate limit
/// checks the exact share.
const USE_MIN: f64 = 0.4;
/// A request that was sent before the refusal arrived could not obey it. On a busy machine the refusal arrives late.
const ON_ITS_WAY_US: u64 = 900_000;
const SMALL_PAGES: &str = "[streams.responses]\npage_rows = 20\n";

/// About 170 pages of answers in 30 days.
fn limited(rate_limit: RateLimit) -> Service {
    let settings = small(3400, 30);
    let faults = Faults { rate_limit, ..settings.faults.clone() };
    // The clock runs, so that an HTTP date is in the future.
    Service::start(Settings { frozen_clock: false, faults, ..settings })
}

fn place(service: &Service) -> Place {
    Place::new(service).without_parquet().with_config(SMALL_PAGES)
}

/// The arguments of a backfill of answers between two days before the service's today.
fn backfill(from: i64, to: i64) -> Vec<String> {
    let day = |ago: i64| ((NOW_MS / DAY_MS - ago) * DAY_MS).to_string();
    ["backfill", "--stream", "responses", "--from", &day(from), "--to", &day(to)].map(str::to_owned).into()
}

fn report(place: &Place, command: &[String], more: &[&str], code: i32) -> Value {
    let arguments: Vec<&str> = command.iter().map(String::as_str).chain(more.iter().copied()).collect();
    place.report(&arguments, code)
}

fn refused(log: &[LogEntry]) -> usize {
    log.iter().filter(|entry| entry.status == 429).count()
}

/// Asserts that no request came before the time of `Retry-After`, except requests that were in flight when it was sent.
pub fn assert_obeyed(log: &[LogEntry], what: &str) {
    assert_obeyed_after(log, ON_ITS_WAY_US, what);
}

pub fn assert_obeyed_after(log: &[LogEntry], on_its_way_us: u64, what: &str) {
    let early = log.iter().filter(|entry| entry.told_us_ago.is_some_and(|ago| ago > on_its_way_us));
    let early: Vec<_> = early.map(|entry| (entry.seq, entry.early_us, entry.told_us_ago)).collect();
    assert!(early.is_empty(), "{what}: sent before the told time: {early:?}");
}

/// The used share of the requests that the bucket allowed, from the first request to the last. Time in which the run
/// parsed and wrote does not count: a busy machine makes it long, and it does not depend on the rate limit.
fn used_share(log: &[LogEntry], report: &Value) -> f64 {
    let arrived = |entry: Option<&LogEntry>| entry.map_or(0, |entry| entry.arrived_us);
    let work_ms = time_ms(report, "parse") + time_ms(report, "write");
    let secs = (arrived(log.last()) - arrived(log.first())) as f64 / 1e6 - work_ms as f64 / 1e3;
    let admitted = log.iter().filter(|entry| entry.status == 200).count();
    admitted as f64 / (f64::from(BURST) + PER_SECOND * secs)
}

fn time_ms(report: &Value, part: &str) -> u64 {
    report["time_ms"][part].as_u64().unwrap_or_else(|| panic!("no {part} in {report}"))
}

fn assert_parts_add_up(report: &Value) {
    let parts = ["network", "told_to_wait", "chose_to_wait", "parse", "write", "idle"];
    let sum: u64 = parts.into_iter().map(|part| time_ms(report, part)).sum();
    let wall = time_ms(report, "wall");
    // Each part is rounded down to whole milliseconds.
    assert!(sum <= wall && wall - sum <= parts.len() as u64, "{sum} of {wall}: {}", report["time_ms"]);
}

/// Runs the program twice in one place under a rate limit.
fn obey(form: RetryAfterForm) {
    use RetryAfterForm::{EpochMillis, Fraction, HttpDate, Seconds};
    let told = matches!(form, Seconds | Fraction | HttpDate | EpochMillis);
    let min_wait_ms = if form == RetryAfterForm::Fraction { 1250 } else { 0 };
    let service = limited(RateLimit { per_second: PER_SECOND, burst: BURST, form, min_wait_ms, in_flight_max: 0 });
    let place = place(&service);

    let first = report(&place, &backfill(30, 10), &[], 0);
    let log = service.log();
    let (requests, refusals) = (log.len(), refused(&log));
    assert!(requests >= 110, "{form:?}: {requests} requests");
    assert!(refusals > 0, "{form:?}: the limit was never met");
    assert_obeyed(&log, &format!("{form:?}"));
    let share = used_share(&log, &first);
    assert!(share >= USE_MIN, "{form:?}: {:.1} % of the allowed rate, {refusals} refused", share * 100.0);
    assert_eq!(first["requests"]["total"].as_u64(), Some(requests as u64));
    assert_eq!(first["requests"]["by_status"]["429"].as_u64(), Some(refusals as u64));
    assert_parts_add_up(&first);
    assert_eq!(time_ms(&first, "told_to_wait") > 0, told, "{form:?}: {}", first["time_ms"]);
    assert!(time_ms(&first, "chose_to_wait") > 0, "{form:?}: {}", first["time_ms"]);

    let status = place.run(&["status", "--json"]).expect(0).json();
    let learned = status["requests_per_sec"].as_f64().unwrap_or_else(|| panic!("{form:?}: no rate in {status}"));
    assert!((PER_SECOND * 0.2..PER_SECOND * 1.3).contains(&learned), "{form:?}: {learned} a second learned");

    service.clear_log();
    let second = report(&place, &backfill(10, 0), &[], 0);
    let log = service.log();
    assert!(log.len() >= 40, "{form:?}: {} requests", log.len());
    assert_obeyed(&log, &format!("{form:?}, second run"));
    assert!(refused(&log) < refusals, "{form:?}: {refusals} refusals, then {}", refused(&log));
    assert!(time_ms(&second, "chose_to_wait") > 0, "{form:?}: the learned rate was forgotten");
}

#[test]
fn p5_every_form_of_429_is_obeyed_near_the_allowed_rate() {
    use RetryAfterForm::{Absent, EpochMillis, Fraction, Garbage, HttpDate, Negative, PastDate, Seconds, Zero};
    let forms = [Absent, Seconds, Fraction, HttpDate, EpochMillis, Zero, Negative, PastDate, Garbage];
    // The cases mostly wait, so they run in parallel.
    let threads = forms.map(|form| (form, thread::spawn(move || obey(form))));
    let failed: BTreeSet<String> =
        threads.into_iter().filter_map(|(form, thread)| thread.join().is_err().then(|| format!("{form:?}"))).collect();
    assert!(failed.is_empty(), "see above: {failed:?}");
}

fn refusing(skip: u64, wait_ms: u64) -> Service {
    refusing_once(small(3400, 30), skip, wait_ms)
}

/// A service that answers `skip` requests and then refuses one with a `Retry-After` of `wait_ms`.
pub fn refusing_once(settings: Settings, skip: u64, wait_ms: u64) -> Service {
    let when = When { count: 1, skip, ..When::default() };
    let retry_after = RetryAfter { form: RetryAfterForm::Seconds, wait_ms };
    let faults = Faults { too_many_requests: Refusal { when, retry_after }, ..settings.faults.clone() };
    Service::start(Settings { frozen_clock: false, faults, ..settings })
}

#[test]
fn p5_a_retry_after_beyond_max_wait_ends_the_run_with_its_time() {
    let service = refusing(20, 2 * 3_600_000);
    let place = place(&service);
    let stopped = report(&place, &backfill(30, 0), &[], 6);
    assert_eq!(stopped["outcome"], "stopped_early");
    let why = stopped["stopped_because"].as_str().unwrap();
    let finished = studysync::model::parse_date(stopped["finished_at"].as_str().unwrap()).unwrap();
    let until = why.split_whitespace().find_map(|word| {
        studysync::model::parse_date(word.trim_end_matches(',')).ok().filter(|until| *until > 1_000_000_000_000)
    });
    let until = until.unwrap_or_else(|| panic!("no moment in '{why}'"));
    let wait_secs = (until - finished) / 1000;
    assert!((7100..=7200).contains(&wait_secs), "{wait_secs} s: {why}");
    assert!(why.contains("as the service asked"), "{why}");
    assert!(time_ms(&stopped, "told_to_wait") < 60_000, "it sat there");
    // At the refusal at most three other requests are in flight, and each answer that is read before the refusal allows
    // one more.
    let log = service.log();
    assert!(log.len() <= 21 + 2 * 3, "{} requests after the refusal", log.len() - 21);
    // A busy machine may be slow, but this tolerance is small compared with two hours.
    assert_obeyed_after(&log, 10 * ON_ITS_WAY_US, "two hours");
}

#[test]
fn p5_a_run_stops_at_its_deadline_and_the_next_one_resumes() {
    let service = limited(RateLimit { per_second: 2.0, burst: 5, ..RateLimit::default() });
    let place = place(&service);
    let stopped = report(&place, &backfill(15, 0), &["--deadline", "10s"], 6);
    assert_eq!(stopped["outcome"], "stopped_early");
    assert!(stopped["stopped_because"].as_str().unwrap().contains("deadline"), "{stopped}");
    let log = service.log();
    // The simulation checks the exact time. Here the complete list would take 40 s.
    let span_us = log.last().unwrap().arrived_us - log.first().unwrap().arrived_us;
    assert!(span_us <= 30_000_000, "the last request came {span_us} us after the first");
    assert!(log.len() < 50, "{} requests: the limit was not in force", log.len());
    service.set_faults(Faults::default());
    let rest = report(&place, &backfill(15, 0), &[], 0);
    assert_eq!(rest["outcome"], "done");
    let responses = place.duckdb_tables().count("SELECT count(*) FROM responses");
    assert!(responses > 1400, "{responses}");
}

#[test]
fn p5_a_run_does_not_start_a_wait_past_its_deadline() {
    let service = refusing(5, 30_000);
    let place = place(&service);
    let stopped = report(&place, &backfill(30, 0), &["--deadline", "10s"], 6);
    assert!(stopped["stopped_because"].as_str().unwrap().contains("deadline"), "{stopped}");
    assert!(time_ms(&stopped, "told_to_wait") < 9_000, "it waited for nothing: {}", stopped["time_ms"]);
    assert!(service.log().len() <= 9, "{} requests", service.log().len());
}

#[test]
fn p5_a_retry_after_binds_every_later_command() {
    let service = refusing(5, 2 * 3_600_000);
    let place = place(&service);
    let stopped = report(&place, &backfill(30, 0), &[], 6);
    let said = stopped["stopped_because"].as_str().unwrap();
    let minute = said.split_whitespace().find(|word| word.contains('T')).unwrap()[..16].to_owned();
    service.clear_log();
    std::fs::write(place.path("users.csv"), "userId\nuser-1\n").unwrap();
    let from = days_ago(30);
    let commands: [&[&str]; 7] = [
        &["sync"],
        &["backfill", "--from", &from],
        &["users", "pull", "--user-id", "user-1"],
        &["users", "push", "users.csv"],
        &["verify", "--from", &from],
        &["check"],
        &["check", "--traits"],
    ];
    for command in commands {
        let done = place.run(command).expect(6);
        let said = format!("{}{}", done.stdout, done.stderr);
        assert!(said.contains("no request before") && said.contains(&minute), "{command:?}, {minute}: {said}");
        assert_eq!(service.log(), [], "{command:?} asked before it may");
    }
    let status = place.run(&["status"]).expect(0).stdout;
    assert!(status.contains("no request before") && status.contains(&minute), "{status}");
    let plan = place.run(&["plan"]).expect(0).stdout;
    assert!(plan.contains("rate limited: no request before") && plan.contains(&minute), "{plan}");
    assert!(
        plan.contains("Z, which is in 1 h 5") && plan.contains("longer than 1 h sends nothing; its exit code is 6\n"),
        "{plan}"
    );
    let plan = place.run(&["plan", "--json"]).expect(0).json();
    assert!(plan["no_request_before"].as_str().unwrap().starts_with(&minute), "{plan}");
    assert!((6_000..=7_200).contains(&plan["wait_secs"].as_u64().unwrap()) && plan["max_wait_secs"] == 3600, "{plan}");
    // A flag overrides the wait. Once the service answers, no wait is left.
    place.run(&["sync", "--stream", "surveys", "--ignore-rate-limit"]).expect(0);
    assert!(!service.log().is_empty());
    assert!(!place.run(&["plan"]).expect(0).stdout.contains("no request before"));
    place.run(&["sync", "--stream", "surveys"]).expect(0);
}

#[test]
fn p5_a_retry_after_seen_by_check_binds_the_next_run() {
    let service = Service::start(small(60, 3));
    let place = place(&service);
    place.run(&["sync", "--stream", "surveys"]).expect(0);
    let told = serde_json::json!({"too_many_requests": {"when": {"count": 1}, "retry_after": {"wait_ms": 7_200_000}}});
    service.control().merge_faults(told).unwrap();
    let done = place.run(&["check"]).expect(6);
    assert!(done.stdout.contains("--ignore-rate-limit"), "{}", done.stdout);
    service.clear_log();
    place.run(&["sync"]).expect(6);
    assert_eq!(service.log(), []);
    place.run(&["sync", "--ignore-rate-limit"]).expect(0);
}

#[test]
fn p5_a_retry_after_survives_a_killed_run() {
    let service = refusing(3, 600_000);
    let place = place(&service);
    let mut child = place.spawn(&backfill(30, 0).iter().map(String::as_str).collect::<Vec<_>>());
    let kept = "SELECT count(*) FROM traits WHERE name = 'told_wait'";
    let is_kept = || {
        let state = rusqlite::Connection::open(place.state()).ok()?;
        state.query_row(kept, [], |row| row.get::<_, i64>(0)).ok().filter(|count| *count > 0)
    };
    let begun = std::time::Instant::now();
    while is_kept().is_none() {
        assert!(begun.elapsed().as_secs() < 60, "the wait is not written down");
        thread::sleep(std::time::Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    service.clear_log();
    let stopped = report(&place, &backfill(30, 0), &["--deadline", "60s"], 6);
    assert!(stopped["stopped_because"].as_str().unwrap().contains("deadline"), "{stopped}");
    assert_eq!(service.log(), []);
}
