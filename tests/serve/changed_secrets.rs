//! Keys and tokens that change while a run or `serve` is active: no request is refused, and no restart is needed.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use studysync_sandbox::{Faults, Latency};

use super::{IDLE, Poster, SECRET, Serving, answer_body, place_for, raw, status_of, until};
use crate::harness::{Done, KEY, KEY_VARIABLE, Place, Service, small};

const NEW_KEY: &str = "an0ther-k3y-0f-the-tests";

/// A place whose key comes from its file `key.txt`, by this setting.
fn place_with(service: &Service, setting: &str) -> Place {
    let place = Place::new(service).with_config(&format!("[service]\n{setting}\n"));
    fs::write(place.path("key.txt"), KEY).unwrap();
    place
}

/// Replaces a file atomically, as a secret manager does.
fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, path).unwrap();
}

#[test]
fn p5_p11_a_run_goes_on_with_a_key_that_was_changed() {
    for setting in ["api_key_file = \"key.txt\"", "api_key_command = \"cat key.txt\""] {
        let service = Service::start(small(600, 6));
        service.set_faults(Faults { latency: Latency { ms: 60, ..Latency::default() }, ..Faults::default() });
        let place = place_with(&service, setting);
        let run = place.spawn(&["sync", "--json"]);
        until("the first requests", || service.log().len() > 3);
        replace(&place.path("key.txt"), NEW_KEY);
        service.control().set_api_key(NEW_KEY);
        let done = Done::from(run.wait_with_output().unwrap()).expect(0);
        let refused = service.log().iter().filter(|entry| entry.status == 403 || entry.status == 401).count();
        assert!(refused > 0, "{setting}: the change came too late to show anything");
        for secret in [KEY, NEW_KEY] {
            assert!(!done.stderr.contains(secret) && !done.stdout.contains(secret), "{setting}: {}", done.stderr);
        }
        assert!(done.stderr.contains("another one was found"), "{setting}: {}", done.stderr);
    }
}

#[test]
fn a_key_that_stays_wrong_is_read_once_more_and_refused() {
    let service = Service::start(small(60, 3));
    let place = place_with(&service, "api_key_command = \"echo read >> reads; cat key.txt\"");
    fs::write(place.path("key.txt"), NEW_KEY).unwrap();
    place.run(&["sync"]).expect(4);
    let reads = fs::read_to_string(place.path("reads")).unwrap().lines().count();
    assert_eq!(reads, 2, "once at the start, and once before the key counts as refused");
    // An environment variable cannot change during a run.
    let place = Place::new(&service);
    let mut command = place.command(&["sync"]);
    Done::from(command.env(KEY_VARIABLE, NEW_KEY).output().unwrap()).expect(4);
}

#[test]
fn p11_serve_takes_the_old_and_the_new_token_after_a_change() {
    const TOKEN: &str = "status-t0ken-of-the-tests";
    const OTHER: &str = "an0ther-t0ken-of-the-tests";
    let service = Service::start(small(60, 3));
    let files = "token_file = \"webhook.txt\"\nstatus_token_file = \"status.txt\"\n";
    let place = place_for(&service, &format!("{IDLE}{files}"));
    fs::write(place.path("webhook.txt"), SECRET).unwrap();
    fs::write(place.path("status.txt"), TOKEN).unwrap();
    let serving = Serving::start(&place);
    let post = |secret: &str, number| {
        Poster::connect(serving.address).and_then(|mut poster| poster.post(secret, answer_body(number).as_bytes()))
    };
    let page = |token: &str| {
        let head = format!("GET /api/status HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\nconnection: close");
        status_of(&raw(serving.address, format!("{head}\r\n\r\n").as_bytes()))
    };
    assert_eq!((post(SECRET, 1).unwrap(), post(OTHER, 2).unwrap()), (200, 401));
    assert_eq!((page(TOKEN), page(OTHER)), (200, 401));
    replace(&place.path("webhook.txt"), OTHER);
    replace(&place.path("status.txt"), OTHER);
    // A token that was just read is read again after one second.
    let begun = Instant::now();
    until("the new token of webhooks", || post(OTHER, 3).is_ok_and(|status| status == 200));
    until("the new token of the page", || page(OTHER) == 200);
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    assert_eq!((post(SECRET, 4).unwrap(), page(TOKEN)), (200, 200), "the old ones stay valid for a while");
    assert_eq!((post("wrong", 5).unwrap(), page("wrong")), (401, 401));
    assert_eq!(serving.stop(), 0);
}
