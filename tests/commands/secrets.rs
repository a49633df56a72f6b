//! P11: the key is sent to the service and appears nowhere else.

use crate::harness::{Done, KEY, Place, Service, days_ago, small};
use serde_json::json;

/// The key as plain text, and in the encodings in which it could appear.
fn forms() -> Vec<Vec<u8>> {
    use base64::Engine;
    let base64 = base64::engine::general_purpose::STANDARD.encode(KEY);
    let escaped: String = KEY.bytes().map(|byte| format!("\\x{byte:02x}")).collect();
    vec![KEY.as_bytes().to_vec(), base64.into_bytes(), escaped.into_bytes()]
}

fn assert_is_free_of_the_key(what: &str, bytes: &[u8]) {
    for form in forms() {
        assert!(!bytes.windows(form.len()).any(|window| window == form), "{what} holds the key");
    }
}

fn assert_says_nothing(what: &str, done: &Done) {
    assert_is_free_of_the_key(what, done.stdout.as_bytes());
    assert_is_free_of_the_key(what, done.stderr.as_bytes());
}

#[test]
fn p11_the_key_appears_in_no_output_and_no_file() {
    let service = Service::start(small(600, 20));
    let place = Place::new(&service);
    // Refusals, failures and a body that contains the key: errors quote the answer.
    service
        .control()
        .merge_faults(json!({
            "too_many_requests": {"when": {"every": 5}, "retry_after": {"form": "fraction", "wait_ms": 30}},
            "server_error": {"when": {"every": 8}},
            "html": {"when": {"every": 7}}
        }))
        .unwrap();
    let json_place = Place::new(&service);
    for (log_format, place) in [("text", &place), ("json", &json_place)] {
        let done =
            place.run(&["-vv", "--log-format", log_format, "backfill", "--from", &days_ago(22), "--json"]).expect(0);
        assert!(done.stderr.len() > 1000, "-vv says little: {}", done.stderr);
        assert_says_nothing("a backfill at -vv", &done);
    }
    service.set_faults(Default::default());
    for command in [&["-vv", "sync"][..], &["-vv", "check"], &["status"], &["plan"], &["status", "--json"]] {
        assert_says_nothing(&format!("{command:?}"), &place.run(command).expect(0));
    }
    std::fs::write(place.path("key.txt"), format!("{KEY}\n")).unwrap();
    assert_says_nothing("a run with a key file", &place.run(&["-vv", "sync", "--api-key-file", "key.txt"]).expect(0));
    std::fs::remove_file(place.path("key.txt")).unwrap();
    let refused = Service::start(studysync_sandbox::Settings { api_key: "another".into(), ..small(10, 2) });
    let mut other = Place::new(&refused);
    assert_says_nothing("a refused key", &other.run(&["-vv", "sync"]).expect(4));
    other.set_base_url("http://127.0.0.1:1");
    std::fs::remove_dir_all(other.path("state")).unwrap();
    assert_says_nothing("an unreachable service", &other.run(&["-vv", "check"]).expect(1));

    let files = place.files(".");
    assert!(files.iter().any(|path| path.ends_with("checkpoints.sqlite")), "{files:?}");
    assert!(files.iter().filter(|path| path.extension().is_some_and(|extension| extension == "parquet")).count() > 10);
    for path in files.iter().chain(&other.files(".")).chain(&json_place.files(".")) {
        assert_is_free_of_the_key(&path.display().to_string(), &std::fs::read(path).unwrap());
    }
    // Parquet files are compressed, so their values are searched too.
    for (name, tables) in place.warehouses() {
        for row in tables.rows("sync_runs") {
            assert_is_free_of_the_key(&format!("{name}: sync_runs"), format!("{row:?}").as_bytes());
        }
    }
    for body in archived_pages(&place) {
        assert_is_free_of_the_key("an archived page", &body);
    }
}

/// Returns the decompressed content of every zstd file of the archive.
fn archived_pages(place: &Place) -> Vec<Vec<u8>> {
    const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
    let mut bodies = Vec::new();
    for path in place.files("archive") {
        let bytes = std::fs::read(&path).unwrap();
        let frames = (0..bytes.len().saturating_sub(4)).filter(|at| bytes[*at..].starts_with(&MAGIC));
        for at in frames {
            let mut body = Vec::new();
            if let Ok(decoder) = zstd::stream::read::Decoder::new(&bytes[at..]) {
                let mut decoder = decoder.single_frame();
                let _ = std::io::Read::read_to_end(&mut decoder, &mut body);
            }
            bodies.push(body);
        }
    }
    assert!(bodies.iter().any(|body| !body.is_empty()), "the archive holds no page that can be read");
    bodies
}

#[test]
fn p11_a_redirect_never_carries_the_key_to_another_host() {
    use std::io::{Read, Write};
    let elsewhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let asked = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let target = elsewhere.local_addr().unwrap();
    let address = asked.local_addr().unwrap();
    elsewhere.set_nonblocking(true).unwrap();
    std::thread::spawn(move || {
        for stream in asked.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut head = [0; 4096];
            let _ = stream.read(&mut head);
            let answer = format!(
                "HTTP/1.1 302 Found\r\nLocation: http://localhost:{}/v1/surveys\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
                target.port()
            );
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    let place = Place::at(format!("http://{address}"));
    let done = place.run(&["check"]);
    assert_ne!(done.code, 0, "{}", done.stdout);
    assert_eq!(
        elsewhere.accept().map(|_| ()).unwrap_err().kind(),
        std::io::ErrorKind::WouldBlock,
        "the redirect was followed"
    );
}
