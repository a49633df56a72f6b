//! Partitions whose file is written at once, and those whose rows are read back and sorted in memory.

use std::sync::Arc;

use arrow::{compute::concat_batches, datatypes::Schema, record_batch::RecordBatch};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::*;
use crate::{
    load::conformance::{answer, answers_scan, page},
    model::DAY_MS,
};

/// Two months and a bit.
const DAYS: i64 = 75;

/// Scans of three days each, two of them in the other order. With so many of them one becomes a part, if any do.
fn apply_all(warehouse: &mut ParquetDestination, scans_a_part: Option<usize>) {
    let mut days: Vec<i64> = (0..DAYS).step_by(3).collect();
    days.swap(9, 10);
    for (number, day) in days.iter().enumerate() {
        apply_one(warehouse, number, *day, &days[number + 1..]);
        if scans_a_part.is_some_and(|scans| (number + 1) % scans == 0) {
            warehouse.seal().unwrap();
        }
    }
}

/// One of them, with those that are said to come.
fn apply_one(warehouse: &mut ParquetDestination, number: usize, day: i64, coming: &[i64]) {
    let scan_of = |day: i64| answers_scan(number as i64, day, day + 3);
    let scan = scan_of(day);
    let rows: Vec<_> = (0..30)
        .map(|at| {
            let mut row = answer(&format!("g{day}-{at}"), day + at % 3, "text");
            row.survey = 7 + at % 4;
            // Some at the first and the last moment of a day, which may be that of a month.
            row.at_ms += match at {
                _ if at % 5 == 0 => -DAY_MS / 2,
                _ if at % 7 == 1 => DAY_MS / 2 - 1,
                _ => 0,
            };
            row.choices = (0..at % 3).map(|choice| format!("choice {choice}")).collect();
            row
        })
        .collect();
    warehouse.begin(&scan).unwrap();
    warehouse.stage(&page(&rows)).unwrap();
    let coming = coming.iter().map(|day| (crate::model::Stream::Responses, scan_of(*day).window)).collect();
    let applied = warehouse.apply(&scan, &CommitOptions { coming, ..CommitOptions::default() }).unwrap();
    assert_eq!(applied.counts.inserted, 30);
}

/// What a file holds, in its order, and what it says of itself but for the part.
fn content(path: &Path) -> (RecordBatch, Vec<String>, Vec<i32>) {
    let reader = ParquetRecordBatchReaderBuilder::try_new(std::fs::File::open(path).unwrap()).unwrap();
    let metadata = reader.metadata().clone();
    let notes = metadata.file_metadata().key_value_metadata().unwrap().iter();
    let notes = notes.filter(|note| note.key != tree::APPLIED_PART_KEY && !note.key.starts_with("ARROW"));
    let notes = notes.map(|note| format!("{}: {:?}", note.key, note.value)).collect();
    let sorting = metadata.row_group(0).sorting_columns().unwrap().iter().map(|column| column.column_idx).collect();
    // Without the notes.
    let schema = Arc::new(Schema::new(reader.schema().fields().clone()));
    let batches = reader.build().unwrap().map(|rows| rows.unwrap().with_schema(Arc::clone(&schema)).unwrap());
    (concat_batches(&schema, &batches.collect::<Vec<_>>()).unwrap(), notes, sorting)
}

fn partitions(root: &TempDir) -> Vec<PathBuf> {
    let tables = crate::schema::tables().iter().filter(|table| table.partition.is_some());
    tables.flat_map(|table| data_files(&root.path().join(&table.name))).collect()
}

/// The same files in all of these warehouses, the same rows in the same order, and, if those count, the same notes.
fn assert_same_files(folders: &[TempDir], notes_count: bool) {
    let (first, others) = folders.split_first().unwrap();
    let files = partitions(first);
    assert!(files.len() >= 6, "{files:?}");
    for other in others {
        assert_eq!(files.len(), partitions(other).len());
        for file in &files {
            let name = file.strip_prefix(first.path()).unwrap();
            let (found, expected) = (content(&other.path().join(name)), content(file));
            assert_eq!(found.0, expected.0, "{}", name.display());
            assert!(!notes_count || found == expected, "{}", name.display());
        }
    }
}

#[test]
fn p2_a_partition_that_is_written_whole_is_the_same_as_one_that_was_merged() {
    let folders = [new_folder(), new_folder(), new_folder()];
    let [merged, at_once, anew] = &folders;
    let mut by_parts = open(merged);
    apply_all(&mut by_parts, Some(2));
    by_parts.publish().unwrap();

    let mut whole = open_with(at_once, 2);
    apply_all(&mut whole, None);
    whole.seal().unwrap();
    // Readers see none of it yet.
    assert!(whole.waiting.len() == 1 && partitions(at_once).is_empty());
    let changes = &whole.waiting[0].manifest.tables;
    assert!(changes["responses"].upserts.is_none() && changes["responses"].whole.len() > 2, "{changes:?}");
    whole.publish().unwrap();

    let mut replay = open_with(anew, 2);
    replay.build_anew().unwrap();
    apply_all(&mut replay, Some(2));
    assert!(replay.waiting.is_empty() && partitions(anew).is_empty());
    replay.publish().unwrap();

    assert_same_files(&folders, true);
    assert_eq!(by_parts.ledger().unwrap(), whole.ledger().unwrap());
    assert_eq!(by_parts.ledger().unwrap(), replay.ledger().unwrap());
    // The inventory knows the files.
    drop(whole);
    open(at_once);
}

#[test]
fn p2_a_partition_that_is_gathered_is_the_same_as_one_that_the_engine_merged() {
    let folders = [new_folder(), new_folder()];
    for (folder, gathered_bytes_max) in folders.iter().zip([0, u64::MAX]) {
        let mut warehouse = open_with(folder, 2);
        warehouse.sort_limits.gathered_bytes_max = gathered_bytes_max;
        apply_all(&mut warehouse, Some(3));
        assert!(warehouse.waiting.iter().any(|part| part.manifest.tables["responses"].upserts.is_some()));
        warehouse.publish().unwrap();
    }
    assert_same_files(&folders, true);
}

#[test]
fn rows_are_gathered_where_they_fit_and_nothing_is_taken_out() {
    let root = new_folder();
    let mut warehouse = open(&root);
    apply_all(&mut warehouse, Some(2));
    warehouse.seal().unwrap();
    let responses = table("responses").unwrap();
    let rows_of = |warehouse: &ParquetDestination, month: partition::Partition, bytes_max: u64| {
        let parts: Vec<&part::Part> = warehouse.waiting.iter().collect();
        let held: Vec<_> = parts.iter().filter_map(|part| part.whole_file(responses, Some(month))).collect();
        let month = PartitionBy::Month.bounds(month);
        let fill = gather::rows_of(responses, month, &held, &parts, bytes_max).unwrap();
        fill.map(|fill| fill.rows.iter().map(RecordBatch::num_rows).sum::<usize>())
    };
    let changes = warehouse.waiting.iter().filter_map(|part| part.manifest.tables.get("responses"));
    let months: std::collections::BTreeSet<_> = changes.flat_map(|changes| changes.partitions()).flatten().collect();
    let months: Vec<_> = months.into_iter().collect();
    let found: Vec<usize> = months.iter().map(|month| rows_of(&warehouse, *month, u64::MAX).unwrap()).collect();
    assert!(found.len() > 2 && warehouse.waiting.len() > 2, "{found:?}");
    assert_eq!(found.iter().sum::<usize>(), DAYS as usize * 10);
    assert!(found.iter().all(|rows| *rows > 0), "{found:?}");
    assert_eq!(rows_of(&warehouse, months[0], 1000), None, "more than it may take");
    let later = partition::Partition { first_day: "2031-01-01".parse().unwrap() };
    assert_eq!(rows_of(&warehouse, later, u64::MAX), None, "no rows");
    // Answers of the first month are edited.
    let scan = answers_scan(1000, 0, 1);
    warehouse.begin(&scan).unwrap();
    let edited: Vec<_> = (0..30).step_by(3).map(|at| answer(&format!("g0-{at}"), 0, "another text")).collect();
    warehouse.stage(&page(&edited)).unwrap();
    let all = CommitOptions { vanish: crate::load::VanishPolicy::Accept, ..Default::default() };
    assert!(warehouse.apply(&scan, &all).unwrap().counts.updated > 0);
    warehouse.seal().unwrap();
    assert_eq!(rows_of(&warehouse, months[0], u64::MAX), None, "rows are taken out");
}

#[test]
fn p8_partitions_behind_the_scans_are_written_before_the_end_and_added_to_if_need_be() {
    let folders = [new_folder(), new_folder()];
    let mut warehouses = folders.each_ref().map(open);
    let [by_parts, early] = &mut warehouses;
    apply_all(by_parts, Some(2));
    by_parts.publish().unwrap();
    early.pending_bytes_max = 250_000;
    apply_all(early, None);
    let months = data_files(&folders[0].path().join("responses")).len();
    let changes = early.waiting.iter().map(|part| &part.manifest.tables["responses"]);
    let (whole, rows): (Vec<_>, Vec<_>) = changes.map(|changes| (changes.whole.len(), &changes.upserts)).unzip();
    let written = whole.iter().sum::<usize>();
    assert!((1..months).contains(&written), "{written} of {months} months are written before the end");
    // But for those of a scan across the end of a month, as no run makes one, and of one that came out of order there.
    let merged: u64 = rows.iter().copied().flatten().map(|extent| extent.rows).sum();
    assert!(merged <= 60, "none of them twice: {rows:?}");
    assert!(early.pending.bytes() > 0);
    // One more of the first month, and some that are gone.
    for warehouse in &mut warehouses {
        let scan = answers_scan(1000, -1, 1);
        warehouse.begin(&scan).unwrap();
        let rows: Vec<_> = (0..30).map(|at| answer(&format!("g0-{at}"), at % 3, "another text")).collect();
        warehouse.stage(&page(&rows[..1])).unwrap();
        warehouse
            .apply(&scan, &CommitOptions { vanish: crate::load::VanishPolicy::Accept, ..Default::default() })
            .unwrap();
        warehouse.publish().unwrap();
    }
    // A file that is put in its place says which run wrote it, one that is merged which run came last.
    assert_same_files(&folders, false);
}

#[test]
fn p8_what_more_is_coming_of_waits_and_what_is_behind_it_only_where_a_kill_matters() {
    // The last days first, of whose month more comes; then a whole month.
    let days = [72, 0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 60];
    let apply = |warehouse: &mut ParquetDestination, range: std::ops::Range<usize>| {
        range.for_each(|at| apply_one(warehouse, at, days[at], &days[at + 1..]));
    };
    // All but the one that is still to come.
    let last = days.len() - 1;
    let bytes = {
        let root = new_folder();
        let mut warehouse = open(&root);
        apply(&mut warehouse, 0..last);
        warehouse.pending.bytes()
    };
    for is_built_anew in [false, true] {
        let root = new_folder();
        let mut warehouse = open(&root);
        warehouse.is_built_anew = is_built_anew;
        // They do not fill it, and the month is worth a part.
        warehouse.pending_bytes_max = bytes * 6 / 5;
        apply(&mut warehouse, 0..last - 1);
        assert!(warehouse.waiting.is_empty(), "more of it is coming");
        apply(&mut warehouse, last - 1..last);
        let scans = warehouse.waiting.iter().map(|part| part.manifest.scans.len()).sum::<usize>();
        assert_eq!(scans, if is_built_anew { last - 1 } else { 0 });
        assert_eq!(warehouse.pending.scans().len(), last - scans);
    }
}

#[test]
fn a_part_that_has_lost_the_file_of_a_partition_is_noticed() {
    let root = new_folder();
    let mut warehouse = open(&root);
    apply_all(&mut warehouse, None);
    warehouse.seal().unwrap();
    drop(warehouse);
    let parts = std::fs::read_dir(root.path().join(".studysync/parts")).unwrap();
    let files = parts.flat_map(|part| std::fs::read_dir(part.unwrap().path()).unwrap());
    let mut files =
        files.map(|file| file.unwrap().path()).filter(|path| path.to_string_lossy().contains("responses.20"));
    std::fs::remove_file(files.next().unwrap()).unwrap();
    let error = ParquetDestination::open(root.path(), &identity(), &options()).err().unwrap();
    assert!(matches!(&error, LoadError::Damaged { why, .. } if why.contains("responses")), "{error}");
}
