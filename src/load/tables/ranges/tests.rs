//! What replacing a range changes, and what it leaves.

use proptest::prelude::*;

use super::{
    super::{
        cells::Cell,
        fixture::{memory, put, shown},
    },
    *,
};
use crate::model::{DAY_MS, ScanId, Stream, Window};

const DAY_US: i64 = DAY_MS * 1000;
/// A selection of the tables of responses.
const TABLES: [&str; 4] = ["responses", "response_choices", "response_history", "visitor_snapshots"];

/// An answer, its child, an earlier version and a snapshot, made on this day and marked with a run.
fn put_answer(store: &mut BufferedStore, session: &str, at_us: i64, run: &str) {
    let cells = [
        ("response_group_uid", Cell::Text(session)),
        ("created_at", Cell::Moment(at_us)),
        ("_run_id", Cell::Text(run)),
    ];
    TABLES.iter().for_each(|table| put(store, table, &[&cells]));
}

fn put_reject(store: &mut BufferedStore, hash: i64, scan: &str, raw: &str) {
    let cells = [
        ("stream", Cell::Text("responses")),
        ("raw_hash", Cell::Integer(hash)),
        ("scan_id", Cell::Text(scan)),
        ("raw", Cell::Text(raw)),
    ];
    put(store, REJECTS, &[&cells]);
}

fn put_scan(store: &mut BufferedStore, scan: &str, rows_read: i64) {
    put(store, LEDGER, &[&[("scan_id", Cell::Text(scan)), ("rows_read", Cell::Integer(rows_read))]]);
}

fn answers(store: &mut BufferedStore, table: &str) -> Vec<String> {
    shown(store, table, &["response_group_uid", "_run_id"])
}

fn responses_of_days(from: i64, to: i64, scans: &[&str]) -> Replacement {
    let scans = scans.iter().map(|scan| ScanId((*scan).into())).collect();
    Replacement { stream: Stream::Responses, window: Window::new(from * DAY_MS, to * DAY_MS), scans }
}

#[test]
fn p2_a_range_is_replaced_in_every_table_and_nothing_else() {
    let (_shelf, mut store) = memory();
    let (_other, mut source) = memory();
    for (session, at_us) in [("before", DAY_US - 1), ("first", DAY_US), ("last", 3 * DAY_US - 1), ("after", 3 * DAY_US)]
    {
        put_answer(&mut store, session, at_us, "old");
        put_answer(&mut source, session, at_us, "new");
    }
    put_answer(&mut store, "gone", 2 * DAY_US, "old");
    put_answer(&mut source, "found", 2 * DAY_US, "new");
    put(&mut store, "themes", &[&[("created_at", Cell::Moment(2 * DAY_US)), ("_run_id", Cell::Text("old"))]]);
    store.commit("test").unwrap();
    assert_eq!(replace(&mut store, &mut source, &responses_of_days(1, 3, &[])).unwrap(), 3 * TABLES.len() as u64);
    store.commit("test").unwrap();
    for table in TABLES {
        let expected = ["after | old", "before | old", "first | new", "found | new", "last | new"];
        assert_eq!(answers(&mut store, table), expected, "{table}");
    }
    assert_eq!(shown(&mut store, "themes", &["_run_id"]), ["old"], "another stream");
    assert_eq!(answers(&mut source, "responses").len(), 5, "the source keeps its rows");
}

#[test]
fn p2_rejects_and_ledger_rows_are_replaced_by_scan_id() {
    let (_shelf, mut store) = memory();
    let (_other, mut source) = memory();
    put_reject(&mut store, 1, "s1", "damaged");
    put_reject(&mut store, 2, "other", "seen first by another scan");
    put_reject(&mut store, 3, "s2", "not replayed");
    put_reject(&mut source, 1, "s1", "complete");
    put_reject(&mut source, 2, "s1", "seen again");
    put_reject(&mut source, 4, "s2", "lost");
    put_reject(&mut source, 5, "s3", "of a scan outside the range");
    for (scan, rows_read) in [("s1", 1), ("s2", 1), ("other", 1)] {
        put_scan(&mut store, scan, rows_read);
    }
    for (scan, rows_read) in [("s1", 5), ("s3", 5)] {
        put_scan(&mut source, scan, rows_read);
    }
    assert_eq!(replace(&mut store, &mut source, &responses_of_days(1, 3, &["s1", "s2"])).unwrap(), 3);
    let rejects = shown(&mut store, REJECTS, &["raw_hash", "scan_id", "raw"]);
    assert_eq!(rejects, ["1 | s1 | complete", "2 | other | seen first by another scan", "4 | s2 | lost"]);
    assert_eq!(shown(&mut store, LEDGER, &["scan_id", "rows_read"]), ["other | 1", "s1 | 5"]);
    // Without scans, nothing of either goes or comes.
    assert_eq!(replace(&mut store, &mut source, &responses_of_days(1, 3, &[])).unwrap(), 0);
    assert_eq!(shown(&mut store, REJECTS, &["raw_hash", "scan_id", "raw"]), rejects);
}

#[test]
fn a_stream_without_a_creation_time_cannot_be_replaced() {
    let (_shelf, mut store) = memory();
    let (_other, mut source) = memory();
    put(&mut store, "users", &[&[("external_user_id", Cell::Text("u"))]]);
    let what = Replacement { stream: Stream::Users, ..responses_of_days(1, 3, &[]) };
    assert!(replace(&mut store, &mut source, &what).is_err());
    assert_eq!(shown(&mut store, "users", &["external_user_id"]), ["u"]);
}

proptest! {
    /// The rows of the range are removed, and no others, with any limit of keys.
    #[test]
    fn p2_a_range_is_removed_piece_by_piece(
        moments in prop::collection::vec(prop_oneof![0..40_i64, Just(7), Just(i64::MAX / 2)], 0..30),
        ends in [0..45_i64, 0..45_i64],
        keys_at_once in 1..6_u64,
    ) {
        let range = TimeRange { start_us: ends[0].min(ends[1]), end_us: ends[0].max(ends[1]) };
        let (_shelf, mut store) = memory();
        let sessions: Vec<String> = (0..moments.len()).map(|number| format!("{number:02}")).collect();
        for (session, at_us) in sessions.iter().zip(&moments) {
            put_answer(&mut store, session, *at_us, "run");
        }
        let table = contract("responses").unwrap();
        remove_range(&mut store, table, range, keys_at_once).unwrap();
        let kept = sessions.iter().zip(&moments).filter(|(_, at_us)| !range.holds(**at_us));
        let expected: Vec<String> = kept.map(|(session, _)| format!("{session} | run")).collect();
        prop_assert_eq!(answers(&mut store, "responses"), expected);
    }

    #[test]
    fn the_pieces_of_a_range_make_it_up(start_us in any::<i64>(), length_us in 0..i64::MAX, pieces in 1..9_u64) {
        let range = TimeRange { start_us, end_us: start_us.saturating_add(length_us) };
        let ranges = split_range(range, pieces);
        prop_assert!(ranges.len() as u64 <= pieces);
        let mut at_us = range.start_us;
        for piece in ranges {
            prop_assert_eq!(piece.start_us, at_us);
            prop_assert!(piece.end_us > piece.start_us);
            at_us = piece.end_us;
        }
        prop_assert_eq!(at_us, range.end_us);
    }
}
