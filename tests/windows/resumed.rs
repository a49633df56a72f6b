//! A run that resumes the scans of a killed run.

use std::sync::atomic::{AtomicBool, Ordering};

use studysync::model::{DurableStep, Failpoints};

use super::Lab;
use crate::harness::small;

const WITH_URLS: &str = "[streams.responses]\nflags = [\"with_deleted_responses\", \"with_urls\"]\n";

#[test]
fn p3_a_resumed_scan_with_new_flags_is_in_the_ledger() {
    let lab = Lab::new(small(0, 12));
    lab.backfill(12).expect(0);
    let recorded = "SELECT count(DISTINCT flags) FROM sync_windows WHERE stream = 'responses'";
    assert_eq!(lab.count(recorded), 1);
    let mut lab = lab.with_config(WITH_URLS);
    let is_complete = AtomicBool::new(false);
    lab.failpoints = Failpoints::with_hook(move |step| {
        is_complete.fetch_or(step == DurableStep::SpoolCompleted, Ordering::SeqCst);
        is_complete.load(Ordering::SeqCst) && step == DurableStep::DuckDbCommitted
    });
    lab.backfill(12).expect(1);
    assert_eq!(lab.count(recorded), 1);
    lab.failpoints = Failpoints::default();
    lab.backfill(12).expect(0);
    assert_eq!(lab.count(recorded), 2, "no row changed, and the scan proves more than the one before");
}
