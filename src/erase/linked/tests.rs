//! Links between identifiers of a few made-up rows.
//!
//! `u:` user id, `m:` mail, `v:` visitor UUID, `n:` visitor number, `a:` anonymous id, `s:` session.

use proptest::prelude::*;

use super::*;

fn identifier(text: &str) -> Identifier {
    let (kind, value) = text.split_once(':').unwrap();
    let kind = match kind {
        "u" => IdentifierKind::UserId,
        "m" => IdentifierKind::Email,
        "v" => IdentifierKind::VisitorUuid,
        "n" => IdentifierKind::VisitorId,
        "a" => IdentifierKind::AnonymousId,
        _ => IdentifierKind::Session,
    };
    Identifier::read(kind, value).unwrap_or_else(|| panic!("{text} names nobody"))
}

fn row(text: &str) -> Vec<Identifier> {
    text.split_whitespace().map(identifier).collect()
}

fn linked_of(named: &str, rows: &[Vec<Identifier>]) -> LinkedIdentifiers {
    let find_rows = |wanted: &[Identifier]| {
        let is_wanted = |row: &&Vec<Identifier>| row.iter().any(|identifier| wanted.contains(identifier));
        let rows = rows.iter().filter(is_wanted).cloned().collect();
        Ok::<_, ()>(vec![CoOccurrence { rows, ..CoOccurrence::default() }])
    };
    follow(&row(named).into_iter().collect(), find_rows).unwrap()
}

fn check(named: &str, rows: &[&str], linked: &str, not_followed: &[(&str, NotFollowed)]) {
    let rows: Vec<_> = rows.iter().map(|text| row(text)).collect();
    let identifiers = linked_of(named, &rows);
    assert_eq!(identifiers.linked, row(linked).into_iter().collect(), "{named}");
    let expected = not_followed.iter().map(|(text, why)| (identifier(text), *why)).collect();
    assert_eq!(identifiers.not_followed, expected, "{named}");
    assert!(identifiers.is_complete);
}

#[test]
fn p9_a_name_links_all_identifiers_of_the_person_and_no_others() {
    let rows = [
        "u:anna v:va n:1 s:s1 a:pa",
        "v:va n:1 s:s2",
        "s:s1 v:va",
        "s:s1 m:anna@x",
        "n:1 s:s3",
        "u:bert v:vb n:2 s:s4",
        "s:s4 m:bert@x",
    ];
    let all = "v:va n:1 s:s1 s:s2 s:s3 a:pa";
    check("u:anna", &rows, &format!("{all} m:anna@x"), &[]);
    check("m:ANNA@x", &rows, &format!("{all} u:anna"), &[]);
    check("v:va", &rows, &format!("{} u:anna m:anna@x", all.replace("v:va ", "")), &[]);
    check("u:nobody-there", &rows, "", &[]);
    check("u:anna u:bert", &rows, &format!("{all} m:anna@x m:bert@x v:vb n:2 s:s4"), &[]);
}

#[test]
fn p9_a_device_of_two_people_is_not_followed() {
    let rows = ["u:anna v:shared s:s1", "u:bert v:shared s:s2", "v:shared s:s3", "u:anna v:own s:s4"];
    check("u:anna", &rows, "s:s1 s:s4 v:own", &[("v:shared", NotFollowed::Shared)]);
    // Named itself, what carries it goes, and the two stay who they are.
    check(
        "v:shared",
        &rows,
        "s:s1 s:s2 s:s3",
        &[("u:anna", NotFollowed::OtherUser), ("u:bert", NotFollowed::OtherUser)],
    );
    // Both named, all of it is theirs.
    check("u:anna u:bert", &rows, "s:s1 s:s2 s:s3 s:s4 v:shared v:own", &[]);
}

#[test]
fn p9_a_shared_mail_address_needs_all_its_people_named() {
    let rows = ["s:s1 m:family@x", "s:s2 m:family@x", "u:anna s:s1 v:va", "u:bert s:s2 v:vb", "u:anna s:s9 v:va"];
    let others =
        [("u:anna", NotFollowed::OtherUser), ("u:bert", NotFollowed::OtherUser), ("v:va", NotFollowed::Shared)];
    check("m:family@x", &rows, "s:s1 s:s2 v:vb", &others);
    check("u:anna", &rows, "s:s1 s:s9 v:va", &[("m:family@x", NotFollowed::Shared)]);
    check("m:family@x u:anna u:bert", &rows, "s:s1 s:s2 s:s9 v:va v:vb", &[]);
}

#[test]
fn p9_a_placeholder_id_of_many_visitors_is_not_followed() {
    let mut rows: Vec<_> =
        (0..VISITORS_PER_IDENTIFIER_MAX + 1).map(|at| row(&format!("a:default v:v{at} s:t{at}"))).collect();
    rows.push(row("u:anna v:va s:s1 a:default"));
    let identifiers = linked_of("u:anna", &rows);
    assert_eq!(identifiers.linked, row("v:va s:s1").into_iter().collect());
    assert_eq!(identifiers.not_followed[&identifier("a:default")], NotFollowed::TooMany);
}

#[test]
fn p9_an_address_of_strangers_is_not_followed() {
    let rows = [
        "v:v1 s:s1",
        "s:s1 m:test@example.com",
        "v:v2 s:s2",
        "s:s2 m:test@example.com",
        "v:v3 s:s3",
        "s:s3 m:test@example.com",
    ];
    let address = [("m:test@example.com", NotFollowed::Strangers)];
    check("v:v1", &rows, "s:s1", &address);
    // A part of them named, the others stay.
    check("v:v1 v:v2", &rows, "s:s1 s:s2", &address);
    check("v:v1 v:v2 v:v3", &rows, "s:s1 s:s2 s:s3 m:test@example.com", &[]);
    // Named itself, it takes along who has it.
    check("m:test@example.com", &rows, "s:s1 s:s2 s:s3 v:v1 v:v2 v:v3", &[]);
    // Somebody with a user id, and visitors without one; a partner's id is no better than an address.
    let rows =
        ["u:anna v:va s:s1 a:p1", "s:s1 m:anna@x", "v:va s:s2", "s:s2 m:anna@x", "v:vb s:s3 a:p1", "s:s3 m:anna@x"];
    let links = [("m:anna@x", NotFollowed::Strangers), ("a:p1", NotFollowed::Strangers)];
    check("u:anna", &rows, "v:va s:s1 s:s2", &links);
    check("u:anna m:anna@x", &rows, "v:va s:s1 s:s2 s:s3 v:vb a:p1", &[]);
}

#[test]
fn p9_a_user_id_of_too_many_visitors_is_a_placeholder() {
    let many = VISITORS_PER_IDENTIFIER_MAX + 1;
    let rows: Vec<_> = (0..many).map(|at| row(&format!("u:on-file v:v{at} s:s{at}"))).collect();
    let identifiers = linked_of("v:v0", &rows);
    assert_eq!(identifiers.linked, row("s:s0").into_iter().collect());
    assert_eq!(identifiers.not_followed[&identifier("u:on-file")], NotFollowed::TooMany);
    // An address of many that was named goes with the sessions that carry it, and takes nobody along.
    let rows: Vec<_> = (0..many).map(|at| row(&format!("m:test@example.com v:v{at} s:s{at}"))).collect();
    let others = (0..many).map(|at| row(&format!("v:v{at} s:t{at}")));
    let identifiers = linked_of("m:test@example.com", &rows.into_iter().chain(others).collect::<Vec<_>>());
    assert!(
        identifiers.linked.iter().all(|linked| linked.kind == IdentifierKind::Session && linked.value.starts_with('s')),
        "{identifiers:?}"
    );
    assert_eq!((identifiers.linked.len(), identifiers.not_followed.len()), (many, many));
}

#[test]
fn p9_a_chain_that_is_too_long_is_reported_incomplete() {
    // Each visitor shares a session with the next.
    let rows: Vec<_> = (0..100).map(|at| row(&format!("v:v{at} s:s{at}"))).collect();
    let chain: Vec<_> = (0..100).map(|at| row(&format!("s:s{at} v:v{}", at + 1))).collect();
    let identifiers = linked_of("v:v0", &[rows, chain].concat());
    assert!(!identifiers.is_complete && identifiers.rounds == ROUNDS_MAX);
}

proptest! {
    /// Whoever has a user id of their own, and was not named, keeps every row, whatever is shared with whom.
    #[test]
    fn p9_no_followed_identifier_is_on_a_row_of_another_user(
        rows in proptest::collection::vec((0..4usize, 0..4usize, 0..8usize), 1..14)
    ) {
        let rows: Vec<_> = rows.into_iter().map(|(user, visitor, session)| {
            let user = ["", "u:anna ", "u:bert ", "u:carl "][user];
            row(&format!("{user}v:v{visitor} s:s{user_session}", user_session = session * 10 + user.len()))
        }).collect();
        let identifiers = linked_of("u:anna", &rows);
        let all = identifiers.all();
        for row in &rows {
            let is_anothers = users(row.iter()).any(|user| user.value != "anna");
            let is_taken = row.iter().any(|identifier| all.contains(identifier));
            let is_annas = users(row.iter()).any(|user| user.value == "anna");
            prop_assert!(!is_annas || is_taken);
            if is_anothers && is_taken {
                // Only a session that somebody shares with a user could do that, and it is not followed.
                prop_assert!(false, "{row:?} of {identifiers:?}");
            }
        }
    }
}
