//! Cases of snapshots, surveys, themes, rejects and runs.

use super::{
    Lab,
    pages::{Answer, answer, day, page, scan, status_events, survey_page, theme_page, with_rejects},
};
use crate::{
    load::{CommitOptions, RowCounts, RunRecord, VanishPolicy},
    model::{Flag, FlagSet, FlatPage, Reject, RejectReason, RunId, Scan, Stream},
};

fn snapshots_scan(hour: i64, first: i64, end: i64) -> Scan {
    scan(Stream::Responses, hour, first, end, FlagSet::EMPTY.with(Flag::WithSnapshots))
}

/// Sets the question and the snapshot of a response. `plan` is the snapshot's only attribute.
fn with_snapshot(mut answer: Answer, question: i64, plan: &str) -> Answer {
    answer.question = question;
    answer.snapshot = Some(plan.into());
    answer
}

const SNAPSHOTS: &str =
    "SELECT s.response_group_uid, s.created_at::VARCHAR, s.attributes, a.value_text, a.created_at = s.created_at
    FROM visitor_snapshots s LEFT JOIN visitor_snapshot_attributes a USING (response_group_uid) ORDER BY ALL";

pub(in crate::load) fn a_snapshot_does_not_depend_on_the_order_of_windows(lab: &mut Lab) {
    // The session spans two windows, and the later answer comes first.
    let early = page(&[with_snapshot(answer("s", 0, "x"), 1, "free"), with_snapshot(answer("t", 0, "x"), 1, "free")]);
    let late = page(&[with_snapshot(answer("s", 1, "y"), 2, "free"), with_snapshot(answer("t", 1, "y"), 2, "paid")]);
    let expected = [
        "s | 2026-03-01 12:00:00 | {\"plan\":\"free\"} | free | true",
        "t | 2026-03-01 12:00:00 | {\"plan\":\"free\"} | free | true",
    ];
    lab.apply(&snapshots_scan(0, 1, 2), std::slice::from_ref(&late));
    lab.apply(&snapshots_scan(1, 0, 1), std::slice::from_ref(&early));
    assert_eq!(lab.rows(SNAPSHOTS), expected);
    // The other order, and both at once: the result is the same.
    assert!(!lab.apply(&snapshots_scan(2, 1, 2), std::slice::from_ref(&late)).wrote);
    assert!(!lab.apply(&snapshots_scan(3, 0, 2), &[late, early]).wrote);
    assert_eq!(lab.rows(SNAPSHOTS), expected);
}

pub(in crate::load) fn a_snapshot_does_not_depend_on_what_was_committed(lab: &mut Lab) {
    // Uncommitted rows count like committed ones, whatever the order of windows and pages.
    let orders: [&[&[i64]]; 5] =
        [&[&[0], &[1], &[2]], &[&[2], &[1], &[0]], &[&[1], &[0], &[2]], &[&[2, 0, 1]], &[&[1, 2], &[0]]];
    for (round, windows) in orders.into_iter().enumerate() {
        let first_day = 30 * round as i64;
        let sitting = |name: &str, day: i64, plan: &str| {
            with_snapshot(answer(&format!("{round}{name}"), first_day + day, plan), day, plan)
        };
        let days = [
            vec![sitting("a", 0, "free"), sitting("b", 0, "free")],
            vec![sitting("b", 1, "paid"), sitting("c", 1, "free"), sitting("c", 1, "free")],
            vec![sitting("c", 2, "paid"), sitting("d", 2, "free")],
        ];
        for window in windows {
            let (start, end) = (*window.iter().min().unwrap(), window.iter().max().unwrap() + 1);
            let scan = snapshots_scan(10 * round as i64 + start, first_day + start, first_day + end);
            let pages: Vec<_> = window.iter().map(|day| page(&days[*day as usize])).collect();
            assert!(lab.apply_uncommitted(&scan, &pages).wrote);
        }
        lab.warehouse().commit().unwrap();
        lab.warehouse().publish().unwrap();
        let snapshots_sql = format!(
            "SELECT s.response_group_uid, date_diff('day', DATE '2026-03-01', s.created_at) - {first_day}, a.value_text
             FROM visitor_snapshots s LEFT JOIN visitor_snapshot_attributes a USING (response_group_uid, created_at)
             WHERE s.response_group_uid LIKE '{round}%' ORDER BY ALL"
        );
        let expected = ["a | 0 | free", "b | 0 | free", "c | 1 | free", "d | 2 | free"];
        assert_eq!(lab.rows(&snapshots_sql), expected.map(|row| format!("{round}{row}")), "{windows:?}");
    }
}

pub(in crate::load) fn p1_a_session_of_weeks_has_each_of_its_snapshots_once(lab: &mut Lab) {
    const BY_MOMENT: &str =
        "SELECT s.response_group_uid, s.created_at::VARCHAR, s.attributes, a.value_text FROM visitor_snapshots s
        LEFT JOIN visitor_snapshot_attributes a USING (response_group_uid, created_at) ORDER BY ALL";
    let (first, last) = (with_snapshot(answer("s", 0, "x"), 1, "free"), with_snapshot(answer("s", 20, "x"), 2, "paid"));
    // Two windows that do not see each other's row, in the wrong order; then a scan that sees both.
    lab.apply(&snapshots_scan(0, 20, 21), &[page(std::slice::from_ref(&last))]);
    lab.apply(&snapshots_scan(1, 0, 1), &[page(std::slice::from_ref(&first))]);
    let both = [
        "s | 2026-03-01 12:00:00 | {\"plan\":\"free\"} | free",
        "s | 2026-03-21 12:00:00 | {\"plan\":\"paid\"} | paid",
    ];
    assert_eq!(lab.rows(BY_MOMENT), both);
    for hour in 2..4 {
        lab.apply(&snapshots_scan(hour, 0, 30), &[page(&[first.clone(), last.clone()])]);
        assert_eq!(lab.rows(BY_MOMENT), both, "scan {hour}");
    }
    // An edit of the first is no edit of the second.
    let edited = with_snapshot(answer("s", 0, "x"), 1, "trial");
    lab.apply(&snapshots_scan(4, 0, 30), &[page(&[edited, last])]);
    let first_edited = "s | 2026-03-01 12:00:00 | {\"plan\":\"trial\"} | trial";
    assert_eq!(lab.rows(BY_MOMENT), [first_edited, both[1]]);
}

pub(in crate::load) fn an_edited_snapshot_replaces_its_attributes(lab: &mut Lab) {
    lab.apply(&snapshots_scan(0, 0, 1), &[page(&[with_snapshot(answer("s", 0, "x"), 1, "free")])]);
    let applied = lab.apply(&snapshots_scan(1, 0, 1), &[page(&[with_snapshot(answer("s", 0, "x"), 1, "paid")])]);
    assert!(applied.wrote);
    assert_eq!(lab.rows(SNAPSHOTS), ["s | 2026-03-01 12:00:00 | {\"plan\":\"paid\"} | paid | true"]);
    // A scan without snapshots leaves them alone: they never vanish.
    lab.vanish = VanishPolicy::Accept;
    lab.apply(&scan(Stream::Responses, 2, 0, 1, FlagSet::EMPTY), &[]);
    lab.apply(&snapshots_scan(3, 0, 1), &[]);
    assert_eq!(lab.rows(SNAPSHOTS), ["s | 2026-03-01 12:00:00 | {\"plan\":\"paid\"} | paid | true"]);
    // A stored answer that did not change may get a snapshot.
    lab.apply(&snapshots_scan(4, 5, 6), &[page(&[answer("late", 5, "x")])]);
    let applied = lab.apply(&snapshots_scan(5, 5, 6), &[page(&[with_snapshot(answer("late", 5, "x"), 1, "free")])]);
    assert_eq!((applied.counts.unchanged, applied.wrote), (1, true));
    assert_eq!(lab.rows(SNAPSHOTS).len(), 2);
}

pub(in crate::load) fn surveys_keep_every_version(lab: &mut Lab) {
    let scan = |hour| scan(Stream::Surveys, hour, -1000, 1000, FlagSet::EMPTY);
    let history = "SELECT id, status, (valid_from::VARCHAR)[12:16], (valid_to::VARCHAR)[12:16], is_current FROM survey_history ORDER BY ALL";
    let changes = "SELECT survey_id, old_status, new_status, seen_by, (changed_at::VARCHAR)[12:16] FROM survey_status_changes ORDER BY changed_at, survey_id";
    let questions = "SELECT survey_id, question_ordinal, question_text FROM survey_questions ORDER BY ALL";

    lab.apply(&scan(1), &[survey_page(&[(1, "DRAFT", &["q1", "q2"]), (2, "PAUSED", &["r"])])]);
    assert_eq!(lab.rows(history), ["1 | DRAFT | 01:00 | NULL | true", "2 | PAUSED | 01:00 | NULL | true"]);
    assert_eq!(lab.rows(changes), ["1 | NULL | DRAFT | scan | 01:00", "2 | NULL | PAUSED | scan | 01:00"]);

    // Survey 1 changes its status and a question; survey 2 vanishes.
    let applied = lab.apply(&scan(2), &[survey_page(&[(1, "IN_PROGRESS", &["q1 new"])])]);
    assert_eq!(applied.counts, RowCounts { rows_read: 1, updated: 1, vanished: 1, ..RowCounts::default() });
    assert_eq!(
        lab.rows(history),
        [
            "1 | DRAFT | 01:00 | 02:00 | false",
            "1 | IN_PROGRESS | 02:00 | NULL | true",
            "2 | PAUSED | 01:00 | 02:00 | false"
        ]
    );
    assert_eq!(lab.rows(changes)[2..], ["1 | DRAFT | IN_PROGRESS | scan | 02:00", "2 | PAUSED | NULL | scan | 02:00"]);
    assert_eq!(lab.rows(questions), ["1 | 1 | q1 new", "2 | 1 | r"]);

    // Survey 2 returns; survey 1 changes a question and not its status.
    lab.apply(&scan(3), &[survey_page(&[(1, "IN_PROGRESS", &["q1 newer"]), (2, "PAUSED", &["r"])])]);
    assert_eq!(
        lab.rows(history)[1..],
        [
            "1 | IN_PROGRESS | 02:00 | 03:00 | false",
            "1 | IN_PROGRESS | 03:00 | NULL | true",
            "2 | PAUSED | 01:00 | 02:00 | false",
            "2 | PAUSED | 03:00 | NULL | true"
        ]
    );
    assert_eq!(lab.rows(changes)[4..], ["2 | NULL | PAUSED | scan | 03:00"]);
    assert_eq!(lab.rows(questions), ["1 | 1 | q1 newer", "2 | 1 | r"]);
    assert_eq!(lab.rows("SELECT id, _vanished_at FROM surveys ORDER BY ALL"), ["1 | NULL", "2 | NULL"]);
}

pub(in crate::load) fn p4_a_scan_ends_what_a_webhook_alone_said(lab: &mut Lab) {
    let scan = |hour| scan(Stream::Surveys, hour, -1000, 1000, FlagSet::EMPTY);
    let at = |hours: i64| day(100) + hours * 3_600_000;
    let changes = "SELECT survey_id, old_status, new_status, seen_by, (changed_at::VARCHAR)[12:16], (scanned_at::VARCHAR)[12:16], _run_id
                   FROM survey_status_changes WHERE old_status IS NOT NULL ORDER BY survey_id, changed_at";
    let live = survey_page(&[(1, "IN_PROGRESS", &["q"]), (2, "IN_PROGRESS", &["r"]), (3, "DRAFT", &[])]);
    lab.apply(&scan(1), std::slice::from_ref(&live));
    // Survey 1 was paused and resumed, and the second webhook is lost. Survey 2 was paused. Survey 3 is only told about
    // by a webhook whose predecessor is lost.
    let told = status_events(
        3,
        &[
            ("a", 1, at(2), "IN_PROGRESS", "PAUSED"),
            ("b", 2, at(2), "IN_PROGRESS", "PAUSED"),
            ("c", 3, at(2), "PAUSED", "COMPLETED"),
            ("d", 4, at(2), "DRAFT", "PAUSED"),
        ],
    );
    assert_eq!(lab.warehouse().add_events(&told).unwrap(), 4);
    lab.warehouse().publish().unwrap();
    let reported = [
        "1 | IN_PROGRESS | PAUSED | webhook | 02:00 | NULL | run-3",
        "2 | IN_PROGRESS | PAUSED | webhook | 02:00 | NULL | run-3",
    ];
    assert_eq!(lab.rows(changes), reported);
    // No row of surveys changes, and the scan contradicts survey 1. Survey 2 is not listed, and nothing is known.
    lab.vanish = VanishPolicy::Ignore;
    let only_live = survey_page(&[(1, "IN_PROGRESS", &["q"]), (3, "DRAFT", &[])]);
    let applied = lab.apply(&scan(4), std::slice::from_ref(&only_live));
    assert!(applied.wrote && applied.counts.updated == 0, "{applied:?}");
    let ended = "1 | PAUSED | IN_PROGRESS | scan | 04:00 | 04:00 | run-4";
    assert_eq!(lab.rows(changes), [reported[0], ended, reported[1]]);
    assert!(!lab.apply(&scan(5), std::slice::from_ref(&only_live)).wrote);
    let paused = survey_page(&[(1, "IN_PROGRESS", &["q"]), (2, "PAUSED", &["r"]), (3, "DRAFT", &[])]);
    lab.apply(&scan(6), std::slice::from_ref(&paused));
    let confirmed = "2 | IN_PROGRESS | PAUSED | both | 02:00 | 06:00 | run-6";
    assert_eq!(lab.rows(changes), [reported[0], ended, confirmed]);
    // The same again changes nothing, also after the warehouse was opened again.
    lab.reopen();
    lab.warehouse().add_events(&told).unwrap();
    assert!(!lab.apply(&scan(7), std::slice::from_ref(&paused)).wrote);
    assert_eq!(lab.rows(changes), [reported[0], ended, confirmed]);
}

pub(in crate::load) fn p4_no_version_ends_before_it_began(lab: &mut Lab) {
    // The clock goes back by two hours before the last scan. Survey 1 has a version from before that time.
    let surveys = |hour| scan(Stream::Surveys, hour, -1000, 1000, FlagSet::EMPTY);
    lab.apply(&surveys(0), &[survey_page(&[(1, "DRAFT", &["q1"])])]);
    lab.apply(&surveys(3), &[survey_page(&[(1, "PAUSED", &["q1 edited"]), (2, "PAUSED", &["r"])])]);
    lab.apply(&surveys(1), &[survey_page(&[(1, "IN_PROGRESS", &["q1 new"])])]);
    let versions = "(valid_from::VARCHAR)[12:16], (valid_to::VARCHAR)[12:16], is_current FROM";
    let of_surveys = lab.rows(&format!("SELECT status, {versions} survey_history ORDER BY ALL"));
    assert_eq!(of_surveys, ["DRAFT | 00:00 | 01:00 | false", "IN_PROGRESS | 01:00 | NULL | true"]);
    let of_questions = lab.rows(&format!("SELECT question_text, {versions} survey_question_history ORDER BY ALL"));
    assert_eq!(of_questions, ["q1 | 00:00 | 01:00 | false", "q1 new | 01:00 | NULL | true"]);
    let changes = "SELECT old_status, new_status, (changed_at::VARCHAR)[12:16] FROM survey_status_changes WHERE survey_id = 1 ORDER BY changed_at";
    assert_eq!(lab.rows(changes), ["NULL | DRAFT | 00:00", "DRAFT | IN_PROGRESS | 01:00"]);
    let answers = |hour| scan(Stream::Responses, hour, 0, 1, FlagSet::EMPTY);
    lab.apply(&answers(3), &[page(&[answer("a", 0, "red")])]);
    lab.apply(&answers(1), &[page(&[answer("a", 0, "blue")])]);
    // The history keeps the earlier text.
    let history = "SELECT answer_text, (valid_from::VARCHAR)[12:16], (valid_to::VARCHAR)[12:16] FROM response_history";
    assert_eq!(lab.rows(history), ["red | 01:00 | 01:00"]);
}

pub(in crate::load) fn themes_are_edited_and_vanish(lab: &mut Lab) {
    let scan = |hour| scan(Stream::Themes, hour, 0, 1, FlagSet::EMPTY);
    lab.apply(&scan(0), &[theme_page(&[(1, "price"), (2, "speed")])]);
    let applied = lab.apply(&scan(1), &[theme_page(&[(1, "pricing")])]);
    assert_eq!(applied.counts, RowCounts { rows_read: 1, updated: 1, vanished: 1, ..RowCounts::default() });
    assert_eq!(
        lab.rows("SELECT id, theme, _vanished_at IS NULL FROM themes ORDER BY ALL"),
        ["1 | pricing | true", "2 | speed | false"]
    );
}

pub(in crate::load) fn p1_themes_that_lose_a_collision_are_rejects(lab: &mut Lab) {
    let scan = |hour| scan(Stream::Themes, hour, 0, 1, FlagSet::EMPTY);
    let page = theme_page(&[(1, "price"), (1, "speed"), (1, "speed")]);
    let applied = lab.apply(&scan(0), std::slice::from_ref(&page));
    assert_eq!(applied.counts, RowCounts { rows_read: 3, inserted: 1, collisions: 1, ..RowCounts::default() });
    assert_eq!(lab.rows("SELECT id, theme FROM themes"), ["1 | speed"]);
    let lost = "SELECT stream, reason, raw LIKE '%\"theme\":\"price\"%' FROM rejects";
    assert_eq!(lab.rows(lost), ["themes | key_collision | true"]);
    let applied = lab.apply(&scan(1), &[page]);
    assert_eq!(applied.counts, RowCounts { rows_read: 3, unchanged: 1, ..RowCounts::default() });
    assert!(!applied.wrote);
}

pub(in crate::load) fn p1_rejects_are_kept_once_with_their_text(lab: &mut Lab) {
    let reject = |raw: &str| Reject { reason: RejectReason::MissingKey, field: "questionId".into(), raw: raw.into() };
    let scan = |hour| scan(Stream::Responses, hour, 0, 1, FlagSet::EMPTY);
    let rejects = vec![reject("{\"a\":'1\u{0}'}"), reject("{}"), reject("{}")];
    let bad = with_rejects(FlatPage::default(), rejects);
    let applied = lab.apply(&scan(0), std::slice::from_ref(&bad));
    assert_eq!(applied.counts, RowCounts { rows_read: 3, rejected: 2, ..RowCounts::default() });
    let stored = "SELECT stream, reason, field, scan_id, raw FROM rejects ORDER BY len(raw)";
    let expected = [
        "responses | missing_key | questionId | scan-responses-0-0 | {}".to_owned(),
        format!("responses | missing_key | questionId | scan-responses-0-0 | {{\"a\":'1{}'}}", lab.kind.stored_nul()),
    ];
    assert_eq!(lab.rows(stored), expected);
    let applied = lab.apply(&scan(1), &[bad, page(&[])]);
    assert_eq!(applied.counts.rejected, 0, "what is known calls for no look");
    assert!(!applied.wrote);
    assert_eq!(lab.rows(stored), expected);
}

pub(in crate::load) fn a_run_is_recorded_once(lab: &mut Lab) {
    let mut run = RunRecord {
        run_id: RunId("run-1".into()),
        command: "sync".into(),
        outcome: "done".into(),
        exit_code: 0,
        started_ms: day(0),
        finished_ms: day(1),
        base_url: "https://service.example".into(),
        environment: "test".into(),
        program_version: "0.1.0".into(),
        report: "{\"it's\": 1}".into(),
    };
    lab.warehouse().record_runs(std::slice::from_ref(&run)).unwrap();
    run.outcome = "needs_a_look".into();
    run.exit_code = 3;
    lab.warehouse().record_runs(std::slice::from_ref(&run)).unwrap();
    lab.warehouse().publish().unwrap();
    assert_eq!(
        lab.rows("SELECT run_id, outcome, exit_code, finished_at::VARCHAR, report FROM sync_runs"),
        ["run-1 | needs_a_look | 3 | 2026-03-02 00:00:00 | {\"it's\": 1}"]
    );
    assert_eq!(lab.warehouse().runs().unwrap(), std::slice::from_ref(&run));
    let others = [RunRecord { run_id: RunId("run-2".into()), ..run.clone() }, run.clone()];
    lab.warehouse().record_runs(&others).unwrap();
    assert_eq!(lab.warehouse().runs().unwrap().len(), 2, "also before publish");
    lab.warehouse().record_runs(&[]).unwrap();
    lab.warehouse().publish().unwrap();
    assert_eq!(lab.count("SELECT count(*) FROM sync_runs"), 2);
}

pub(in crate::load) fn p1_commits_that_wait_for_publish_go_together(lab: &mut Lab) {
    let scan = |hour| scan(Stream::Surveys, hour, -1000, 1000, FlagSet::EMPTY);
    let nights: [&[(i64, &str, &[&str])]; 3] =
        [&[(1, "DRAFT", &["q"])], &[(1, "PAUSED", &["q"]), (2, "NEW", &[])], &[(2, "NEW", &[])]];
    for (hour, surveys) in (1..).zip(nights) {
        // Committed and not published, as after a kill.
        let page = survey_page(surveys);
        lab.warehouse().apply_and_commit(&scan(hour), &std::slice::from_ref(&page), &CommitOptions::default()).unwrap();
    }
    lab.warehouse().publish().unwrap();
    let changes = "SELECT survey_id, old_status, new_status FROM survey_status_changes ORDER BY changed_at, survey_id";
    assert_eq!(lab.rows(changes), ["1 | NULL | DRAFT", "1 | DRAFT | PAUSED", "2 | NULL | NEW", "1 | PAUSED | NULL"]);
}
