//! Cases of failures: scans applied twice, interrupted scans, the wrong warehouse.

use std::sync::Arc;

use arrow::array::RecordBatch;

use super::{
    Lab,
    lab::identity,
    pages::{answer, answers_scan, page, scan, survey_page},
};
use crate::{
    load::{CommitOptions, LedgerEntry, LoadError, Pages, RowCounts, Wanted},
    model::{Flag, FlagSet, FlatPage, Proof, Stream},
};

pub(in crate::load) fn p2_applying_a_scan_again_changes_nothing(lab: &mut Lab) {
    let scan = answers_scan(0, 0, 1);
    let first = lab.apply(&scan, &[page(&[answer("a", 0, "x")])]);
    assert!(lab.warehouse().has_applied(&scan.id).unwrap());
    lab.reopen();
    let before = lab.files();
    // The ledger says that the scan was applied, so its pages are ignored.
    let again = lab.apply(&scan, &[page(&[answer("b", 0, "y")])]);
    assert!(again.already_applied && !again.wrote);
    assert_eq!(again.counts, first.counts);
    assert_eq!(lab.files(), before);
    assert!(!lab.warehouse().has_applied(&answers_scan(9, 0, 1).id).unwrap());
}

pub(in crate::load) fn p2_a_failure_before_commit_leaves_nothing(lab: &mut Lab) {
    let before = lab.files();
    let applied = lab.apply_uncommitted(&answers_scan(0, 0, 1), &[page(&[answer("a", 0, "lost")])]);
    assert!(applied.wrote);
    lab.reopen();
    assert_eq!(lab.files(), before);
    assert!(!lab.warehouse().has_applied(&answers_scan(0, 0, 1).id).unwrap());
    // A scan with unreadable pages rolls back the uncommitted scans before it, and the next commit reports that once.
    lab.apply_uncommitted(&answers_scan(1, 0, 1), &[page(&[answer("a", 0, "lost, too")])]);
    let options = CommitOptions { record_unchanged: true, ..CommitOptions::default() };
    let error = lab.warehouse().apply(&answers_scan(2, 1, 2), &Torn, &options).unwrap_err();
    assert!(matches!(error, LoadError::Pages(_)), "{error:?}");
    assert!(matches!(lab.warehouse().commit(), Err(LoadError::RolledBack)));
    lab.apply(&answers_scan(3, 0, 1), &[page(&[answer("b", 0, "kept")])]);
    assert_eq!(lab.rows("SELECT answer_text FROM responses"), ["kept"]);
    assert_eq!(lab.rows("SELECT scan_id FROM sync_windows"), ["scan-responses-3-0"]);
}

/// Pages of which the second cannot be read.
struct Torn;

impl Pages for Torn {
    fn for_each(
        &self,
        _: Wanted<'_>,
        take: &mut dyn FnMut(&FlatPage) -> Result<(), LoadError>,
    ) -> Result<(), LoadError> {
        take(&page(&[answer("c", 1, "lost")]))?;
        Err(LoadError::Pages("the disk is gone".into()))
    }
}

pub(in crate::load) fn p1_a_page_that_lacks_a_record_is_refused(lab: &mut Lab) {
    let answers = [answer("a", 0, "one"), answer("b", 0, "two")];
    for lacking in [page(&answers[..1]), FlatPage { is_summary: true, ..page(&answers) }, FlatPage::default()] {
        let pages = OtherRows { summary: page(&answers), rows: lacking };
        let applied = lab.warehouse().apply(&answers_scan(0, 0, 1), &pages, &CommitOptions::default());
        assert!(matches!(applied, Err(LoadError::Bug(_))));
    }
    lab.apply(&answers_scan(0, 0, 1), &[page(&answers)]);
    assert_eq!(lab.rows("SELECT answer_text FROM responses ORDER BY 1"), ["one", "two"]);
}

/// A page that has other rows in the second reading.
struct OtherRows {
    summary: FlatPage,
    rows: FlatPage,
}

impl Pages for OtherRows {
    fn for_each(
        &self,
        wanted: Wanted<'_>,
        take: &mut dyn FnMut(&FlatPage) -> Result<(), LoadError>,
    ) -> Result<(), LoadError> {
        take(if matches!(wanted, Wanted::Summaries) { &self.summary } else { &self.rows })
    }
}

pub(in crate::load) fn p2_the_order_of_disjoint_windows_does_not_matter(lab: &mut Lab) {
    let tables = ["responses", "response_choices", "response_history", "sync_windows"];
    let window = |lab: &mut Lab, first: i64| {
        let mut row = answer(&format!("g{first}"), first, "x");
        row.choices = vec!["one".into()];
        lab.apply(&answers_scan(0, first, first + 1), &[page(&[row])]);
    };
    (0..3).for_each(|first| window(lab, first));
    let forwards = lab.contents(&tables);
    assert_eq!(forwards.len(), 9);
    // Backwards over the same warehouse, with the scans of the ledger: nothing changes.
    (0..3).rev().for_each(|first| window(lab, first));
    assert_eq!(lab.contents(&tables), forwards);
}

pub(in crate::load) fn a_window_without_rows_is_in_the_ledger_when_asked_for(lab: &mut Lab) {
    assert!(!lab.apply(&answers_scan(0, 0, 1), &[]).wrote);
    assert_eq!(lab.count("SELECT count(*) FROM sync_windows"), 0);
    lab.record_unchanged = true;
    let applied = lab.apply(&answers_scan(1, 0, 1), &[FlatPage::default()]);
    assert!(applied.wrote);
    assert_eq!(applied.counts, RowCounts::default());
    assert_eq!(lab.rows("SELECT scan_id, rows_read FROM sync_windows"), ["scan-responses-1-0 | 0"]);
}

pub(in crate::load) fn the_ledger_gives_back_the_scans(lab: &mut Lab) {
    let flags = FlagSet::EMPTY.with(Flag::WithMeta).with(Flag::WithDeletedResponses);
    let mut one = scan(Stream::Responses, 1, 0, 2, flags);
    one.scope.survey_id = Some(0);
    let surveys = scan(Stream::Surveys, 2, -5, 50, FlagSet::EMPTY);
    lab.record_unchanged = true;
    lab.apply(&one, &[]);
    lab.apply(&surveys, &[survey_page(&[(1, "NEW", &[])])]);
    lab.reopen();
    let mut ledger = lab.warehouse().ledger().unwrap();
    ledger.sort_by_key(|entry| entry.scan.started_ms);
    let entry = |scan, rows_read| LedgerEntry { scan, rows_read, withheld: 0, proof: Proof::default() };
    assert_eq!(ledger, [entry(one, 0), entry(surveys, 1)]);
}

pub(in crate::load) fn p10_another_environment_is_refused(lab: &mut Lab) {
    lab.apply(&answers_scan(0, 0, 1), &[page(&[answer("a", 0, "x")])]);
    lab.warehouse = None;
    let before = lab.files();
    let error = lab.kind.open(&identity("production")).err().unwrap();
    assert!(matches!(error, LoadError::OtherIdentity { .. }), "{error:?}");
    assert_eq!(lab.files(), before);
}

pub(in crate::load) fn a_batch_that_does_not_fit_is_refused(lab: &mut Lab) {
    let good = page(&[answer("a", 0, "x")]);
    let damage = |change: fn(&RecordBatch) -> RecordBatch| {
        let mut bad = good.clone();
        bad.batches[0].rows = change(&bad.batches[0].rows);
        bad
    };
    let last_missing = damage(|rows| rows.project(&(0..rows.num_columns() - 1).collect::<Vec<_>>()).unwrap());
    let first_twice = damage(|rows| {
        let mut columns = rows.columns().to_vec();
        columns[4] = Arc::clone(&columns[0]);
        let mut fields: Vec<_> = rows.schema().fields().iter().cloned().collect();
        fields[4] = Arc::clone(&fields[0]);
        RecordBatch::try_new(Arc::new(arrow::datatypes::Schema::new(fields)), columns).unwrap()
    });
    let mut no_hashes = good.clone();
    no_hashes.key_hashes.clear();
    for bad in [last_missing, first_twice, no_hashes, survey_page(&[(1, "NEW", &[])])] {
        let (scan, pages) = (answers_scan(0, 0, 1), [bad]);
        let error = lab.warehouse().apply(&scan, &pages.as_slice(), &CommitOptions::default()).unwrap_err();
        assert!(matches!(error, LoadError::Bug(_)), "{error:?}");
    }
    assert!(lab.apply(&answers_scan(0, 0, 1), &[good]).wrote);
}
