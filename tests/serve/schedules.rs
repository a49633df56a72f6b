//! The schedule from the user's view: one run replaces all missed runs, a stop during a run loses nothing, and two runs
//! never overlap. The simple ways to run without `serve` in `examples/` work unchanged; `make schedulers` runs all of
//! them for each exit code.

use std::{process::Command, time::Instant};

use serde_json::{Value, json};
use studysync::state::{Inbox, ScheduleEntry};
use studysync_sandbox::{Faults, Latency};

use super::{Serving, answer_body, place_for, until};
use crate::harness::{DAY_MS, Done, KEY, NOW_MS, Place, Service, days_ago, small};

pub const NIGHTLY: &str = "schedule = \"0 2 * * *\"\nwake_secs = 0\nflush_secs = 1\n";

/// Records that the last run of the schedule was this many days ago.
pub fn last_run_was(place: &Place, service: &Service, days: i64) {
    std::fs::create_dir_all(place.state().parent().unwrap()).unwrap();
    let inbox = Inbox::open(&place.state(), &service.base_url(), "default").unwrap();
    let done_tick_ms = Some(studysync::clock::now_ms() - days * DAY_MS);
    inbox
        .store_schedule(&ScheduleEntry { expression: "0 2 * * * UTC".into(), done_tick_ms, ..Default::default() })
        .unwrap();
}

fn runs(place: &Place) -> Vec<(String, String)> {
    let status = place.run(&["status", "--json"]).expect(0).json();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let Some(runs) = status["runs"].as_array() else { return Vec::new() };
    runs.iter().map(|run| (text(&run["command"]), text(&run["outcome"]))).collect()
}

#[test]
fn one_run_catches_up_on_missed_runs() {
    let service = Service::start(small(400, 5));
    let place = place_for(&service, NIGHTLY);
    last_run_was(&place, &service, 4);
    let serving = Serving::start(&place);
    until("the run that was missed", || {
        serving.health()["last_outcome"] == "done" && serving.health()["running"].is_null()
    });
    let status = place.run(&["status", "--json"]).expect(0).json();
    let serve = &status["serve"];
    assert_eq!((&serve["is_running"], &serve["last_outcome"]), (&Value::from(true), &Value::from("done")), "{serve}");
    let next = serve["next_run"].as_str().unwrap();
    assert!(next.ends_with("T02:00:00Z"), "{next}");
    let shown = place.run(&["status"]).words();
    assert!(shown.contains(&format!("next run {next} (`serve` is running, schedule 0 2 * * * UTC)")), "{shown}");
    assert_eq!(serving.stop(), 0);
    // No run is missed any more.
    let serving = Serving::start(&place);
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!(serving.stop(), 0);
    assert_eq!(runs(&place), [("sync".to_owned(), "done".to_owned())]);
    assert!(place.duckdb_tables().count("SELECT count(*) FROM responses") > 300);
}

#[test]
fn p5_a_too_long_retry_after_is_an_error_and_keeps_the_schedule() {
    let service = Service::start(small(60, 3));
    for (form, wait_ms) in [("seconds", 30 * DAY_MS), ("epoch_seconds", 3650 * DAY_MS)] {
        let told =
            json!({"too_many_requests": {"when": {"count": 1}, "retry_after": {"form": form, "wait_ms": wait_ms}}});
        service.control().merge_faults(told).unwrap();
        let place = place_for(&service, NIGHTLY);
        last_run_was(&place, &service, 2);
        let serving = Serving::start(&place);
        until("the run that is refused", || serving.metric("runs_failed_total") == 1);
        let health = serving.health();
        assert!(health["status"].as_str().unwrap().starts_with("error"), "{form}: {health}");
        assert!(health["trouble"].as_str().unwrap().contains("no request before"), "{form}: {health}");
        assert!(health["rate_limited_until"].is_string(), "{form}: {health}");
        let next_ms = studysync::model::parse_date(health["next_run_at"].as_str().unwrap()).unwrap();
        assert!(next_ms <= studysync::clock::now_ms() + DAY_MS, "{form}: {health}");
        assert!(serving.metric("rate_limited_until_ms") > studysync::clock::now_ms() + DAY_MS, "{form}");
        assert_eq!(serving.get("/healthz").0, 200, "deliveries can be stored");
        serving.stop();
    }
}

#[test]
fn p2_serve_stops_quickly_during_a_run_and_resumes_it() {
    let service = Service::start(small(3000, 25));
    let place = place_for(&service, NIGHTLY);
    last_run_was(&place, &service, 2);
    service.set_faults(Faults { latency: Latency { ms: 300, ..Latency::default() }, ..Faults::default() });
    let serving = Serving::start(&place);
    until("some requests", || service.log().len() > 8);
    let begun = Instant::now();
    assert_eq!(serving.stop(), 0);
    assert!(begun.elapsed().as_secs() < 60, "the stop took {:?}", begun.elapsed());
    assert_eq!(runs(&place), [("sync".to_owned(), "interrupted".to_owned())]);
    service.set_faults(Faults::default());
    let serving = Serving::start(&place);
    until("the run that was stopped", || serving.health()["last_outcome"] == "done");
    serving.stop();
    assert_eq!(runs(&place).len(), 2);
    crate::harness::assert_warehouses_equal(
        &place,
        &crate::harness::expected::Expected::now(&service),
        "after the second start",
    );
}

#[test]
fn serve_waits_for_another_process_and_keeps_deliveries() {
    let service = Service::start(small(2000, 25));
    let place = place_for(&service, NIGHTLY);
    last_run_was(&place, &service, 2);
    service.set_faults(Faults { latency: Latency { ms: 400, ..Latency::default() }, ..Faults::default() });
    let mut backfill = place.spawn(&["backfill", "--from", &days_ago(24)]);
    until("the backfill's requests", || service.log().len() > 2);
    let serving = Serving::start(&place);
    until("the run that is left out", || serving.metric("runs_failed_total") == 1);
    let trouble = serving.health()["trouble"].to_string();
    assert!(trouble.contains("another run holds the lease") && trouble.contains("backfill"), "{trouble}");
    assert_eq!(serving.post(answer_body(1).as_bytes()), 200, "deliveries are taken all the same");
    assert!(backfill.try_wait().unwrap().is_none(), "the backfill was to last longer");
    assert_eq!(serving.health()["waiting_deliveries"], 1);
    assert!(backfill.wait().unwrap().success());
    serving.wait_until_flushed();
    assert_eq!(serving.metric("runs_total"), 1, "the next run is that of the next moment");
    serving.stop();
    assert_eq!(place.duckdb_tables().count("SELECT count(*) FROM webhook_events"), 1);
}

#[test]
fn serve_reports_unusable_settings_at_the_start() {
    let service = Service::start(small(200, 5));
    let refused = |serve: &str, code: i32, words: &[&str]| {
        let done = place_for(&service, serve).run(&["serve"]).expect(code);
        for word in words {
            assert!(done.stderr.contains(word), "{serve}: {}", done.stderr);
        }
    };
    refused("schedule = \"0 25 * * *\"", 2, &["[serve] schedule", "0 25 * * *"]);
    refused("timezone = \"Berlin\"", 2, &["[serve] timezone", "Europe/Berlin"]);
    refused("webhook = \"webhook\"", 2, &["[serve] webhook", "/webhook"]);
    refused("webhook = \"/healthz\"", 2, &["[serve] webhook"]);
    refused("jitter_secs = 999999", 2, &["duplicate key"]);
    let place = place_for(&service, NIGHTLY).with_env("STUDYSYNC_WEBHOOK_SECRET", "");
    let done = place.run(&["serve"]).expect(2);
    assert!(done.stderr.contains("STUDYSYNC_WEBHOOK_SECRET"), "{}", done.stderr);

    let place = place_for(&service, NIGHTLY);
    let serving = Serving::start(&place);
    let done = place.run(&["serve"]).expect(5);
    assert!(done.stderr.contains("another `studysync serve`"), "{}", done.stderr);
    let other = place_for(&service, NIGHTLY);
    let taken = serving.address.to_string();
    let done = other.run(&["serve", "--listen", &taken]).expect(1);
    assert!(done.stderr.contains(&taken), "{}", done.stderr);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the shell finds its own programs as well")]
fn the_documented_schedules_without_serve_work_verbatim() {
    let service = Service::start(small(300, 5));
    let place = Place::new(&service);
    let config = format!(
        "[service]\nbase_url = \"{}\"\napi_key_file = \"key\"\n[warehouse]\nduckdb = \"warehouse.duckdb\"\n[streams.responses]\nsince = \"{}\"\n",
        service.base_url(),
        NOW_MS - 6 * DAY_MS
    );
    let place = place.with_config(&config);
    std::fs::write(place.path("key"), KEY).unwrap();
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_studysync"));
    let folder = place.root().display().to_string();
    let shell = |line: &str| {
        let mut command = Command::new("sh");
        command.args(["-ec", line]).current_dir(place.root());
        command.env("PATH", format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap()));
        Done::from(command.output().unwrap())
    };
    let example = |name: &str| {
        std::fs::read_to_string(format!("{}/examples/{name}", env!("CARGO_MANIFEST_DIR")))
            .unwrap()
            .replace("/srv/studysync", &folder)
    };
    // cron: the commands without times, user and settings.
    std::fs::write(place.path("nightly.sh"), example("cron/nightly.sh")).unwrap();
    let crontab = example("cron/studysync");
    let lines = crontab.lines().filter_map(|line| line.split_once(" studysync  ")).map(|halves| halves.1.to_owned());
    let [nightly, watch] = lines.collect::<Vec<_>>().try_into().unwrap();
    // The output that cron mails: the streams that are behind, or nothing.
    let before = shell(&watch).expect(0).stdout;
    assert!(before.contains("BEHIND  responses: nothing is complete"), "{before}");
    assert_eq!(shell(&nightly).expect(0).stdout, "");
    assert_eq!(shell(&watch).expect(0).stdout, "");
    let report = std::fs::read_to_string(place.path("runs.ndjson")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&report).unwrap()["outcome"], "done");
    // systemd: the command of the unit.
    let unit =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/systemd/studysync.service")).unwrap();
    // systemd joins lines that end with a backslash, and reads `$$` as `$`.
    let unit = unit.replace("\\\n", " ").replace("$$", "$");
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let start = start.replace("/usr/bin/studysync", &program.display().to_string());
    let start = start.replace("/etc/studysync", &folder);
    shell(&format!("STUDYSYNC_API_KEY={KEY} {start}")).expect(0);
    assert!(place.duckdb_tables().count("SELECT count(*) FROM responses") > 200);
}

#[test]
fn a_tick_that_was_done_in_the_future_hides_no_other_tick() {
    let service = Service::start(small(60, 3));
    let place = place_for(&service, NIGHTLY);
    // The clock was ten years ahead, and `serve` completed a scheduled run at that time.
    last_run_was(&place, &service, -3650);
    let serving = Serving::start(&place);
    until("a plan", || serving.health()["next_run_at"].is_string());
    let health = serving.health();
    let next_ms = studysync::model::parse_date(health["next_run_at"].as_str().unwrap()).unwrap();
    assert!(next_ms <= studysync::clock::now_ms() + DAY_MS, "{health}");
    assert_eq!(serving.stop(), 0);
}
