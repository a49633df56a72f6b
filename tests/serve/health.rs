//! `studysync health`, which a container engine or a monitor runs instead of curl.

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    thread,
};

use serde_json::Value;

use super::{Serving, place_for};
use crate::harness::{ALL_FLAGS, Place, Service, small};

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
    serving.stop();
    let gone = place.run(&["health", "--listen", &address]).expect(1);
    assert!(gone.stderr.contains(&format!("no answer from {address}")), "{}", gone.stderr);
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
