//! Key, hash and times of the records of a scan, and of stored rows, without the other columns; rows of sets of
//! records.

use arrow::{
    array::{Array as _, ArrowPrimitiveType, BooleanArray, PrimitiveArray, RecordBatch},
    compute::filter_record_batch,
};

use crate::{
    load::{
        LoadError,
        error::invalid_rows,
        store::{number_column, time_column},
    },
    model::{FlatPage, RecordSet, key_hashes},
    schema::{RECORD_COLUMN, ROW_HASH_COLUMN, Table},
};

/// A record of a scan, reduced to key, hash and times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::load) struct Record {
    /// Hash of the record's key.
    pub key: u128,
    /// Hash of the record's content.
    pub content: i64,
    /// Creation time in epoch microseconds; 0 if the table has no partition column.
    pub created_us: i64,
    /// When the service last changed the record, epoch microseconds; [`NEVER_US`] if unknown.
    pub updated_us: i64,
    /// Hash of the answer alone, which is the same whatever flags the scan had; 0 in tables without answers.
    pub answer: i64,
}

impl Record {
    /// Returns the value by which records with the same key are compared: the current record has the greatest. It was
    /// updated last; of several, it was created last. The hashes decide between records with equal times, so that the
    /// order in which the service returns them does not matter.
    pub fn precedence(&self) -> (i64, i64, i64, i64) {
        (self.updated_us, self.created_us, self.answer, self.content)
    }
}

/// A stored row, reduced to key, hash and state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::load) struct StoredRow {
    /// Hash of the row's key.
    pub key: u128,
    /// Hash of the row's content; `None` if unknown, so that the columns must be compared.
    pub content: Option<i64>,
    /// Creation time in epoch microseconds; 0 if the table has no partition column.
    pub created_us: i64,
    /// The bits of the flags of the scan that wrote the row; 0 in tables without flags.
    pub flags: i64,
    pub survey_id: Option<i64>,
    /// True if the service has soft-deleted the row.
    pub is_deleted: bool,
    /// When a scan found that the row had vanished, in epoch microseconds; `None` if it has not vanished.
    pub vanished_us: Option<i64>,
}

/// Update time of records without an update time: earlier than every other.
pub(super) const NEVER_US: i64 = i64::MIN;
/// The column with the answer, which every scan requests.
const ANSWER_COLUMN: &str = "answer_json";

/// Reads the records of a page that have a row in the base table, in page order. Fails if the number of key hashes of
/// the page differs from the number of these rows, or if answers have no hashes.
pub(super) fn records_of(base: &Table, page: &FlatPage) -> Result<Vec<Record>, LoadError> {
    let rows = page.table(&base.name);
    let count = rows.map_or(0, RecordBatch::num_rows);
    if page.key_hashes.len() != count {
        return Err(LoadError::Bug(format!("{} key hashes for {count} rows", page.key_hashes.len())));
    }
    if base.column(ANSWER_COLUMN).is_some() && page.answer_hashes.len() != count {
        return Err(LoadError::Bug(format!("{} hashes of answers for {count} rows", page.answer_hashes.len())));
    }
    let Some(rows) = rows else { return Ok(Vec::new()) };
    let contents = number_column(rows, ROW_HASH_COLUMN)?.values();
    let created = base.partition.as_deref().map(|column| time_column(rows, column)).transpose()?;
    let updated = base.column("updated_at").map(|column| time_column(rows, &column.name)).transpose()?;
    let record = |(row, (key, content)): (usize, (&u128, &i64))| Record {
        key: *key,
        content: *content,
        created_us: value(created, row).unwrap_or(0),
        updated_us: value(updated, row).unwrap_or(NEVER_US),
        answer: page.answer_hashes.get(row).copied().unwrap_or(0),
    };
    Ok(page.key_hashes.iter().zip(contents).enumerate().map(record).collect())
}

/// Reads key, hash and times of stored responses, without the hash of the answer: stored rows with the same key and
/// update time differ in their creation time.
pub(super) fn stored_records(base: &Table, rows: &RecordBatch) -> Result<Vec<Record>, LoadError> {
    let keys = key_hashes(&base.key_in_order(), rows).map_err(invalid_rows(base))?;
    let contents = number_column(rows, ROW_HASH_COLUMN)?;
    let (created, updated) = (time_column(rows, "created_at")?, time_column(rows, "updated_at")?);
    let record = |(row, key): (usize, u128)| Record {
        key,
        content: value(Some(contents), row).unwrap_or_default(),
        created_us: created.value(row),
        updated_us: value(Some(updated), row).unwrap_or(NEVER_US),
        answer: 0,
    };
    Ok(keys.into_iter().enumerate().map(record).collect())
}

/// Returns the value of a column in a row; `None` if the value is NULL, or if there is no column.
pub(super) fn value<T: ArrowPrimitiveType>(column: Option<&PrimitiveArray<T>>, row: usize) -> Option<T::Native> {
    column.filter(|column| column.is_valid(row)).map(|column| column.value(row))
}

/// Returns the columns of a base table that [`stored_rows`] reads.
pub(super) fn stored_columns(base: &'static Table) -> Vec<&'static str> {
    let is_read = |name: &str| {
        base.key.iter().any(|key| key == name)
            || base.partition.as_deref() == Some(name)
            || matches!(name, "survey_id" | "deleted_at" | ROW_HASH_COLUMN | "_flags" | "_vanished_at")
    };
    base.column_names().into_iter().filter(|name| is_read(name)).collect()
}

/// Reads key, hash and state of stored rows. `rows` must have at least the columns of [`stored_columns`].
pub(super) fn stored_rows(base: &'static Table, rows: &RecordBatch) -> Result<Vec<StoredRow>, LoadError> {
    let keys = key_hashes(&base.key_in_order(), rows).map_err(invalid_rows(base))?;
    let numbers = |name: &str| base.column(name).map(|_| number_column(rows, name)).transpose();
    let times = |name: &str| base.column(name).map(|_| time_column(rows, name)).transpose();
    let (contents, flags, surveys) = (numbers(ROW_HASH_COLUMN)?, numbers("_flags")?, numbers("survey_id")?);
    let created = base.partition.as_deref().map(|column| time_column(rows, column)).transpose()?;
    let (deleted, vanished) = (times("deleted_at")?, times("_vanished_at")?);
    let row = |(row, key): (usize, u128)| StoredRow {
        key,
        content: value(contents, row),
        created_us: value(created, row).unwrap_or(0),
        flags: value(flags, row).unwrap_or(0),
        survey_id: value(surveys, row),
        is_deleted: value(deleted, row).is_some(),
        vanished_us: value(vanished, row),
    };
    Ok(keys.into_iter().enumerate().map(row).collect())
}

/// Returns the rows for which `is_kept` returns true. `is_kept` is called once for each row, in order.
pub(super) fn rows_where(
    table: &Table,
    rows: &RecordBatch,
    is_kept: impl FnMut(usize) -> bool,
) -> Result<RecordBatch, LoadError> {
    let kept: BooleanArray = (0..rows.num_rows()).map(is_kept).map(Some).collect();
    match kept.true_count() {
        count if count == rows.num_rows() => Ok(rows.clone()),
        _ => filter_record_batch(rows, &kept).map_err(invalid_rows(table)),
    }
}

/// Returns the record of each row of a page, by its index in the page.
pub(super) fn records_of_rows(rows: &RecordBatch) -> Result<&[i64], LoadError> {
    Ok(number_column(rows, RECORD_COLUMN)?.values())
}

/// Returns the rows of `rows`, a batch of `table`, that belong to records of the set.
pub(super) fn rows_of_records(table: &Table, rows: &RecordBatch, wanted: &RecordSet) -> Result<RecordBatch, LoadError> {
    let records = records_of_rows(rows)?;
    rows_where(table, rows, |row| records.get(row).is_some_and(|record| wanted.contains(*record)))
}
