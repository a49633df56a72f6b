//! The status and the health of made-up histories of runs.

use std::{path::Path, time::Duration};

use super::*;
use crate::{
    config::{Overrides, Settings, resolve},
    model::{RunId, Snapshots, WarehouseKind},
    pipeline::SNAPSHOTS,
    state::State,
};

const HOUR_MS: i64 = 3_600_000;

struct History {
    folder: tempfile::TempDir,
    state: State,
    at_ms: i64,
}

impl History {
    fn new() -> History {
        let folder = tempfile::tempdir().unwrap();
        let state = State::open(&path(folder.path()), "http://example.test", "test").unwrap();
        History { folder, state, at_ms: 0 }
    }

    fn begin(&mut self, command: &str) -> RunId {
        self.at_ms += HOUR_MS;
        let run_id = RunId::new(self.at_ms);
        self.state.begin_run(&run_id, command, self.at_ms).unwrap();
        run_id
    }

    fn ended(&mut self, command: &str, exit_code: i64, report: &str) -> &mut Self {
        let run_id = self.begin(command);
        let outcome = if exit_code == 0 { "done" } else { "failed" };
        self.state.finish_run(&run_id, self.at_ms + 1, outcome, exit_code, report).unwrap();
        self
    }

    fn failed(&mut self, reason: &str, exit_code: i64) -> &mut Self {
        self.ended("sync", exit_code, &format!(r#"{{"reason":"{reason}","why":"why {reason}","hint":"do {reason}"}}"#))
    }

    fn settings(&self) -> Settings {
        resolve(Overrides { state: Some(path(self.folder.path())), ..Overrides::default() }).unwrap()
    }

    fn status(&self) -> Status {
        Status::read(&self.settings(), self.at_ms + 2).unwrap()
    }

    /// The code of each reason, and whether it makes the health bad.
    fn health(&self, failures_tolerated: u32) -> Vec<(&'static str, bool)> {
        let rules = HealthRules { max_lag: Some(Duration::from_secs(3600)), failures_tolerated };
        let health = Health::new(&self.status(), &self.settings(), rules);
        assert_eq!(health.is_healthy(), health.reasons.iter().all(|reason| !reason.is_failing));
        health.reasons.iter().map(|reason| (reason.code, reason.is_failing)).collect()
    }
}

fn path(folder: &Path) -> std::path::PathBuf {
    folder.join("state.sqlite")
}

#[test]
fn before_the_first_run_the_health_is_good() {
    let folder = tempfile::tempdir().unwrap();
    let settings = resolve(Overrides { state: Some(path(folder.path())), ..Overrides::default() }).unwrap();
    let status = Status::read(&settings, 5).unwrap();
    assert!(status.last_run.is_none() && !path(folder.path()).exists(), "reading makes no file");
    assert_eq!(status.stream_lags.len(), 3);
    assert_eq!(History::new().health(0), [("never_ran", false)]);
}

#[test]
fn an_unfinished_state_file_is_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    let settings = resolve(Overrides { state: Some(path(folder.path())), ..Overrides::default() }).unwrap();
    std::fs::write(path(folder.path()), "").unwrap();
    assert!(Status::read(&settings, 5).unwrap().last_run.is_none());
    assert_eq!(std::fs::metadata(path(folder.path())).unwrap().len(), 0, "no table is made by a reader");
}

#[test]
fn failed_runs_are_counted_until_one_succeeds() {
    let mut history = History::new();
    history.ended("backfill", 0, "{}").failed("service_failed", 1).failed("service_failed", 1);
    let status = history.status();
    assert_eq!(status.failures_in_a_row, 2);
    assert_eq!(status.last_success_ms, [("backfill".to_owned(), HOUR_MS + 1)].into());
    let failure = status.last_failure.unwrap();
    assert_eq!((failure.sentence(), failure.hint.as_deref()), ("why service_failed".into(), Some("do service_failed")));
    // A failure that `serve` retries does not make the health bad.
    assert_eq!(history.health(2)[0], ("service_failed", false));
    assert_eq!(history.health(1)[0], ("service_failed", true));
    // A refused key is never retried.
    assert_eq!(history.failed("key_refused", 4).health(9)[0], ("key_refused", true));
    history.ended("sync", 3, r#"{"reason":"needs_a_look","looks":["first","second"]}"#);
    assert_eq!(history.health(0)[..2], [("needs_a_look", false); 2]);
    assert_eq!(history.status().failures_in_a_row, 0);
}

#[test]
fn runs_that_prove_nothing_leave_the_health_unchanged() {
    let mut history = History::new();
    history.ended("sync", 0, "{}").failed("disk_full", 1);
    // Another command's success, a skipped run, a run that stopped early, and a `wake` for one stream.
    history.ended("verify", 0, "{}").failed("lease_held", 5).failed("stopped_early", 6).ended("wake", 0, "{}");
    let status = history.status();
    assert_eq!((status.failures_in_a_row, status.last_run.unwrap().command.as_str()), (1, "wake"));
    let health = history.health(0);
    assert_eq!(health[..2], [("disk_full", true), ("stopped_early", false)]);
    assert!(health[2..].iter().all(|reason| *reason == ("behind", false)), "nothing is complete: {health:?}");
}

#[test]
fn a_failure_is_resolved_by_a_success_that_read_as_much() {
    let left = |history: &History| {
        let status = history.status();
        (status.failures_in_a_row, status.last_failure.map(|run| run.command))
    };
    let asked = r#"{"requests":{"total":9}}"#;
    let mut history = History::new();
    history.failed("key_refused", 4).ended("sync", 0, r#"{"requests":{"total":0}}"#).ended("backfill", 0, asked);
    history.ended("sync", 0, r#"{"requests":{"total":9},"narrowed_to":"--stream themes"}"#);
    assert_eq!(left(&history), (1, Some("sync".into())), "no request, another command, one stream of several");
    // A limited run is resolved by an equally limited one, and by a complete one.
    history.ended("sync", 0, asked);
    assert_eq!(left(&history), (0, None));
    let narrow = r#"{"reason":"service_failed","narrowed_to":"--stream themes"}"#;
    history.ended("sync", 1, narrow).ended("sync", 0, r#"{"narrowed_to":"--stream responses"}"#);
    assert_eq!(left(&history), (1, Some("sync".into())));
    history.ended("sync", 0, r#"{"narrowed_to":"--stream themes"}"#);
    assert_eq!(left(&history), (0, None));
    // Another command's failure stays until the same command succeeds, or a complete sync does.
    history.ended("users pull", 1, r#"{"reason":"service_failed"}"#).failed("service_failed", 1);
    history.ended("users pull", 0, asked);
    assert_eq!(left(&history), (1, Some("sync".into())));
    history.ended("users pull", 1, r#"{"reason":"service_failed"}"#).ended("sync", 0, asked);
    assert_eq!(left(&history), (0, None));
}

#[test]
fn a_run_without_an_end_is_killed_unless_it_holds_the_lease() {
    let mut history = History::new();
    let run_id = history.begin("sync");
    assert_eq!(history.health(0), [("run_killed", true)]);
    assert_eq!(history.status().last_run.unwrap().outcome, "killed");
    let lease = history.state.take_lease(&run_id, "sync", history.at_ms).unwrap();
    assert_eq!(history.health(0), [("never_ran", false)]);
    assert_eq!(history.status().last_run.unwrap().outcome, "running");
    drop(lease);
}

#[test]
fn killed_runs_are_listed_until_two_runs_succeed() {
    let mut history = History::new();
    let killed = |history: &History| history.status().killed_runs.len();
    history.ended("sync", 0, "{}");
    history.begin("sync");
    history.begin("verify");
    assert_eq!(killed(&history), 1, "verify is no sync run");
    history.ended("sync", 0, "{}");
    assert_eq!(
        (killed(&history), history.status().failures_in_a_row),
        (1, 0),
        "the kill may not have been notified yet"
    );
    history.ended("sync", 0, "{}");
    assert_eq!(killed(&history), 0);
}

#[test]
fn runs_of_a_clock_that_was_ahead_are_not_the_last_ones() {
    let mut history = History::new();
    let years_ms = 87_600 * HOUR_MS;
    history.ended("sync", 0, "{}");
    history.at_ms += years_ms;
    history.ended("sync", 0, "{}").failed("disk_full", 1).ended("sync", 0, "{}");
    // The clock is set right, and the nights fail.
    history.at_ms = 100 * HOUR_MS;
    history.failed("service_failed", 1);
    let status = history.status();
    assert_eq!(status.last_run.unwrap().reason.map(crate::pipeline::RunReason::name), Some("service_failed"));
    assert_eq!(status.failures_in_a_row, 1);
    assert_eq!(status.last_success.unwrap().started_ms, HOUR_MS, "a success in the future proves nothing");
    assert_eq!(status.last_success_ms, [("sync".to_owned(), HOUR_MS + 1)].into());
    assert_eq!(history.health(0)[0], ("service_failed", true));
    // The other way round: failures of that time do not stay for ever.
    let mut history = History::new();
    history.at_ms = years_ms;
    history.failed("service_failed", 1).failed("service_failed", 1);
    history.at_ms = 100 * HOUR_MS;
    history.ended("sync", 0, r#"{"requests":{"total":9}}"#);
    assert_eq!((history.status().failures_in_a_row, history.status().last_success.is_some()), (0, true));
}

#[test]
fn reports_of_earlier_versions_are_read() {
    let mut history = History::new();
    history.ended("sync", 1, r#"{"error":"it broke"}"#);
    assert_eq!(history.status().last_failure.unwrap().sentence(), "it broke");
    history.ended("sync", 1, r#"{"failures":[{"stream":"responses","survey_id":null,"window":"w","error":"e"}]}"#);
    assert_eq!(history.status().last_failure.unwrap().sentence(), "responses w: e");
    history.ended("sync", 4, "no JSON at all");
    assert_eq!(history.health(0)[0], ("key_refused", true));
}

#[test]
fn every_code_is_listed_once() {
    let mut all: Vec<_> = reason_codes().collect();
    all.sort_unstable();
    let count = all.len();
    all.dedup();
    assert_eq!(all.len(), count);
}

#[test]
fn the_json_of_a_status_has_the_fields_of_the_command() {
    let mut history = History::new();
    history.ended("sync", 0, r#"{"drift":[],"drift_unlisted":2}"#);
    let mut status = Status { state: "s".to_owned(), ..history.status() };
    assert!(status.behaviours.is_empty(), "what only people ask for is not read each second");
    status.add_details(&history.settings(), &history.state).unwrap();
    let json = serde_json::to_string(&status).unwrap();
    let fields = [
        r#"{"state":"s","base_url":"http://example.test","environment":"test","running":null,"streams":[],"#,
        r#""proofs":[],"under_way":[],"requests_per_sec":null,"clock_skew_ms":null,"clock_in_doubt":false,"traits":[{"#,
        r#"}],"runs":[{"run_id":"#,
        r#","command":"sync","started":"1970-01-01T01:00:00Z","secs":0.001,"outcome":"done","exit_code":0}],"#,
        r#""drift":[],"drift_unlisted":2}"#,
    ];
    let mut rest = json.as_str();
    for field in fields {
        let at = rest.find(field).unwrap_or_else(|| panic!("{field} is not in {rest}"));
        rest = &rest[at + field.len()..];
    }
    assert_eq!(rest, "");
    assert!(!json.contains("last_run") && !json.contains("backlog") && !json.contains("now_ms"), "{json}");
}

#[test]
fn maintenance_is_due_two_weeks_after_the_oldest_snapshot() {
    const DAYS_14_MS: i64 = 14 * 24 * HOUR_MS;
    let history = History::new();
    let lake = history.folder.path().join("lake.ducklake");
    let of_catalog = Overrides {
        state: Some(path(history.folder.path())),
        warehouses: [(WarehouseKind::DuckLake, lake)].into(),
        ..Overrides::default()
    };
    let of_catalog = resolve(of_catalog).unwrap();
    let status = |settings: &Settings, now_ms| Status::read(settings, now_ms).unwrap().maintenance;
    assert!(status(&of_catalog, 0).is_none(), "no run has counted snapshots");
    for (count, is_due) in [(2, true), (1, false)] {
        history.state.remember_behaviour(SNAPSHOTS, &Snapshots { count, oldest_ms: HOUR_MS }, HOUR_MS).unwrap();
        assert!(!status(&of_catalog, HOUR_MS + DAYS_14_MS - 1).unwrap().is_due);
        let later = status(&of_catalog, HOUR_MS + DAYS_14_MS).unwrap();
        assert_eq!((later.is_due, later.due_at.as_str()), (is_due, "1970-01-15T01:00:00Z"), "{count} snapshots");
    }
    assert!(status(&history.settings(), DAYS_14_MS).is_none(), "the warehouse is no catalog any more");
}
