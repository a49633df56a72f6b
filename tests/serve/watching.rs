//! `/healthz`, `/readyz` and `/metrics`: red when somebody must act, with the run's own messages, and green after the
//! recovery.

use serde_json::Value;
use studysync::state::Inbox;

use super::{IDLE, Serving, place_for, until};
use crate::harness::{Place, Service, small};

fn codes(health: &Value) -> Vec<(String, bool)> {
    let reasons = health["reasons"].as_array().unwrap();
    reasons.iter().map(|reason| (reason["code"].as_str().unwrap().to_owned(), reason["is_failing"] == true)).collect()
}

/// Waits until the page has this status, and returns its JSON.
fn health(serving: &Serving, status: u16) -> Value {
    let mut last = (0, String::new());
    until("the health", || {
        last = serving.get("/healthz");
        last.0 == status
    });
    let health: Value = serde_json::from_str(&last.1).unwrap();
    assert_eq!(health["healthy"], status == 200, "{health:#}");
    assert_eq!(serving.metric("healthy"), i64::from(status == 200));
    health
}

fn sync(place: &Place, key: &str, code: i32) -> Value {
    let mut command = place.command(&["sync", "--json"]);
    crate::harness::Done::from(command.env(crate::harness::KEY_VARIABLE, key).output().unwrap()).expect(code).json()
}

#[test]
fn failed_nights_turn_healthz_red_and_leave_readyz_green() {
    let service = Service::start(small(120, 4));
    let place = place_for(&service, IDLE);
    let serving = Serving::start(&place);
    assert_eq!(codes(&health(&serving, 200)), [("never_ran".to_owned(), false)]);
    let report = sync(&place, "another", 4);
    let red = health(&serving, 503);
    assert_eq!(codes(&red), [("key_refused".to_owned(), true)], "{red:#}");
    for (field, of_the_run) in [("text", "why"), ("hint", "hint")] {
        assert_eq!(red["reasons"][0][field], report[of_the_run], "the words of the run");
    }
    assert_eq!(red["last_run"]["run_id"], report["run_id"]);
    assert!(red["status"].as_str().unwrap().contains(report["why"].as_str().unwrap()), "{red:#}");
    assert_eq!(serving.get("/readyz").0, 200, "a restart mends no key");
    let metrics = serving.get("/metrics").1;
    for (name, value) in [
        ("health_reason{reason=\"key_refused\"}", 1.0),
        ("health_reason{reason=\"disk_full\"}", 0.0),
        ("last_run_exit_code", 4.0),
        ("failed_runs_in_a_row", 1.0),
    ] {
        assert_eq!(crate::harness::sample(&metrics, name), Some(value), "{name} in {metrics}");
    }
    assert!(crate::harness::sample(&metrics, "run_requests{status=\"403\"}").is_some(), "{metrics}");
    let report = sync(&place, crate::harness::KEY, 0);
    let green = health(&serving, 200);
    assert_eq!((green["failures_in_a_row"].as_i64(), green["status"].as_str()), (Some(0), Some("ok")), "{green:#}");
    let metrics = serving.get("/metrics").1;
    let inserted = &report["streams"]["responses"]["inserted"];
    let rows = crate::harness::sample(&metrics, "run_rows{stream=\"responses\",fate=\"inserted\"}");
    assert_eq!(rows, inserted.as_f64(), "{metrics}");
    let success = crate::harness::sample(&metrics, "last_success_timestamp_seconds{command=\"sync\"}");
    assert!(success.is_some_and(|at| at > 1e9), "{metrics}");
    serving.stop();
}

#[test]
fn a_lagging_stream_turns_healthz_red_after_one_night() {
    let service = Service::start(small(120, 4));
    let place = place_for(&service, &format!("max_lag = \"5m\"\n{IDLE}"));
    let serving = Serving::start(&place);
    assert_eq!(codes(&health(&serving, 200)), [("never_ran".to_owned(), false)], "before the first night");
    // Answers of the last ten minutes are left to the next run, so the lag always exceeds this limit.
    sync(&place, crate::harness::KEY, 0);
    let red = health(&serving, 503);
    assert!(codes(&red).contains(&("behind".to_owned(), true)), "{red:#}");
    let status = place.run(&["status", "--max-lag", "5m"]).expect(3).stdout;
    let text = red["reasons"][0]["text"].as_str().unwrap();
    assert!(status.contains(&format!("BEHIND  {text}\n")), "{text} in {status}");
    let lag_secs = red["lag_secs"]["responses"].as_i64().unwrap();
    let metrics = serving.get("/metrics").1;
    let lag = crate::harness::sample(&metrics, "lag_seconds{stream=\"responses\"}").unwrap();
    assert!((0..60).contains(&(lag as i64 - lag_secs)), "{lag}, {lag_secs}");
    serving.stop();
}

#[test]
fn readyz_is_red_until_deliveries_can_be_stored_again() {
    let service = Service::start(small(60, 3));
    let place = place_for(&service, IDLE);
    let serving = Serving::start(&place);
    until("the start", || serving.get("/readyz").0 == 200);
    serving.stop();
    let inbox = rusqlite::Connection::open(Inbox::path_of(&place.state())).unwrap();
    let serving = Serving::start(&place);
    let rename = |from: &str, to: &str| inbox.execute(&format!("ALTER TABLE {from} RENAME TO {to}"), []).unwrap();
    rename("meta", "meta_away");
    // No delivery arrives: `serve` tests the inbox by itself.
    until("the first probe", || {
        serving.get("/readyz") == (503, "{\"status\":\"deliveries cannot be stored\"}".to_owned())
    });
    let red = health(&serving, 503);
    assert_eq!(codes(&red)[0], ("deliveries_not_stored".to_owned(), true), "{red:#}");
    assert_eq!(serving.metric("storing"), 0);
    rename("meta_away", "meta");
    until("the next probe", || serving.get("/readyz").0 == 200);
    health(&serving, 200);
    serving.stop();
}
