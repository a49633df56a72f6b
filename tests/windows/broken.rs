//! Records that the service cannot deliver, or delivers as invalid JSON, block no other record.

use serde_json::json;
use studysync_sandbox::ListName;

use super::{Lab, created_ms, lonely_ms};
use crate::harness::small;

const DAYS: u32 = 12;
const RESPONSES: &str = "/v1/responses";

fn lab() -> Lab {
    Lab::new(small(600, DAYS))
}

/// Returns the number of stored rows, and the number of the service's rows.
fn stored(lab: &Lab) -> (i64, i64) {
    let listed = lab.truth(ListName::Responses).len();
    (lab.count("SELECT count(*) FROM responses WHERE _vanished_at IS NULL"), listed as i64)
}

#[test]
fn p3_one_failing_record_costs_its_second_and_a_bisection() {
    let well = lab().backfill(i64::from(DAYS)).expect(0);
    for fault in ["server_error", "no_page"] {
        let lab = lab();
        let bad_ms = lonely_ms(&lab.truth(ListName::Responses));
        lab.faults(json!({"broken_records": {"created_ms": [bad_ms], "fault": fault, "path": RESPONSES}}));
        let ill = lab.backfill(i64::from(DAYS)).expect(1);
        let (stored_rows, listed) = stored(&lab);
        assert_eq!(stored_rows, listed - 1, "{fault}: only the record itself is missing");
        assert_eq!(ill.report.failures.len(), 1, "{:?}", ill.report.failures);
        let said = ill.report.notes.iter().any(|note| note.contains("are missing"));
        assert!(said, "{:?}", ill.report.notes);
        let failed = ill.log.iter().filter(|entry| entry.fault.as_deref() == Some("broken_records")).count();
        let good = ill.requests(RESPONSES) - failed;
        // Each of about 20 halvings requests the window in two page sizes, twice each, and checks whether the service
        // answers at all.
        assert!(failed <= 20 + 20 * 5, "{fault}: {failed} requests for what never comes");
        let bound = well.requests(RESPONSES) * 12 / 10 + 20 * 4;
        assert!(good <= bound, "{fault}: {good} good requests, {} without the fault", well.requests(RESPONSES));
        // The next run requests only the missing second, and no other part of history.
        let again = lab.backfill(i64::from(DAYS)).expect(1);
        assert!(again.requests(RESPONSES) < 60, "{} requests", again.requests(RESPONSES));
        lab.faults(json!({"broken_records": null}));
        lab.backfill(i64::from(DAYS)).expect(0);
        let (stored_rows, listed) = stored(&lab);
        assert_eq!(stored_rows, listed);
    }
}

#[test]
fn p8_a_service_without_any_readable_record_ends_the_run_soon() {
    let lab = lab();
    let all: Vec<i64> = lab.truth(ListName::Responses).iter().map(created_ms).collect();
    lab.faults(json!({"broken_records": {"created_ms": all, "fault": "no_page", "path": RESPONSES}}));
    let ended = lab.backfill(i64::from(DAYS)).expect(1);
    assert!(ended.requests(RESPONSES) < 1500, "{} requests", ended.requests(RESPONSES));
    assert_eq!(lab.count("SELECT count(*) FROM responses"), 0);
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p1_slow_an_invalid_json_record_blocks_only_itself() {
    let well = lab().backfill(i64::from(DAYS)).expect(0);
    for (fault, word) in [
        ("nan", "NaN"),
        ("raw_newline", "two\nlines"),
        ("control_character", "a \u{7} bell"),
        ("bad_utf8", "caf\\xe9"),
        ("truncated", "createdAt"),
    ] {
        let lab = lab();
        let bad_ms = lonely_ms(&lab.truth(ListName::Responses));
        lab.faults(json!({"broken_records": {"created_ms": [bad_ms], "fault": fault, "path": RESPONSES}}));
        let ended = lab.backfill(i64::from(DAYS)).expect(3);
        let (stored_rows, listed) = stored(&lab);
        assert_eq!(stored_rows, listed - 1, "{fault}");
        let rejects = "SELECT count(*) FROM rejects WHERE reason = 'not_json' AND stream = 'responses'";
        let of = format!("{rejects} AND contains(raw, '{word}') AND contains(raw, 'responseGroupUid')");
        assert_eq!((lab.count(rejects), lab.count(&of)), (1, 1), "{fault}");
        // The page is requested once more, in case it was damaged on the way.
        assert!(ended.requests(RESPONSES) <= well.requests(RESPONSES) + 3, "{fault}");
        // The record is already a known reject, so the run does not report it again.
        lab.control().advance_clock(86_400_000);
        lab.sync().expect(0);
        lab.faults(json!({"broken_records": null}));
        lab.control().advance_clock(86_400_000);
        lab.sync().expect(0);
        let (stored_rows, listed) = stored(&lab);
        assert_eq!(stored_rows, listed, "{fault}: mended");
    }
}

#[test]
fn p4_a_broken_record_does_not_count_as_vanished() {
    let lab = lab();
    lab.backfill(i64::from(DAYS)).expect(0);
    let bad_ms = lonely_ms(&lab.truth(ListName::Responses));
    lab.faults(json!({"broken_records": {"created_ms": [bad_ms], "fault": "nan", "path": RESPONSES}}));
    lab.control().advance_clock(86_400_000);
    let ended = lab.sync().expect(3);
    assert_eq!(
        (ended.count("responses", |counts| counts.vanished), ended.count("responses", |counts| counts.withheld)),
        (0, 1)
    );
    assert_eq!(lab.count("SELECT count(*) FROM responses WHERE _vanished_at IS NOT NULL"), 0);
    lab.faults(json!({"broken_records": null}));
    lab.sync().expect(0);
    let (stored_rows, listed) = stored(&lab);
    assert_eq!(stored_rows, listed);
}

#[test]
fn p3_a_truncated_page_is_requested_again() {
    let lab = lab();
    lab.faults(json!({"cut_body": {"when": {"count": 1, "path": RESPONSES}}}));
    lab.backfill(i64::from(DAYS)).expect(0);
    assert_eq!(lab.count("SELECT count(*) FROM rejects"), 0);
    let (stored_rows, listed) = stored(&lab);
    assert_eq!(stored_rows, listed);
}

#[test]
fn p1_broken_surveys_and_themes_become_rejects() {
    let lab = Lab::new(studysync_sandbox::Settings { theme_share: 1.0, ..small(600, 5) });
    let first_ms = |list| lab.truth(list).iter().map(created_ms).find(|at_ms| at_ms % 1000 > 1).unwrap();
    let (survey_ms, theme_ms) = (first_ms(ListName::Surveys), first_ms(ListName::Themes));
    lab.faults(json!({"broken_records": {"created_ms": [survey_ms], "fault": "truncated", "path": "/v1/surveys"}}));
    lab.backfill(5).expect(3);
    lab.faults(json!({"broken_records": {"created_ms": [theme_ms], "fault": "bad_utf8", "path": "/v1/themes"}}));
    lab.control().advance_clock(86_400_000);
    lab.sync().expect(3);
    let broken =
        |stream: &str| format!("SELECT count(*) FROM rejects WHERE reason = 'not_json' AND stream = '{stream}'");
    assert!(lab.count(&broken("surveys")) == 1 && lab.count(&broken("themes")) >= 1);
}
