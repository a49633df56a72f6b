//! Runs the conformance suite on the store in memory, which is exported as Parquet files for readers.

use std::{fs::File, path::Path, sync::Mutex};

use arrow::{
    array::{ArrayRef, RecordBatch, StringArray, new_null_array},
    compute::cast,
    datatypes::{DataType, Field},
};
use parquet::arrow::ArrowWriter;
use tempfile::TempDir;

use super::*;
use crate::{
    load::{
        Identity, Reader, Warehouse,
        conformance::{Answer, Kind, Lab, answer, answers_scan, conformance_tests, keys, page},
    },
    model::{DAY_MS, Scan, WarehouseKind},
    schema::{table, tables},
};

struct Memory {
    shelf: Shelf,
    folder: TempDir,
    identity: Mutex<Option<Identity>>,
    buffer_bytes_max: usize,
}

fn memory() -> Box<dyn Kind> {
    memory_with(1 << 20)
}

/// Without a buffer: each change is written to the store.
fn memory_that_is_written_at_once() -> Box<dyn Kind> {
    memory_with(0)
}

fn memory_with(buffer_bytes_max: usize) -> Box<dyn Kind> {
    let folder = TempDir::new().unwrap();
    Box::new(Memory { shelf: Shelf::default(), folder, identity: Mutex::default(), buffer_bytes_max })
}

impl Kind for Memory {
    fn open(&self, identity: &Identity) -> Result<Warehouse, LoadError> {
        let mut bound = self.identity.lock().unwrap();
        let bound = bound.get_or_insert_with(|| identity.clone());
        if bound != identity {
            let (found, wanted) = (bound.environment.clone(), identity.environment.clone());
            return Err(LoadError::OtherIdentity { path: "memory".into(), found, wanted });
        }
        Ok(Warehouse::new("memory", String::new(), Box::new(MemoryStore::open(&self.shelf)), self.buffer_bytes_max, 1))
    }

    fn reader(&self) -> Reader {
        let root = self.folder.path().join("files");
        let _ = std::fs::remove_dir_all(&root);
        std::fs::create_dir_all(&root).unwrap();
        let content = self.shelf.content();
        for (name, batches) in &content.tables {
            write(&root, table(name).unwrap(), batches);
        }
        Reader::open(&WarehouseKind::Parquet.at(root)).unwrap()
    }

    /// The number of commits stands for the files.
    fn root(&self) -> &Path {
        let (path, commits) = (self.folder.path().join("commits"), self.shelf.content().commits.to_string());
        if std::fs::read_to_string(&path).ok() != Some(commits.clone()) {
            std::fs::write(&path, commits).unwrap();
        }
        let _ = std::fs::remove_dir_all(self.folder.path().join("files"));
        self.folder.path()
    }
}

fn write(root: &Path, table: &'static Table, batches: &[RecordBatch]) {
    let folder = root.join(&table.name).join(if table.partition.is_some() { "all" } else { "" });
    std::fs::create_dir_all(&folder).unwrap();
    let schema = table.full_schema();
    let mut writer = ArrowWriter::try_new(File::create(folder.join("data.parquet")).unwrap(), schema, None).unwrap();
    for batch in batches {
        writer.write(&with_columns(table, &table.full_schema(), batch).unwrap()).unwrap();
    }
    writer.close().unwrap();
}

conformance_tests!(memory);

#[test]
fn p2_random_keys_do_not_depend_on_commits() {
    for seed in 0..12 {
        keys::p2_random_keys_do_not_depend_on_commits(seed, &mut Lab::new(memory()), &mut Lab::new(memory()));
    }
}

mod written_at_once {
    crate::load::conformance::conformance_tests!(super::memory_that_is_written_at_once);
}

/// The rows that a scan of one day reads do not depend on the stored days: a backfill costs linear time.
#[test]
fn p8_a_scan_reads_only_the_range_of_its_records() {
    let read_by_a_scan = |days: i64| {
        let shelf = Shelf::default();
        let mut warehouse = Warehouse::new("memory", String::new(), Box::new(MemoryStore::open(&shelf)), 1 << 20, 1);
        let rows = |day: i64| (0..50).map(|at| answer(&format!("g{day}-{at}"), day, "x")).collect::<Vec<_>>();
        let apply = |warehouse: &mut Warehouse, scan: Scan, rows: &[Answer]| {
            warehouse.apply_and_commit(&scan, &[page(rows)].as_slice(), &Default::default()).unwrap().counts
        };
        for day in 0..days {
            apply(&mut warehouse, answers_scan(0, day, day + 1), &rows(day));
        }
        // Records at the window's edge and far outside, an edit, a key with two contents, and a known reject.
        let mut found = rows(1);
        found[0].at_ms += DAY_MS / 2;
        found[1].text = "edited".into();
        found[3].text = "one of two".into();
        found.push(answer("g0-7", 0, "far outside"));
        found.push(answer("g1-3", 1, "another"));
        let before = shelf.content().rows_read;
        let counts = apply(&mut warehouse, answers_scan(1, 1, 2), &found);
        assert_eq!((counts.updated, counts.collisions, counts.outside_window), (4, 1, 2), "{counts:?}");
        shelf.content().rows_read - before
    };
    let (few, many) = (read_by_a_scan(4), read_by_a_scan(40));
    assert_eq!(few, many);
    assert!(few > 50, "{few}");
}

/// Returns NULL for a nullable column, and otherwise 0, "0" or the start of 1970.
fn value(field: &Field) -> ArrayRef {
    match field.data_type() {
        data_type if field.is_nullable() => new_null_array(data_type, 1),
        DataType::Timestamp(..) => cast(&StringArray::from(vec!["1970-01-01T00:00:00"]), field.data_type()).unwrap(),
        data_type => cast(&StringArray::from(vec!["0"]), data_type).unwrap(),
    }
}

#[test]
fn every_table_can_be_written_and_read_back() {
    let shelf = Shelf::default();
    for table in tables() {
        let schema = table.full_schema();
        let row = RecordBatch::try_new(schema.clone(), schema.fields().iter().map(|field| value(field)).collect());
        let mut change = TableChange::new(table);
        change.add(row.unwrap());
        let mut store = MemoryStore::open(&shelf);
        store.write(&[change]).unwrap();
        store.commit("test").unwrap();
        let names: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
        let mut rows = 0;
        let mut count = |batch: RecordBatch| {
            assert_eq!(batch.num_columns(), names.len());
            rows += batch.num_rows();
            Ok(())
        };
        MemoryStore::open(&shelf).read(table, &names, &Filter::all(), &mut count).unwrap();
        assert_eq!(rows, 1, "{}", table.name);
    }
}
