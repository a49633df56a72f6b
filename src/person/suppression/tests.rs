//! Who is kept out of which record, and until when.

use super::*;
use crate::model::{FlagSet, Identifier, RunId, Scope};

fn identifier(kind: IdentifierKind, text: &str) -> Identifier {
    Identifier::read(kind, text).unwrap()
}

fn spelled(kind: IdentifierKind, text: &str) -> WrittenIdentifier {
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

fn scan(window: Window, started_ms: i64) -> Scan {
    let scope = Scope::all(Stream::Responses);
    Scan { id: ScanId::new(started_ms), run_id: RunId::new(0), scope, window, flags: FlagSet::ALL, started_ms }
}

#[test]
fn p9_records_of_the_suppressed_are_known_and_others_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let suppression = listed(folder.path()).suppression();
    let is_kept_out = |record: &str| suppression.matches_record(Stream::Responses, record);
    assert!(is_kept_out(r#"{"externalUserId":"anna","visitorId":1}"#));
    assert!(is_kept_out(r#"{"externalUserId":"","visitorId":7}"#), "by what the name led to");
    assert!(is_kept_out(r#"{"visitorSnapshot":{"attributes":{"email":"A@B.C"}}}"#));
    assert!(!is_kept_out(r#"{"externalUserId":"bert","visitorId":7}"#), "a shared device");
    assert!(!is_kept_out(r#"{"externalUserId":"bert","visitorId":8}"#));
    assert!(suppression.matches_identifiers(&[spelled(IdentifierKind::VisitorId, "7")]));
    let page = br#"{"data":[{"externalUserId":"anna"},{"externalUserId":"bert"}]}"#;
    let redacted = suppression.filtered(&scan(Window::new(0, 10), 1), page).unwrap();
    assert_eq!(redacted.body, br#"{"data":[{"externalUserId":"bert"}]}"#);
    let file = fs::read_to_string(folder.path().join(LIST_FILE)).unwrap();
    assert!(!file.contains("anna") && !file.contains("a@b.c"), "{file}");
}

#[test]
fn p9_whoever_is_suppressed_is_kept_out_in_every_form_of_the_name() {
    let is_kept_out = |hashed: &[Identifier], record: &str| {
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
        SuppressionList::read(folder.path()).unwrap().suppression().matches_record(Stream::Responses, record)
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
        assert!(is_kept_out(&now, &record), "{record}");
    }
    assert!(!is_kept_out(&now, &user("zoe")) && !is_kept_out(&now, &mail("zoe@exämple.de")));
    // What versions wrote that hashed a name as it was written: that form is still known.
    let raw = |kind, value: &str| Identifier { kind, value: value.to_owned() };
    let earlier = [raw(IdentifierKind::UserId, "zoe\u{308}"), raw(IdentifierKind::Email, "zoë@xn--exmple-cua.de")];
    assert!(is_kept_out(&earlier, &user("zoe\u{308}")) && is_kept_out(&earlier, &mail("ZOË@xn--exmple-cua.de")));
}

#[test]
fn p9_a_suppression_stays_until_a_later_scan_finds_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let none: &[u8] = br#"{"data":[]}"#;
    let some: &[u8] = br#"{"data":[{"externalUserId":"anna"}]}"#;
    let look = |window, started_ms, page: &[u8]| {
        let suppression = SuppressionList::read(folder.path()).unwrap().suppression();
        let scan = scan(window, started_ms);
        suppression.begins(&scan);
        suppression.filtered(&scan, page);
        suppression.committed(&scan);
        (suppression.settle(started_ms, &BTreeSet::new()).unwrap().len(), suppression.late_records())
    };
    listed(folder.path());
    assert_eq!(look(Window::new(0, 10), 999, none), (0, 0), "before its time a look proves nothing");
    assert_eq!(look(Window::new(0, 5), 1000, none), (0, 0), "half of it");
    assert_eq!(look(Window::new(0, 3), 1001, some), (0, 1), "still there, after its time");
    assert_eq!(look(Window::new(5, 12), 1002, none), (0, 0));
    assert_eq!(look(Window::new(20, 30), 1003, some), (0, 1), "met where nobody knew");
    assert_eq!(look(Window::new(0, 10), 1004, none), (0, 0));
    assert_eq!(look(Window::new(15, 40), 1005, none), (1, 0));
    assert!(SuppressionList::read(folder.path()).unwrap().suppression().is_empty());
}

#[test]
fn p9_a_list_without_its_key_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    assert!(SuppressionList::read(folder.path()).unwrap().suppression().is_empty());
    listed(folder.path());
    fs::remove_file(folder.path().join(KEY_FILE)).unwrap();
    assert!(matches!(SuppressionList::read(folder.path()), Err(SuppressionError::KeyLost { .. })));
    fs::write(folder.path().join(LIST_FILE), "{\"format_version\":9}").unwrap();
    assert!(matches!(SuppressionList::read(folder.path()), Err(SuppressionError::Newer { .. })));
}
