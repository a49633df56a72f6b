//! Compares the classification with a plain model: nested loops over lists, one rule at a time.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn record() -> impl Strategy<Value = Record> {
    (0..6_u128, 0..3_i64, 0..10_i64, prop_oneof![Just(i64::MIN), 0..3_i64], 0..2_i64).prop_map(
        |(key, content, created_us, updated_us, answer)| Record { key, content, created_us, updated_us, answer },
    )
}

fn stored_row() -> impl Strategy<Value = StoredRow> {
    let flags = prop_oneof![4 => Just(1_i64), 1 => Just(3_i64)];
    let content = prop_oneof![8 => (0..3_i64).prop_map(Some), 1 => Just(None)];
    (0..6_u128, content, 0..10_i64, flags, 7..9_i64, prop::bool::weighted(0.2), prop::option::weighted(0.3, 0..3_i64))
        .prop_map(|(key, content, created_us, flags, survey, is_deleted, vanished_us)| StoredRow {
            key,
            content,
            created_us,
            flags,
            survey_id: Some(survey),
            is_deleted,
            vanished_us,
        })
}

fn classify_options() -> impl Strategy<Value = ClassifyOptions> {
    let vanish = prop_oneof![
        3 => (0.0..1.0_f64, 0..4_u64).prop_map(|(share_max, rows_max)| VanishPolicy::Guarded { share_max, rows_max }),
        2 => Just(VanishPolicy::Accept),
        1 => Just(VanishPolicy::Ignore)
    ];
    let window = prop::option::weighted(0.8, (0..5_i64, 5..10_i64));
    let flags = prop::option::weighted(0.7, 1..3_i64);
    let discarded = prop::collection::hash_set(0..6_u128, 0..3);
    let survey = prop::option::weighted(0.2, 7..9_i64);
    (window, survey, flags, any::<bool>(), discarded, vanish, any::<bool>(), prop::bool::weighted(0.1)).prop_map(
        |(window, survey_id, flags, includes_deleted, discarded, vanish, is_empty_answer, has_broken_records)| {
            ClassifyOptions {
                window: window.map(|(start_us, end_us)| TimeRange { start_us, end_us }),
                survey_id,
                flags,
                includes_deleted,
                discarded: discarded.into_iter().collect(),
                vanish,
                is_empty_answer,
                has_broken_records,
            }
        },
    )
}

/// True if `one` is current and not `other`: by update time, creation time, and hashes; then the later in the list.
fn is_newer((one_at, one): (usize, &Record), (other_at, other): (usize, &Record)) -> bool {
    one.updated_us
        .cmp(&other.updated_us)
        .then(one.created_us.cmp(&other.created_us))
        .then(one.answer.cmp(&other.answer))
        .then(one.content.cmp(&other.content))
        .then(one_at.cmp(&other_at))
        .is_gt()
}

/// True if the row is a row of the record's key that the scan has covered, that has the record's time, or that
/// vanished.
fn belongs_to(row: &StoredRow, record: &Record, options: &ClassifyOptions) -> bool {
    let is_inside =
        options.window.is_none_or(|window| window.start_us <= row.created_us && row.created_us < window.end_us);
    let is_of_survey = options.survey_id.is_none() || options.survey_id == row.survey_id;
    let is_live_elsewhere =
        row.created_us != record.created_us && row.vanished_us.is_none() && !(is_inside && is_of_survey);
    row.key == record.key && !is_live_elsewhere
}

fn expected_change(at: usize, records: &[Record], stored: &[StoredRow], options: &ClassifyOptions) -> String {
    let record = records[at];
    for (other_at, other) in records.iter().enumerate().filter(|(_, other)| other.key == record.key) {
        if is_newer((other_at, other), (at, &record)) {
            return "left out".into();
        }
    }
    let mut rows: Vec<(usize, StoredRow)> =
        stored.iter().copied().enumerate().filter(|(_, row)| belongs_to(row, &record, options)).collect();
    // The best is last.
    rows.sort_by(|(one_at, one), (other_at, other)| {
        let is_at = |row: &StoredRow| row.created_us == record.created_us;
        let alive_then_late = |row: &StoredRow| row.vanished_us.map_or(i64::MAX, |at| at);
        is_at(one)
            .cmp(&is_at(other))
            .then(alive_then_late(one).cmp(&alive_then_late(other)))
            .then(one.created_us.cmp(&other.created_us))
            .then(other_at.cmp(one_at))
    });
    let Some((place, row)) = rows.last().copied() else { return "new".into() };
    let has_duplicates = rows.len() > 1;
    let cause = if row.content.is_none() || options.flags.is_some_and(|flags| flags != row.flags) {
        "unclear"
    } else if row.content != Some(record.content) {
        "edited"
    } else if row.vanished_us.is_some() {
        "returned"
    } else if has_duplicates {
        "duplicate"
    } else {
        return "unchanged".into();
    };
    format!("{cause} {place} {has_duplicates}")
}

fn in_words(change: RecordChange) -> String {
    match change {
        RecordChange::Superseded => "left out".into(),
        RecordChange::New => "new".into(),
        RecordChange::Unchanged => "unchanged".into(),
        RecordChange::Stored { stored, cause, has_duplicate_rows } => {
            let cause = match cause {
                UpdateCause::OtherHash => "edited",
                UpdateCause::Unclear => "unclear",
                UpdateCause::Returned => "returned",
                UpdateCause::HasDuplicateRows => "duplicate",
            };
            format!("{cause} {stored} {has_duplicate_rows}")
        }
    }
}

/// Keys and contents of the collision losers.
fn lost_contents(records: &[Record]) -> BTreeSet<(u128, i64)> {
    let mut lost = BTreeSet::new();
    for (at, record) in records.iter().enumerate() {
        for (other_at, other) in records.iter().enumerate() {
            let stands = records
                .iter()
                .enumerate()
                .filter(|(_, of)| of.key == other.key)
                .all(|(of_at, of)| !is_newer((of_at, of), (other_at, other)));
            if stands && other.key == record.key && other.content != record.content && at != other_at {
                lost.insert((record.key, record.content));
            }
        }
    }
    lost
}

fn missing(records: &[Record], stored: &[StoredRow], options: &ClassifyOptions) -> (Vec<usize>, usize) {
    let mut missing = Vec::new();
    let mut in_scope = 0;
    for (at, row) in stored.iter().enumerate() {
        let is_inside =
            options.window.is_none_or(|window| window.start_us <= row.created_us && row.created_us < window.end_us);
        let is_of_survey = options.survey_id.is_none() || options.survey_id == row.survey_id;
        if !is_inside || !is_of_survey || row.vanished_us.is_some() {
            continue;
        }
        let is_duplicate = records.iter().enumerate().any(|(record_at, record)| {
            let change = expected_change(record_at, records, stored, options);
            record.key == row.key
                && change != "left out"
                && change != "unchanged"
                && !change.contains(&format!(" {at} "))
                && stored.iter().filter(|other| belongs_to(other, record, options)).count() > 1
        });
        if is_duplicate {
            continue;
        }
        in_scope += 1;
        let is_found = records.iter().any(|record| record.key == row.key);
        let is_hidden = row.is_deleted && !options.includes_deleted;
        let is_ignored = options.vanish == VanishPolicy::Ignore;
        if !is_found && !is_hidden && !is_ignored && !options.discarded.contains(&row.key) {
            missing.push(at);
        }
    }
    (missing, in_scope)
}

fn is_believed(vanished: usize, in_scope: usize, options: &ClassifyOptions) -> bool {
    match options.vanish {
        VanishPolicy::Accept | VanishPolicy::Ignore => true,
        VanishPolicy::Guarded { share_max, rows_max } => {
            if options.has_broken_records && vanished > 0 {
                return false;
            }
            if options.is_empty_answer {
                return vanished <= 6;
            }
            let is_few = vanished as u64 <= rows_max;
            let is_small_share = vanished as f64 <= share_max * in_scope as f64;
            is_few || is_small_share
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn p1_p2_p4_rows_are_classified_like_the_plain_model(
        records in prop::collection::vec(record(), 0..9),
        stored in prop::collection::vec(stored_row(), 0..9),
        options in classify_options(),
    ) {
        let classification = classify(&records, &stored, &options);
        let found: Vec<String> = classification.records.iter().map(|change| in_words(*change)).collect();
        let expected: Vec<String> = (0..records.len()).map(|at| expected_change(at, &records, &stored, &options)).collect();
        prop_assert_eq!(&found, &expected);
        let keys: BTreeSet<u128> = records.iter().map(|record| record.key).collect();
        prop_assert_eq!(classification.current, keys.len() as u64);

        let collision_losers: Vec<(u128, i64)> = classification.collision_losers.iter().map(|at| (records[*at].key, records[*at].content)).collect();
        prop_assert_eq!(collision_losers.len(), collision_losers.iter().collect::<BTreeSet<_>>().len(), "a content was kept twice");
        prop_assert_eq!(collision_losers.into_iter().collect::<BTreeSet<_>>(), lost_contents(&records));

        let (vanished, in_scope) = missing(&records, &stored, &options);
        match is_believed(vanished.len(), in_scope, &options) {
            true => prop_assert_eq!((classification.withheld, &classification.vanished), (0, &vanished)),
            false => prop_assert_eq!((classification.withheld, classification.vanished.len()), (vanished.len() as u64, 0)),
        }

        // Every stored row of a record's key either stays or is a duplicate row.
        let mut of_records: Vec<usize> = classification.duplicate_rows.clone();
        for change in &classification.records {
            if let RecordChange::Stored { stored, .. } = change {
                of_records.push(*stored);
            }
        }
        let is_unchanged = |key: u128| classification.records.iter().zip(&records).any(|(change, record)| record.key == key && *change == RecordChange::Unchanged);
        let is_current = |at: usize| classification.records[at] != RecordChange::Superseded;
        let belongs = |row: &StoredRow| (0..records.len()).any(|at| is_current(at) && belongs_to(row, &records[at], &options));
        let expected: BTreeSet<usize> = (0..stored.len()).filter(|at| belongs(&stored[*at]) && !is_unchanged(stored[*at].key)).collect();
        prop_assert_eq!(of_records.len(), expected.len());
        prop_assert_eq!(of_records.into_iter().collect::<BTreeSet<_>>(), expected);

        let writes = found.iter().any(|change| change != "left out" && change != "unchanged");
        prop_assert_eq!(classification.changes_nothing(), !writes && classification.vanished.is_empty() && classification.collision_losers.is_empty());
    }
}

fn plain(vanish: VanishPolicy) -> ClassifyOptions {
    ClassifyOptions {
        window: Some(TimeRange { start_us: 0, end_us: 100 }),
        survey_id: None,
        flags: Some(1),
        includes_deleted: true,
        discarded: HashSet::default(),
        vanish,
        is_empty_answer: false,
        has_broken_records: false,
    }
}

fn rows(count: u128) -> Vec<StoredRow> {
    let row = |key| StoredRow {
        key,
        content: Some(1),
        created_us: 5,
        flags: 1,
        survey_id: None,
        is_deleted: false,
        vanished_us: None,
    };
    (0..count).map(row).collect()
}

#[test]
fn p4_an_empty_scan_vanishes_at_most_six_rows() {
    let options = |is_empty_answer| ClassifyOptions {
        is_empty_answer,
        ..plain(VanishPolicy::Guarded { share_max: 1.0, rows_max: 1_000 })
    };
    assert_eq!(classify(&[], &rows(6), &options(true)).vanished.len(), 6);
    assert_eq!(classify(&[], &rows(7), &options(true)).withheld, 7);
    assert_eq!(classify(&[], &rows(7), &options(false)).vanished.len(), 7);
}

#[test]
fn p4_the_vanished_share_is_of_the_live_rows() {
    let mut stored = rows(100);
    let found: Vec<Record> =
        (6..100).map(|key| Record { key, content: 1, created_us: 5, updated_us: i64::MIN, answer: 0 }).collect();
    let options = plain(VanishPolicy::Guarded { share_max: 0.06, rows_max: 5 });
    assert_eq!(classify(&found, &stored, &options).vanished, [0, 1, 2, 3, 4, 5]);
    // A row that vanished before is not counted.
    stored[99].vanished_us = Some(1);
    assert_eq!(classify(&found, &stored, &options).withheld, 6);
}
