//! Spools that are torn at any byte or lost, and a lost archive: the pages are pulled again, and torn pages are never
//! used.

use std::{fs, path::PathBuf};

use studysync_sandbox::{Faults, Latency};

use crate::harness::{
    ALL_FLAGS, NOW_MS, Place, Service, assert_warehouses_equal, copy_folder, days_ago, expected::Expected, small,
};

use super::assert_mended;

const DAYS: u32 = 6;

/// A place whose first backfill stopped in the middle of windows, and a copy of it.
fn cut_short() -> (Service, Place, tempfile::TempDir, Vec<PathBuf>) {
    let settings = small(600, DAYS);
    // Not near a multiple of five minutes, so that the settled range ends at the same time in all runs.
    let service = Service::start(studysync_sandbox::Settings { now_ms: NOW_MS + 120_000, ..settings });
    service.set_faults(Faults { latency: Latency { ms: 2, ..Latency::default() }, ..Faults::default() });
    let place = Place::new(&service).with_config(&format!("{ALL_FLAGS}page_rows = 20\n"));
    let from = days_ago(i64::from(DAYS));
    place
        .run(&["backfill", "--from", &from, "--stream", "responses", "--max-requests", "9", "--concurrency", "1"])
        .expect(6);
    let spools = place.files("archive/under-way");
    assert!(!spools.is_empty(), "no scan was cut short");
    let copy = tempfile::tempdir().unwrap();
    copy_folder(place.root(), copy.path());
    (service, place, copy, spools)
}

fn go_on(place: &Place, when: &str) {
    let done = place.run(&["backfill", "--from", &days_ago(i64::from(DAYS))]);
    assert_eq!(done.code, 0, "{when}: {}", done.stderr);
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p2_slow_a_spool_torn_at_any_byte_is_resumed() {
    let (service, place, copy, spools) = cut_short();
    let expected = Expected::now(&service);
    let whole = fs::read(&spools[0]).unwrap();
    let step = (whole.len() / 24).max(1);
    let mut cuts: Vec<usize> = (0..whole.len()).step_by(step).collect();
    cuts.extend([8, 19, 20, 21, whole.len() - 1]);
    for cut in cuts {
        place.restore(copy.path());
        fs::write(&spools[0], &whole[..cut]).unwrap();
        go_on(&place, &format!("cut at byte {cut}"));
        assert_warehouses_equal(&place, &expected, &format!("cut at byte {cut} of {}", whole.len()));
    }
    for at in (0..whole.len()).step_by(step * 2) {
        place.restore(copy.path());
        let mut damaged = whole.clone();
        damaged[at] ^= 0x15;
        fs::write(&spools[0], damaged).unwrap();
        go_on(&place, &format!("byte {at} flipped"));
        assert_warehouses_equal(&place, &expected, &format!("byte {at} of {} flipped", whole.len()));
    }
}

#[test]
fn p2_lost_spools_and_archives_are_pulled_again() {
    let (service, place, copy, spools) = cut_short();
    let expected = Expected::now(&service);
    for spool in &spools {
        fs::remove_file(spool).unwrap();
    }
    go_on(&place, "without its spools");
    assert_warehouses_equal(&place, &expected, "without its spools");
    place.restore(copy.path());
    fs::remove_dir_all(place.path("archive")).unwrap();
    go_on(&place, "without its archive");
    assert_warehouses_equal(&place, &expected, "without its archive");
    // The folder of the archive is lost between two nights.
    fs::remove_dir_all(place.path("archive")).unwrap();
    service.advance_days(1);
    assert_mended(&service, &place, "a night after the archive went");
    assert!(!place.files("archive").is_empty(), "nothing is archived any more");
}
