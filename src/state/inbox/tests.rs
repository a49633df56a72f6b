//! What is stored once, what is stored again, and what is left of a body.

use super::*;

const BASE_URL: &str = "http://127.0.0.1:1";

fn open(folder: &tempfile::TempDir) -> Inbox {
    Inbox::open(&folder.path().join("state.sqlite"), BASE_URL, "test").unwrap()
}

fn told(body: &str, subject: Option<&str>, received_ms: i64) -> NewDelivery {
    let body_hash = u128::from_be_bytes(std::array::from_fn(|at| body.as_bytes().get(at).copied().unwrap_or(0)));
    let body = body.as_bytes().to_vec();
    NewDelivery { received_ms, body_hash, timeless_subject: subject.map(str::to_owned), body }
}

#[test]
fn a_body_is_stored_once_and_goes_when_it_is_settled() {
    let folder = tempfile::tempdir().unwrap();
    let mut inbox = open(&folder);
    let accepted = inbox.accept(&[told("a", None, 1), told("b", None, 2), told("a", None, 3)]).unwrap();
    assert_eq!(accepted, [Accepted::Stored, Accepted::Stored, Accepted::Repeat]);
    let waiting = inbox.waiting(10, 100).unwrap();
    assert_eq!(waiting.iter().map(|delivery| delivery.body.as_slice()).collect::<Vec<_>>(), [b"a", b"b"]);
    assert_eq!(inbox.waiting(10, 1).unwrap().len(), 1, "the bound in bytes");
    inbox.settle(&waiting[..1], 10).unwrap();
    assert_eq!(inbox.waiting(10, 100).unwrap(), waiting[1..]);
    assert_eq!(inbox.count_waiting().unwrap(), Waiting { deliveries: 1, bytes: 1, oldest_ms: Some(2) });
    // Still known, until long after.
    assert_eq!(inbox.accept(&[told("a", None, 20)]).unwrap(), [Accepted::Repeat]);
    inbox.settle(&waiting[1..], 21 + REPEATS_KNOWN_MS).unwrap();
    assert_eq!(inbox.accept(&[told("a", None, 22 + REPEATS_KNOWN_MS)]).unwrap(), [Accepted::Stored]);
}

#[test]
fn a_change_that_tells_no_time_can_happen_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut inbox = open(&folder);
    let (pause, go) = ("7: paused", "7: goes on");
    let mut tell = |body: &str, minute: i64| {
        let accepted = inbox.accept(&[told(body, Some("survey 7"), minute * MINUTE_MS)]).unwrap();
        (accepted[0], inbox.waiting(100, 1000).unwrap().len())
    };
    assert_eq!(tell(pause, 0), (Accepted::Stored, 1));
    assert_eq!(tell(pause, 1), (Accepted::Repeat, 1), "posted twice");
    assert_eq!(tell(go, 2), (Accepted::Stored, 2));
    assert_eq!(tell(pause, 3), (Accepted::Stored, 3), "something else happened in between");
    assert_eq!(tell(pause, 30), (Accepted::Stored, 4), "long after: what was in between was lost");
}

#[test]
fn p9_a_settled_body_leaves_no_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let mut inbox = open(&folder);
    let secret = "somebody@example.com wrote this".repeat(40);
    inbox.accept(&[told(&secret, None, 1)]).unwrap();
    let holds = |folder: &tempfile::TempDir| {
        std::fs::read_dir(folder.path()).unwrap().any(|entry| {
            let bytes = std::fs::read(entry.unwrap().path()).unwrap();
            bytes.windows(20).any(|window| window == b"somebody@example.com")
        })
    };
    assert!(holds(&folder));
    inbox.settle(&inbox.waiting(1, 1).unwrap(), 2).unwrap();
    inbox.fold().unwrap();
    assert!(!holds(&folder));
}

#[test]
fn p9_what_is_discarded_leaves_no_bytes_and_the_others_wait() {
    let folder = tempfile::tempdir().unwrap();
    let mut inbox = open(&folder);
    let secret = "somebody@example.com wrote this".repeat(400);
    inbox.accept(&[told("a", None, 1), told(&secret, None, 2), told("c", None, 3)]).unwrap();
    assert_eq!(inbox.discard(|body| body.starts_with(b"somebody")).unwrap(), 1);
    inbox.fold().unwrap();
    let waiting = inbox.waiting(10, 10_000).unwrap();
    assert_eq!(waiting.iter().map(|delivery| delivery.body.as_slice()).collect::<Vec<_>>(), [b"a", b"c"]);
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        assert!(!bytes.windows(20).any(|window| window == b"somebody@example.com"));
    }
}

#[test]
fn p10_the_inbox_of_another_service_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    drop(Inbox::open(&folder.path().join("state.sqlite"), "http://127.0.0.1:2", "mistyped").unwrap());
    open(&folder).accept(&[told("a", None, 1)]).unwrap();
    drop(Inbox::open(&folder.path().join("state.sqlite"), "http://localhost:1", "test").unwrap());
    let other = Inbox::open(&folder.path().join("state.sqlite"), BASE_URL, "other");
    assert!(matches!(other, Err(StateError::OtherService { what: "environment", .. })));
}
