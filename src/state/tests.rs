//! The state file, opened and used as runs do.

use super::*;
use crate::model::{
    CoverageInterval, DAY_MS, EndStyle, Flag, FlagSet, NEEDS_RECHECK_MS, PageToken, Proof, RunId, Scan, ScanId, Scope,
    Stream, Window,
};

const URL: &str = "http://127.0.0.1:1";

fn scan(start_ms: i64, end_ms: i64) -> Scan {
    Scan {
        id: ScanId::new(1),
        run_id: RunId::new(1),
        scope: Scope { stream: Stream::Responses, survey_id: Some(0) },
        window: Window::new(start_ms, end_ms),
        flags: FlagSet::ALL,
        started_ms: 5_000,
    }
}

fn completed(scan: &Scan, scanned_ms: i64, rows: u64) -> ScanCheckpoint {
    ScanCheckpoint { scan: scan.clone(), scanned_ms, rows, proof: Proof { pages: 2, end: Some(EndStyle::Missing) } }
}

#[test]
fn a_scan_is_unfinished_until_its_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let mut state = State::open(&folder.path().join("a/b/state.sqlite"), URL, "test").unwrap();
    let scan = scan(0, 1000);
    state.begin_scan(&scan, 1000).unwrap();
    let token = PageToken("abc".to_owned());
    state.advance_scan(&scan.id, 500, 2, 1500, Some(&token)).unwrap();
    let expected =
        UnfinishedScan { scan: scan.clone(), page_rows: 500, pages: 2, rows: 1500, next_page_token: Some(token) };
    assert_eq!(state.unfinished_scans().unwrap(), [expected]);
    assert!(state.coverage(scan.scope).unwrap().is_empty());

    state.remember_destination("duckdb", "here", None).unwrap();
    state.checkpoint(&completed(&scan, scan.started_ms, 1600), &[("duckdb", true)]).unwrap();
    assert!(state.unfinished_scans().unwrap().is_empty());
    let interval = CoverageInterval { window: scan.window, flags: FlagSet::ALL, scanned_ms: 5_000, rows: 1600 };
    assert_eq!(state.coverage(scan.scope).unwrap(), [interval]);
    assert!(state.coverage(Scope::all(Stream::Responses)).unwrap().is_empty(), "another scope was covered");
    assert_eq!(state.covered_scopes().unwrap(), [scan.scope]);
    assert_eq!(state.destination("duckdb").unwrap().unwrap().last_scan_id, Some(scan.id));
}

#[test]
fn p10_a_file_of_another_service_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.sqlite");
    State::open(&path, "https://mistyped.example", "production").unwrap();
    let mut state = State::open(&path, URL, "production").unwrap();
    state.remember_behaviour("ties", &"kept", 1).unwrap();
    let empty = scan(0, 1000);
    state.begin_scan(&empty, 1000).unwrap();
    state.checkpoint(&completed(&empty, 1, 0), &[]).unwrap();
    drop(state);
    let mut state = State::open(&path, URL, "staging").unwrap();
    assert!(
        state.covered_scopes().unwrap().is_empty() && state.behaviours().unwrap().is_empty(),
        "the rows of another service remain"
    );
    drop(State::open(&path, URL, "production").unwrap());
    state.begin_scan(&empty, 1000).unwrap();
    state.checkpoint(&completed(&empty, 1, 1), &[]).unwrap();
    drop(state);
    let error = State::open(&path, URL, "development").unwrap_err().to_string();
    assert!(error.contains("production") && error.contains("development"), "{error}");
    assert!(State::open(&path, "https://other.example", "production").is_err());
}

#[test]
fn one_run_at_a_time_and_the_holder_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.sqlite");
    let first = State::open(&path, URL, "test").unwrap();
    let second = State::open(&path, URL, "test").unwrap();
    let lease = first.take_lease(&RunId::new(1), "sync", 1_769_817_600_000).unwrap();
    let error = second.take_lease(&RunId::new(2), "backfill", 2).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, StateError::Leased { .. }));
    assert!(text.contains(&format!("process {}", std::process::id())), "{text}");
    assert!(text.contains("studysync sync") && text.contains("2026-01-31"), "{text}");
    assert!(second.current_holder().unwrap().is_some());
    drop(lease);
    assert!(second.current_holder().unwrap().is_none());
    second.take_lease(&RunId::new(2), "backfill", 2).map(drop).unwrap();
}

#[test]
fn a_newer_or_foreign_file_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.sqlite");
    drop(State::open(&path, URL, "test").unwrap());
    rusqlite::Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    assert!(matches!(State::open(&path, URL, "test"), Err(StateError::Newer { .. })));
    assert!(matches!(State::open_read_only(&path), Err(StateError::Newer { .. })));
    std::fs::write(&path, b"not a database at all, but long enough to be looked at").unwrap();
    let _ = std::fs::remove_file(folder.path().join("state.sqlite-wal"));
    assert!(State::open(&path, URL, "test").unwrap_err().to_string().contains("state.sqlite"));
}

#[test]
fn a_lost_file_is_rebuilt_from_the_ledger() {
    let folder = tempfile::tempdir().unwrap();
    let mut state = State::open(&folder.path().join("state.sqlite"), URL, "test").unwrap();
    state.checkpoint(&completed(&scan(5_000, 6_000), 9, 1), &[]).unwrap();
    let extents = [(scan(0, 1).scope, -500)];
    let scans = [completed(&scan(1000, 2000), 5_000, 7), completed(&scan(0, 1000), 5_000, 3)];
    state.rebuild_coverage(&scans, &[], &extents, &[]).unwrap();
    assert_eq!(state.extent_start_ms(scan(0, 1).scope).unwrap(), Some(-500));
    let rebuilt = state.coverage(scan(0, 1).scope).unwrap();
    assert_eq!(rebuilt.len(), 1);
    assert_eq!((rebuilt[0].window, rebuilt[0].rows), (Window::new(0, 2000), 10));
}

#[test]
fn p4_a_scan_of_one_warehouse_alone_only_restricts_coverage() {
    let folder = tempfile::tempdir().unwrap();
    let mut state = State::open(&folder.path().join("state.sqlite"), URL, "test").unwrap();
    let without = FlagSet::EMPTY.with(Flag::WithMeta);
    let completed_at = |flags, window: (i64, i64), day| {
        let started_ms = day * DAY_MS;
        let scan = Scan { flags, started_ms, ..scan(window.0, window.1) };
        completed(&scan, started_ms, 30)
    };
    let in_all = [completed_at(FlagSet::ALL, (0, 3000), 5)];
    let in_some = [
        ScanCheckpoint { scanned_ms: NEEDS_RECHECK_MS, ..completed_at(FlagSet::ALL, (2000, 2500), 7) },
        completed_at(without, (1000, 2000), 6),
        // Older than the scan of both, and outside of its window.
        completed_at(without, (0, 500), 4),
        completed_at(FlagSet::ALL, (3000, 4000), 8),
    ];
    state.rebuild_coverage(&in_all, &in_some, &[], &[]).unwrap();
    let rebuilt = state.coverage(scan(0, 1).scope).unwrap();
    let found: Vec<_> =
        rebuilt.iter().map(|one| (one.window.start_ms, one.window.end_ms, one.flags, one.scanned_ms)).collect();
    let all = FlagSet::ALL;
    assert_eq!(
        found,
        [
            (0, 1000, all, 5 * DAY_MS),
            (1000, 2000, without, 5 * DAY_MS),
            (2000, 2500, all, NEEDS_RECHECK_MS),
            (2500, 3000, all, 5 * DAY_MS)
        ]
    );
    assert_eq!(rebuilt.iter().map(|one| one.rows).sum::<u64>(), 30);
}

#[test]
fn a_warehouse_left_out_of_a_checkpoint_is_not_current() {
    let folder = tempfile::tempdir().unwrap();
    let mut state = State::open(&folder.path().join("state.sqlite"), URL, "test").unwrap();
    let is_up_to_date = |state: &State, name: &str| state.destination(name).unwrap().unwrap().is_up_to_date;
    state.remember_destination("duckdb", "here", None).unwrap();
    state.remember_destination("parquet", "there", None).unwrap();
    let scan = scan(0, 1000);
    state.checkpoint(&completed(&scan, 5, 1), &[("duckdb", true), ("parquet", false)]).unwrap();
    assert!(is_up_to_date(&state, "duckdb") && is_up_to_date(&state, "parquet"));
    assert_eq!(state.destination("parquet").unwrap().unwrap().last_scan_id, None);
    state.checkpoint(&completed(&scan, 6, 1), &[("duckdb", true)]).unwrap();
    assert!(is_up_to_date(&state, "duckdb") && !is_up_to_date(&state, "parquet"));
    state.remember_destination("parquet", "there", None).unwrap();
    assert!(!is_up_to_date(&state, "parquet"), "remembering a location does not bring it up to date");
    state.rebuild_coverage(&[], &[], &[], &["duckdb", "parquet"]).unwrap();
    assert!(is_up_to_date(&state, "duckdb") && is_up_to_date(&state, "parquet"));
}

#[test]
fn runs_and_behaviours_are_stored() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.sqlite");
    assert!(State::open_read_only(&path).unwrap().is_none());
    let state = State::open(&path, URL, "test").unwrap();
    let (first, second) = (RunId::new(1), RunId::new(2));
    state.begin_run(&first, "backfill", 10).unwrap();
    state.begin_run(&second, "sync", 20).unwrap();
    state.finish_run(&second, 30, "done", 0, "{}").unwrap();
    state.remember_behaviour("clock_skew_ms", &250, 30).unwrap();
    let reader = State::open_read_only(&path).unwrap().unwrap();
    let runs = reader.runs(10).unwrap();
    assert_eq!(runs.iter().map(|run| run.command.as_str()).collect::<Vec<_>>(), ["sync", "backfill"]);
    assert_eq!((runs[0].exit_code, runs[1].finished_ms), (Some(0), None));
    assert_eq!(reader.behaviour::<i64>("clock_skew_ms").unwrap(), Some((250, 30)));
    assert_eq!(reader.behaviour::<i64>("unknown").unwrap(), None);
}

#[test]
fn p3_the_first_proof_and_the_last_read_are_stored_apart() {
    let folder = tempfile::tempdir().unwrap();
    let mut state = State::open(&folder.path().join("state.sqlite"), URL, "test").unwrap();
    let first = Scan { started_ms: DAY_MS, ..scan(0, 1000) };
    let mut second = Scan { id: ScanId::new(2), started_ms: 3 * DAY_MS, ..scan(500, 2000) };
    state.checkpoint(&completed(&first, first.started_ms, 10), &[]).unwrap();
    state.checkpoint(&completed(&second, crate::model::NEEDS_RECHECK_MS, 15), &[]).unwrap();
    let proofs = state.proofs(first.scope).unwrap();
    assert_eq!(
        proofs,
        [
            ProvenInterval { window: Window::new(0, 1000), proven_ms: first.started_ms },
            ProvenInterval { window: Window::new(1000, 2000), proven_ms: second.started_ms },
        ]
    );
    let intervals = state.intervals(first.scope).unwrap();
    let read =
        |at: usize| (intervals[at].interval.window, intervals[at].read.read_ms, intervals[at].read.scan_id.clone());
    assert_eq!(read(0), (Window::new(0, 500), first.started_ms, Some(first.id.clone())));
    // A recheck mark does not change when the interval was read.
    assert_eq!(read(1), (Window::new(500, 2000), second.started_ms, Some(second.id.clone())));
    assert_eq!(intervals[1].read.ends.iter().collect::<Vec<_>>(), [EndStyle::Missing]);
    // Repeated scans do not add rows.
    for night in 4..40 {
        second.started_ms = night * DAY_MS;
        state.checkpoint(&completed(&second, second.started_ms, 15), &[]).unwrap();
    }
    assert_eq!(state.proofs(first.scope).unwrap(), proofs);
    assert_eq!(state.intervals(first.scope).unwrap().len(), 2);
}

#[test]
fn commit_ordinals_rise_even_if_the_clock_is_set_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut last = 0;
    // Each process reserves ordinals of its own, and uses some of them.
    for (now_ms, commits) in [(100, 3), (100, 200), (50, 1), (10_000, 2)] {
        let mut state = State::open(&folder.path().join("state.sqlite"), URL, "test").unwrap();
        for _ in 0..commits {
            let ordinal = state.next_commit_ordinal(now_ms).unwrap();
            assert!(ordinal > last && ordinal >= now_ms, "{ordinal} after {last} at {now_ms}");
            last = ordinal;
        }
    }
    assert_eq!(last, 10_001);
}

#[test]
fn an_old_behaviour_has_no_evidence_and_a_new_one_has() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoints.sqlite");
    let mut earlier = rusqlite::Connection::open(&path).unwrap();
    rusqlite_migration::Migrations::from_slice(&super::MIGRATIONS[..6]).to_latest(&mut earlier).unwrap();
    earlier.execute("INSERT INTO traits (name, value, measured_ms) VALUES ('order', '\"none\"', 5)", []).unwrap();
    drop(earlier);
    let state = State::open(&path, "https://a.example", "default").unwrap();
    assert_eq!(state.behaviour::<String>("order").unwrap(), Some(("none".to_owned(), 5)));
    assert_eq!(state.behaviour_evidence("order").unwrap(), None);
    state.remember_measured("order", &"newest_first", "8 rows of a page", 6).unwrap();
    assert_eq!(state.behaviour_evidence("order").unwrap().as_deref(), Some("8 rows of a page"));
    // A value without evidence removes the evidence of the earlier value.
    state.remember_behaviour("order", &"none", 7).unwrap();
    assert_eq!(state.behaviour_evidence("order").unwrap(), None);
}

#[test]
fn a_new_state_file_can_be_opened_by_many_at_once() {
    let folder = tempfile::tempdir().unwrap();
    for nth in 0..20 {
        let path = folder.path().join(format!("{nth}.sqlite"));
        std::thread::scope(|scope| {
            let opening = [(); 4].map(|()| scope.spawn(|| State::open(&path, "http://127.0.0.1:1", "test").map(drop)));
            let reading = [(); 4].map(|()| scope.spawn(|| State::open_read_only(&path).map(drop)));
            opening.into_iter().chain(reading).for_each(|opened| opened.join().unwrap().unwrap());
        });
    }
}

#[test]
fn a_copy_has_the_rights_of_the_file() {
    use std::{fs, os::unix::fs::PermissionsExt};
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("state.sqlite"), folder.path().join("copy"));
    let state = State::open(&path, "http://127.0.0.1:1", "test").unwrap();
    for mode in [0o600, 0o640, 0o644] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        state.copy_to(&copy).unwrap();
        assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o777, mode);
        assert!(State::open_read_only(&copy).unwrap().is_some());
        fs::remove_file(&copy).unwrap();
    }
}
