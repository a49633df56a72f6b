//! Hostile requests: memory stays bounded, nothing of them is stored, and valid deliveries are accepted meanwhile.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::{Duration, Instant},
};

use super::{SECRET, Serving, answer_body, place_for, raw, status_of};
use crate::harness::{Service, small};

const NO_SCHEDULE: &str = "schedule = \"off\"\nwake_secs = 0\nflush_secs = 1\n";
/// The maximum growth of the receiver under attack, in KiB: 64 MiB of bodies, the heads of 512 connections, and slack.
const GROWTH_KIB_MAX: u64 = 160 * 1024;

fn head(length: usize) -> String {
    format!("POST /webhook HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {SECRET}\r\ncontent-length: {length}\r\n\r\n")
}

fn rss_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn p8_bad_bodies_methods_and_paths_are_refused() {
    let service = Service::start(small(200, 5));
    let place = place_for(&service, NO_SCHEDULE);
    let serving = Serving::start(&place);
    let before_kib = rss_kib(serving.pid());
    // Ten megabytes, with and without a content length.
    let huge = vec![b'x'; 10 << 20];
    let refused = raw(serving.address, &[head(huge.len()).as_bytes(), &huge].concat());
    assert!(matches!(status_of(&refused), 413 | 0), "{refused}");
    let chunked = format!(
        "POST /webhook HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {SECRET}\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n",
        huge.len()
    );
    let refused = raw(serving.address, &[chunked.as_bytes(), &huge, b"\r\n0\r\n\r\n"].concat());
    assert!(matches!(status_of(&refused), 413 | 0), "{refused}");
    // A client that reads while it writes receives the reason.
    let mut stream = TcpStream::connect(serving.address).unwrap();
    stream.write_all(head(10 << 20).as_bytes()).unwrap();
    stream.write_all(&vec![b'x'; (1 << 20) + 1]).unwrap();
    let mut answer = [0; 512];
    let length = stream.read(&mut answer).unwrap();
    assert_eq!(status_of(&String::from_utf8_lossy(&answer[..length])), 413);

    for (request, status) in [
        ("GET /webhook HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".to_owned(), 405),
        ("DELETE /webhook HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".to_owned(), 405),
        ("POST /elsewhere HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_owned(), 404),
        ("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_owned(), 405),
        (format!("GET / HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "y".repeat(1 << 20)), 431),
        ("\u{0}\u{1}nonsense\r\n\r\n".to_owned(), 400),
    ] {
        let answer = raw(serving.address, request.as_bytes());
        assert_eq!(status_of(&answer), status, "{} -> {answer}", &request[..request.len().min(60)]);
        assert!(status != 405 || answer.to_ascii_lowercase().contains("\r\nallow: "), "{answer}");
    }
    assert_eq!(serving.post(answer_body(1).as_bytes()), 200);
    serving.wait_until_flushed();
    let grown_kib = rss_kib(serving.pid()).saturating_sub(before_kib);
    assert!(grown_kib < GROWTH_KIB_MAX, "grown by {grown_kib} KiB");
    serving.stop();
    assert_eq!(place.duckdb_tables().count("SELECT count(*) FROM webhook_events"), 1);
}

#[test]
fn p8_idle_and_slow_connections_block_no_delivery() {
    let service = Service::start(small(200, 5));
    let place = place_for(&service, NO_SCHEDULE);
    let serving = Serving::start(&place);
    let before_kib = rss_kib(serving.pid());
    // First slow requests: a body of which a byte arrives now and then, and a head that never ends. Then a thousand
    // connections without a request.
    let mut slow: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(serving.address).unwrap()).collect();
    for (at, stream) in slow.iter_mut().enumerate() {
        let begun = if at % 2 == 0 { head(100_000) + "{" } else { "POST /webhook HTTP/1.1\r\nx: ".to_owned() };
        stream.write_all(begun.as_bytes()).unwrap();
    }
    let idle: Vec<TcpStream> = (0..1000).filter_map(|_| TcpStream::connect(serving.address).ok()).collect();
    assert!(idle.len() > 900, "this machine allows only {} connections", idle.len());
    let begun = Instant::now();
    for number in 0..50 {
        assert_eq!(serving.post(answer_body(number).as_bytes()), 200, "delivery {number}");
    }
    assert!(begun.elapsed() < Duration::from_secs(60), "deliveries waited for idle connections: {:?}", begun.elapsed());
    // If there is no free connection, a delivery evicts an idle one and does not wait.
    assert!(serving.metric("connections_evicted_total") > 400);
    // A slow client receives an error, or is disconnected.
    let begun = Instant::now();
    for stream in &mut slow {
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let status = status_of(&String::from_utf8_lossy(&answer));
        assert!(matches!(status, 0 | 408), "{}", String::from_utf8_lossy(&answer));
    }
    assert!(begun.elapsed() < Duration::from_secs(60), "slow ones were served for {:?}", begun.elapsed());
    drop(idle);
    let grown_kib = rss_kib(serving.pid()).saturating_sub(before_kib);
    assert!(grown_kib < GROWTH_KIB_MAX, "grown by {grown_kib} KiB");
    serving.wait_until_flushed();
    serving.stop();
    assert_eq!(place.duckdb_tables().count("SELECT count(*) FROM webhook_events"), 50);
}

#[test]
fn a_path_with_a_colon_or_an_escape_receives_deliveries() {
    let service = Service::start(small(20, 3));
    for path in ["/:id", "/a/:b/%C3%A9"] {
        let place = place_for(&service, &format!("{NO_SCHEDULE}webhook = \"{path}\"\n"));
        let serving = Serving::start(&place);
        let post = |path: &str| {
            let body = answer_body(1);
            let request =
                format!("POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {SECRET}\r\nconnection: close\r\n");
            status_of(&raw(
                serving.address,
                format!("{request}content-length: {}\r\n\r\n{body}", body.len()).as_bytes(),
            ))
        };
        assert_eq!((post(path), post("/webhook"), post("/x")), (200, 404, 404), "{path}");
        assert_eq!(serving.stop(), 0);
    }
    let place = place_for(&service, &format!("{NO_SCHEDULE}webhook = \"/a b\"\n"));
    let refused = place.run(&["serve"]).expect(2);
    assert!(refused.stderr.contains("%20"), "{}", refused.stderr);
}
