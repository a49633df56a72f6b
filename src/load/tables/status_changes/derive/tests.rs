//! How scans and reports of webhooks become the changes of a survey.

use proptest::prelude::*;

use super::*;

const DAY_US: i64 = DAY_MS * 1000;

/// A change, written as `DRAFT>LIVE`; an empty side means no status.
fn change(at_us: i64, from_to: &str, seen_by: &str, scanned_us: impl Into<Option<i64>>) -> StatusChange {
    let (old, new) = from_to.split_once('>').unwrap();
    let status = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    StatusChange { at_us, old: status(old), new: status(new), seen_by: seen_by.into(), scanned_us: scanned_us.into() }
}

fn report(at_us: i64, from_to: &str) -> StatusReport {
    let (old, new) = from_to.split_once('>').unwrap();
    let (old, new) = (old.into(), new.into());
    StatusReport { survey_id: 1, at_us, received_us: at_us, old, new, run_id: "r".into(), applied_ms: 0 }
}

/// Scans that saw these statuses; an empty text means that the survey had vanished.
fn scans(seen: &[(i64, &str)]) -> BTreeMap<i64, Observation> {
    let status = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    seen.iter().map(|(at_us, text)| (*at_us, Observation { status: status(text), ..Default::default() })).collect()
}

fn derived(seen: &[(i64, &str)], reports: &[StatusReport]) -> Vec<StatusChange> {
    derive(&scans(seen), &reports.iter().collect::<Vec<_>>())
}

#[test]
fn scans_alone_date_changes_by_their_start() {
    let seen = [(10, "DRAFT"), (20, "DRAFT"), (30, "PAUSED"), (40, ""), (50, ""), (60, "PAUSED")];
    let expected = [
        change(10, ">DRAFT", SCAN, 10),
        change(30, "DRAFT>PAUSED", SCAN, 30),
        change(40, "PAUSED>", SCAN, 40),
        change(60, ">PAUSED", SCAN, 60),
    ];
    assert_eq!(derived(&seen, &[]), expected);
}

#[test]
fn a_report_that_follows_counts_until_a_scan_contradicts() {
    let reports = [report(20, "DRAFT>LIVE"), report(30, "LIVE>PAUSED")];
    let first = [
        change(10, ">DRAFT", SCAN, 10),
        change(20, "DRAFT>LIVE", WEBHOOK, None),
        change(30, "LIVE>PAUSED", WEBHOOK, None),
    ];
    assert_eq!(derived(&[(10, "DRAFT")], &reports), first);
    let confirmed = change(30, "LIVE>PAUSED", BOTH, 40);
    assert_eq!(derived(&[(10, "DRAFT"), (40, "PAUSED")], &reports)[2..], [confirmed]);
    // The webhook about the way back was lost.
    let contradicted = [first[2].clone(), change(40, "PAUSED>LIVE", SCAN, 40)];
    assert_eq!(derived(&[(10, "DRAFT"), (40, "LIVE"), (50, "LIVE")], &reports)[2..], contradicted);
}

#[test]
fn a_report_that_proves_nothing_changes_nothing() {
    let seen = [(10, "DRAFT"), (20, "LIVE")];
    let alone = derived(&seen, &[]);
    for (report, why) in [
        (report(30, "PAUSED>DONE"), "an earlier change is missing"),
        (report(5, "LIVE>PAUSED"), "no scan has seen the survey"),
        (report(15, "LIVE>PAUSED"), "it is late"),
        (report(20 + 7 * DAY_US + 1, "DRAFT>LIVE"), "a scan saw the same more than seven days before"),
    ] {
        assert_eq!(derived(&seen, std::slice::from_ref(&report)), alone, "{why}");
    }
    assert_eq!(derived(&[], &[report(30, "DRAFT>LIVE")]), [], "no scan has seen the survey");
    let vanished = [(10, "DRAFT"), (20, "")];
    assert_eq!(derived(&vanished, &[report(30, "DRAFT>LIVE")]), derived(&vanished, &[]));
}

#[test]
fn a_change_that_both_saw_is_one_at_the_earlier_time() {
    let seen = [(10, "DRAFT"), (20, "LIVE")];
    for (at_us, changed_us) in [(15, 15), (20, 20), (25, 20), (20 + 7 * DAY_US, 20)] {
        let found = derived(&seen, &[report(at_us, "DRAFT>LIVE")]);
        assert_eq!(found[1..], [change(changed_us, "DRAFT>LIVE", BOTH, 20)], "{at_us}");
    }
    let twice = [report(15, "DRAFT>LIVE"), report(16, "DRAFT>LIVE"), report(30, "DRAFT>LIVE")];
    assert_eq!(derived(&seen, &twice), derived(&seen, &twice[..1]));
}

#[test]
fn reports_of_one_moment_follow_each_other() {
    let there = [report(20, "DRAFT>LIVE"), report(20, "LIVE>DRAFT"), report(20, "DRAFT>DONE")];
    let expected = [
        change(10, ">DRAFT", SCAN, 10),
        change(20, "DRAFT>LIVE", WEBHOOK, None),
        change(21, "LIVE>DRAFT", WEBHOOK, None),
        change(22, "DRAFT>DONE", WEBHOOK, None),
    ];
    assert_eq!(derived(&[(10, "DRAFT")], &there), expected);
}

#[test]
fn a_late_report_is_put_before_a_newer_scan() {
    let late = [report(25, "LIVE>PAUSED")];
    let expected = [change(25, "LIVE>PAUSED", WEBHOOK, None), change(30, "PAUSED>LIVE", SCAN, 30)];
    assert_eq!(derived(&[(10, "DRAFT"), (20, "LIVE"), (30, "LIVE")], &late)[2..], expected);
}

#[test]
fn the_service_dates_changes_between_two_scans() {
    let seen = |status: &str, launched_us: Option<i64>, completed_us: Option<i64>| Observation {
        status: Some(status.to_owned()),
        launched_us,
        completed_us,
    };
    let between = |first: Observation, last: Observation, reports: &[StatusReport]| {
        derive(&BTreeMap::from([(10, first), (30, last)]), &reports.iter().collect::<Vec<_>>())
    };
    let draft = || seen("DRAFT", None, None);
    let live = |launched_us| seen("IN_PROGRESS", Some(launched_us), None);
    // The first status begins when the service says, and other statuses with the scan.
    for (first, at_us) in [
        (live(-5), -5),
        (live(11), 10),
        (seen("COMPLETED", Some(-5), Some(7)), 7),
        (seen("PAUSED", Some(-5), None), 10),
        (draft(), 10),
    ] {
        assert_eq!(between(first.clone(), first.clone(), &[])[0].at_us, at_us, "{first:?}");
    }
    // Between two scans.
    for (launched_us, at_us) in [(20, 20), (30, 30), (10, 30), (31, 30)] {
        let expected = change(at_us, "DRAFT>IN_PROGRESS", SCAN, 30);
        assert_eq!(between(draft(), live(launched_us), &[])[1..], [expected], "{launched_us}");
    }
    let expected = change(20, "DRAFT>PAUSED", SCAN, 30);
    assert_eq!(between(draft(), seen("PAUSED", Some(20), None), &[])[1..], [expected]);
    let both = [change(15, "DRAFT>IN_PROGRESS", SCAN, 30), change(20, "IN_PROGRESS>COMPLETED", SCAN, 30)];
    assert_eq!(between(draft(), seen("COMPLETED", Some(15), Some(20)), &[])[1..], both);
    let resumed = between(seen("PAUSED", Some(-5), None), live(-5), &[]);
    assert_eq!(resumed[1..], [change(30, "PAUSED>IN_PROGRESS", SCAN, 30)], "it was launched long before");
    // The service's time is exact, that of a webhook is its receipt.
    let told = between(live(-5), seen("COMPLETED", Some(-5), Some(20)), &[report(25, "IN_PROGRESS>COMPLETED")]);
    assert_eq!(told[1..], [change(20, "IN_PROGRESS>COMPLETED", BOTH, 30)]);
}

const STATUSES: [&str; 4] = ["DRAFT", "LIVE", "PAUSED", "DONE"];

/// A change at the service, and what becomes of its webhook: lost, delivered, or delivered again after some time.
#[derive(Clone, Debug)]
struct Change {
    at_us: i64,
    status: usize,
    is_lost: bool,
    again_after_us: Option<i64>,
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let change = (0..1300_i64, 0..STATUSES.len(), prop::bool::weighted(0.3), prop::option::weighted(0.2, 0..400_i64));
    prop::collection::vec(change, 0..12).prop_map(|changes| {
        let mut changes: Vec<Change> = changes
            .into_iter()
            // Scans run at multiples of 100.
            .map(|(at, status, is_lost, again)| Change { at_us: 2 * at + 1, status, is_lost, again_after_us: again })
            .collect();
        changes.sort_by_key(|change| change.at_us);
        changes.dedup_by_key(|change| change.at_us);
        changes
    })
}

fn status_at(changes: &[StatusChange], at_us: i64) -> Option<&str> {
    changes.iter().rfind(|change| change.at_us <= at_us)?.new.as_deref()
}

proptest! {
    #[test]
    fn a_scan_is_always_right(changes in changes(), nights in prop::collection::btree_set(0..26_i64, 1..14)) {
        let truth = |at_us: i64| {
            changes.iter().rfind(|change| change.at_us <= at_us).map_or(STATUSES[0], |change| STATUSES[change.status])
        };
        let seen: Vec<(i64, &str)> = nights.iter().map(|night| (night * 100, truth(night * 100))).collect();
        let mut reports = Vec::new();
        for change in &changes {
            let told = report(change.at_us, &format!("{}>{}", truth(change.at_us - 1), STATUSES[change.status]));
            let again = change.again_after_us.map(|after| StatusReport { at_us: change.at_us + after, ..told.clone() });
            reports.extend((!change.is_lost).then_some(told));
            reports.extend(again);
        }
        reports.retain(|report| report.old != report.new);
        let found = derived(&seen, &reports);
        for (at_us, status) in &seen {
            prop_assert_eq!(status_at(&found, *at_us), Some(*status), "scan at {}: {:?}", at_us, found);
        }
        for pair in found.windows(2) {
            prop_assert!(pair[0].new == pair[1].old && pair[0].at_us < pair[1].at_us, "{:?}", found);
        }
        prop_assert!(found.iter().all(|change| change.old != change.new), "{:?}", found);
        // With every webhook on time, the changes are the truth.
        if changes.iter().all(|change| !change.is_lost && change.again_after_us.is_none()) {
            let first = seen[0].0;
            for at_us in first..2700 {
                prop_assert_eq!(status_at(&found, at_us), Some(truth(at_us)), "{}", at_us);
            }
        }
        // The result does not depend on the order of delivery.
        reports.reverse();
        prop_assert_eq!(derived(&seen, &reports), found);
    }
}
