//! Identifiers that many sessions share.

use super::*;
use crate::load::tables::{
    Cell,
    fixture::{memory, put},
};

const SMALL: Limits = Limits { rows_max: 3, sessions_max: 2 };

fn user(text: &str) -> Identifier {
    Identifier::read(IdentifierKind::UserId, text).unwrap()
}

fn put_answer(store: &mut BufferedStore, session: &str, user: &str) {
    let cells = [("response_group_uid", Cell::Text(session)), ("external_user_id", Cell::Text(user))];
    put(store, "responses", &[&cells]);
}

#[test]
fn p9_rows_of_a_shared_identifier_are_left_out() {
    let (_shelf, mut store) = memory();
    for session in ["s1", "s2", "s3", "s4"] {
        put_answer(&mut store, session, "shared");
    }
    put_answer(&mut store, "s5", "anna");
    let found = co_occurrence_within(&mut store, &[user("anna"), user("shared"), user("nobody")], SMALL).unwrap();
    assert_eq!(found.too_wide, [user("shared")]);
    let session = Identifier::read(IdentifierKind::Session, "s5").unwrap();
    assert_eq!(found.rows, [vec![user("anna"), session]].into());
    // Below the limit all rows are returned, even if they share an identifier.
    let (_shelf, mut store) = memory();
    for session in ["s1", "s2", "s3"] {
        put_answer(&mut store, session, "shared");
        put_answer(&mut store, session, "shared");
    }
    let found = co_occurrence_within(&mut store, &[user("shared")], SMALL).unwrap();
    assert_eq!((found.rows.len(), found.too_wide), (3, vec![]));
}

#[test]
fn too_many_rows_are_an_error() {
    let (_shelf, mut store) = memory();
    let names = ["u1", "u2", "u3", "u4"];
    names.iter().for_each(|name| put_answer(&mut store, &format!("session {name}"), name));
    let failed = co_occurrence_within(&mut store, &names.map(user), SMALL).unwrap_err();
    assert!(matches!(failed, LoadError::TooManyRows { rows_max: 3 }), "{failed}");
    assert_eq!(co_occurrence_within(&mut store, &names.map(user)[..3], SMALL).unwrap().rows.len(), 3);
}

#[test]
fn p9_rows_count_in_a_table_without_sessions() {
    let (_shelf, mut store) = memory();
    for name in ["u1", "u2", "u3", "u4"] {
        let cells = [("external_user_id", Cell::Text(name)), ("user_id", Cell::Text("shared"))];
        put(&mut store, "users", &[&cells]);
    }
    let shared = Identifier::read(IdentifierKind::AnonymousId, "shared").unwrap();
    let found = co_occurrence_within(&mut store, &[shared.clone(), user("u2")], SMALL).unwrap();
    assert_eq!((found.too_wide, found.rows), (vec![shared.clone()], [vec![user("u2"), shared]].into()));
}

#[test]
fn p9_spellings_of_identifiers_are_returned() {
    let (_shelf, mut store) = memory();
    put_answer(&mut store, "s1", "zoe\u{308}");
    let found = co_occurrence(&mut store, &[user("zo\u{eb}")]).unwrap();
    assert_eq!(found.spellings[&user("zo\u{eb}")], BTreeSet::from(["zoe\u{308}".to_owned()]));
}
