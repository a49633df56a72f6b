//! How reports of webhooks and scans change the stored changes of a survey.

use super::*;

const DAY_US: i64 = DAY_MS * 1000;

/// A change, written as `DRAFT>LIVE`; an empty side means no status.
fn change(at_us: i64, from_to: &str, seen_by: &str) -> StatusChange {
    let (old, new) = from_to.split_once('>').unwrap();
    let status = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    StatusChange { at_us, old: status(old), new: status(new), seen_by: seen_by.into() }
}

fn report(at_us: i64, from_to: &str) -> StatusReport {
    let (old, new) = from_to.split_once('>').unwrap();
    StatusReport { survey_id: 1, at_us, received_us: at_us, old: old.into(), new: new.into() }
}

/// The changes that the reports replace and add.
fn after_reports(known: &[StatusChange], reports: &[StatusReport]) -> (Vec<StatusChange>, Vec<StatusChange>) {
    let mut survey = SurveyChanges { changes: known.to_vec(), ..SurveyChanges::default() };
    reports.iter().for_each(|report| survey.add_report(report));
    (survey.replaced, survey.added)
}

#[test]
fn a_report_that_follows_the_last_change_is_a_change() {
    let known = [change(10, ">DRAFT", "scan")];
    let (gone, added) = after_reports(&known, &[report(20, "DRAFT>LIVE"), report(30, "LIVE>PAUSED")]);
    assert!(gone.is_empty());
    assert_eq!(added, [change(20, "DRAFT>LIVE", "webhook"), change(30, "LIVE>PAUSED", "webhook")]);
}

#[test]
fn a_report_that_proves_nothing_changes_nothing() {
    let known = [change(10, ">DRAFT", "scan"), change(20, "DRAFT>LIVE", "scan")];
    for (report, why) in [
        (report(30, "PAUSED>DONE"), "an earlier change is missing"),
        (report(20, "LIVE>PAUSED"), "it is not later than the last change"),
        (report(5, "LIVE>PAUSED"), "it is late"),
        (report(20 + 7 * DAY_US + 1, "DRAFT>LIVE"), "a scan saw the same more than seven days before"),
    ] {
        assert_eq!(after_reports(&known, std::slice::from_ref(&report)), (vec![], vec![]), "{why}");
    }
    assert_eq!(after_reports(&[], &[report(30, "DRAFT>LIVE")]), (vec![], vec![]), "no scan has seen the survey");
    let vanished = [change(10, ">DRAFT", "scan"), change(20, "DRAFT>", "scan")];
    assert_eq!(after_reports(&vanished, &[report(30, "DRAFT>LIVE")]), (vec![], vec![]));
}

#[test]
fn a_report_confirms_a_scanned_change_at_the_earlier_time() {
    let known = [change(10, ">DRAFT", "scan"), change(20, "DRAFT>LIVE", "scan")];
    for (at_us, confirmed_us) in [(15, 15), (25, 20), (20 + 7 * DAY_US, 20), (20 - 7 * DAY_US, 20 - 7 * DAY_US)] {
        let (gone, added) = after_reports(&known, &[report(at_us, "DRAFT>LIVE")]);
        assert_eq!(gone, [known[1].clone()], "{at_us}");
        assert_eq!(added, [change(confirmed_us, "DRAFT>LIVE", "both")], "{at_us}");
    }
}

#[test]
fn a_change_is_confirmed_once() {
    for seen_by in ["webhook", "both"] {
        let known = [change(10, ">DRAFT", "scan"), change(20, "DRAFT>LIVE", seen_by)];
        assert_eq!(after_reports(&known, &[report(15, "DRAFT>LIVE")]), (vec![], vec![]), "{seen_by}");
    }
    let known = [change(10, ">DRAFT", "scan"), change(20, "DRAFT>LIVE", "scan")];
    let twice = [report(15, "DRAFT>LIVE"), report(16, "DRAFT>LIVE")];
    assert_eq!(after_reports(&known, &twice), after_reports(&known, &twice[..1]));
}

#[test]
fn of_equal_changes_the_last_is_confirmed() {
    let known = [
        change(10, ">DRAFT", "scan"),
        change(20, "DRAFT>LIVE", "scan"),
        change(30, "LIVE>DRAFT", "scan"),
        change(40, "DRAFT>LIVE", "scan"),
    ];
    let (gone, added) = after_reports(&known, &[report(35, "DRAFT>LIVE")]);
    assert_eq!((gone, added), (vec![known[3].clone()], vec![change(35, "DRAFT>LIVE", "both")]));
}

#[test]
fn a_scan_confirms_or_follows_what_a_webhook_alone_reported() {
    let scanned = |before: &str, after: &str| {
        let status = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        ScannedStatus { survey_id: 1, before: status(before), after: status(after) }
    };
    let reported = [change(10, ">DRAFT", "scan"), change(20, "DRAFT>LIVE", "webhook")];
    let confirmed = (vec![reported[1].clone()], vec![change(20, "DRAFT>LIVE", "both")]);
    let added = |from_to: &str| (vec![], vec![change(30, from_to, "scan")]);
    for (known, status, expected) in [
        (&reported[..], scanned("DRAFT", "LIVE"), confirmed),
        (&reported[..], scanned("DRAFT", "PAUSED"), added("LIVE>PAUSED")),
        (&reported[..], scanned("DRAFT", ""), added("LIVE>")),
        (&reported[..1], scanned("DRAFT", "LIVE"), added("DRAFT>LIVE")),
        (&[], scanned("", "DRAFT"), added(">DRAFT")),
        (&reported[..1], scanned("DRAFT", "DRAFT"), (vec![], vec![])),
    ] {
        let mut survey = SurveyChanges { changes: known.to_vec(), ..SurveyChanges::default() };
        survey.add_scanned(&status, 30);
        assert_eq!((survey.replaced, survey.added), expected, "{status:?}");
    }
    // A report after the start of the scan is neither confirmed nor the status before.
    let late = [change(40, "DRAFT>LIVE", "webhook")];
    let mut survey = SurveyChanges { changes: late.to_vec(), ..SurveyChanges::default() };
    survey.add_scanned(&scanned("DRAFT", "LIVE"), 30);
    assert_eq!((survey.replaced, survey.added), (vec![], vec![change(30, "DRAFT>LIVE", "scan")]));
}
