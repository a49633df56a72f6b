//! Cases of `responses`, their children and their history.

use serde_json::json;

use super::{
    Answer, Lab,
    pages::{answer, answers_scan, day, page, page_of_fewer_columns, scan},
};
use crate::{
    load::{RowCounts, VanishPolicy},
    model::{Flag, FlagSet, Stream},
};

const TEXTS: &str = "SELECT response_group_uid, answer_text FROM responses ORDER BY ALL";
const HISTORY: &str =
    "SELECT response_group_uid, answer_text, reason, valid_to > valid_from FROM response_history ORDER BY ALL";
const CHOICES: &str = "SELECT response_group_uid, choice_ordinal, label FROM response_choices ORDER BY ALL";

pub(in crate::load) fn first_load_fills_every_table(lab: &mut Lab) {
    let mut chosen = answer("a", 0, "red;blue");
    chosen.choices = vec!["red".into(), "blue".into()];
    let applied = lab.apply(&answers_scan(0, 0, 1), &[page(&[chosen, answer("b", 0, "hello")])]);
    assert!(applied.wrote && !applied.already_applied);
    assert_eq!(applied.counts, RowCounts { rows_read: 2, inserted: 2, ..RowCounts::default() });
    assert_eq!(lab.rows(TEXTS), ["a | red;blue", "b | hello"]);
    assert_eq!(lab.rows(CHOICES), ["a | 1 | red", "a | 2 | blue"]);
    assert_eq!(
        lab.rows("SELECT created_at::VARCHAR, selected_indexes::VARCHAR, _flags, _first_seen_at = _synced_at, _vanished_at, _run_id FROM responses ORDER BY answer_text"),
        ["2026-03-01 12:00:00 | [] | 16 | true | NULL | run-0", "2026-03-01 12:00:00 | [0, 1] | 16 | true | NULL | run-0"]
    );
    assert_eq!(
        lab.rows("SELECT scan_id, stream, survey_id, window_start::VARCHAR, window_end::VARCHAR, flags, rows_read, inserted FROM sync_windows"),
        ["scan-responses-0-0 | responses | NULL | 2026-03-01 00:00:00 | 2026-03-02 00:00:00 | 16 | 2 | 2"]
    );
}

pub(in crate::load) fn p2_an_unchanged_rescan_touches_no_byte(lab: &mut Lab) {
    let mut chosen = answer("a", 0, "red");
    chosen.choices = vec!["red".into()];
    let pages = [page(&[chosen, answer("b", 0, "hello")])];
    lab.apply(&answers_scan(0, 0, 1), &pages);
    let before = lab.files();
    let applied = lab.apply(&answers_scan(1, 0, 1), &pages);
    assert!(!applied.wrote);
    assert_eq!(applied.counts, RowCounts { rows_read: 2, unchanged: 2, ..RowCounts::default() });
    lab.reopen();
    assert_eq!(lab.files(), before);
}

pub(in crate::load) fn p2_a_key_in_two_windows_is_one_row_after_a_scan_of_both(lab: &mut Lab) {
    // The service moved a record to another window. The record that was created later is current.
    lab.apply(&answers_scan(0, 0, 1), &[page(&[answer("a", 0, "hello")])]);
    lab.apply(&answers_scan(1, 1, 2), &[page(&[answer("a", 1, "hello")])]);
    lab.apply(&answers_scan(2, 0, 1), &[page(&[])]);
    let both = page(&[answer("a", 1, "hello")]);
    for hour in 3..5 {
        assert!(!lab.apply(&answers_scan(hour, 0, 2), std::slice::from_ref(&both)).wrote);
        assert_eq!(lab.rows("SELECT created_at::DATE::VARCHAR, _vanished_at FROM responses"), ["2026-03-02 | NULL"]);
    }
}

pub(in crate::load) fn p4_an_edit_goes_to_the_history_and_replaces_children(lab: &mut Lab) {
    let mut first = answer("a", 0, "red;blue");
    first.choices = vec!["red".into(), "blue".into()];
    let mut other = answer("b", 0, "green");
    other.choices = vec!["green".into()];
    lab.apply(&answers_scan(0, 0, 1), &[page(&[first.clone(), other.clone()])]);
    let mut second = first;
    second.text = "white".into();
    second.choices = vec!["white".into()];
    let applied = lab.apply(&answers_scan(5, 0, 1), &[page(&[second, other])]);
    assert_eq!(applied.counts, RowCounts { rows_read: 2, updated: 1, unchanged: 1, ..RowCounts::default() });
    assert_eq!(lab.rows(TEXTS), ["a | white", "b | green"]);
    assert_eq!(lab.rows(CHOICES), ["a | 1 | white", "b | 1 | green"]);
    assert_eq!(lab.rows(HISTORY), ["a | red;blue | edited | true"]);
    assert_eq!(
        lab.rows(
            "SELECT _first_seen_at::VARCHAR, _synced_at::VARCHAR, _run_id FROM responses ORDER BY response_group_uid"
        ),
        ["2026-06-09 00:00:00 | 2026-06-09 05:00:00 | run-5", "2026-06-09 00:00:00 | 2026-06-09 00:00:00 | run-0"]
    );
    assert_eq!(
        lab.rows("SELECT valid_from::VARCHAR, valid_to::VARCHAR FROM response_history"),
        ["2026-06-09 00:00:00 | 2026-06-09 05:00:00"]
    );
}

pub(in crate::load) fn p4_a_soft_delete_is_an_edit_of_its_own_kind(lab: &mut Lab) {
    let mut deleted = answer("a", 0, "red");
    lab.apply(&answers_scan(0, 0, 1), &[page(&[deleted.clone()])]);
    deleted.deleted_ms = Some(day(3));
    let applied = lab.apply(&answers_scan(1, 0, 1), &[page(&[deleted])]);
    assert_eq!(applied.counts, RowCounts { rows_read: 1, updated: 1, soft_deleted: 1, ..RowCounts::default() });
    assert_eq!(lab.rows("SELECT deleted_at::VARCHAR FROM responses"), ["2026-03-04 00:00:00"]);
    assert_eq!(lab.rows(HISTORY), ["a | red | deleted | true"]);
}

pub(in crate::load) fn p4_a_vanished_row_is_marked_and_comes_back(lab: &mut Lab) {
    let mut gone = answer("a", 0, "red");
    gone.choices = vec!["red".into()];
    let stays = answer("b", 0, "blue");
    lab.apply(&answers_scan(0, 0, 1), &[page(&[gone.clone(), stays.clone()])]);
    let applied = lab.apply(&answers_scan(1, 0, 1), &[page(std::slice::from_ref(&stays))]);
    assert_eq!(applied.counts, RowCounts { rows_read: 1, unchanged: 1, vanished: 1, ..RowCounts::default() });
    let vanished = "SELECT response_group_uid, _vanished_at::VARCHAR FROM responses ORDER BY ALL";
    assert_eq!(lab.rows(vanished), ["a | 2026-06-09 01:00:00", "b | NULL"]);
    assert_eq!(lab.rows(HISTORY), ["a | red | vanished | true"]);
    assert_eq!(lab.rows(CHOICES), ["a | 1 | red"]);

    // Already vanished: nothing changes.
    assert!(!lab.apply(&answers_scan(2, 0, 1), &[page(std::slice::from_ref(&stays))]).wrote);

    let applied = lab.apply(&answers_scan(3, 0, 1), &[page(&[gone.clone(), stays.clone()])]);
    assert_eq!(applied.counts, RowCounts { rows_read: 2, updated: 1, unchanged: 1, ..RowCounts::default() });
    assert_eq!(lab.rows(vanished), ["a | NULL", "b | NULL"]);
    assert_eq!(lab.rows(HISTORY), ["a | red | vanished | true"]);
    assert_eq!(lab.rows(CHOICES), ["a | 1 | red"]);
}

pub(in crate::load) fn p4_too_many_vanished_rows_are_withheld_until_accepted(lab: &mut Lab) {
    let all: Vec<_> = (0..100).map(|at| answer(&format!("g{at}"), 0, "x")).collect();
    lab.apply(&answers_scan(0, 0, 1), &[page(&all)]);
    let before = lab.files();
    // 21 of 100: more than 20 rows and more than 5 %.
    let applied = lab.apply(&answers_scan(1, 0, 1), &[page(&all[..79])]);
    assert_eq!(applied.counts, RowCounts { rows_read: 79, unchanged: 79, withheld: 21, ..RowCounts::default() });
    assert!(!applied.wrote);
    assert_eq!(lab.files(), before);
    // A row of the ledger that names withheld rows is followed by one that found them.
    let edited: Vec<_> = (0..79).map(|at| answer(&format!("g{at}"), 0, if at == 0 { "y" } else { "x" })).collect();
    let applied = lab.apply(&answers_scan(2, 0, 1), &[page(&edited)]);
    assert_eq!((applied.counts.updated, applied.counts.withheld, applied.wrote), (1, 21, true));
    let all = [&edited[..], &all[79..]].concat();
    assert!(lab.apply(&answers_scan(3, 0, 1), &[page(&all)]).wrote);
    assert!(!lab.apply(&answers_scan(4, 0, 1), &[page(&all)]).wrote);
    // 20 of 100: not more than 20 rows.
    let applied = lab.apply(&answers_scan(5, 0, 1), &[page(&all[..80])]);
    assert_eq!(applied.counts, RowCounts { rows_read: 80, unchanged: 80, vanished: 20, ..RowCounts::default() });
    lab.vanish = VanishPolicy::Accept;
    let applied = lab.apply(&answers_scan(6, 0, 1), &[]);
    assert_eq!(applied.counts, RowCounts { vanished: 80, ..RowCounts::default() });
    assert_eq!(lab.count("SELECT count(*) FROM responses WHERE _vanished_at IS NOT NULL"), 100);
    assert_eq!(lab.count("SELECT count(*) FROM response_history WHERE reason = 'vanished'"), 100);
}

pub(in crate::load) fn p4_deleted_rows_do_not_vanish_from_a_scan_without_them(lab: &mut Lab) {
    let mut deleted = answer("a", 0, "red");
    deleted.deleted_ms = Some(day(2));
    let live = answer("b", 0, "blue");
    lab.apply(&answers_scan(0, 0, 1), &[page(&[deleted, live.clone()])]);
    let applied = lab.apply(&scan(Stream::Responses, 1, 0, 1, FlagSet::EMPTY), &[page(&[live])]);
    assert_eq!(applied.counts, RowCounts { rows_read: 1, unchanged: 1, ..RowCounts::default() });
    assert!(!applied.wrote);
}

pub(in crate::load) fn a_scan_without_a_flag_never_blanks_and_one_with_it_enriches(lab: &mut Lab) {
    let urls = FlagSet::EMPTY.with(Flag::WithUrls);
    let both = urls.with(Flag::WithMeta);
    let stored = "SELECT answer_text, url, meta_os, _flags FROM responses";
    let plain = answer("a", 0, "red");
    let mut with_url = plain.clone();
    with_url.url = Some("/shop".into());
    lab.apply(&scan(Stream::Responses, 0, 0, 1, urls), &[page(&[with_url.clone()])]);

    let applied = lab.apply(&scan(Stream::Responses, 1, 0, 1, FlagSet::EMPTY), &[page(std::slice::from_ref(&plain))]);
    assert!(!applied.wrote, "the same row, seen with fewer flags");
    assert_eq!(applied.counts.unchanged, 1);

    let mut edited = plain;
    edited.text = "blue".into();
    let applied = lab.apply(&scan(Stream::Responses, 2, 0, 1, FlagSet::EMPTY), &[page(&[edited.clone()])]);
    assert_eq!(applied.counts.updated, 1);
    assert_eq!(lab.rows(stored), ["blue | /shop | NULL | 0"]);
    assert_eq!(lab.rows("SELECT answer_text, url FROM response_history"), ["red | /shop"]);

    // Equal flags, other content: columns that neither scan asked for stay.
    edited.text = "green".into();
    lab.apply(&scan(Stream::Responses, 3, 0, 1, FlagSet::EMPTY), &[page(&[edited.clone()])]);
    assert_eq!(lab.rows(stored), ["green | /shop | NULL | 0"]);

    edited.url = Some("/shop".into());
    edited.os = Some("Plan 9".into());
    let applied = lab.apply(&scan(Stream::Responses, 4, 0, 1, both), &[page(&[edited])]);
    assert_eq!(applied.counts, RowCounts { rows_read: 1, filled_in: 1, ..RowCounts::default() });
    assert_eq!(lab.rows(stored), ["green | /shop | Plan 9 | 6"]);
    assert_eq!(lab.count("SELECT count(*) FROM response_history"), 2, "enrichment is no edit");
}

pub(in crate::load) fn a_child_that_was_not_asked_for_moves_with_its_row(lab: &mut Lab) {
    const ROWS: &str =
        "SELECT created_at::DATE::VARCHAR, survey_id, custom_metadata, _run_id FROM responses ORDER BY ALL DESC";
    const METADATA: &str = "SELECT created_at::DATE::VARCHAR, survey_id, name, value_text, _run_id FROM response_custom_metadata ORDER BY ALL DESC";
    let scan_of = |hour, flags| scan(Stream::Responses, hour, 0, 40, flags);
    let (plain, asked) = (FlagSet::EMPTY, FlagSet::EMPTY.with(Flag::WithCustomMetadata));
    let (mut first, mut other) = (answer("a", 0, "red"), answer("b", 0, "red"));
    first.campaign = Some("spring".into());
    other.campaign = Some("autumn".into());
    lab.apply(&scan_of(0, asked), &[page(&[first.clone(), other.clone()])]);

    // Another record of the key, created later and in another survey: it takes the place of the first.
    let mut second = first.clone();
    (second.at_ms, second.survey) = (second.at_ms + day(35) - day(0), 8);
    let unasked = page(&[Answer { campaign: None, ..second.clone() }, Answer { campaign: None, ..other.clone() }]);
    let applied = lab.apply(&scan_of(1, plain), std::slice::from_ref(&unasked));
    assert_eq!(applied.counts, RowCounts { rows_read: 2, updated: 1, unchanged: 1, ..RowCounts::default() });
    let moved = "2026-04-05 | 8 | {\"campaign\":\"spring\"} | run-1";
    assert_eq!(lab.rows(ROWS), [moved, "2026-03-01 | 7 | {\"campaign\":\"autumn\"} | run-0"]);
    let autumn = "2026-03-01 | 7 | campaign | autumn | run-0";
    assert_eq!(lab.rows(METADATA), ["2026-04-05 | 8 | campaign | spring | run-1", autumn]);
    assert!(!lab.apply(&scan_of(2, plain), &[unasked]).wrote);

    // A scan that asks for the child replaces it where it is.
    second.campaign = Some("summer".into());
    lab.apply(&scan_of(3, asked), &[page(&[second, other])]);
    assert_eq!(lab.rows(METADATA), ["2026-04-05 | 8 | campaign | summer | run-3", autumn]);
}

pub(in crate::load) fn what_was_sent_unasked_is_stored_once_it_is_asked_for(lab: &mut Lab) {
    let mut sent = answer("a", 0, "red");
    sent.url = Some("/shop".into());
    let (unasked, asked) = (FlagSet::EMPTY, FlagSet::EMPTY.with(Flag::WithUrls));
    lab.apply(&scan(Stream::Responses, 0, 0, 1, unasked), &[page(std::slice::from_ref(&sent))]);
    assert_eq!(lab.rows("SELECT url, _flags FROM responses"), ["NULL | 0"]);
    let applied = lab.apply(&scan(Stream::Responses, 1, 0, 1, asked), &[page(&[sent])]);
    assert_eq!((applied.counts.updated, applied.counts.filled_in), (0, 1));
    assert_eq!(lab.rows("SELECT url FROM responses"), ["/shop"]);
}

pub(in crate::load) fn a_deletion_seen_under_a_new_flag_is_a_deletion(lab: &mut Lab) {
    let mut row = answer("a", 0, "red");
    lab.apply(&scan(Stream::Responses, 0, 0, 1, FlagSet::EMPTY), &[page(&[row.clone()])]);
    row.deleted_ms = Some(day(2));
    let applied = lab.apply(&answers_scan(1, 0, 1), &[page(&[row])]);
    assert_eq!(applied.counts, RowCounts { rows_read: 1, updated: 1, soft_deleted: 1, ..RowCounts::default() });
    assert_eq!(lab.rows(HISTORY), ["a | red | deleted | true"]);
}

pub(in crate::load) fn p4_a_field_that_gets_a_column_is_no_edit(lab: &mut Lab) {
    let answers = ["a", "b"].into_iter().map(|group| {
        let mut answer = answer(group, 0, "red");
        answer.updated_ms = Some(day(1) + 7);
        answer.os = Some("Plan 9".into());
        answer.choices = vec!["one".into()];
        answer
    });
    let answers: Vec<_> = answers.collect();
    let moved = [
        ("extra", "question_type", json!({"questionType": "OPEN"})),
        ("extra", "updated_at", json!({"updatedAt": "2026-03-02T01:00:00.007+01:00"})),
        ("extra", "survey_id", json!({"surveyId": 7.0})),
        ("extra", "selected_indexes", json!({"selectedIndexes": [0]})),
        ("meta_extra", "meta_os", json!({"os": "Plan 9"})),
    ];
    let flags = FlagSet::EMPTY.with(Flag::WithMeta);
    let of = |nth: i64| scan(Stream::Responses, nth, 0, 1, flags);
    lab.apply(&of(0), &[page_of_fewer_columns(&answers, &moved)]);
    let stored = "SELECT response_group_uid, question_type, CAST(updated_at AS VARCHAR), survey_id, len(selected_indexes), \
                  meta_os, meta_extra, extra FROM responses ORDER BY 1";
    assert_eq!(
        lab.count("SELECT count(*) FROM responses WHERE extra LIKE '%questionType%' AND question_type IS NULL"),
        2
    );
    let written = lab.rows("SELECT _synced_at, _run_id FROM responses");

    // Nothing is reported, and analysts see only the columns.
    let found = lab.warehouse().compare(&of(1), &[page(&answers)].as_slice(), 5).unwrap();
    assert!(found.is_equal(), "{found:?}");
    let applied = lab.apply(&of(1), &[page(&answers)]);
    assert_eq!(applied.counts, RowCounts { rows_read: 2, unchanged: 2, ..RowCounts::default() });
    let now = |group| format!("{group} | OPEN | 2026-03-02 00:00:00.007 | 7 | 1 | Plan 9 | NULL | NULL");
    assert_eq!(lab.rows(stored), [now("a"), now("b")]);
    assert_eq!(lab.rows("SELECT _synced_at, _run_id FROM responses"), written, "since when they say what they say");
    assert_eq!(lab.count("SELECT count(*) FROM response_history"), 0);
    assert_eq!(lab.rows(CHOICES), ["a | 1 | one", "b | 1 | one"]);
    assert!(!lab.apply(&of(2), &[page(&answers)]).wrote, "they have moved");

    // A record with another change is an edit, whichever field changed.
    for (at, (rest, column, fields)) in moved.iter().enumerate() {
        let day = 3 + 2 * i64::try_from(at).unwrap();
        let before = lab.count("SELECT count(*) FROM response_history");
        let mut other = moved.clone();
        let value = fields.as_object().unwrap().keys().next().unwrap().clone();
        other[at] = (rest, column, json!({value: "other"}));
        lab.apply(&of(day), &[page_of_fewer_columns(&answers, &other)]);
        let applied = lab.apply(&of(day + 1), &[page(&answers)]);
        assert_eq!(applied.counts, RowCounts { rows_read: 2, updated: 2, ..RowCounts::default() }, "{column}");
        assert_eq!(lab.count("SELECT count(*) FROM response_history"), before + 4, "{column}");
    }
    let mut gone = moved.clone();
    gone[0].2 = json!({"questionType": "OPEN", "unknown": 1});
    lab.apply(&of(20), &[page_of_fewer_columns(&answers, &gone)]);
    assert_eq!(lab.apply(&of(21), &[page(&answers)]).counts.updated, 2, "a field that the service no longer sends");
}

pub(in crate::load) fn p4_another_hash_alone_is_no_edit(lab: &mut Lab) {
    let red = answer("a", 0, "red");
    lab.apply(&answers_scan(0, 0, 1), &[page_of_fewer_columns(std::slice::from_ref(&red), &[])]);
    let hash = lab.rows("SELECT _row_hash FROM responses");
    let applied = lab.apply(&answers_scan(1, 0, 1), &[page(std::slice::from_ref(&red))]);
    assert_eq!(applied.counts, RowCounts { rows_read: 1, unchanged: 1, ..RowCounts::default() });
    assert_ne!(lab.rows("SELECT _row_hash FROM responses"), hash);
    assert_eq!(lab.count("SELECT count(*) FROM response_history"), 0);
    assert!(!lab.apply(&answers_scan(2, 0, 1), &[page(&[red])]).wrote);
}

pub(in crate::load) fn p1_collisions_keep_both_records(lab: &mut Lab) {
    let mut older = answer("a", 0, "older");
    older.updated_ms = Some(day(1));
    older.choices = vec!["older".into()];
    let mut newer = answer("a", 0, "newer");
    newer.updated_ms = Some(day(2));
    newer.choices = vec!["newer".into()];
    let unknown = answer("a", 0, "never updated");
    let pages = [page(&[newer.clone(), unknown.clone()]), page(&[older.clone(), newer.clone(), older.clone()])];
    let applied = lab.apply(&answers_scan(0, 0, 1), &pages);
    assert_eq!(applied.counts, RowCounts { rows_read: 5, inserted: 1, collisions: 2, ..RowCounts::default() });
    assert_eq!(lab.rows(TEXTS), ["a | newer"]);
    assert_eq!(lab.rows(CHOICES), ["a | 1 | newer"]);
    assert_eq!(lab.rows(HISTORY), ["a | never updated | collision | false", "a | older | collision | false"]);

    let applied = lab.apply(&answers_scan(1, 0, 1), &pages);
    assert_eq!(applied.counts, RowCounts { rows_read: 5, unchanged: 1, ..RowCounts::default() }, "known losers");
    assert!(!applied.wrote, "the history holds the losers already");
}

pub(in crate::load) fn p1_a_stored_row_that_loses_a_collision_is_kept_once(lab: &mut Lab) {
    let stored = answer("a", 0, "stored");
    lab.apply(&answers_scan(0, 0, 1), &[page(std::slice::from_ref(&stored))]);
    let mut newer = answer("a", 0, "newer");
    newer.updated_ms = Some(day(2));
    let applied = lab.apply(&answers_scan(1, 0, 1), &[page(&[newer.clone(), stored])]);
    assert_eq!(applied.counts, RowCounts { rows_read: 2, updated: 1, collisions: 1, ..RowCounts::default() });
    assert_eq!(lab.rows(HISTORY), ["a | stored | collision | true"]);
    let again = lab.apply(&answers_scan(2, 0, 1), &[page(&[answer("a", 0, "stored"), newer])]);
    assert!(!again.wrote, "the loser is known: {again:?}");
}

pub(in crate::load) fn p2_repeats_at_page_edges_are_one_row(lab: &mut Lab) {
    let mut edge = answer("b", 0, "edge");
    edge.choices = vec!["one".into(), "two".into()];
    let pages = [page(&[answer("a", 0, "x"), edge.clone()]), page(&[edge, answer("c", 0, "y")])];
    let applied = lab.apply(&answers_scan(0, 0, 1), &pages);
    assert_eq!(applied.counts, RowCounts { rows_read: 4, inserted: 3, ..RowCounts::default() });
    assert_eq!(lab.rows(TEXTS), ["a | x", "b | edge", "c | y"]);
    assert_eq!(lab.rows(CHOICES), ["b | 1 | one", "b | 2 | two"]);
    assert_eq!(lab.count("SELECT count(*) FROM response_history"), 0);
}

pub(in crate::load) fn p1_rows_outside_the_window_are_kept_by_key(lab: &mut Lab) {
    let far = answer("far", 40, "first");
    lab.apply(&answers_scan(0, 40, 41), &[page(std::slice::from_ref(&far))]);
    let mut edited = far.clone();
    edited.text = "second".into();
    let applied = lab.apply(&answers_scan(1, 0, 1), &[page(&[answer("in", 0, "x"), edited, answer("new", 60, "y")])]);
    let counts = RowCounts { rows_read: 3, inserted: 2, updated: 1, outside_window: 2, ..RowCounts::default() };
    assert_eq!(applied.counts, counts);
    assert_eq!(lab.rows(TEXTS), ["far | second", "in | x", "new | y"]);
    assert_eq!(lab.rows(HISTORY), ["far | first | edited | true"]);
    // The rows were never in the window, so their absence tells nothing.
    let applied = lab.apply(&answers_scan(2, 0, 1), &[page(&[answer("in", 0, "x")])]);
    assert_eq!(applied.counts, RowCounts { rows_read: 1, unchanged: 1, ..RowCounts::default() });
}

pub(in crate::load) fn a_scan_of_one_survey_touches_no_other(lab: &mut Lab) {
    let mut other = answer("b", 0, "other");
    other.survey = 8;
    lab.apply(&answers_scan(0, 0, 1), &[page(&[answer("a", 0, "x"), other])]);
    let mut one = answers_scan(1, 0, 1);
    one.scope.survey_id = Some(7);
    let applied = lab.apply(&one, &[]);
    assert_eq!(applied.counts, RowCounts { vanished: 1, ..RowCounts::default() });
    assert_eq!(lab.rows("SELECT survey_id FROM responses WHERE _vanished_at IS NULL"), ["8"]);
    assert_eq!(
        lab.rows("SELECT survey_id, vanished FROM sync_windows WHERE scan_id = 'scan-responses-1-0'"),
        ["7 | 1"]
    );
}

pub(in crate::load) fn long_pages_with_lists_arrive_whole(lab: &mut Lab) {
    let rows: Vec<_> = (0..5000)
        .map(|at| {
            let mut row = answer(&format!("g{at:05}"), 0, &format!("text {at}"));
            row.choices = vec![format!("choice {at}"); at % 3];
            row
        })
        .collect();
    lab.apply(&answers_scan(0, 0, 1), &[page(&rows)]);
    assert_eq!(
        lab.rows("SELECT count(*), count(DISTINCT answer_text), sum(len(selected_indexes))::BIGINT FROM responses WHERE response_group_uid = 'g' || substr('0000' || substr(answer_text, 6), -5)"),
        ["5000 | 5000 | 4999"]
    );
    assert_eq!(
        lab.count("SELECT count(*) FROM response_choices WHERE label = 'choice ' || ltrim(response_group_uid, 'g0')"),
        4999
    );
}
