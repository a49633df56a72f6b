//! Duplicate deliveries, acknowledged bodies, and the owner of an inbox.

use super::*;

const BASE_URL: &str = "http://127.0.0.1:1";

fn open(folder: &tempfile::TempDir) -> Inbox {
    Inbox::open(&folder.path().join("state.sqlite"), BASE_URL, "test").unwrap()
}

fn delivery(body: &str, subject: Option<&str>, received_ms: i64) -> NewDelivery {
    let body_hash = u128::from_be_bytes(std::array::from_fn(|at| body.as_bytes().get(at).copied().unwrap_or(0)));
    let body = body.as_bytes().to_vec();
    NewDelivery { received_ms, body_hash, undated_subject: subject.map(str::to_owned), body }
}

#[test]
fn a_body_is_stored_once_and_removed_when_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let mut inbox = open(&folder);
    let receipts = inbox.store(&[delivery("a", None, 1), delivery("b", None, 2), delivery("a", None, 3)]).unwrap();
    assert_eq!(receipts, [DeliveryReceipt::Stored, DeliveryReceipt::Stored, DeliveryReceipt::Duplicate]);
    let pending = inbox.pending(10, 100).unwrap();
    assert_eq!(pending.iter().map(|delivery| delivery.body.as_slice()).collect::<Vec<_>>(), [b"a", b"b"]);
    assert_eq!(inbox.pending(10, 1).unwrap().len(), 1, "more bytes than the limit");
    inbox.acknowledge(&pending[..1], 10).unwrap();
    assert_eq!(inbox.pending(10, 100).unwrap(), pending[1..]);
    assert_eq!(inbox.count_pending().unwrap(), PendingDeliveries { deliveries: 1, bytes: 1, oldest_ms: Some(2) });
    // The hash stays after the body is gone.
    assert_eq!(inbox.store(&[delivery("a", None, 20)]).unwrap(), [DeliveryReceipt::Duplicate]);
    inbox.acknowledge(&pending[1..], 21 + DUPLICATES_KNOWN_MS).unwrap();
    assert_eq!(inbox.store(&[delivery("a", None, 22 + DUPLICATES_KNOWN_MS)]).unwrap(), [DeliveryReceipt::Stored]);
}

#[test]
fn an_undated_body_is_new_after_another_body() {
    let folder = tempfile::tempdir().unwrap();
    let mut inbox = open(&folder);
    let (paused, resumed) = ("7: paused", "7: resumed");
    let mut deliver = |body: &str, minute: i64| {
        let receipts = inbox.store(&[delivery(body, Some("survey 7"), minute * MINUTE_MS)]).unwrap();
        (receipts[0], inbox.pending(100, 1000).unwrap().len())
    };
    assert_eq!(deliver(paused, 0), (DeliveryReceipt::Stored, 1));
    assert_eq!(deliver(paused, 1), (DeliveryReceipt::Duplicate, 1), "delivered twice");
    assert_eq!(deliver(resumed, 2), (DeliveryReceipt::Stored, 2));
    assert_eq!(deliver(paused, 3), (DeliveryReceipt::Stored, 3), "another status came in between");
    assert_eq!(deliver(paused, 30), (DeliveryReceipt::Stored, 4), "long after: a delivery in between may be lost");
}

#[test]
fn p1_an_undated_body_is_new_after_the_clock_was_set_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut inbox = open(&folder);
    let years_ms = 3650 * DAY_MS;
    let mut store = |received_ms| inbox.store(&[delivery("paused", Some("survey 7"), received_ms)]).unwrap()[0];
    assert_eq!(store(years_ms), DeliveryReceipt::Stored);
    assert_eq!(store(years_ms + 1000), DeliveryReceipt::Duplicate, "the service repeats it");
    assert_eq!(store(1000), DeliveryReceipt::Stored, "paused again, after the clock was set right");
}

#[test]
fn p9_an_acknowledged_body_leaves_no_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let mut inbox = open(&folder);
    let secret = "somebody@example.com wrote this".repeat(40);
    inbox.store(&[delivery(&secret, None, 1)]).unwrap();
    let contains_address = |folder: &tempfile::TempDir| {
        std::fs::read_dir(folder.path()).unwrap().any(|entry| {
            let bytes = std::fs::read(entry.unwrap().path()).unwrap();
            bytes.windows(20).any(|window| window == b"somebody@example.com")
        })
    };
    assert!(contains_address(&folder));
    inbox.acknowledge(&inbox.pending(1, 1).unwrap(), 2).unwrap();
    inbox.empty_log().unwrap();
    assert!(!contains_address(&folder));
}

#[test]
fn p9_a_discarded_body_leaves_no_bytes_and_others_stay() {
    let folder = tempfile::tempdir().unwrap();
    let mut inbox = open(&folder);
    let secret = "somebody@example.com wrote this".repeat(400);
    inbox.store(&[delivery("a", None, 1), delivery(&secret, None, 2), delivery("c", None, 3)]).unwrap();
    assert_eq!(inbox.discard(|body| body.starts_with(b"somebody")).unwrap(), 1);
    inbox.empty_log().unwrap();
    let pending = inbox.pending(10, 10_000).unwrap();
    assert_eq!(pending.iter().map(|delivery| delivery.body.as_slice()).collect::<Vec<_>>(), [b"a", b"c"]);
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        assert!(!bytes.windows(20).any(|window| window == b"somebody@example.com"));
    }
}

#[test]
fn p10_the_inbox_of_another_service_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    drop(Inbox::open(&folder.path().join("state.sqlite"), "http://127.0.0.1:2", "mistyped").unwrap());
    open(&folder).store(&[delivery("a", None, 1)]).unwrap();
    drop(Inbox::open(&folder.path().join("state.sqlite"), "http://localhost:1", "test").unwrap());
    let other = Inbox::open(&folder.path().join("state.sqlite"), BASE_URL, "other");
    assert!(matches!(other, Err(StateError::OtherService { what: "environment", .. })));
}
