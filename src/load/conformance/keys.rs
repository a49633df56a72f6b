//! Cases of records with one key in several windows: one is current, the others are in the history.

use std::collections::BTreeMap;

use rand::{RngExt, SeedableRng, rngs::StdRng, seq::SliceRandom as _};

use super::{
    Lab,
    pages::{Answer, answer, answers_scan, day, page},
};
use crate::load::{RowCounts, VanishPolicy};

const ROWS: &str = "SELECT response_group_uid, answer_text, label, _vanished_at IS NULL, epoch_ms(_first_seen_at) = epoch_ms((SELECT min(_first_seen_at) FROM responses))
    FROM responses LEFT JOIN response_choices USING (response_group_uid, question_id, created_at) ORDER BY ALL";
const LOSERS: &str = "SELECT response_group_uid, answer_text, reason, valid_to > valid_from, day(collided_with)
    FROM response_history ORDER BY ALL";

/// A record of key `a` on a day, updated on another day.
fn record(on_day: i64, updated: Option<i64>, text: &str) -> Answer {
    let mut record = answer("a", on_day, text);
    record.updated_ms = updated.map(day);
    record.choices = vec![text.to_owned()];
    record
}

pub(in crate::load) fn p2_a_key_in_two_windows_is_one_row_whatever_the_order(lab: &mut Lab) {
    // The older one comes last, in a commit of its own: it is never current.
    lab.apply(&answers_scan(0, 1, 2), &[page(&[record(1, None, "newer")])]);
    let applied = lab.apply_and_report(&answers_scan(1, 0, 1), &[page(&[record(0, None, "older")])]);
    assert_eq!(applied, RowCounts { rows_read: 1, unchanged: 1, collisions: 1, ..RowCounts::default() });
    assert_eq!(lab.rows(ROWS), ["a | newer | newer | true | true"]);
    assert_eq!(lab.rows(LOSERS), ["a | older | collision | false | 2"]);
    let ledger = "SELECT inserted, updated, unchanged, collisions FROM sync_windows ORDER BY window_start";
    assert_eq!(lab.rows(ledger), ["0 | 0 | 1 | 1", "1 | 0 | 0 | 0"]);
    // A third window has one that was updated later, and takes its place.
    let applied = lab.apply_and_report(&answers_scan(2, -3, -2), &[page(&[record(-3, Some(9), "newest")])]);
    assert_eq!(applied, RowCounts { rows_read: 1, updated: 1, collisions: 1, ..RowCounts::default() });
    assert_eq!(lab.rows(ROWS), ["a | newest | newest | true | true"]);
    assert_eq!(lab.rows(LOSERS), ["a | newer | collision | true | 26", "a | older | collision | false | 2"]);
    // A re-scan of each window finds nothing new. The first one notes which record won.
    for hour in 3..5 {
        for (first, text) in [(0, "older"), (1, "newer")] {
            let applied = lab.apply(&answers_scan(hour, first, first + 1), &[page(&[record(first, None, text)])]);
            assert_eq!(applied.counts.collisions, 0, "{text}");
            assert!(hour == 3 || !applied.wrote, "{text}: {applied:?}");
        }
    }
    assert_eq!(lab.rows(LOSERS), ["a | newer | collision | true | 26", "a | older | collision | false | 26"]);
    assert_eq!(lab.rows(ROWS), ["a | newest | newest | true | true"]);
}

pub(in crate::load) fn p2_scans_of_one_commit_leave_one_row_of_a_key(lab: &mut Lab) {
    lab.apply_uncommitted(&answers_scan(0, 0, 1), &[page(&[record(0, None, "older")])]);
    lab.apply_uncommitted(&answers_scan(1, 1, 2), &[page(&[record(1, None, "newer")])]);
    lab.apply(&answers_scan(2, -2, -1), &[page(&[record(-2, None, "oldest")])]);
    assert_eq!(lab.rows(ROWS), ["a | newer | newer | true | true"]);
    assert_eq!(lab.rows(LOSERS), ["a | older | collision | true | 2", "a | oldest | collision | false | 2"]);
    let ledger = "SELECT inserted, updated, unchanged, collisions FROM sync_windows ORDER BY window_start";
    assert_eq!(lab.rows(ledger), ["0 | 0 | 1 | 1", "1 | 0 | 0 | 0", "0 | 1 | 0 | 1"]);
}

pub(in crate::load) fn p4_a_loser_is_current_once_the_winner_has_vanished(lab: &mut Lab) {
    lab.vanish = VanishPolicy::Accept;
    lab.apply(&answers_scan(0, 0, 1), &[page(&[record(0, None, "older")])]);
    lab.apply(&answers_scan(1, 1, 2), &[page(&[record(1, None, "newer")])]);
    lab.apply(&answers_scan(2, 1, 2), &[]);
    let applied = lab.apply_and_report(&answers_scan(3, 0, 1), &[page(&[record(0, None, "older")])]);
    assert_eq!(applied, RowCounts { rows_read: 1, updated: 1, ..RowCounts::default() });
    assert_eq!(lab.rows(ROWS), ["a | older | older | true | true"]);
    assert_eq!(lab.rows(LOSERS), ["a | newer | vanished | true | NULL", "a | older | collision | true | 2"]);
    // The winner comes back, and wins again.
    let applied = lab.apply_and_report(&answers_scan(4, 1, 2), &[page(&[record(1, None, "newer")])]);
    assert_eq!(applied, RowCounts { rows_read: 1, updated: 1, ..RowCounts::default() });
    assert_eq!(lab.rows(ROWS), ["a | newer | newer | true | true"]);
}

pub(in crate::load) fn p1_an_edit_of_a_loser_is_kept(lab: &mut Lab) {
    lab.apply(&answers_scan(0, 1, 2), &[page(&[record(1, None, "newer")])]);
    lab.apply(&answers_scan(1, 0, 1), &[page(&[record(0, None, "older")])]);
    let applied = lab.apply(&answers_scan(2, 0, 1), &[page(&[record(0, None, "edited")])]);
    assert_eq!(applied.counts, RowCounts { rows_read: 1, unchanged: 1, collisions: 1, ..RowCounts::default() });
    assert_eq!(lab.rows(LOSERS), ["a | edited | collision | false | 2", "a | older | collision | false | 2"]);
    let applied = lab.apply_and_report(&answers_scan(3, 0, 1), &[page(&[record(0, Some(5), "edited again")])]);
    assert_eq!(applied, RowCounts { rows_read: 1, updated: 1, collisions: 1, ..RowCounts::default() });
    assert_eq!(lab.rows(ROWS), ["a | edited again | edited again | true | true"]);
}

pub(in crate::load) fn p2_equal_times_are_decided_whatever_the_order_and_the_flags(lab: &mut Lab) {
    let (one, mut other) = (record(0, None, "one"), record(0, None, "other"));
    other.os = Some("Plan 9".into());
    lab.apply(&answers_scan(0, 0, 1), &[page(&[one.clone(), other.clone()])]);
    let current = lab.rows(ROWS);
    for (hour, records) in [(1, [other.clone(), one.clone()]), (2, [one, other])] {
        let applied = lab.apply(&answers_scan(hour, 0, 1), &[page(&records)]);
        assert!(!applied.wrote, "{applied:?}");
    }
    assert_eq!(lab.rows(ROWS), current);
}

/// The records of a service, by key and day.
type Records = BTreeMap<(String, i64), Answer>;

/// Changes `count` records at random, each of one of the first `keys` keys and `days` days.
fn change_service(service: &mut Records, random: &mut StdRng, count: usize, keys: i64, days: i64) {
    for _ in 0..count {
        let place = (format!("g{}", random.random_range(0..keys)), random.random_range(0..days));
        let mut new = answer(&place.0, place.1, &format!("text {}", random.random_range(0..1_000_000)));
        new.updated_ms = random.random_bool(0.5).then(|| day(random.random_range(0..4)));
        match random.random_range(0..4) {
            0 => drop(service.remove(&place)),
            _ => drop(service.insert(place, new)),
        }
    }
}

/// Records of few keys at many times, which come and go; random scans, of which some are committed together.
pub(in crate::load) fn p2_p4_random_keys_have_one_row_each(lab: &mut Lab) {
    const DAYS: i64 = 5;
    lab.vanish = VanishPolicy::Accept;
    let mut random = StdRng::seed_from_u64(20_261_127);
    let mut service = Records::new();
    let mut hour = 0;
    for night in 0..8 {
        change_service(&mut service, &mut random, 12, 5, DAYS);
        // The second round finds the records whose winner vanished in the first.
        for _ in 0..2 {
            let mut windows: Vec<i64> = (0..DAYS).collect();
            windows.shuffle(&mut random);
            for first in windows {
                let mut records: Vec<Answer> =
                    service.values().filter(|record| record.at_ms == answer("", first, "").at_ms).cloned().collect();
                records.shuffle(&mut random);
                hour += 1;
                let scan = answers_scan(hour, first, first + 1);
                match random.random_bool(0.5) {
                    true => drop(lab.apply_uncommitted(&scan, &[page(&records)])),
                    false => drop(lab.apply(&scan, &[page(&records)])),
                }
            }
            hour += 1;
            lab.apply(&answers_scan(hour, DAYS, DAYS + 1), &[]);
            assert_eq!(
                lab.count("SELECT count(*) - count(DISTINCT response_group_uid) FROM responses"),
                0,
                "night {night}"
            );
        }
        let mut current: BTreeMap<&str, &Answer> = BTreeMap::new();
        for record in service.values() {
            let newest = current.entry(&record.group).or_insert(record);
            if (record.updated_ms, record.at_ms) > (newest.updated_ms, newest.at_ms) {
                *newest = record;
            }
        }
        let found =
            lab.rows("SELECT response_group_uid, answer_text FROM responses WHERE _vanished_at IS NULL ORDER BY ALL");
        let expected: Vec<String> =
            current.values().map(|record| format!("{} | {}", record.group, record.text)).collect();
        assert_eq!(found, expected, "night {night}");
        let losers = lab
            .rows("SELECT DISTINCT response_group_uid, answer_text FROM response_history WHERE reason = 'collision'");
        for record in service.values().filter(|record| current[record.group.as_str()].at_ms != record.at_ms) {
            assert!(losers.contains(&format!("{} | {}", record.group, record.text)), "night {night}: {record:?}");
        }
        let quiet =
            lab.apply(&answers_scan(hour + 1, 0, DAYS), &[page(&service.values().cloned().collect::<Vec<_>>())]);
        assert_eq!((quiet.counts.inserted, quiet.counts.updated), (0, 0), "night {night}: {quiet:?}");
        hour += 1;
    }
}

/// Applies the same random scans to two warehouses. `together` commits some of them together, `alone` commits each.
/// The scans return records of neighbouring days too.
pub(in crate::load) fn p2_random_keys_do_not_depend_on_commits(seed: u64, together: &mut Lab, alone: &mut Lab) {
    const DAYS: i64 = 4;
    const TABLES: [&str; 4] = ["responses", "response_choices", "response_history", "rejects"];
    const COUNTS: &str = "SELECT scan_id, inserted, updated, unchanged, vanished, collisions, filled_in
        FROM sync_windows ORDER BY ALL";
    [&mut *together, &mut *alone].into_iter().for_each(|lab| lab.vanish = VanishPolicy::Accept);
    let mut random = StdRng::seed_from_u64(seed);
    let mut service = Records::new();
    for hour in 0..30 {
        change_service(&mut service, &mut random, 3, 3, DAYS);
        let first = random.random_range(0..DAYS);
        let end = (first + random.random_range(1..3)).min(DAYS);
        let mut returned = |record: &&Answer| (day(first)..day(end)).contains(&record.at_ms) || random.random_bool(0.2);
        let records: Vec<Answer> = service.values().filter(&mut returned).cloned().collect();
        let scan = answers_scan(hour, first, end);
        alone.apply(&scan, &[page(&records)]);
        match random.random_bool(0.8) {
            true => drop(together.apply_uncommitted(&scan, &[page(&records)])),
            false => drop(together.apply(&scan, &[page(&records)])),
        }
    }
    [&mut *together, &mut *alone].into_iter().for_each(|lab| {
        lab.apply(&answers_scan(30, DAYS, DAYS + 1), &[]);
    });
    for table in TABLES {
        let all = format!("SELECT * FROM {table} ORDER BY ALL");
        assert_eq!(together.rows(&all), alone.rows(&all), "seed {seed}: {table}");
    }
    assert_eq!(together.rows(COUNTS), alone.rows(COUNTS), "seed {seed}");
}
