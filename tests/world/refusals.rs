//! Refusals, and answers that prove less than they seem to: each affects only its window, list or user, and proves no
//! completeness.

use std::{
    net::TcpStream,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use serde_json::{Value, json};

use crate::harness::{
    ALL_FLAGS, Done, KEY, Place, Service, assert_warehouses_equal, days_ago, expected::Expected, small,
};

use super::wire::{RawServer, Request, respond};

/// Small windows of about a day.
const CONFIG: &str = "[streams.responses]\npage_rows = 10\n";
const BLOCKED: &[u8] = b"<html><body><h1>Access denied</h1></body></html>";

/// A service, and a server before it that can answer some requests itself.
struct World {
    service: Service,
    server: RawServer,
    is_on: Arc<AtomicBool>,
}

impl World {
    fn new(
        answers: impl Fn(&Request) -> Option<(&'static str, &'static str, &'static [u8])> + Send + Sync + 'static,
    ) -> World {
        let service = Service::start(small(150, 5));
        let is_on = Arc::new(AtomicBool::new(true));
        let flag = Arc::clone(&is_on);
        let answer = move |request: &Request, stream: &mut TcpStream| {
            let answered = flag.load(Ordering::Relaxed).then(|| answers(request)).flatten();
            if let Some((status, kind, body)) = answered {
                respond(stream, status, &format!("content-type: {kind}\r\n"), body);
            }
            answered.is_some()
        };
        let server = RawServer::start(&service.base_url(), Box::new(answer), Box::new(|answer| answer));
        World { service, server, is_on }
    }

    fn place(&self) -> Place {
        Place::at(self.server.base_url()).without_parquet().with_config(&format!("{ALL_FLAGS}page_rows = 10\n"))
    }

    /// Asserts that the same command with the service itself ends equal to it.
    fn assert_mends(&self, place: &Place, when: &str) {
        self.is_on.store(false, Ordering::Relaxed);
        let done = backfill(place);
        assert_eq!(done.code, 0, "{when}: {}", done.stderr);
        assert_warehouses_equal(place, &Expected::now(&self.service), when);
    }
}

fn backfill(place: &Place) -> Done {
    place.run(&["backfill", "--from", &days_ago(6), "--json"])
}

/// Returns the row of a stream in `status`.
fn coverage(place: &Place, stream: &str) -> Value {
    let status = place.run(&["status", "--json"]).expect(0).json();
    let streams = status["streams"].as_array().cloned().unwrap_or_default();
    streams.into_iter().find(|one| one["stream"] == stream).unwrap_or(Value::Null)
}

/// Returns how far a run came with a stream.
fn reached<'a>(report: &'a Value, stream: &str) -> &'a str {
    report["streams"][stream].as_object().unwrap().get("reached").map_or("all", |reached| reached.as_str().unwrap())
}

fn failures(report: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let failures = report["failures"].as_array().cloned().unwrap_or_default();
    failures.iter().map(|failure| (text(&failure["stream"]), text(&failure["error"]))).collect()
}

#[test]
fn p3_a_service_that_returns_only_404_proves_nothing() {
    for (kind, body) in [("application/json", &br#"{"error":"not found"}"#[..]), ("text/html", b"<h1>404"), ("", b"")] {
        let world = World::new(move |_| Some(("404 Not Found", kind, body)));
        let place = world.place();
        for command in [&["sync"][..], &["backfill", "--from", "2026-01-01"], &["users", "pull", "--user-id", "u-1"]] {
            let done = place.run(command).expect(1);
            assert!(done.stderr.contains("404"), "{command:?}: {}", done.stderr);
            assert!(done.stderr.contains("hint:") || kind == "text/html", "{command:?}: {}", done.stderr);
            assert!(!done.stderr.contains("nothing to do"), "{command:?}: {}", done.stderr);
        }
        assert_eq!(coverage(&place, "responses"), Value::Null, "{kind}: nothing is proven");
        assert_eq!(place.duckdb_tables().count("SELECT count(*) FROM users"), 0, "nobody is known to be absent");
        assert_eq!(place.run(&["check"]).code, 1);
        world.assert_mends(&place, "behind the right address");
    }
}

#[test]
fn p3_a_list_that_returns_404_counts_as_empty_until_it_answers() {
    let world = World::new(|request| request.is_for("/v1/themes").then_some(("404 Not Found", "", b"")));
    let place = world.place();
    let done = backfill(&place);
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert!(done.json()["notes"].to_string().contains("every request for themes with 404"), "{}", done.stdout);
    let check = place.run(&["check"]).expect(0);
    assert!(check.stdout.contains("themes") && check.stdout.contains("counts as empty"), "{}", check.stdout);
    world.is_on.store(false, Ordering::Relaxed);
    place.report(&["sync"], 0);
    assert_warehouses_equal(&place, &Expected::now(&world.service), "with its themes");
}

#[test]
fn p3_404_ends_an_empty_list_that_is_known_to_exist() {
    let world = World::new(|request| {
        let is_nonsense = request.target.contains("start=none");
        (request.is_for("/v1/themes") && !is_nonsense).then_some(("404 Not Found", "application/json", b"{}"))
    });
    let done = backfill(&world.place());
    assert_eq!(done.code, 0, "{}", done.stderr);
}

/// A server that gives this answer to one window of responses, on each attempt.
fn one_window(status: &'static str, kind: &'static str, body: &'static [u8]) -> World {
    let first = Mutex::new(None::<String>);
    World::new(move |request| {
        let query = request.target.split_once('?').map(|(_, query)| query).unwrap_or_default();
        let start = query.split('&').find_map(|pair| pair.strip_prefix("start="))?;
        if !request.is_for("/v1/responses") || !query.contains("end=") {
            return None;
        }
        let mut first = first.lock().unwrap();
        let is_first = first.get_or_insert_with(|| start.to_owned()) == start;
        is_first.then_some((status, kind, body))
    })
}

#[test]
fn a_refused_window_costs_only_that_window() {
    let cases: [(&str, &str, &[u8], &str); 6] = [
        ("403 Forbidden", "text/html", BLOCKED, "proxy or firewall"),
        ("403 Forbidden", "", b"", "accepts the key elsewhere"),
        ("400 Bad Request", "application/json", br#"{"error":"no such month"}"#, "no such month"),
        ("422 X", "application/json", b"{}", "status 422"),
        ("413 Payload Too Large", "text/plain", b"too large", "status 413"),
        ("302 Found", "text/html", b"", "redirects"),
    ];
    std::thread::scope(|scope| {
        for (status, kind, body, words) in cases {
            scope.spawn(move || {
                let world = one_window(status, kind, body);
                let place = world.place();
                let done = backfill(&place);
                assert_eq!(done.code, 1, "{status}: {}", done.stderr);
                assert!(!done.stderr.contains(KEY) && !done.stderr.contains("refused the key"), "{}", done.stderr);
                let report = done.json();
                let failures = failures(&report);
                assert_eq!(failures.len(), 1, "{status}: {failures:?}");
                assert!(failures[0].1.contains(words) && failures[0].1.contains("/v1/responses?"), "{failures:?}");
                assert_eq!(reached(&report, "responses"), "part", "{report}");
                assert_eq!(reached(&report, "themes"), "all", "{report}");
                assert_ne!(coverage(&place, "responses"), Value::Null, "the other windows are proven");
                world.assert_mends(&place, status);
            });
        }
    });
}

#[test]
fn a_refused_list_costs_only_that_list() {
    let cases = [
        ("/v1/themes", "403 Forbidden", ""),
        ("/v1/surveys", "403 Forbidden", ""),
        ("/v1/responses", "403 Forbidden", ""),
        ("/v1/themes", "400 Bad Request", "application/json"),
    ];
    std::thread::scope(|scope| {
        for (path, status, kind) in cases {
            scope.spawn(move || {
                let world = World::new(move |request| request.is_for(path).then_some((status, kind, b"")));
                let place = world.place();
                let done = backfill(&place);
                assert_eq!(done.code, 1, "{status} {path}: {}", done.stderr);
                assert!(!done.stderr.contains("refused the key"), "{status} {path}: {}", done.stderr);
                let report = done.json();
                for (stream, error) in failures(&report) {
                    assert!(path.ends_with(&stream) && error.contains(path), "{status} {path}: {stream}: {error}");
                }
                for stream in ["themes", "surveys", "responses"] {
                    let far = if path.ends_with(stream) { "part" } else { "all" };
                    assert_eq!(reached(&report, stream), far, "{status} {path} {stream}: {report}");
                }
                let check = place.run(&["check"]).expect(1);
                assert!(check.stdout.contains(path), "{status} {path}: {}", check.stdout);
                // The check measures the behaviours of each list that answers.
                let traits = place.run(&["check", "--traits", "--json"]).expect(1).json();
                for (name, list) in
                    [("order", "responses"), ("themes_filtered_by", "themes"), ("survey_status_form", "surveys")]
                {
                    let known =
                        traits["traits"].as_array().unwrap().iter().find(|known| known["trait"] == name).unwrap();
                    let is_known = !known["value"].is_null();
                    assert_eq!(is_known, !path.ends_with(list), "{status} {path}: {known}");
                }
            });
        }
    });
}

#[test]
fn a_single_refusal_is_retried_without_loss() {
    for (status, path) in [(401, "/v1/responses"), (403, "/v1/surveys"), (421, "/v1/themes"), (499, "/v1/responses")] {
        let service = Service::start(small(60, 3));
        let fault = json!({"server_error": {"status": status, "when": {"count": 1, "path": path}}});
        service.control().merge_faults(fault).unwrap();
        let place = Place::new(&service).without_parquet();
        let done = place.run(&["sync"]);
        assert_eq!(done.code, 0, "{status} {path}: {}", done.stderr);
        assert_warehouses_equal(&place, &Expected::now(&service), path);
    }
}

#[test]
fn the_error_names_a_firewall_before_the_service() {
    let world = World::new(|_| Some(("403 Forbidden", "text/html", BLOCKED)));
    let place = world.place();
    for command in ["sync", "check"] {
        let done = place.run(&[command]).expect(1);
        let said = if command == "check" { &done.stdout } else { &done.stderr };
        assert!(said.contains("proxy or firewall") && !said.contains("refused the key"), "{command}: {said}");
    }
}

#[test]
fn a_refused_person_costs_nobody_else_and_is_not_logged() {
    let world =
        World::new(|request| request.is_for("/v2/users/user-2").then_some(("403 Forbidden", "text/html", BLOCKED)));
    for user_id in ["user-1", "user-3"] {
        assert_eq!(world.service.control().upsert_user(&json!({ "userId": user_id }).to_string()), 202);
    }
    let place = world.place();
    let done = place.run(&["users", "pull", "--user-id", "user-1", "user-2", "user-3", "--json"]).expect(1);
    assert!(!done.stderr.contains("user-2"), "{}", done.stderr);
    assert!(done.stderr.contains("/v2/users/%23") && done.stderr.contains("proxy or firewall"), "{}", done.stderr);
    assert_eq!(done.json()["streams"]["users"]["rows_read"], 2, "{}", done.stdout);
}

#[test]
fn a_refused_key_reports_what_was_not_pulled() {
    let service = Service::start(small(60, 3));
    let place = Place::new(&service).without_parquet().with_env("STUDYSYNC_API_KEY", "another");
    let done = place.run(&["sync", "--json"]).expect(4);
    assert!(done.stderr.contains("/v1/surveys"), "the endpoint is named: {}", done.stderr);
    assert!(!done.stderr.contains("nothing to do"), "{}", done.stderr);
    for stream in ["responses", "surveys", "themes"] {
        assert_eq!(reached(&done.json(), stream), "none");
    }
    assert_eq!(done.stderr.matches("not reached").count(), 3, "{}", done.stderr);
    let place = Place::new(&service).without_parquet().with_config(CONFIG);
    let done = place.run(&["sync", "--max-requests", "6", "--json"]).expect(6);
    let report = done.json();
    assert!(report["streams"].to_string().contains("part"), "{report}");
    assert!(done.stderr.contains("the rest was not reached"), "{}", done.stderr);
}
