//! Which records are suppressed, and until when.

use std::{collections::BTreeMap, fs, path::Path};

use super::*;
use crate::{
    model::{FlagSet, Identifier, RunId, Scope, Stream, Window},
    person::suppression_list::{KEY_FILE, LIST_FILE},
};

fn identifier(kind: IdentifierKind, text: &str) -> Identifier {
    Identifier::read(kind, text).unwrap()
}

fn written(kind: IdentifierKind, text: &str) -> WrittenIdentifier {
    WrittenIdentifier::read(kind, text).unwrap()
}

fn listed(folder: &Path) -> SuppressionList {
    let mut list = SuppressionList::read(folder).unwrap();
    let key = list.key().unwrap();
    let hash = |kind, text| key.hash(&identifier(kind, text));
    let entry = SuppressionEntry {
        erasure_id: "e1".into(),
        until_ms: 1000,
        named: vec![hash(IdentifierKind::UserId, "anna")],
        linked: vec![hash(IdentifierKind::VisitorId, "7"), hash(IdentifierKind::Email, "a@b.c")],
        users: Vec::new(),
        met: BTreeMap::from([(Stream::Responses, vec![Window::new(0, 10)])]),
        absent: BTreeMap::new(),
    };
    list.put(entry).unwrap();
    SuppressionList::read(folder).unwrap()
}

fn suppression(folder: &Path) -> Suppression {
    Suppression::new(SuppressionList::read(folder).unwrap())
}

fn scan(window: Window, started_ms: i64) -> Scan {
    let scope = Scope::all(Stream::Responses);
    Scan { id: ScanId::new(started_ms), run_id: RunId::new(0), scope, window, flags: FlagSet::ALL, started_ms }
}

#[test]
fn p9_records_of_suppressed_people_are_recognized() {
    let folder = tempfile::tempdir().unwrap();
    let suppression = Suppression::new(listed(folder.path()));
    let is_suppressed = |record: &str| suppression.matches_json(identifying_fields(Stream::Responses), record);
    assert!(is_suppressed(r#"{"externalUserId":"anna","visitorId":1}"#));
    assert!(is_suppressed(r#"{"externalUserId":"","visitorId":7}"#), "by a linked identifier");
    assert!(is_suppressed(r#"{"visitorSnapshot":{"attributes":{"email":"A@B.C"}}}"#));
    assert!(!is_suppressed(r#"{"externalUserId":"bert","visitorId":7}"#), "a shared device");
    assert!(!is_suppressed(r#"{"externalUserId":"bert","visitorId":8}"#));
    assert!(suppression.matches_identifiers(&[written(IdentifierKind::VisitorId, "7")]));
    let page = br#"{"data":[{"externalUserId":"anna"},{"externalUserId":"bert"}]}"#;
    let redacted = suppression.filtered(&scan(Window::new(0, 10), 1), page).unwrap();
    assert_eq!(redacted.body, br#"{"data":[{"externalUserId":"bert"}]}"#);
    let file = fs::read_to_string(folder.path().join(LIST_FILE)).unwrap();
    assert!(!file.contains("anna") && !file.contains("a@b.c"), "{file}");
}

#[test]
fn p9_every_spelling_of_a_suppressed_name_is_recognized() {
    let is_suppressed = |hashed: &[Identifier], record: &str| {
        let folder = tempfile::tempdir().unwrap();
        let mut list = SuppressionList::read(folder.path()).unwrap();
        let key = list.key().unwrap();
        let named = hashed.iter().map(|one| key.hash(one)).collect();
        let (met, absent) = (BTreeMap::new(), BTreeMap::new());
        list.put(SuppressionEntry {
            erasure_id: "e1".into(),
            until_ms: 1,
            named,
            linked: Vec::new(),
            users: Vec::new(),
            met,
            absent,
        })
        .unwrap();
        suppression(folder.path()).matches_json(identifying_fields(Stream::Responses), record)
    };
    let user = |name: &str| format!(r#"{{"externalUserId":"{name}"}}"#);
    let mail = |address: &str| format!(r#"{{"visitorSnapshot":{{"attributes":{{"email":"{address}"}}}}}}"#);
    let now = [identifier(IdentifierKind::UserId, "zoë"), identifier(IdentifierKind::Email, "zoë@exämple.de")];
    for record in [
        user("zoë"),
        user("zoe\u{308}"),
        user(r"zoe\u0308"),
        mail("ZOE\u{308}@xn--exmple-cua.de"),
        mail("zoë@EXA\u{308}MPLE.de."),
    ] {
        assert!(is_suppressed(&now, &record), "{record}");
    }
    assert!(!is_suppressed(&now, &user("zoe")) && !is_suppressed(&now, &mail("zoe@exämple.de")));
    // An earlier version hashed names in their spelling, which still matches.
    let raw = |kind, value: &str| Identifier { kind, value: value.to_owned() };
    let earlier = [raw(IdentifierKind::UserId, "zoe\u{308}"), raw(IdentifierKind::Email, "zoë@xn--exmple-cua.de")];
    assert!(is_suppressed(&earlier, &user("zoe\u{308}")) && is_suppressed(&earlier, &mail("ZOË@xn--exmple-cua.de")));
}

#[test]
fn p9_a_suppression_stays_until_a_later_scan_finds_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let none: &[u8] = br#"{"data":[]}"#;
    let some: &[u8] = br#"{"data":[{"externalUserId":"anna"}]}"#;
    let scan_window = |window, started_ms, page: &[u8]| {
        let suppression = suppression(folder.path());
        let scan = scan(window, started_ms);
        suppression.begin_scan(&scan);
        suppression.filtered(&scan, page);
        suppression.committed(&scan);
        (suppression.expire(started_ms, &BTreeSet::new()).unwrap().len(), suppression.late_records().records)
    };
    listed(folder.path());
    assert_eq!(scan_window(Window::new(0, 10), 999, none), (0, 0), "a scan before the end of the delay proves nothing");
    assert_eq!(scan_window(Window::new(0, 5), 1000, none), (0, 0), "half of the window");
    assert_eq!(scan_window(Window::new(0, 3), 1001, some), (0, 1), "still sent after the delay");
    assert_eq!(scan_window(Window::new(5, 12), 1002, none), (0, 0));
    assert_eq!(scan_window(Window::new(20, 30), 1003, some), (0, 1), "found in a new window");
    assert_eq!(scan_window(Window::new(0, 10), 1004, none), (0, 0));
    assert_eq!(scan_window(Window::new(15, 40), 1005, none), (1, 0));
    assert!(suppression(folder.path()).is_empty());
}

#[test]
fn p9_a_list_without_its_key_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    assert!(suppression(folder.path()).is_empty());
    listed(folder.path());
    fs::remove_file(folder.path().join(KEY_FILE)).unwrap();
    assert!(matches!(SuppressionList::read(folder.path()), Err(SuppressionError::KeyLost { .. })));
    fs::write(folder.path().join(LIST_FILE), "{\"format_version\":9}").unwrap();
    assert!(matches!(SuppressionList::read(folder.path()), Err(SuppressionError::Newer { .. })));
}
