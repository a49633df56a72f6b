//! Hostile bytes over real HTTP: memory stays bounded, the error names what came, and nothing panics. Once the service
//! works again, the same command ends equal to the service.

use std::{
    io::Write,
    net::TcpStream,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use flate2::{Compression, write::GzEncoder};

use crate::harness::{ALL_FLAGS, Done, KEY, Place, Service, assert_warehouses_equal, expected::Expected, small};

use super::wire::{RawServer, respond};

/// The memory limit of a run that rejects all answers: one body of the maximum size (64 MiB) for each of two requests,
/// and two nearly idle engines.
const RSS_BYTES_MAX: u64 = 640 << 20;
/// The same for a run that stores 50 MiB from every answer. Two more pages wait for their commit, and the rows of a
/// page are larger than the page, because they store an answer as JSON and as text.
const LANDING_RSS_BYTES_MAX: u64 = 1536 << 20;
const MIB: usize = 1 << 20;

/// The minimum memory setting for two warehouses.
const MEMORY_MIB: u32 = 512;

/// Writes an answer until the client stops reading.
type Hostile = fn(&mut TcpStream);

/// The result of a run against the hostile service, and its report.
struct Met {
    done: Done,
    service: Service,
    place: Place,
    is_hostile: Arc<AtomicBool>,
    _server: RawServer,
}

/// Runs the program against a service whose pages of responses are all hostile. The other lists are normal.
fn meet(hostile: Hostile, memory_mib: u32) -> Met {
    let service = Service::start(small(150, 3));
    let is_hostile = Arc::new(AtomicBool::new(true));
    let flag = Arc::clone(&is_hostile);
    let server = RawServer::start(
        &service.base_url(),
        Box::new(move |request, stream| {
            let strikes = flag.load(Ordering::Relaxed) && request.is_for("/v1/responses");
            if strikes {
                hostile(stream);
            }
            strikes
        }),
        Box::new(|answer| answer),
    );
    let config = format!(
        "{ALL_FLAGS}[throttle]\nin_flight_max = 2\npatience_secs = 20\n[warehouse]\nmemory_limit_mb = {memory_mib}\n"
    );
    let place = Place::at(server.base_url()).with_config(&config);
    let done = place.run(&["sync", "--json"]);
    Met { done, service, place, is_hostile, _server: server }
}

impl Met {
    /// Asserts bounded memory and no panic.
    fn assert_bounded(&self, what: &str, bytes_max: u64) {
        assert!(!self.done.stderr.contains("panicked"), "{what}: {}", self.done.stderr);
        assert!(!self.done.stderr.contains(KEY), "{what}: the key was shown");
        let rss_bytes = self.done.json()["peak_rss_bytes"].as_u64().unwrap();
        assert!(rss_bytes > 10 << 20 && rss_bytes < bytes_max, "{what}: {} MiB", rss_bytes >> 20);
    }

    /// Asserts that the run failed with these words, and that the next one, with a working service, ends equal to it.
    fn assert_refused(self, what: &str, words: &[&str]) {
        self.assert_bounded(what, RSS_BYTES_MAX);
        assert_eq!(self.done.code, 1, "{what}: {}", self.done.stderr);
        for word in words {
            assert!(self.done.stderr.contains(word), "{what}: '{word}' is missing in {}", self.done.stderr);
        }
        self.is_hostile.store(false, Ordering::Relaxed);
        let next = self.place.run(&["sync"]);
        assert_eq!(next.code, 0, "{what}: the next run: {}", next.stderr);
        assert_warehouses_equal(&self.place, &Expected::now(&self.service), what);
    }

    fn count(&self, sql: &str) -> i64 {
        let counts: Vec<i64> = self.place.warehouses().into_iter().map(|(_, tables)| tables.count(sql)).collect();
        assert_eq!(counts[0], counts[1], "the warehouses differ: {sql}");
        counts[0]
    }
}

/// The cases mostly wait between attempts, so they run in parallel.
fn all_refused(cases: &[(&'static str, Hostile, &'static [&'static str])]) {
    std::thread::scope(|scope| {
        for (what, hostile, words) in cases {
            scope.spawn(move || meet(*hostile, MEMORY_MIB).assert_refused(what, words));
        }
    });
}

fn head(stream: &mut TcpStream, headers: &str) {
    let _ = stream.write_all(format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{headers}\r\n").as_bytes());
}

/// Writes until the client disconnects, or has read too much.
fn for_ever(stream: &mut TcpStream, piece: &[u8]) {
    let _ = (0..(1 << 30) / piece.len()).try_for_each(|_| stream.write_all(piece));
}

fn gzip_bomb(stream: &mut TcpStream) {
    static BOMB: OnceLock<Vec<u8>> = OnceLock::new();
    let bomb = BOMB.get_or_init(|| {
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        let spaces = vec![b' '; MIB];
        (0..512).for_each(|_| packed.write_all(&spaces).unwrap());
        packed.finish().unwrap()
    });
    assert!(bomb.len() < 4 * MIB, "half a gibibyte in {} bytes", bomb.len());
    respond(stream, "200 OK", "content-encoding: gzip\r\n", bomb);
}

fn endless_body(stream: &mut TcpStream) {
    head(stream, "connection: close\r\n");
    let _ = stream.write_all(b"{\"data\":[");
    for_ever(stream, &[b' '; 64 << 10]);
}

fn endless_chunks(stream: &mut TcpStream) {
    head(stream, "transfer-encoding: chunked\r\n");
    let mut chunk = b"10000\r\n".to_vec();
    chunk.extend(vec![b'['; 0x10000]);
    chunk.extend(b"\r\n");
    for_ever(stream, &chunk);
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p8_slow_endless_bodies_are_cut_off() {
    all_refused(&[
        ("a gzip bomb", gzip_bomb, &["larger than", "bytes"]),
        ("an endless body", endless_body, &["larger than", "bytes"]),
        ("endless chunks", endless_chunks, &["larger than", "bytes"]),
        (
            "a promise of a body larger than any",
            |stream| {
                head(stream, "content-length: 18446744073709551615\r\n");
                let _ = stream.write_all(b"{");
            },
            &["not a page"],
        ),
    ]);
}

#[test]
fn p8_oversized_response_heads_are_refused() {
    all_refused(&[
        (
            "ten thousand headers",
            |stream| respond(stream, "200 OK", &"x-filler: y\r\n".repeat(10_000), b"{}"),
            &["not a page"],
        ),
        (
            "a header of ten megabytes",
            |stream| respond(stream, "200 OK", &format!("x-filler: {}\r\n", "y".repeat(10 * MIB)), b"{}"),
            &["not a page"],
        ),
        ("a head without end", |stream| for_ever(stream, b"HTTP/1.1 200 OK\r\nx: y\r\n"), &["not a page"]),
        ("no HTTP", |stream| drop(stream.write_all(b"SSH-2.0-OpenSSH_9.6\r\n")), &["not a page"]),
        ("nothing", |_| (), &["broke off"]),
    ]);
}

#[test]
fn p3_bodies_with_a_wrong_length_are_refused() {
    const WHOLE: &[u8] = b"{\"data\":[],\"cursor\":null}";
    all_refused(&[
        (
            "less than was promised",
            |stream| {
                head(stream, "content-length: 1000\r\n");
                let _ = stream.write_all(WHOLE);
            },
            &["broke off"],
        ),
        (
            "cut by a length that is too small",
            |stream| {
                head(stream, "content-length: 12\r\nconnection: close\r\n");
                let _ = stream.write_all(WHOLE);
            },
            &["not JSON"],
        ),
        (
            "two lengths",
            |stream| {
                head(stream, "content-length: 25\r\ncontent-length: 12\r\n");
                let _ = stream.write_all(WHOLE);
            },
            &["not a page"],
        ),
        (
            "chunks of garbage",
            |stream| {
                head(stream, "transfer-encoding: chunked\r\n");
                let _ = stream.write_all(b"zz\r\nnonsense\r\n-1\r\n");
            },
            &["broke off"],
        ),
        (
            "chunks that end early",
            |stream| {
                head(stream, "transfer-encoding: chunked\r\n");
                let _ = stream.write_all(b"9\r\n{\"data\":[\r\n");
            },
            &["broke off"],
        ),
        ("gzip that is none", |stream| respond(stream, "200 OK", "content-encoding: gzip\r\n", WHOLE), &["broke off"]),
    ]);
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p3_slow_bodies_that_are_not_pages_are_refused() {
    all_refused(&[
        ("NULs", |stream| respond(stream, "200 OK", "", &[0; 5000]), &["not JSON"]),
        (
            "two ends",
            |stream| respond(stream, "200 OK", "", b"{\"cursor\":null,\"data\":[],\"cursor\":\"x\"}"),
            &["the body has 'cursor' twice"],
        ),
        (
            "two lists",
            |stream| respond(stream, "200 OK", "", b"{\"data\":[],\"data\":[1],\"cursor\":null}"),
            &["the body has 'data' twice"],
        ),
        ("brackets alone", |stream| respond(stream, "200 OK", "", &[b'['; 5_000_000]), &["not JSON"]),
        (
            "objects in objects",
            |stream| respond(stream, "200 OK", "", "{\"data\":".repeat(100_000).as_bytes()),
            &["not a page"],
        ),
        (
            "a token of a megabyte",
            |stream| {
                respond(stream, "200 OK", "", format!("{{\"data\":[],\"cursor\":\"{}\"}}", "x".repeat(MIB)).as_bytes())
            },
            &["'cursor' is longer than"],
        ),
    ]);
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p1_slow_items_with_invalid_json_become_rejects() {
    const NO_UTF8: Hostile = |stream| respond(stream, "200 OK", "", b"{\"data\":[\"\xff\xfe\"],\"cursor\":null}");
    const A_NUL: Hostile = |stream| respond(stream, "200 OK", "", b"{\"data\":[\"\0\"],\"cursor\":null}");
    for hostile in [NO_UTF8, A_NUL] {
        let met = meet(hostile, MEMORY_MIB);
        assert_eq!(met.done.code, 3, "{}", met.done.stderr);
        assert_eq!(met.count("SELECT count(*) FROM rejects WHERE reason = 'not_json'"), 1);
    }
}

/// A record of the contract with a text as its answer, and additional members.
fn record(question: &str, response: &str, more: &str) -> String {
    format!(
        "{{\"createdAt\":\"2026-01-30T08:00:00.000Z\",\"updatedAt\":\"2026-01-30T08:00:00.000Z\",\"questionId\":{question},\
         \"questionText\":\"Why?\",\"questionType\":\"OPEN\",\"response\":{response},\
         \"responseGroupUid\":\"0b5f0f0e-0000-4000-8000-000000000001\",\"surveyId\":1,\"visitorId\":1,\
         \"visitorUuid\":\"0b5f0f0e-0000-4000-8000-000000000002\"{more}}}"
    )
}

fn page(records: &[String]) -> Vec<u8> {
    format!("{{\"data\":[{}],\"cursor\":null}}", records.join(",")).into_bytes()
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p1_p8_slow_a_page_of_fifty_megabytes_lands() {
    let met = meet(
        |stream| {
            let text = format!("\"{}\"", "t".repeat(MIB));
            let records: Vec<String> = (0..50).map(|at| record(&at.to_string(), &text, "")).collect();
            respond(stream, "200 OK", "", &page(&records));
        },
        MEMORY_MIB,
    );
    met.assert_bounded("fifty answers of a megabyte", LANDING_RSS_BYTES_MAX);
    assert_eq!(met.done.code, 0, "{}", met.done.stderr);
    assert_eq!(met.count(&format!("SELECT count(*) FROM responses WHERE length(answer_text) = {MIB}")), 50);
}

#[test]
fn p1_p8_records_with_extreme_values_land() {
    let met = meet(
        |stream| {
            let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
            let wide = format!("{{{}\"z\":1}}", "\"k\":1,".repeat(50_000));
            let records = [
                record("1", &deep, ""),
                record("2", &wide, ""),
                record("3", "1e400", ""),
                record("4", "\"\\u0000\\ud800 \\u202e\"", ""),
                record("5", "\"twice\"", ",\"response\":\"said\",\"surveyId\":2"),
                record("6", "\"deep\"", &format!(",\"unknown\":{deep}")),
                record("1e400", "\"no number of a question\"", ""),
                record("9223372036854775808", "\"one past the last\"", ""),
                record("null", "\"no question\"", ""),
                "[]".to_owned(),
                deep.clone(),
                "1e400".to_owned(),
            ];
            respond(stream, "200 OK", "", &page(&records));
        },
        MEMORY_MIB,
    );
    met.assert_bounded("records that no reader would expect", RSS_BYTES_MAX);
    // Rejects are reported.
    assert_eq!(met.done.code, 3, "{}", met.done.stderr);
    let landed = "SELECT (SELECT count(*) FROM responses) + (SELECT count(*) FROM rejects WHERE stream = 'responses')";
    assert_eq!(met.count(landed), 12);
    assert_eq!(met.count("SELECT count(*) FROM responses WHERE question_id BETWEEN 1 AND 6"), 6);
    assert_eq!(met.count("SELECT max(length(answer_json)) FROM responses"), 350_000 - 50_000 + 7);
}

#[test]
fn p5_hostile_retry_after_values_are_bounded_or_ignored() {
    let cases: [(&str, &str, i32); 6] = [
        ("a wait of ages", "retry-after: 99999999999999999999999\r\n", 6),
        ("a date at the end of time", "retry-after: Fri, 31 Dec 9999 23:59:59 GMT\r\n", 6),
        ("several, one of ages", "retry-after: 1\r\nretry-after: soon\r\nretry-after: 86400\r\n", 6),
        ("bytes that are no text", "retry-after: \u{fe}\u{ff}\r\n", 0),
        ("no number", "retry-after: NaN\r\nretry-after: 1e400\r\nretry-after: -1\r\n", 0),
        ("next to nothing", "retry-after: 0.000000000000000000000000000000000001\r\n", 0),
    ];
    std::thread::scope(|scope| {
        for (what, headers, code) in cases {
            scope.spawn(move || {
                let service = Service::start(small(150, 3));
                let refusals = std::sync::atomic::AtomicU64::new(if code == 6 { 1 } else { 2 });
                let server = RawServer::start(
                    &service.base_url(),
                    Box::new(move |request, stream| {
                        let take_one = |left: u64| left.checked_sub(1);
                        let refuses = request.is_for("/v1/responses")
                            && refusals.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take_one).is_ok();
                        if refuses {
                            respond(stream, "429 Too Many Requests", headers, b"");
                        }
                        refuses
                    }),
                    Box::new(|answer| answer),
                );
                let config = format!("{ALL_FLAGS}[throttle]\npatience_secs = 30\n");
                let place = Place::at(server.base_url()).with_config(&config);
                let done = place.run(&["sync"]);
                assert_eq!(done.code, code, "{what}: {}", done.stderr);
                if code == 6 {
                    assert!(done.stderr.contains("as the service asked"), "{what}: {}", done.stderr);
                    assert!(server.requests() < 8, "{what}: {} requests", server.requests());
                }
                // The `Retry-After` of the service binds the next command too.
                place.run(&["sync", "--ignore-rate-limit"]).expect(0);
                assert_warehouses_equal(&place, &Expected::now(&service), what);
            });
        }
    });
}
