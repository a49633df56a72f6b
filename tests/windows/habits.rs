//! Filters that the contract does not describe: the surveys that are listed without a status, the accepted spelling of
//! statuses, and the creation time that the filter of themes uses.

use serde_json::{Value, json};
use studysync_sandbox::{ChangeRequest, ListName, LogEntry, Settings};

use super::Lab;
use crate::harness::small;

const SURVEYS: &str = "/v1/surveys";
const NIGHT_MS: u64 = 86_400_000;

/// A service that by default lists only surveys of some statuses.
fn live_only(spelling: &str, ignores_others: bool) -> Value {
    json!({
        "default_statuses": ["IN_PROGRESS", "PAUSED"], "status_spelling": spelling, "ignore_other_spellings": ignores_others
    })
}

fn asked_statuses(entry: &LogEntry) -> Vec<(String, String)> {
    entry.query.iter().filter(|(name, _)| name.starts_with("status")).cloned().collect()
}

fn by_status(lab: &Lab) -> Vec<(String, i64)> {
    let statuses = ["NEW", "IN_PROGRESS", "PAUSED", "COMPLETED", "DRAFT", "ARCHIVED"];
    let of = |status: &&str| {
        let sql = format!("SELECT count(*) FROM surveys WHERE status = '{status}' AND _vanished_at IS NULL");
        (status.to_string(), lab.count(&sql))
    };
    statuses.iter().map(of).collect()
}

fn truth_by_status(lab: &Lab) -> Vec<(String, i64)> {
    let surveys = lab.truth(ListName::Surveys);
    let of = |(status, _): (String, i64)| {
        let count = surveys.iter().filter(|survey| survey["status"] == status.as_str()).count() as i64;
        (status, count)
    };
    by_status(lab).into_iter().map(of).collect()
}

#[test]
fn p1_all_survey_states_are_requested_in_the_spelling_understood() {
    for (ignores_others, spelling, names, asked) in [
        (false, "comma", vec!["status"], 1),
        (true, "brackets", vec!["status[]"], 6),
        (false, "repeated", vec!["status"], 6),
        (true, "repeated", vec!["status"], 6),
    ] {
        {
            let lab = Lab::new(small(100, 3));
            lab.faults(live_only(spelling, ignores_others));
            lab.sync().expect(0);
            assert_eq!(by_status(&lab), truth_by_status(&lab), "{spelling}");
            // Measured once: later runs use only that form.
            lab.control().advance_clock(NIGHT_MS);
            let night = lab.sync().expect(0);
            let lists: Vec<_> = night.log.iter().filter(|entry| entry.path == SURVEYS).skip(1).collect();
            assert_eq!(lists.len(), 1, "the first is the probe");
            let statuses = asked_statuses(lists[0]);
            assert!(
                statuses.len() == asked && statuses.iter().all(|(name, _)| names.contains(&name.as_str())),
                "{statuses:?}"
            );
        }
    }
}

#[test]
fn p4_an_archived_survey_does_not_count_as_vanished() {
    // So few surveys that none is archived at first: the service does not yet leave any out.
    let lab = Lab::new(Settings { surveys: 3, ..small(60, 3) });
    lab.faults(json!({"default_statuses": ["IN_PROGRESS", "PAUSED", "COMPLETED"]}));
    lab.sync().expect(0);
    let live = lab.count("SELECT count(*) FROM surveys");
    assert_eq!(live, 3);
    let change: ChangeRequest = serde_json::from_value(json!({"status_changes": 1, "status_to": "ARCHIVED"})).unwrap();
    assert_eq!(lab.control().apply_changes(&change).status_changes.len(), 1);
    for _ in 0..2 {
        lab.control().advance_clock(NIGHT_MS);
        lab.sync().expect(0);
        assert_eq!(by_status(&lab), truth_by_status(&lab));
        assert_eq!(lab.count("SELECT count(*) FROM surveys WHERE _vanished_at IS NOT NULL"), 0);
    }
}

#[test]
fn p4_a_service_without_surveys_says_nothing_about_statuses() {
    for statuses in ["", "[streams.surveys]\nstatuses = [\"IN_PROGRESS\", \"PAUSED\", \"COMPLETED\", \"DRAFT\"]\n"] {
        let lab = Lab::new(small(60, 3)).with_config(statuses);
        lab.faults(json!({"has_no_surveys": true}));
        lab.sync().expect(0);
        lab.faults(
            json!({"has_no_surveys": false, "default_statuses": ["IN_PROGRESS", "PAUSED", "COMPLETED", "DRAFT"]}),
        );
        for _ in 0..2 {
            lab.control().advance_clock(NIGHT_MS);
            lab.sync().expect(0);
            let change: ChangeRequest =
                serde_json::from_value(json!({"status_changes": 1, "status_to": "ARCHIVED"})).unwrap();
            assert_eq!(lab.control().apply_changes(&change).status_changes.len(), 1);
        }
        lab.control().advance_clock(NIGHT_MS);
        lab.sync().expect(0);
        assert_eq!(lab.count("SELECT count(*) FROM surveys WHERE _vanished_at IS NOT NULL"), 0);
        if statuses.is_empty() {
            assert_eq!(by_status(&lab), truth_by_status(&lab));
        }
    }
}

#[test]
fn a_service_that_lists_all_states_gets_no_status_filter() {
    let lab = Lab::new(small(100, 3));
    lab.sync().expect(0);
    assert_eq!(by_status(&lab), truth_by_status(&lab));
    lab.control().advance_clock(NIGHT_MS);
    let night = lab.sync().expect(0);
    assert!(night.log.iter().all(|entry| asked_statuses(entry).is_empty()));
    assert_eq!(night.requests(SURVEYS), 2, "the probe and the list");
}

#[test]
fn p4_a_status_filter_leaves_other_surveys_unchanged() {
    let lab = Lab::new(small(100, 3));
    lab.faults(json!({"status_spelling": "repeated"}));
    lab.sync().expect(0);
    let before = by_status(&lab);
    let lab = lab.with_config("[streams.surveys]\nstatuses = [\"draft\", \"ARCHIVED\"]\n");
    lab.control().advance_clock(NIGHT_MS);
    let night = lab.sync().expect(0);
    assert_eq!(by_status(&lab), before, "what is not asked for has not vanished");
    assert_eq!(night.count("surveys", |counts| counts.vanished + counts.withheld), 0);
    let asked: Vec<_> = night.log.iter().flat_map(asked_statuses).map(|(_, status)| status).collect();
    assert_eq!(asked, ["DRAFT", "ARCHIVED"]);
    let fresh = Lab::new(small(100, 3)).with_config("[streams.surveys]\nstatuses = [\"DRAFT\"]\n");
    fresh.sync().expect(0);
    let drafts = truth_by_status(&fresh).into_iter().map(|(status, count)| if status == "DRAFT" { count } else { 0 });
    let stored: Vec<i64> = by_status(&fresh).into_iter().map(|(_, count)| count).collect();
    assert_eq!(stored, drafts.collect::<Vec<_>>());
}

#[test]
fn p4_no_theme_vanishes_by_either_meaning_of_creation_time() {
    for lag_ms in [0, 3_600_000, 3 * 86_400_000 + 5000] {
        let lab = Lab::new(Settings { theme_share: 1.0, ..small(300, 10) });
        lab.faults(json!({"theme_lag_ms": lag_ms}));
        lab.backfill(20).expect(0);
        let listed = lab.truth(ListName::Themes).len() as i64;
        let stored = |lab: &Lab| lab.count("SELECT count(*) FROM themes WHERE _vanished_at IS NULL");
        let first = stored(&lab);
        assert!(first * 10 > listed * 6, "{first} of {listed}: the others come with their answers' time");
        for _ in 0..3 {
            lab.control().advance_clock(NIGHT_MS);
            let night = lab.sync().expect(0);
            assert_eq!(night.count("themes", |counts| counts.vanished + counts.withheld), 0, "{lag_ms}");
        }
        assert_eq!(stored(&lab), listed, "{lag_ms}");
        assert_eq!(lab.count("SELECT count(*) FROM themes WHERE _vanished_at IS NOT NULL"), 0);
    }
}

#[test]
fn p4_a_removed_theme_is_marked_as_vanished() {
    let lab = Lab::new(Settings { theme_share: 1.0, ..small(600, 5) });
    lab.backfill(5).expect(0);
    let theme = lab.truth(ListName::Themes)[5].clone();
    let key = studysync_sandbox::RowKey {
        group: theme["responseGroupUid"].as_str().unwrap().into(),
        question: theme["questionId"].to_string(),
    };
    assert!(lab.control().remove_row(&key) >= 2);
    lab.control().advance_clock(NIGHT_MS);
    let night = lab.sync().expect(0);
    assert!(night.count("themes", |counts| counts.vanished) >= 1);
}
