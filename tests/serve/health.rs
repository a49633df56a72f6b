//! `studysync health`, which a container engine or a monitor runs instead of curl.

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    thread,
};

use serde_json::Value;

use super::{Poster, Serving, place_for, until};
use crate::harness::{ALL_FLAGS, KEY_VARIABLE, Place, Service, small};

/// Starts a server that gives each of these answers to one request, and returns its port.
fn answering(answers: &'static [&'static str]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4096];
            let read = stream.read(&mut request).unwrap();
            assert!(request[..read].starts_with(b"GET /healthz HTTP/1.1\r\n"));
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    port
}

#[test]
fn health_queries_a_running_serve() {
    let service = Service::start(small(20, 3));
    let place = place_for(&service, "schedule = \"off\"\n");
    let serving = Serving::start(&place);
    let address = serving.address.to_string();
    let healthy = place.run(&["health", "--listen", &address]).expect(0);
    let answer: Value = serde_json::from_str(&healthy.stdout).unwrap();
    assert_eq!(answer["status"], "ok", "{answer}");
    let text = place.run(&["health", "--listen", &address, "--format", "text"]).expect(0).stdout;
    assert!(
        text.starts_with("health    ok\n") && text.contains("\nlag       responses nothing is complete; "),
        "{text}"
    );
    assert!(text.contains("\nnote      no run has ended yet\n") && !text.contains('{'), "{text}");
    let ready = place.run(&["health", "--ready", "--listen", &address, "--format", "text"]).expect(0).stdout;
    assert_eq!(ready, "health    ok\n");
    serving.stop();
    let gone = place.run(&["health", "--listen", &address]).expect(1);
    assert!(gone.stderr.contains(&format!("no answer from {address}")), "{}", gone.stderr);
    assert!(gone.stderr.contains("hint:") && gone.stderr.contains("`studysync status`"), "{}", gone.stderr);
    place.run(&["sync"]).expect(0);
    assert!(place.run(&["status"]).expect(0).words().contains("`serve` is NOT RUNNING"));
    // Without [serve], runs come from another scheduler.
    let place = place.with_config(ALL_FLAGS);
    let status = place.run(&["status"]).expect(0).words();
    assert!(!status.contains("NOT RUNNING") && status.contains("the configuration has no [serve]"), "{status}");
}

#[test]
fn health_reads_the_configured_address_and_the_status() {
    let port = answering(&[
        "HTTP/1.1 200 OK\r\n\r\n{\"status\":\"ok\"}",
        "HTTP/1.1 503 Service Unavailable\r\n\r\n{\"status\":\"deliveries cannot be stored\"}",
        "HTTP/1.1 404 Not Found\r\n\r\n",
        "SSH-2.0-server\r\n",
    ]);
    // `serve` listens on all addresses of the machine, including the loopback address.
    let config = format!("{ALL_FLAGS}[serve]\nlisten = \"0.0.0.0:{port}\"\n");
    let place = Place::at("http://127.0.0.1:9").with_config(&config);
    assert_eq!(place.run(&["health"]).expect(0).stdout.trim(), "{\"status\":\"ok\"}");
    let unwell = place.run(&["health"]).expect(1);
    assert!(unwell.stdout.contains("deliveries cannot be stored"), "{}", unwell.stdout);
    for _ in ["404", "another protocol"] {
        let other = place.run(&["health"]).expect(1);
        assert!(other.stderr.contains("is not studysync serve"), "{}", other.stderr);
    }
}

#[test]
fn health_needs_only_an_address() {
    let place = Place::at("http://127.0.0.1:9").without_config();
    let nobody = place.bare(&["health", "--listen", "127.0.0.1:1"]).output().unwrap();
    assert_eq!(nobody.status.code(), Some(1), "{}", String::from_utf8_lossy(&nobody.stderr));
    let no_port = place.bare(&["health", "--listen", "127.0.0.1:0"]).output().unwrap();
    assert_eq!(no_port.status.code(), Some(2), "{}", String::from_utf8_lossy(&no_port.stderr));
}

/// Starts `serve` with its log in a file, and returns the path of the log.
fn logged(place: &Place, key: &str) -> (Serving, std::path::PathBuf) {
    let path = place.path("serve.log");
    let mut command = place.command(&["serve"]);
    command.env(KEY_VARIABLE, key);
    (Serving::logging_to(command, &path), path)
}

#[test]
fn serve_tests_the_key_before_the_first_run() {
    let service = Service::start(small(60, 3));
    let place = place_for(&service, "schedule = \"0 2 * * *\"\nwebhook = \"off\"\n");
    let (serving, log) = logged(&place, "another-key");
    until("the refused key is in the health", || serving.get("/healthz").0 == 503);
    let health = serving.health();
    assert_eq!((&health["reasons"][0]["code"], &health["last_run"]), (&Value::from("key_refused"), &Value::Null));
    assert!(service.log().iter().all(|entry| entry.status == 403), "no run began: {:?}", service.log());
    let text = place.run(&["health", "--listen", &serving.address.to_string(), "--format", "text"]).expect(1).stdout;
    assert!(
        text.starts_with("health    FAILING\nfailing   the service refused the key")
            && text.contains("\n          hint: "),
        "{text}"
    );
    assert_eq!(serving.stop(), 0);
    let said = std::fs::read_to_string(log).unwrap();
    assert!(said.contains("ERROR runs will fail why=\"the service refused the key"), "{said}");

    service.clear_log();
    let (serving, log) = logged(&place, crate::harness::KEY);
    until("the key is accepted", || std::fs::read_to_string(&log).unwrap().contains("the service accepts the key"));
    assert_eq!(service.log().len(), 1, "one row is requested");
    let said = std::fs::read_to_string(&log).unwrap();
    let page = format!("status_page=\"http://{}/\" webhooks=\"off\" schedule=\"0 2 * * *\"", serving.address);
    assert!(said.contains(&page), "{said}");
    assert_eq!(serving.stop(), 0);
}

#[test]
fn serve_logs_runs_and_one_line_for_many_refusals() {
    let service = Service::start(small(60, 3));
    let place = place_for(&service, "schedule = \"* * * * *\"\n");
    let (serving, log) = logged(&place, crate::harness::KEY);
    for _ in 0..20 {
        assert_eq!(Poster::connect(serving.address).unwrap().post("wrong", b"{}").unwrap(), 401);
    }
    let said = || std::fs::read_to_string(&log).unwrap();
    until("a run ends", || said().contains("the run is done command=\"sync\""));
    assert_eq!(
        said().matches("refused deliveries of webhooks reason=\"wrong secret\" count=1\n").count(),
        1,
        "{}",
        said()
    );
    assert!(said().contains("INFO starting a run command=\"sync\""), "{}", said());
    assert_eq!(serving.metric("deliveries_unauthorised_total"), 20);
    serving.stop();
}
