//! Partitions that a replay writes without a part before, and those whose first rows are sorted in memory.

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

/// Scans of three days each, two of them in the other order.
fn apply_all(warehouse: &mut ParquetDestination) {
    let mut days: Vec<i64> = (0..DAYS).step_by(3).collect();
    days.swap(9, 10);
    for (number, day) in days.into_iter().enumerate() {
        let scan = answers_scan(number as i64, day, day + 3);
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
        let applied = warehouse.apply(&scan, &CommitOptions::default()).unwrap();
        assert_eq!(applied.counts.inserted, 30);
    }
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

#[test]
fn p2_a_partition_that_is_written_whole_is_the_same_as_one_that_was_merged() {
    let (merged, whole) = (new_folder(), new_folder());
    let mut by_parts = open(&merged);
    apply_all(&mut by_parts);
    by_parts.publish().unwrap();
    let mut without = open_with(&whole, 2);
    without.build_anew().unwrap();
    apply_all(&mut without);
    without.seal().unwrap();
    assert!(without.waiting.is_empty() && partitions(&whole).is_empty());
    without.publish().unwrap();

    let files = partitions(&merged);
    assert_eq!(files.len(), partitions(&whole).len());
    assert!(files.len() >= 6, "{files:?}");
    for file in files {
        let name = file.strip_prefix(merged.path()).unwrap();
        assert_eq!(content(&file), content(&whole.path().join(name)), "{}", name.display());
    }
    assert_eq!(by_parts.ledger().unwrap(), without.ledger().unwrap());
    // The inventory knows the files.
    drop(without);
    open(&whole);
}

#[test]
fn p2_a_partition_whose_parts_are_gathered_is_the_same_as_one_that_the_engine_merged() {
    let (merged, gathered) = (new_folder(), new_folder());
    for (folder, gathered_bytes_max) in [(&merged, 0), (&gathered, u64::MAX)] {
        let mut warehouse = open_with(folder, 2);
        warehouse.sort_limits.gathered_bytes_max = gathered_bytes_max;
        apply_all(&mut warehouse);
        warehouse.publish().unwrap();
    }
    let files = partitions(&merged);
    assert!(files.len() >= 6 && files.len() == partitions(&gathered).len(), "{files:?}");
    for file in files {
        let name = file.strip_prefix(merged.path()).unwrap();
        assert_eq!(content(&file), content(&gathered.path().join(name)), "{}", name.display());
    }
}

#[test]
fn parts_are_gathered_where_they_fit_and_nothing_is_taken_out() {
    let root = new_folder();
    let mut warehouse = open(&root);
    apply_all(&mut warehouse);
    warehouse.seal().unwrap();
    let responses = table("responses").unwrap();
    let rows_of = |warehouse: &ParquetDestination, month: partition::Partition, bytes_max: u64| {
        let month = PartitionBy::Month.bounds(month);
        let parts: Vec<&part::Part> = warehouse.waiting.iter().collect();
        let fill = gather::rows_of(responses, month, &parts, bytes_max).unwrap();
        fill.map(|fill| fill.rows.iter().map(RecordBatch::num_rows).sum::<usize>())
    };
    let months: Vec<_> = warehouse.waiting[0].manifest.tables["responses"].partitions().into_iter().flatten().collect();
    let found: Vec<usize> = months.iter().map(|month| rows_of(&warehouse, *month, u64::MAX).unwrap()).collect();
    assert!(found.len() > 2 && warehouse.waiting.len() == 1, "{found:?}");
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
    let (merged, early) = (new_folder(), new_folder());
    let mut by_parts = open(&merged);
    apply_all(&mut by_parts);
    by_parts.publish().unwrap();
    let mut without = open(&early);
    without.built_bytes_max = Some(250_000);
    apply_all(&mut without);
    let answers = |root: &TempDir| data_files(&root.path().join("responses"));
    let (months, written) = (answers(&merged).len(), answers(&early).len());
    assert!((1..months).contains(&written), "{written} of {months} months are written before the end");
    // One more of the first month.
    for warehouse in [&mut by_parts, &mut without] {
        let scan = answers_scan(1000, -1, 1);
        warehouse.begin(&scan).unwrap();
        let rows: Vec<_> = (0..30).map(|at| answer(&format!("g0-{at}"), at % 3, "another text")).collect();
        warehouse.stage(&page(&rows[..1])).unwrap();
        warehouse
            .apply(&scan, &CommitOptions { vanish: crate::load::VanishPolicy::Accept, ..Default::default() })
            .unwrap();
        warehouse.publish().unwrap();
    }
    for file in partitions(&merged) {
        let name = file.strip_prefix(merged.path()).unwrap();
        assert_eq!(content(&file).0, content(&early.path().join(name)).0, "{}", name.display());
    }
}
