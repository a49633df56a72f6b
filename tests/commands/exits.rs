//! Provokes each exit code through the real binary: the message names the cause, and the next run resumes.

use std::{
    process::Child,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::harness::{
    ALL_FLAGS, Done, KEY_VARIABLE, Place, Service, assert_warehouses_equal, days_ago, expected::Expected, small,
};

/// A configuration with many small pages.
fn paged() -> String {
    format!("{ALL_FLAGS}page_rows = 25\n")
}

fn backfill() -> [String; 3] {
    ["backfill".to_owned(), "--from".to_owned(), days_ago(26)]
}

fn run(place: &Place, more: &[&str]) -> Done {
    let backfill = backfill();
    let arguments: Vec<&str> = backfill.iter().map(String::as_str).chain(more.iter().copied()).collect();
    place.run(&arguments)
}

/// Waits until the condition is true; fails the test if it never is.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    const PATIENCE: Duration = Duration::from_secs(60);
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "{what}: not after {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn spawn(place: &Place) -> Child {
    let backfill = backfill();
    place.spawn(&backfill.iter().map(String::as_str).collect::<Vec<_>>())
}

/// The next run resumes, requests nothing that is already stored, and ends equal to the service.
fn assert_goes_on(service: &Service, place: &Place, when: &str) {
    service.set_faults(Default::default());
    run(place, &[]).expect(0);
    assert_warehouses_equal(place, &Expected::now(service), when);
    service.clear_log();
    run(place, &[]).expect(0);
    assert_eq!(service.log(), [], "{when}: the finished backfill asks again");
}

#[test]
fn exit_1_the_error_names_an_unreachable_service() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let place = Place::at(format!("http://{address}"));
    let done = place.run(&["check"]).expect(1);
    assert!(done.stdout.contains("FAIL service"), "{}", done.stdout);
    assert!(done.stdout.contains("hint:"), "{}", done.stdout);
    let done = place.run(&["sync"]).expect(1);
    assert!(done.stderr.contains("error: ") && done.stderr.contains("hint:"), "{}", done.stderr);
    assert_eq!(done.stdout, "");
}

#[test]
fn exit_2_wrong_usage_and_configuration_are_rejected() {
    let place = Place::at("http://127.0.0.1:9");
    let done = place.run(&["backfill", "--from", "2026-01-02", "--to", "2026-01-01"]).expect(2);
    assert!(done.stderr.contains("--to must be later than --from"), "{}", done.stderr);
    place.run(&["sync", "--no-such-flag"]).expect(2);
    place.run(&["sync", "--deadline", "soon"]).expect(2);
    let done = Done::from(place.bare(&["sync", "--base-url", "http://127.0.0.1:9"]).output().unwrap()).expect(2);
    assert!(done.stderr.contains("duckdb"), "no warehouse is named: {}", done.stderr);
    let done = Place::at("http://service.example.com").run(&["sync"]).expect(2);
    assert!(done.stderr.contains("http"), "plain http beyond this machine is refused (P11): {}", done.stderr);
    let done = Place::at("http://127.0.0.1:9").with_env(KEY_VARIABLE, "").run(&["sync"]).expect(2);
    assert!(done.stderr.contains(KEY_VARIABLE), "{}", done.stderr);
    let done = Place::at("http://127.0.0.1:9").with_config("[service]\nbase_ulr = \"x\"\n").run(&["sync"]).expect(2);
    assert!(done.stderr.contains("did you mean 'base_url'?"), "{}", done.stderr);
}

#[test]
fn p10_exit_2_another_service_or_environment_is_refused() {
    let (mine, other) = (Service::start(small(200, 10)), Service::start(small(200, 10)));
    let mut place = Place::new(&mine);
    place.report(&["sync"], 0);
    let before = Expected::now(&mine);
    place.set_base_url(other.base_url());
    let done = place.run(&["sync"]).expect(2);
    assert!(done.stderr.contains("another --state"), "{}", done.stderr);

    // The state file is lost; the warehouses remain.
    std::fs::remove_dir_all(place.path("state")).unwrap();
    std::fs::remove_dir_all(place.path("archive")).unwrap();
    for (only, gone) in [("DuckDB", "parquet"), ("Parquet", "warehouse.duckdb")] {
        let aside = place.path("aside");
        std::fs::rename(place.path(gone), &aside).unwrap();
        let done = place.run(&["sync"]);
        assert_eq!(done.code, 2, "{only}: {}", done.stderr);
        assert!(done.stderr.contains("another warehouse"), "{only}: {}", done.stderr);
        let made = place.path(gone);
        let _ = if made.is_dir() { std::fs::remove_dir_all(&made) } else { std::fs::remove_file(&made) };
        std::fs::rename(&aside, place.path(gone)).unwrap();
        let _ = std::fs::remove_dir_all(place.path("state"));
        let _ = std::fs::remove_dir_all(place.path("archive"));
    }
    place.set_base_url(mine.base_url());
    let place = place.with_config(&format!("[service]\nenvironment = \"staging\"\n{ALL_FLAGS}"));
    place.run(&["sync"]).expect(2);
    assert!(other.log().iter().all(|entry| entry.status == 0), "a refused run asked the other service");
    assert_warehouses_equal(&place, &before, "after the refusals");
}

#[test]
fn exit_4_the_error_says_where_a_refused_key_came_from() {
    let service = Service::start(small(200, 10));
    let place = Place::new(&service).with_env(KEY_VARIABLE, "not-the-key");
    for command in ["sync", "check"] {
        let done = place.run(&[command]).expect(4);
        let said = if command == "check" { &done.stdout } else { &done.stderr };
        assert!(said.contains(KEY_VARIABLE), "{command}: {said}");
        assert!(!done.stderr.contains("not-the-key") && !done.stdout.contains("not-the-key"));
    }
    std::fs::write(place.path("key.txt"), "neither-is-this\n").unwrap();
    let done = place.run(&["sync", "--api-key-file", "key.txt"]).expect(4);
    assert!(done.stderr.contains("key.txt") && !done.stderr.contains("neither-is-this"), "{}", done.stderr);
}

#[test]
fn exit_5_a_second_run_names_the_lease_holder() {
    let service = Service::start(small(400, 24));
    service.control().merge_faults(json!({"latency": {"ms": 400}})).unwrap();
    let place = Place::new(&service).with_config(&paged());
    let first = spawn(&place);
    wait_until("the first run asks the service", || !service.log().is_empty());
    for command in ["sync", "check"] {
        let done = place.run(&[command]).expect(5);
        let said = if command == "check" { &done.stdout } else { &done.stderr };
        assert!(said.contains(&format!("process {}", first.id())), "{command}: {said}");
    }
    assert_eq!(place.report(&["sync"], 5)["reason"], "lease_held");
    assert_eq!(place.report(&["users", "pull"], 5)["reason"], "lease_held");
    let status = place.run(&["status", "--json"]).expect(0).json();
    assert!(status["running"].as_str().unwrap().contains(&first.id().to_string()), "{status}");
    // The runs have one reason, so the health has its hint, and the runs do not repeat it.
    let runs = place.run(&["status"]).expect(0).stdout;
    let parts = ["hint: wait for it to end", "  users pull failed", "  sync     failed", "  backfill running"];
    let order = parts.map(|part| runs.find(part));
    assert_eq!(runs.matches(" hint: ").count(), 1, "{runs}");
    assert!(order.is_sorted() && order.iter().all(Option::is_some), "{order:?}: {runs}");
    service.set_faults(Default::default());
    let first = Done::from(first.wait_with_output().unwrap()).expect(0);
    assert!(first.stderr.contains("backfill done"), "{}", first.stderr);
    let status = place.run(&["status", "--json"]).expect(0).json();
    assert_eq!(status["running"], json!(null));
    let runs = place.run(&["status"]).expect(0).stdout;
    assert!(!runs.contains("hint:"), "no run is active any more: {runs}");
    assert_warehouses_equal(&place, &Expected::now(&service), "after the second run was turned away");
}

#[test]
fn p5_exit_6_limits_end_a_run_early_and_the_next_one_resumes() {
    let service = Service::start(small(700, 24));
    let place = Place::new(&service).with_config(&paged());
    let done = run(&place, &["--max-requests", "6", "--json"]).expect(6);
    assert_eq!(service.log().len(), 6, "the budget is the budget");
    let report = done.json();
    assert_eq!((&report["outcome"], &report["exit_code"]), (&json!("stopped_early"), &json!(6)));
    assert!(!report["stopped_because"].as_str().unwrap().is_empty(), "{report}");

    service.control().merge_faults(json!({"latency": {"ms": 300}})).unwrap();
    let done = run(&place, &["--deadline", "2s", "--json"]).expect(6);
    assert!(done.json()["time_ms"]["wall"].as_u64().unwrap() >= 500, "{}", done.stdout);

    service.set_faults(Default::default());
    let told = json!({"too_many_requests": {"when": {"count": 1, "skip": 3}, "retry_after": {"form": "seconds", "wait_ms": 7_200_000}}});
    service.control().merge_faults(told).unwrap();
    service.clear_log();
    let report = run(&place, &["--json"]).expect(6).json();
    let log = service.log();
    let refusal = log.iter().position(|entry| entry.status == 429).expect("the refusal was met");
    let refused_us = log[refusal].completed_us.unwrap();
    const ON_ITS_WAY_US: u64 = 10_000_000;
    assert!(
        log.iter().all(|entry| entry.arrived_us < refused_us + ON_ITS_WAY_US),
        "asked again within two hours: {log:?}"
    );
    assert!(report["stopped_because"].as_str().unwrap().starts_with("no request before "), "{report}");
    service.set_faults(Default::default());
    service.clear_log();
    run(&place, &[]).expect(6);
    assert_eq!(service.log(), [], "what was told holds for the next run");
    run(&place, &["--ignore-rate-limit"]).expect(0);
    assert_goes_on(&service, &place, "after three early ends");
}

#[test]
fn p2_exit_130_ctrl_c_stops_cleanly_and_the_next_run_resumes() {
    let service = Service::start(small(1200, 24));
    service.control().merge_faults(json!({"latency": {"ms": 60}})).unwrap();
    let place = Place::new(&service).with_config(&paged());
    for (signal, requests) in [(Signal::INT, 12), (Signal::TERM, 30)] {
        let child = spawn(&place);
        let before = service.log().len();
        wait_until("the run is in the middle", || service.log().len() >= before + requests);
        kill_process(Pid::from_child(&child), signal).unwrap();
        let done = Done::from(child.wait_with_output().unwrap()).expect(130);
        assert!(done.stderr.contains("interrupted"), "{signal:?}: {}", done.stderr);
        assert!(
            done.stderr.contains("stopped early: the run was stopped by Ctrl-C, SIGTERM or SIGHUP. "),
            "{}",
            done.stderr
        );
    }
    let status = place.run(&["status", "--json"]).expect(0).json();
    let ended = &status["runs"][0];
    assert_eq!((&ended["outcome"], &ended["reason"]), (&json!("interrupted"), &json!("interrupted")), "{status}");
    assert_eq!(ended["why"], "the run was stopped by Ctrl-C, SIGTERM or SIGHUP", "{status}");
    let asked = service.log().len();
    service.set_faults(Default::default());
    run(&place, &[]).expect(0);
    // Each stop loses at most the pages in flight, and each run first requests the service's clock.
    let undisturbed = Place::new(&service).with_config(&paged());
    let in_all = service.log().len();
    run(&undisturbed, &[]).expect(0);
    let needed = service.log().len() - in_all;
    assert!(asked >= 42 && in_all <= needed + 2 * (4 + 1), "{in_all} requests instead of {needed}");
    assert_goes_on(&service, &place, "after two interruptions");
}

#[test]
fn exit_0_check_passes_before_and_after_a_run() {
    let service = Service::start(small(200, 10));
    let place = Place::new(&service);
    let findings = place.run(&["check", "--json"]).expect(0).json();
    let what: Vec<&str> =
        findings.as_array().unwrap().iter().map(|finding| finding["what"].as_str().unwrap()).collect();
    // The machine may or may not have a proxy and certificates.
    let what: Vec<&str> = what.into_iter().filter(|what| !["proxy", "certs"].contains(what)).collect();
    assert_eq!(what, ["service", "key", "clock", "state", "archive", "warehouse", "disk", "serve"]);
    assert!(findings.as_array().unwrap().iter().all(|finding| finding["is_well"] == true), "{findings}");
    place.report(&["sync"], 0);
    place.run(&["check"]).expect(0);
}

#[test]
fn check_reads_every_setting_including_those_of_serve() {
    let service = Service::start(small(20, 3));
    for (setting, expected) in [
        ("[service]\ntimeout_secs = \"ten\"\n", "[service] timeout_secs: expected a whole number"),
        ("[service]\napi_key = \"k\"\n", "STUDYSYNC_API_KEY"),
        ("[serve]\nschedule = \"0 2 * *\"\n", "line 2: [serve] schedule: '0 2 * *' is not a time of five fields"),
        ("[serve]\ntimezone = \"Berlin\"\n", "no zone 'Berlin'"),
        ("[serve]\nschedule = \"off\"\ntimezone = \"CEST\"\n", "no zone 'CEST'"),
        ("[warehouse]\npublish = \"~root/w.duckdb\"\n", "[warehouse] publish: '~root/w.duckdb'"),
    ] {
        let done = Place::new(&service).with_config(setting).run(&["check"]).expect(2);
        assert!(done.stderr.contains(expected), "{setting}: {}", done.stderr);
    }
}

#[test]
fn a_tilde_expands_to_the_home_folder_in_every_path() {
    let service = Service::start(small(20, 3));
    let place = Place::at(service.base_url());
    let home = place.path("home");
    std::fs::create_dir(&home).unwrap();
    let text = format!(
        "[service]\nbase_url = \"{}\"\n[warehouse]\nduckdb = \"~/w.duckdb\"\nparquet = \"~/p\"\n[state]\npath = \"~/s/s.sqlite\"\n",
        service.base_url()
    );
    let place = place.with_config(&text).with_env("HOME", home.to_str().unwrap());
    Done::from(place.bare(&["sync", "--archive=~/a"]).output().unwrap()).expect(0);
    for made in ["w.duckdb", "p", "s/s.sqlite", "a"] {
        assert!(home.join(made).exists(), "{made}");
    }
    assert!(!place.path("~").exists());
}

#[test]
fn exit_3_status_names_the_stream_that_lags_too_far() {
    let service = Service::start(small(50, 3));
    let place = Place::new(&service);
    let never = place.run(&["status", "--max-lag", "26h"]).expect(3);
    assert!(never.stdout.contains("BEHIND  responses: nothing is complete, limit 26 h\n"), "{}", never.stdout);
    place.run(&["sync"]).expect(0);
    // Now is the service's clock, which stands still here, plus the time that passed on this machine.
    let well = place.run(&["status", "--max-lag", "26h", "--json"]).expect(0).json();
    assert_eq!((well["max_lag_secs"].as_u64(), well["behind"].as_array().map(Vec::len)), (Some(93_600), Some(0)));
    let late = place.run(&["status", "--max-lag", "1s"]).expect(3).stdout;
    // Answers younger than ten minutes are left to the next run.
    assert!(late.starts_with("BEHIND") && late.contains("BEHIND  responses: 10 min behind, limit 1 s\n"), "{late}");
    let late = place.run(&["status", "--max-lag", "1s", "--stream", "responses", "--json"]).expect(3).json();
    assert_eq!(late["behind"].as_array().map(Vec::len), Some(1), "{late:#}");
    let lag = late["behind"][0]["lag_secs"].as_i64().unwrap();
    assert!(late["behind"][0]["stream"] == "responses" && (600..700).contains(&lag), "{late:#}");
    place.run(&["status", "--max-lag", "soon"]).expect(2);
}

#[test]
fn check_inspects_disks_proxy_certificates_and_serve() {
    let service = Service::start(small(200, 5));
    let place = Place::new(&service);
    let all = place.run(&["check"]).expect(0).stdout;
    assert!(all.contains("ok   disk ") && all.contains(" free at "), "{all}");
    assert!(all.contains("ok   serve      not set up"), "{all}");
    std::fs::write(place.path("no.pem"), "nothing\n").unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let place = place
        .with_env("STUDYSYNC_WEBHOOK_SECRET", "s")
        .with_env("STUDYSYNC_SERVE_LISTEN", &taken.local_addr().unwrap().to_string())
        .with_env("HTTPS_PROXY", "http://me:hidden@proxy.example:3128")
        .with_env("NO_PROXY", "127.0.0.1");
    let all = place.run(&["check"]).expect(0).stdout;
    assert!(all.contains("is in use") && all.contains("go through http://proxy.example:3128"), "{all}");
    assert!(!all.contains("hidden"), "{all}");
    let broken = place.with_env("SSL_CERT_FILE", "no.pem").run(&["check"]);
    assert!(
        broken.code != 0 && broken.stdout.contains("FAIL certs      no.pem has no certificate"),
        "{}",
        broken.stdout
    );
    let place = Place::new(&service)
        .with_env("STUDYSYNC_METRICS_TEXTFILE", "nowhere/m.prom")
        .with_env("STUDYSYNC_NOTIFY_COMMAND", "no-such-program, studysync");
    let broken = place.run(&["check"]).expect(1).stdout;
    assert!(
        broken.contains("FAIL metrics")
            && broken.contains("FAIL notify     there is no executable program 'no-such-program'"),
        "{broken}"
    );
    let place =
        place.with_env("STUDYSYNC_METRICS_TEXTFILE", "m.prom").with_env("STUDYSYNC_NOTIFY_COMMAND", "sh, -c, true");
    let well = place.run(&["check"]).expect(0).stdout;
    assert!(well.contains("ok   metrics    ") && well.contains("ok   notify     runs /"), "{well}");
    let place = Place::new(&service).with_env("STUDYSYNC_SERVE_TOKEN_COMMAND", "exit 4");
    let broken = place.run(&["check"]).expect(2).stdout;
    assert!(broken.contains("FAIL serve      [serve] token_command: the command ended with exit code 4"), "{broken}");
}

#[test]
fn a_deadline_does_not_hide_an_unreachable_service() {
    let place = Place::at("http://127.0.0.1:1");
    let done = place.run(&["sync", "--deadline", "10s"]).expect(1);
    assert!(done.stderr.contains("error: cannot reach http://127.0.0.1:1/"), "{}", done.stderr);
    // The history has the same reason as the run.
    let status = place.run(&["status", "--json"]).expect(0).json();
    let run = &status["runs"][0];
    assert_eq!((&run["reason"], &run["exit_code"]), (&json!("service_failed"), &json!(1)), "{status}");
    assert!(done.stderr.contains(run["why"].as_str().unwrap()), "{run}");
    let text = place.run(&["status"]).expect(0);
    assert!(text.words().contains(&format!("health FAILING: {}", run["why"].as_str().unwrap())), "{text:?}");
    assert_eq!(text.stdout.matches("hint: ").count(), 1, "{text:?}");
}

#[test]
fn an_outage_is_one_line_for_each_stream() {
    let service = Service::start(small(2_000, 60));
    service.control().merge_faults(serde_json::json!({"latency": {"ms": 150}})).unwrap();
    let place = Place::new(&service).without_parquet().with_config("[streams.responses]\npage_rows = 10\n");
    let run = place.spawn(&["backfill", "--from", &days_ago(60)]);
    let started = std::time::Instant::now();
    while service.log().iter().filter(|entry| entry.path == "/v1/responses").count() < 12 {
        assert!(started.elapsed().as_secs() < 60, "no request");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    service.stop();
    let done = Done::from(run.wait_with_output().unwrap()).expect(1);
    assert!(done.stderr.contains("; the service answered until 20"), "{}", done.stderr);
    assert!(done.stderr.contains("hint: the address and the key are right"), "{}", done.stderr);
    assert!(!done.stderr.contains("HTTPS_PROXY"), "{}", done.stderr);
    let failed = done.stderr.lines().filter(|line| line.contains("FAILED responses ")).collect::<Vec<_>>();
    assert_eq!(failed.len(), 1, "{}", done.stderr);
    assert!(failed[0].contains(" windows: cannot reach the service in "), "{}", failed[0]);
    assert_eq!(done.stderr.matches("the window failed").count(), 1, "{}", done.stderr);
}
