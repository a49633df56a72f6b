//! The status page: access, its content after a failed night and during a run, and updates by events.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use serde_json::Value;
use studysync_sandbox::{Faults, Latency};

use super::{IDLE, Serving, place_for, raw, schedules::last_run_was, status_of, until};
use crate::harness::{Done, KEY, KEY_VARIABLE, Place, Service, small};

const TOKEN: &str = "status-t0ken-of-the-tests";
const TOKEN_VARIABLE: &str = "STUDYSYNC_STATUS_TOKEN";
const NIGHTLY: &str = "schedule = \"0 2 * * *\"\nwake_secs = 0\nflush_secs = 1\n";

/// Returns the complete answer to a request with these header lines.
fn ask(address: SocketAddr, method: &str, path: &str, head: &str, body: &str) -> String {
    let request =
        format!("{method} {path} HTTP/1.1\r\n{head}connection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    raw(address, request.as_bytes())
}

fn get(address: SocketAddr, path: &str, head: &str) -> String {
    ask(address, "GET", path, &format!("host: {address}\r\n{head}"), "")
}

/// Returns a header line of the answer, in lower case.
fn header(answer: &str, name: &str) -> Option<String> {
    let head = answer.split("\r\n\r\n").next()?;
    head.lines().find_map(|line| line.strip_prefix(&format!("{name}: "))).map(str::to_owned)
}

fn failed_night(place: &Place) -> Value {
    let mut command = place.command(&["sync", "--json"]);
    Done::from(command.env(KEY_VARIABLE, "another").output().unwrap()).expect(4).json()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[test]
fn the_status_page_is_read_only_with_strict_headers() {
    let service = Service::start(small(60, 3));
    let place = place_for(&service, IDLE);
    let serving = Serving::start(&place);
    for (path, kind) in [
        ("/", "text/html; charset=utf-8"),
        ("/status.css", "text/css; charset=utf-8"),
        ("/status.js", "text/javascript; charset=utf-8"),
        ("/api/status", "application/json"),
    ] {
        let answer = get(serving.address, path, "");
        assert_eq!((status_of(&answer), header(&answer, "content-type").as_deref()), (200, Some(kind)), "{path}");
        let policy = header(&answer, "content-security-policy").unwrap();
        for part in ["default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'"] {
            assert!(policy.contains(part) && !policy.contains("unsafe"), "{path}: {policy}");
        }
        for (name, value) in
            [("x-content-type-options", "nosniff"), ("referrer-policy", "no-referrer"), ("cache-control", "no-store")]
        {
            assert_eq!(header(&answer, name).as_deref(), Some(value), "{path}: {name}");
        }
        let head = ask(serving.address, "HEAD", path, &format!("host: {}\r\n", serving.address), "");
        assert!(status_of(&head) == 200 && head.ends_with("\r\n\r\n"), "{path}: {head}");
        for method in ["POST", "PUT", "DELETE"] {
            let answer = ask(serving.address, method, path, &format!("host: {}\r\n", serving.address), "");
            assert_eq!(status_of(&answer), 405, "{method} {path}");
        }
    }
    // The page has nothing that its content security policy blocks, and nothing from other hosts.
    let page = serving.get("/").1;
    for forbidden in ["<style", " style=", "onclick", "https://", "http://"] {
        assert!(!page.contains(forbidden), "{forbidden} in {page}");
    }
    for path in ["/status", "/api", "/events/", "/status.js.map", "/../etc/passwd"] {
        assert_eq!(serving.get(path).0, 404, "{path}");
    }
    serving.stop();
}

#[test]
fn the_page_shows_a_failed_night_in_the_words_of_the_run() {
    let service = Service::start(small(120, 4));
    let place = place_for(&service, IDLE);
    let serving = Serving::start(&place);
    let page = serving.get("/").1;
    assert!(page.contains("No run yet") && page.contains("Nothing is under way."), "{page}");
    let report = failed_night(&place);
    until("the failed night", || serving.get("/").1.contains("<title>Failing: studysync default</title>"));
    let page = serving.get("/").1;
    for words in ["why", "hint"] {
        let words = report[words].as_str().unwrap();
        assert!(page.contains(&escaped(words)), "{words} in {page}");
    }
    // The reason of a failed run is in the open, below the table of the runs.
    let below = page.split_once("<h3>Why runs failed</h3>").unwrap().1.split_once("<details>").unwrap().0;
    assert!(below.contains(&escaped(report["why"].as_str().unwrap())), "{below}");
    let stderr = Done::from(place.command(&["sync"]).env(KEY_VARIABLE, "another").output().unwrap()).expect(4).stderr;
    assert!(stderr.contains(report["hint"].as_str().unwrap()), "the same as on the terminal: {stderr}");
    let done = place.report(&["sync"], 0);
    until("the run that succeeds", || serving.get("/").1.contains("<title>Healthy: studysync default</title>"));
    let facts: Value = serde_json::from_str(&serving.get("/api/status").1).unwrap();
    assert_eq!(facts["verdict"], "healthy", "{facts:#}");
    let runs = facts["runs"].as_array().unwrap();
    let outcomes: Vec<&str> = runs.iter().map(|run| run["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["done", "failed", "failed"]);
    let streams = done["streams"].as_object().unwrap();
    let inserted: u64 = streams.values().map(|stream| stream["inserted"].as_u64().unwrap()).sum();
    assert_eq!((runs[0]["rows"]["inserted"].as_u64(), inserted > 100), (Some(inserted), true), "rows of all streams");
    assert_eq!(runs[0]["time_ms"], done["time_ms"]);
    let days = facts["streams"].as_array().unwrap().iter().find(|stream| stream["stream"] == "responses").unwrap();
    let states: Vec<&str> =
        days["days"].as_array().unwrap().iter().map(|range| range["state"].as_str().unwrap()).collect();
    assert_eq!((states[0], states.contains(&"again")), ("never", true), "{states:?}");
    let page = serving.get("/").1;
    assert!(!page.contains(KEY) && !page.contains(super::SECRET));
    serving.stop();
}

#[test]
fn the_page_names_its_place_and_streams_that_are_on_time() {
    let service = Service::start(small(120, 4));
    let place = place_for(&service, "schedule = \"off\"\nwebhook = \"off\"\nwake_secs = 0\n");
    place.report(&["sync"], 0);
    let serving = Serving::start(&place);
    let page = serving.get("/").1;
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    for words in [
        service.base_url().trim_start_matches("http://"),
        "environment default",
        &format!("on host {host}"),
        "Webhooks are off",
    ] {
        assert!(page.contains(words), "{words} in {page}");
    }
    let on_time = "<h3>responses</h3><p><strong>On time</strong> (lag ";
    assert!(page.contains(on_time) && !page.contains(" behind</strong>"), "{page}");
    let facts: Value = serde_json::from_str(&serving.get("/api/status").1).unwrap();
    assert_eq!((&facts["environment"], &facts["host"]), (&Value::from("default"), &Value::from(host)), "{facts:#}");
    assert_eq!(facts["deliveries"]["are_received"], false, "{facts:#}");
    serving.stop();
    // With a limit that no stream keeps, the page says how far each is behind.
    let late = place_for(&service, "schedule = \"off\"\nwebhook = \"off\"\nmax_lag = \"1s\"\n");
    late.report(&["sync"], 0);
    let serving = Serving::start(&late);
    let page = serving.get("/").1;
    assert!(page.contains(" behind</strong> (1 s allowed)") && page.contains("Failing"), "{page}");
    serving.stop();
}

#[test]
fn without_a_token_other_host_names_are_refused() {
    let service = Service::start(small(60, 3));
    let place = place_for(&service, IDLE);
    let serving = Serving::start(&place);
    for path in ["/", "/events", "/api/status"] {
        let answer = ask(serving.address, "GET", path, "host: rebound.example:8788\r\n", "");
        assert_eq!(status_of(&answer), 403, "{path}: {answer}");
        assert!(answer.contains("STUDYSYNC_STATUS_TOKEN"), "it says what to do: {answer}");
    }
    let answer = ask(serving.address, "GET", "/", "host: localhost:1\r\n", "");
    assert_eq!(status_of(&answer), 200, "a tunnel has another port");
    let answer = ask(serving.address, "GET", "/healthz", "host: monitor.example\r\n", "");
    assert_eq!(status_of(&answer), 200, "monitors ask under any name");
    serving.stop();
}

#[test]
fn p11_a_token_protects_the_page_and_browsers_sign_in_once() {
    let service = Service::start(small(60, 3));
    let place = place_for(&service, IDLE).with_env(TOKEN_VARIABLE, TOKEN);
    let serving = Serving::start(&place);
    let (address, bearer) = (serving.address, format!("authorization: Bearer {TOKEN}\r\n"));
    for path in ["/", "/events", "/api/status"] {
        for head in ["", "authorization: Bearer wrong\r\n", "cookie: studysync_status=00\r\n"] {
            let answer = get(address, path, head);
            assert_eq!(status_of(&answer), 401, "{path} {head}");
            assert_eq!(header(&answer, "www-authenticate").as_deref(), Some("Bearer"));
            assert!(!answer.contains("responses"), "nothing is told: {answer}");
        }
    }
    assert_eq!(status_of(&get(address, "/api/status", &bearer)), 200);
    let other_host = ask(address, "GET", "/", &format!("host: status.example\r\n{bearer}"), "");
    assert_eq!(status_of(&other_host), 200, "a proxy passes its own name on");
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_ne!(status_of(&get(address, path, "")), 401, "{path} is for monitors");
    }
    let form = "content-type: application/x-www-form-urlencoded\r\n";
    let sign_in = |head: &str, token: &str| {
        let head = format!("host: {address}\r\n{form}{head}");
        ask(address, "POST", "/login", &head, &format!("token={token}"))
    };
    let answer = sign_in("x-forwarded-proto: https\r\n", TOKEN);
    assert_eq!((status_of(&answer), header(&answer, "location").as_deref()), (303, Some("./")), "{answer}");
    let cookie = header(&answer, "set-cookie").unwrap();
    for part in ["HttpOnly", "SameSite=Strict", "Secure"] {
        assert!(cookie.contains(part) && !cookie.contains(TOKEN), "{cookie}");
    }
    let cookie = format!("cookie: {}\r\n", cookie.split(';').next().unwrap());
    assert_eq!(status_of(&get(address, "/", &cookie)), 200);
    // At most ten failed sign-ins per minute of any kind; existing sessions keep working.
    let wrong: Vec<u16> = (0..12).map(|nth| status_of(&sign_in("", &format!("wrong{nth}")))).collect();
    assert_eq!((wrong.contains(&401), wrong.last()), (true, Some(&429)), "{wrong:?}");
    let limited = sign_in("", TOKEN);
    assert!(status_of(&limited) == 429 && header(&limited, "retry-after").is_some(), "{limited}");
    assert_eq!(status_of(&get(address, "/", &cookie)), 200);
    serving.stop();
}

/// Returns the error of a `serve` that does not start.
fn refused_start(place: &Place) -> String {
    let mut child = place.spawn(&["serve"]);
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > super::WAIT_MAX {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Done::from(child.wait_with_output().unwrap()).expect(2).stderr
}

#[test]
fn p11_a_public_address_needs_a_token_or_no_page() {
    let service = Service::start(small(60, 3));
    let config = |more: &str| format!("[serve]\nlisten = \"0.0.0.0:0\"\n{IDLE}{more}");
    let place = place_for(&service, IDLE).with_config(&config(""));
    let refused = refused_start(&place);
    assert!(refused.contains("read the status page") && refused.contains("STUDYSYNC_STATUS_TOKEN"), "{refused}");
    let place = place.with_env(TOKEN_VARIABLE, "short");
    let refused = refused_start(&place);
    assert!(refused.contains("could be guessed") && !refused.contains("short"), "{refused}");
    let place = place.with_env(TOKEN_VARIABLE, "").with_config(&config("status_page = \"off\"\n"));
    let serving = Serving::start(&place);
    for path in ["/", "/events", "/api/status", "/status.js"] {
        assert_eq!(serving.get(path).0, 404, "{path}");
    }
    serving.stop();
    let place = place.with_env(TOKEN_VARIABLE, TOKEN).with_config(&config(""));
    let serving = Serving::start(&place);
    assert_eq!(serving.get("/").0, 401);
    serving.stop();
}

/// A client that listens to the page's events.
struct Listening {
    stream: BufReader<TcpStream>,
    /// The latest version of each part.
    parts: BTreeMap<String, String>,
}

impl Listening {
    fn start(address: SocketAddr) -> Listening {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(super::WAIT_MAX)).unwrap();
        stream.write_all(format!("GET /events HTTP/1.1\r\nhost: {address}\r\n\r\n").as_bytes()).unwrap();
        Listening { stream: BufReader::new(stream), parts: BTreeMap::new() }
    }

    /// Waits until a part contains this text.
    fn hear(&mut self, name: &str, text: &str) -> String {
        let begun = Instant::now();
        let mut line = String::new();
        loop {
            if let Some(html) = self.parts.get(name).filter(|html| html.contains(text)) {
                return html.clone();
            }
            line.clear();
            let length = self.stream.read_line(&mut line).unwrap();
            assert!(length > 0 && begun.elapsed() < super::WAIT_MAX, "{text} did not come in {name}: {:?}", self.parts);
            if let Some(parts) = line.strip_prefix("data: ").filter(|data| data.starts_with('{')) {
                self.parts.extend(serde_json::from_str::<BTreeMap<String, String>>(parts).unwrap());
            }
        }
    }
}

#[test]
fn events_follow_a_run_until_it_is_in_the_table() {
    let service = Service::start(small(400, 20));
    service.set_faults(Faults { latency: Latency { ms: 400, ..Latency::default() }, ..Faults::default() });
    let place = place_for(&service, NIGHTLY);
    last_run_was(&place, &service, 2);
    let serving = Serving::start(&place);
    let mut listening = Listening::start(serving.address);
    let html = listening.hear("under-way", "<progress");
    assert!(html.contains("<strong>sync</strong>") && html.contains("windows"), "{html}");
    let facts: Value = serde_json::from_str(&serving.get("/api/status").1).unwrap();
    let line = facts["under_way"]["line"].as_str().unwrap_or_default();
    assert!(line.contains('%') && facts["under_way"]["command"] == "sync", "{facts:#}");
    listening.hear("under-way", "Nothing is under way.");
    listening.hear("runs", "✓ done");
    listening.hear("verdict", "Healthy");
    // The event stream ends at once when the process ends.
    assert_eq!(serving.stop(), 0);
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut listening.stream, &mut rest).unwrap();
    assert!(rest.is_empty() || rest.contains("0\r\n"), "the stream is ended in order: {rest:?}");
}

#[test]
fn p8_the_number_of_event_streams_is_limited() {
    let service = Service::start(small(60, 3));
    let place = place_for(&service, IDLE);
    let serving = Serving::start(&place);
    let mut listening: Vec<Listening> = (0..16).map(|_| Listening::start(serving.address)).collect();
    listening.iter_mut().for_each(|one| drop(one.hear("verdict", "No run yet")));
    let mut one_too_many = Listening::start(serving.address);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(one_too_many.stream.read_line(&mut head).unwrap() > 0, "{head}");
    }
    assert_eq!((status_of(&head), header(&head, "retry-after").as_deref()), (503, Some("30")), "{head}");
    assert_eq!(serving.get("/").0, 200);
    drop(listening);
    until("a free place", || {
        let mut one = Listening::start(serving.address);
        let mut line = String::new();
        one.stream.read_line(&mut line).unwrap();
        line.starts_with("HTTP/1.1 200")
    });
    serving.stop();
}

/// Opens a request for `/events`, and returns its connection and the head of the answer.
fn follow(address: SocketAddr) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(format!("GET /events HTTP/1.1\r\nhost: {address}\r\n\r\n").as_bytes()).unwrap();
    let (mut head, mut lines) = (String::new(), BufReader::new(stream.try_clone().unwrap()));
    while !head.ends_with("\r\n\r\n") && lines.read_line(&mut head).unwrap() > 0 {}
    (stream, head)
}

#[test]
fn p8_slow_followers_that_read_nothing_lose_their_place() {
    let service = Service::start(small(60, 3));
    let serving = Serving::start(&place_for(&service, IDLE));
    let followers: Vec<_> = (0..16).map(|_| follow(serving.address)).collect();
    for (_, head) in &followers {
        assert_eq!((status_of(head), header(head, "x-accel-buffering").as_deref()), (200, Some("no")), "{head}");
    }
    let (_, refused) = follow(serving.address);
    assert!(status_of(&refused) == 503 && header(&refused, "retry-after").is_some(), "{refused}");
    until("a place", || status_of(&follow(serving.address).1) == 200);
    drop(followers);
    assert_eq!(serving.stop(), 0);
}

#[test]
fn two_servers_on_one_host_keep_their_sign_ins() {
    let service = Service::start(small(60, 3));
    let places = [0, 1].map(|_| place_for(&service, IDLE).with_env(TOKEN_VARIABLE, TOKEN));
    let servings = places.each_ref().map(Serving::start);
    let mut jar = BTreeMap::new();
    for serving in &servings {
        let form = "content-type: application/x-www-form-urlencoded\r\n";
        let head = format!("host: localhost\r\n{form}");
        let answer = ask(serving.address, "POST", "/login", &head, &format!("token={TOKEN}"));
        let cookie = header(&answer, "set-cookie").unwrap();
        let (name, value) = cookie.split(';').next().unwrap().split_once('=').unwrap();
        // A browser keeps one cookie per name and host, for all ports.
        jar.insert(name.to_owned(), value.to_owned());
    }
    let cookies: Vec<_> = jar.iter().map(|(name, value)| format!("{name}={value}")).collect();
    for serving in servings {
        let head = format!("cookie: {}\r\n", cookies.join("; "));
        assert_eq!(status_of(&get(serving.address, "/api/status", &head)), 200, "{cookies:?}");
        assert_eq!(serving.stop(), 0);
    }
}
