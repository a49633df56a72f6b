//! Cases of the comparison without a commit, which `verify` reports.

use super::{
    Lab,
    pages::{answer, answers_scan, page, scan, with_rejects},
};
use crate::{
    load::Differences,
    model::{Flag, FlagSet, FlatPage, Reject, RejectReason, Scan, Stream},
};

/// Compares a scan with the warehouse, and publishes, so that a write would change the files.
fn compare(lab: &mut Lab, scan: &Scan, pages: &[FlatPage]) -> Differences {
    let found = lab.warehouse().compare(scan, &pages, 5).unwrap();
    lab.warehouse().publish().unwrap();
    found
}

fn keys(examples: &[crate::load::Example]) -> Vec<String> {
    examples.iter().map(|example| format!("{} {}", example.key, example.columns.join("+")).trim().to_owned()).collect()
}

pub(in crate::load) fn p1_a_comparison_tells_what_differs_and_changes_nothing(lab: &mut Lab) {
    let rows: Vec<_> = (0..20).map(|at| answer(&format!("g{at:02}"), 0, "as it was")).collect();
    lab.apply(&answers_scan(0, 0, 1), &[page(&rows)]);
    lab.apply(&answers_scan(0, 1, 2), &[page(&[answer("other", 1, "of another window")])]);
    lab.reopen();
    let before = lab.files();

    let same = compare(lab, &answers_scan(1, 0, 1), &[page(&rows[..10]), page(&rows[10..])]);
    assert!(same.is_equal(), "{same:?}");
    assert_eq!((same.rows, same.service_rows), (20, 20));
    // A row of the next window does not count, and a repeated record is one row.
    let edge =
        compare(lab, &answers_scan(1, 0, 1), &[page(&rows), page(&rows[..3]), page(&[answer("new", 1, "edge")])]);
    assert!(edge.is_equal(), "{edge:?}");
    assert_eq!(edge.service_rows, 20);

    let mut there = rows[8..].to_vec();
    there[0].text = "edited".into();
    there[1].os = Some("unasked".into());
    there[2].survey = 8;
    there[2].text = "edited".into();
    there.push(answer("new", 0, "late"));
    let found = compare(lab, &answers_scan(1, 0, 1), &[page(&there)]);
    assert_eq!((found.rows, found.service_rows), (20, 13));
    assert_eq!((found.missing.rows, keys(&found.missing.examples)), (1, vec!["new / 1".to_owned()]));
    assert_eq!(found.extra.rows, 8);
    assert_eq!(keys(&found.extra.examples), ["g00 / 1", "g01 / 1", "g02 / 1", "g03 / 1", "g04 / 1"]);
    // The hash of a test's row covers all of it. So the second row differs only in the hash and in columns that were
    // not asked for.
    assert_eq!(found.stale.rows, 3);
    let hashed = "_row_hash+answer_json+answer_text";
    assert_eq!(
        keys(&found.stale.examples),
        [format!("g08 / 1 {hashed}"), "g09 / 1 _row_hash".to_owned(), format!("g10 / 1 {hashed}+survey_id")]
    );
    assert_eq!(found.columns["answer_text"], 2);
    assert_eq!(found.columns["_row_hash"], 3);
    assert_eq!(lab.files(), before, "a comparison wrote");

    // Vanished here and returned there: missing. Gone on both sides: no difference.
    lab.vanish = crate::load::VanishPolicy::Accept;
    lab.apply(&answers_scan(2, 0, 1), &[page(&rows[1..])]);
    let back = compare(lab, &answers_scan(3, 0, 1), &[page(&rows)]);
    assert_eq!((back.rows, back.missing.rows, back.extra.rows, back.stale.rows), (19, 1, 0, 0));
    assert!(compare(lab, &answers_scan(3, 0, 1), &[page(&rows[1..])]).is_equal());
}

pub(in crate::load) fn p1_a_comparison_sees_children_snapshots_and_rejects(lab: &mut Lab) {
    let flags = FlagSet::EMPTY.with(Flag::WithSnapshots);
    let scan = |hour| scan(Stream::Responses, hour, 0, 1, flags);
    let mut row = answer("a", 0, "x");
    row.choices = vec!["one".into(), "two".into()];
    row.snapshot = Some("pro".into());
    lab.apply(&scan(0), &[page(std::slice::from_ref(&row))]);
    assert!(compare(lab, &scan(1), &[page(std::slice::from_ref(&row))]).is_equal());

    let mut page_with = |change: fn(&mut FlatPage)| {
        let mut changed = page(std::slice::from_ref(&row));
        change(&mut changed);
        compare(lab, &scan(1), &[changed])
    };
    // The row is unchanged; its choices are gone.
    let found = page_with(|page| page.batches.retain(|batch| batch.table != "response_choices"));
    assert_eq!(keys(&found.stale.examples), ["a / 1 response_choices"], "{found:?}");
    let fewer = page_with(|page| {
        let choices = page.batches.iter_mut().find(|batch| batch.table == "response_choices").unwrap();
        choices.rows = choices.rows.slice(0, 1);
    });
    assert_eq!(fewer.stale.rows, 1);
    let found = page_with(|page| {
        *page = with_rejects(
            std::mem::take(page),
            vec![Reject { reason: RejectReason::MissingKey, field: "questionId".into(), raw: "{}".into() }],
        );
    });
    assert_eq!((found.missing.rows, found.stale.rows), (1, 0), "{found:?}");
    row.snapshot = Some("free".into());
    let found = compare(lab, &scan(1), &[page(&[row])]);
    assert!(found.columns.contains_key("visitor_snapshots"), "{found:?}");
}
