//! Mentions are replaced, and everything else stays.

use super::*;
use crate::{
    load::tables::{
        Cell,
        fixture::{memory, put, shown},
    },
    model::{Identifier, IdentifierKind},
    person::ERASED,
};

fn matcher() -> IdentifierMatcher {
    IdentifierMatcher::new(&[Identifier::read(IdentifierKind::Email, "zoe@example.com").unwrap()])
}

fn filled() -> BufferedStore {
    let (_shelf, mut store) = memory();
    for (session, text) in
        [("s1", "as ZOE@example.com said"), ("s2", "nobody"), ("s3", "zoe@example.com, zoe@example.com")]
    {
        for (question, moment_us) in [(1, 5), (2, 4)] {
            let answer = [
                ("response_group_uid", Cell::Text(session)),
                ("question_id", Cell::Integer(question)),
                ("created_at", Cell::Moment(moment_us)),
            ];
            let text = if question == 1 { text } else { "other" };
            put(&mut store, "responses", &[&[&answer[..], &[("answer_text", Cell::Text(text))]].concat()]);
            for label in [text, "of the same set"] {
                put(&mut store, "response_choices", &[&[&answer[..], &[("label", Cell::Text(label))]].concat()]);
            }
        }
    }
    let run = |id| [("run_id", Cell::Text(id)), ("report", Cell::Text("{\"path\":\"/zoe@example.com\"}"))];
    put(&mut store, "sync_runs", &[&run("r1"), &run("r2")]);
    store
}

fn cleaned_reports() -> [String; 2] {
    std::array::from_fn(|_| format!("{{\"path\":\"/{ERASED}\"}}"))
}

const ANSWERS: [&str; 4] = ["response_group_uid", "question_id", "created_at", "answer_text"];
const CHOICES: [&str; 3] = ["response_group_uid", "question_id", "label"];

#[test]
fn p9_mentions_are_replaced_and_all_else_stays() {
    let mut store = filled();
    let mentions = search(&mut store, &[], &matcher(), 2).unwrap().mentions;
    assert_eq!(mentions.values().copied().collect::<Vec<_>>(), [2, 2, 2]);
    let (answers, choices) =
        (shown(&mut store, "responses", &ANSWERS), shown(&mut store, "response_choices", &CHOICES));
    assert_eq!(redact(&mut store, &matcher(), &mentions, false).unwrap(), 6);
    store.commit("test").unwrap();
    assert!(search(&mut store, &[], &matcher(), 2).unwrap().mentions.is_empty());
    let replaced = |rows: Vec<String>| {
        let replace = |row: String| row.replace("ZOE@example.com", ERASED).replace("zoe@example.com", ERASED);
        let mut rows: Vec<String> = rows.into_iter().map(replace).collect();
        rows.sort();
        rows
    };
    assert_eq!(shown(&mut store, "responses", &ANSWERS), replaced(answers));
    assert_eq!(shown(&mut store, "response_choices", &CHOICES), replaced(choices));
    assert_eq!(shown(&mut store, "sync_runs", &["report"]), cleaned_reports());
    assert_eq!(redact(&mut store, &matcher(), &mentions, false).unwrap(), 0);
    assert!(!store.has_changes());
}

#[test]
fn p9_only_the_programs_own_tables_are_redacted_unasked() {
    let mut store = filled();
    let mentions = search(&mut store, &[], &matcher(), 1).unwrap().mentions;
    let answers = shown(&mut store, "responses", &ANSWERS);
    assert_eq!(redact(&mut store, &matcher(), &mentions, true).unwrap(), 2);
    assert_eq!(shown(&mut store, "responses", &ANSWERS), answers);
    assert_eq!(shown(&mut store, "sync_runs", &["report"]), cleaned_reports());
}

#[test]
fn p9_a_column_that_was_not_named_is_left_alone() {
    let mut store = filled();
    let mentions = BTreeMap::from([("responses.question_text".to_owned(), 1)]);
    assert_eq!(redact(&mut store, &matcher(), &mentions, false).unwrap(), 0);
    assert!(redact(&mut store, &matcher(), &BTreeMap::new(), false).unwrap() == 0);
}

#[test]
fn p9_the_result_does_not_depend_on_the_part_size() {
    let table = crate::schema::table("response_choices").unwrap();
    let mut found = Vec::new();
    for keys_at_once in [1, 2, 100] {
        let mut store = filled();
        assert_eq!(redact_table(&mut store, table, &["label"], &matcher(), keys_at_once).unwrap(), 2);
        found.push(shown(&mut store, "response_choices", &CHOICES));
    }
    assert_eq!(found[0], found[2]);
    assert_eq!(found[1], found[2]);
    assert!(found[0].iter().any(|row| row.contains(ERASED)) && found[0].len() == 12, "{:?}", found[0]);
}

#[test]
fn a_key_that_mentions_somebody_is_replaced_too() {
    let (_shelf, mut store) = memory();
    let attribute =
        |name| [("external_user_id", Cell::Text("u")), ("name", Cell::Text(name)), ("valid_from", Cell::Moment(1))];
    put(&mut store, "user_attributes", &[&attribute("of zoe@example.com"), &attribute("plan")]);
    let mentions = search(&mut store, &[], &matcher(), 1).unwrap().mentions;
    assert_eq!(redact(&mut store, &matcher(), &mentions, false).unwrap(), 1);
    assert_eq!(shown(&mut store, "user_attributes", &["name"]), [format!("of {ERASED}"), "plan".to_owned()]);
}
