//! Rows of any table, and the content of stores and files as comparable texts.

use std::sync::Arc;

use arrow::{
    array::{
        ArrayRef, AsArray as _, BooleanArray, Float64Array, Int64Array, ListBuilder, PrimitiveBuilder, RecordBatch,
        StringArray, TimestampMicrosecondArray, new_null_array,
    },
    datatypes::{Int64Type, TimestampMicrosecondType},
    util::display::{ArrayFormatter, FormatOptions},
};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::*;
use crate::schema::{Column, ColumnType, Table, table, tables};

pub(super) const DAY_US: i64 = 86_400_000_000;
/// 2026-01-01.
pub(super) const START_US: i64 = 1_767_225_600_000_000;

/// A row of any table: its key, its time and its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Row {
    pub(super) key: i64,
    pub(super) at_us: i64,
    pub(super) content: i64,
}

/// The rows as a batch with all columns of the table.
pub(super) fn batch(table: &'static Table, rows: &[Row]) -> RecordBatch {
    let columns = table.columns.iter().map(|column| values(table, column, rows)).collect();
    RecordBatch::try_new(table.full_schema(), columns).unwrap()
}

fn values(table: &Table, column: &Column, rows: &[Row]) -> ArrayRef {
    if let Some(copied) = column.copy_of.as_ref().and_then(|name| table.column(name)) {
        return values(table, copied, rows);
    }
    let numbers = |number: &dyn Fn(&Row) -> i64| Arc::new(Int64Array::from_iter_values(rows.iter().map(number))) as _;
    let is_partition = table.partition.as_ref() == Some(&column.name);
    match (column.name.as_str(), column.column_type) {
        ("survey_id", _) if column.nullable => {
            Arc::new(Int64Array::from_iter(rows.iter().map(|row| (row.key % 5 != 0).then_some(row.key % 4))))
        }
        ("_run_id", _) => Arc::new(StringArray::from_iter_values(rows.iter().map(|_| "run"))),
        ("question_id", _) => numbers(&|row| row.key % 3),
        ("choice_ordinal", _) => numbers(&|row| row.content % 3),
        ("_row_hash", _) => numbers(&|row| row.content),
        ("selected_indexes", _) => {
            let mut lists = ListBuilder::new(PrimitiveBuilder::<Int64Type>::new());
            rows.iter().for_each(|row| lists.append_option((row.key % 2 == 0).then_some([Some(row.content), None])));
            Arc::new(lists.finish())
        }
        (_, ColumnType::Timestamp) if is_partition => {
            Arc::new(TimestampMicrosecondArray::from_iter_values(rows.iter().map(|row| row.at_us)))
        }
        (name, ColumnType::Text) if table.key.contains(&column.name) => {
            Arc::new(StringArray::from_iter_values(rows.iter().map(|row| format!("{name}-{}", row.key))))
        }
        (_, ColumnType::Text) if table.name != "responses" || column.name == "answer_text" => {
            Arc::new(StringArray::from_iter_values(rows.iter().map(|row| format!("text {}", row.content))))
        }
        (_, ColumnType::Bigint) if table.key.contains(&column.name) => numbers(&|row| row.key),
        (_, kind) if column.nullable => new_null_array(&kind.arrow(), rows.len()),
        (_, ColumnType::Text | ColumnType::Json) => Arc::new(StringArray::from_iter_values(rows.iter().map(|_| "x"))),
        (_, ColumnType::Bigint) => numbers(&|_| 0),
        (_, ColumnType::Double) => Arc::new(Float64Array::from(vec![0.5; rows.len()])),
        (_, ColumnType::Boolean) => Arc::new(BooleanArray::from(vec![false; rows.len()])),
        (_, ColumnType::Timestamp) => Arc::new(TimestampMicrosecondArray::from(vec![START_US; rows.len()])),
        (name, kind @ ColumnType::BigintList) => panic!("{name}: no values of {kind:?}"),
    }
}

/// A change that adds rows.
pub(super) fn added(name: &str, rows: &[Row]) -> TableChange {
    change(name, &[], rows)
}

/// A change that removes rows.
pub(super) fn removed(name: &str, rows: &[Row]) -> TableChange {
    change(name, rows, &[])
}

/// A change that removes and adds rows.
pub(super) fn change(name: &str, removed: &[Row], added: &[Row]) -> TableChange {
    let table = table(name).unwrap();
    let mut change = TableChange::new(table);
    change.remove(&batch(table, removed)).unwrap();
    change.add(batch(table, added));
    change
}

/// The rows of a store's table as sorted texts.
pub(super) fn contents(store: &mut dyn Store, name: &str, columns: &[&str], filter: &Filter<'_>) -> Vec<String> {
    let table = table(name).unwrap();
    let mut rows = Vec::new();
    // A store may return more rows: the caller filters again.
    let more: Vec<&'static str> = filter.columns(table).filter(|name| !columns.contains(name)).collect();
    let mut wanted = columns.to_vec();
    for name in more {
        if !wanted.contains(&name) {
            wanted.push(name);
        }
    }
    store
        .read(table, &wanted, filter, &mut |batch| {
            let names: Vec<_> = batch.schema().fields().iter().map(|field| field.name().clone()).collect();
            assert_eq!(names, wanted);
            for field in batch.schema().fields() {
                assert_eq!(field.data_type(), &table.column(field.name()).unwrap().column_type.arrow());
            }
            let kept = filter.select(table, batch)?;
            rows.extend(texts(&crate::load::store::project(&kept, columns)?));
            Ok(())
        })
        .unwrap();
    rows.sort();
    rows
}

/// All columns of a table.
pub(super) fn all_columns(name: &str) -> Vec<&'static str> {
    table(name).unwrap().columns.iter().map(|column| column.name.as_str()).collect()
}

/// Each row as a text, without the mark of UTC, which only files have.
pub(super) fn texts(rows: &RecordBatch) -> Vec<String> {
    let plain = rows.columns().iter().map(|column| match column.as_primitive_opt::<TimestampMicrosecondType>() {
        Some(times) => Arc::new(times.clone().with_timezone_opt(None::<Arc<str>>)),
        None => Arc::clone(column),
    });
    let plain: Vec<ArrayRef> = plain.collect();
    let options = FormatOptions::default().with_null("NULL");
    let columns: Vec<_> = plain.iter().map(|column| ArrayFormatter::try_new(column, &options).unwrap()).collect();
    let text = |row: usize| columns.iter().map(|column| column.value(row).to_string()).collect::<Vec<_>>().join(" | ");
    (0..rows.num_rows()).map(text).collect()
}

/// The rows of a file in their order, as batches.
pub(super) fn file_batches(path: &Path) -> Vec<RecordBatch> {
    let file = std::fs::File::open(path).unwrap();
    ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap().map(Result::unwrap).collect()
}

/// The rows of a file in their order.
pub(super) fn file_rows(path: &Path) -> Vec<String> {
    file_batches(path).iter().flat_map(texts).collect()
}

/// Checks that readers of the folder see the committed rows of the store in memory: the same rows in each table, each
/// row in its partition, each file in order.
pub(super) fn assert_published(root: &Path, by: PartitionBy, shelf: &Shelf, context: &str) {
    for table in tables() {
        let mut found = Vec::new();
        for file in data_files(&root.join(&table.name)) {
            let batches = file_batches(&file);
            assert!(table.partition.is_none() || !batches.is_empty(), "{context}: {} is empty", file.display());
            let keys: Vec<_> = batches
                .iter()
                .map(|batch| super::super::order::SortKeys::new(table).unwrap().of(batch).unwrap())
                .collect();
            let keys: Vec<_> = keys.iter().flat_map(|keys| keys.iter()).collect();
            assert!(keys.is_sorted(), "{context}: {} is in no order", file.display());
            let folder = file.parent().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
            for batch in &batches {
                let partitions = super::super::sorted_rows::partitions_of(table, by, batch).unwrap();
                let column = table.partition.as_deref().unwrap_or_default();
                let expected = |partition| by.folder(column, partition);
                assert!(partitions.into_iter().flatten().all(|partition| expected(partition) == folder), "{context}");
                found.extend(texts(batch));
            }
        }
        found.sort();
        let content = shelf.content();
        let mut expected: Vec<String> =
            content.tables.get(table.name.as_str()).into_iter().flatten().flat_map(texts).collect();
        expected.sort();
        assert_eq!(found, expected, "{context}: {}", table.name);
    }
}
