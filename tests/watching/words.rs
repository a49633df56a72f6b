//! Each failure that can be provoked: exit code, standard error, metrics, `/healthz` and the notification use the same
//! words.

use serde_json::Value;
use studysync_sandbox::{ChangeRequest, Faults, ListName};

use super::{Receiver, metric, place_at, with_wrong_key};
use crate::{
    harness::{Done, Place, Service, days_ago, sample, small},
    serve::Serving,
};

/// The expected report of a run, the same in every output.
struct Expected {
    code: i32,
    reason: &'static str,
    /// A part of the message.
    words: &'static str,
    event: Option<&'static str>,
    is_red: bool,
}

/// A place with a receiver, in which `serve` can start between the runs.
struct Watched {
    place: Place,
    receiver: Receiver,
}

impl Watched {
    fn new(base_url: &str, more: &str) -> Watched {
        let receiver = Receiver::start();
        let serve = "[serve]\nlisten = \"127.0.0.1:0\"\nschedule = \"off\"\nwebhook = \"off\"\nmax_lag = \"off\"\n";
        let notify = format!("[notify]\nurl = \"{}\"\n", receiver.url());
        Watched { place: place_at(base_url, &format!("{serve}{notify}{more}")), receiver }
    }

    /// Runs the command, and compares all outputs that report the run.
    fn assert_says(&self, arguments: &[&str], expected: &Expected) {
        let Expected { code, reason, words, event, is_red } = *expected;
        let done = self.place.run(arguments).expect(code);
        let posted = self.receiver.take();
        let serving = Serving::start(&self.place);
        let (status, body) = serving.get("/healthz");
        let health: Value = serde_json::from_str(&body).unwrap();
        let metrics = serving.get("/metrics").1;
        serving.stop();
        // All other outputs must have the message that the page shows for the run.
        let run = &health["last_run"];
        let why = run["why"].as_str().unwrap_or_else(|| panic!("{reason}: {health:#}"));
        assert!(why.contains(words), "{reason}: {why}");
        assert_eq!((run["reason"].as_str(), run["exit_code"].as_i64()), (Some(reason), Some(code.into())), "{run:#}");
        assert_is_told(&done, why, reason);
        assert_eq!(status, if is_red { 503 } else { 200 }, "{reason}: {health:#}");
        let named = health["reasons"].as_array().unwrap().iter().filter(|named| named["code"] == reason);
        let texts: Vec<&str> = named.map(|named| named["text"].as_str().unwrap()).collect();
        assert_eq!(texts.join("; "), why, "{reason}: the reasons of /healthz");
        let line = format!("health_reason{{reason=\"{reason}\"}}");
        assert_eq!(sample(&metrics, &line), Some(1.0), "{reason}: /metrics");
        assert_eq!(metric(&self.place, &line), Some(1.0), "{reason}: the textfile");
        assert_eq!(metric(&self.place, "last_run_exit_code"), Some(code.into()), "{reason}: the textfile");
        let events: Vec<_> = posted.iter().map(|body| body["event"].as_str().unwrap()).collect();
        assert_eq!(events, event.into_iter().collect::<Vec<_>>(), "{reason}: the notification");
        for body in &posted {
            assert!(body["text"].as_str().unwrap().contains(why), "{reason}: {body:#}");
            assert_eq!(body["run"]["why"], run["why"], "{reason}");
        }
        let status = self.place.run(&["status", "--json"]);
        assert_eq!(status.json()["runs"][0]["exit_code"], code, "{reason}: it stands in the history");
    }
}

/// Asserts that standard error has the same words, with one line per cause.
fn assert_is_told(done: &Done, why: &str, reason: &str) {
    let told =
        done.stderr.replace("\n  because: ", ": ").replace("\n  needs a look: ", "; ").replace("\n  note: ", "; ");
    for sentence in why.split("; ") {
        let sentence = sentence.split(" (and ").next().unwrap();
        assert!(told.contains(sentence), "{reason}: {sentence}\nin {told}");
    }
}

#[test]
fn an_unreachable_service_and_a_refused_key_read_alike() {
    let service = Service::start(small(120, 4));
    let mut watched = Watched::new(&service.base_url(), "");
    watched.place.run(&["sync"]).expect(0);
    let down = Expected {
        code: 1,
        reason: "service_failed",
        words: "no program listens there",
        event: Some("failed"),
        is_red: true,
    };
    let away = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    let mut elsewhere = Watched::new(&format!("http://{away}"), "");
    elsewhere.place = Place::at(format!("http://{away}"))
        .without_parquet()
        .with_config(&std::fs::read_to_string(elsewhere.place.path("studysync.toml")).unwrap());
    elsewhere.assert_says(&["sync", "--deadline", "60s"], &down);
    watched.place = with_wrong_key(watched.place);
    let refused =
        Expected { code: 4, reason: "key_refused", words: "refused the key", event: Some("failed"), is_red: true };
    watched.assert_says(&["sync"], &refused);
}

#[test]
fn a_held_lease_and_a_locked_warehouse_read_alike() {
    let service = Service::start(small(120, 4));
    let watched = Watched::new(&service.base_url(), "[warehouse]\nlock_wait_secs = 0\n");
    watched.place.run(&["sync"]).expect(0);
    let lock = std::fs::File::create(watched.place.path("state/checkpoints.sqlite.lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let held =
        Expected { code: 5, reason: "lease_held", words: "another run holds the lease", event: None, is_red: false };
    watched.assert_says(&["sync"], &held);
    drop(lock);
    let analyst = crate::world::locks::Holder::of(&watched.place, "writes");
    let locked = Expected {
        code: 5,
        reason: "warehouse_locked",
        words: "held open by another process",
        event: Some("failed"),
        is_red: true,
    };
    watched.assert_says(&["sync"], &locked);
    drop(analyst);
    let file = watched.place.duckdb();
    std::fs::rename(&file, file.with_extension("away")).unwrap();
    std::fs::write(&file, "this is no database, and never was one").unwrap();
    let broken =
        Expected { code: 2, reason: "configuration", words: "is not a warehouse", event: Some("failed"), is_red: true };
    watched.assert_says(&["sync"], &broken);
}

#[test]
fn withheld_deletions_and_frozen_streams_read_alike() {
    let service = Service::start(small(300, 5));
    let watched = Watched::new(&service.base_url(), "");
    watched.place.run(&["sync"]).expect(0);
    service.change(&ChangeRequest { vanish_visitors: 100_000, ..ChangeRequest::default() });
    let withheld = Expected {
        code: 3,
        reason: "needs_a_look",
        words: "no longer returned by the service",
        event: Some("needs_a_look"),
        is_red: false,
    };
    watched.assert_says(&["sync"], &withheld);
    let drift = "[streams.responses.drift]\nunknown_fields = \"freeze\"\n";
    let watched = Watched::new(&service.base_url(), drift);
    let record = r#"{"createdAt":"2026-01-30T08:00:00.000Z","updatedAt":"2026-01-30T08:00:00.000Z","responseGroupUid":"drift",
        "questionId":1,"surveyId":7,"questionText":"q","questionType":"NPS","response":9,"battery":80}"#;
    service.control().plant(ListName::Responses, &record.replace('\n', " "), None).unwrap();
    let frozen = Expected {
        code: 1,
        reason: "parts_failed",
        words: "[streams.responses.drift] freezes it",
        event: Some("failed"),
        is_red: true,
    };
    watched.assert_says(&["sync"], &frozen);
}

#[test]
fn a_budget_and_a_retry_after_notify_nobody() {
    let service = Service::start(small(300, 5));
    let watched = Watched::new(&service.base_url(), "[throttle]\npatience_secs = 1\n");
    let budget =
        Expected { code: 6, reason: "stopped_early", words: "the allowance of 3 requests", event: None, is_red: false };
    watched.assert_says(&["backfill", "--from", &days_ago(5), "--max-requests", "3"], &budget);
    let told = serde_json::json!({"too_many_requests": {"when": {"count": 1}, "retry_after": {"form": "seconds", "wait_ms": 3_600_000}}});
    service.control().merge_faults(told).unwrap();
    let limited =
        Expected { code: 6, reason: "rate_limited", words: "as the service asked", event: None, is_red: false };
    watched.assert_says(&["sync"], &limited);
    service.set_faults(Faults::default());
}
