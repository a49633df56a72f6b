//! The rows of a partition, read back from its file and its parts into memory: to sort them there takes half of what it takes the
//! engine to weigh, read, sort and hand them over.
//!
//! Only where no row is taken out and all of them fit. What does not is for the engine, which can sort in slices.

use std::{fs::File, path::Path, sync::Arc};

use arrow::{
    array::{RecordBatch, TimestampMicrosecondArray},
    compute::{and, kernels::cmp},
    datatypes::{FieldRef, Schema},
    error::ArrowError,
};
use parquet::{
    arrow::{
        ProjectionMask,
        arrow_reader::{ArrowPredicateFn, ParquetRecordBatchReaderBuilder, RowFilter},
    },
    errors::ParquetError,
    file::metadata::RowGroupMetaData,
};

use super::{disk::io_error, part::Part, partition::overlap, table_file::fit, tree::DataFile};
use crate::{
    load::{Fill, LoadError, TimeBounds},
    schema::Table,
};

/// Rows that are read at once.
const BATCH_ROWS: usize = 8192;

/// All rows of a partition, which these are the bounds of; `None` if they take more than so many bytes, or if it is not for this way.
pub(super) fn rows_of(
    table: &'static Table,
    bounds: TimeBounds,
    held: &[DataFile],
    parts: &[&Part],
    bytes_max: u64,
) -> Result<Option<Fill>, LoadError> {
    let (full, mut files) = (table.full_schema(), Vec::new());
    for part in parts {
        let Some(changes) = part.manifest.tables.get(&table.name) else { continue };
        if changes.deletes.is_some() {
            return Ok(None);
        }
        let Some(extent) = &changes.upserts else { continue };
        let Some(held) = extent.bounds() else { return Ok(None) };
        if overlap(held, bounds) {
            let is_inside = bounds.start_us <= held.start_us && held.end_us <= bounds.end_us;
            files.push((part.upserts_file(table), Arc::clone(&full), (!is_inside).then_some(bounds)));
        }
    }
    files.extend(held.iter().map(|file| (file.path.clone(), table.parquet_schema(), None)));
    let (mut gathered, mut bytes) = (Vec::new(), 0);
    for (path, schema, within) in files {
        let left = bytes_max.saturating_sub(bytes);
        let Some(batches) = read(table, &schema, within, &path, left).map_err(|error| unreadable(&path, error))? else {
            return Ok(None);
        };
        for batch in batches {
            let batch = batch.and_then(|batch| fit(&batch, &full));
            let batch = batch.map_err(|error| unreadable(&path, error.into()))?;
            bytes += batch.get_array_memory_size() as u64;
            if bytes > bytes_max {
                return Ok(None);
            }
            gathered.push(batch);
        }
    }
    Ok((!gathered.is_empty()).then_some(Fill { table, rows: gathered, bounds: Some(bounds) }))
}

/// The rows of a file, those within the bounds; `None` if its columns are not those of the schema, or if it is larger than `bytes_max`
/// by what it says of itself.
fn read(
    table: &Table,
    schema: &Schema,
    within: Option<TimeBounds>,
    path: &Path,
    bytes_max: u64,
) -> Result<Option<impl Iterator<Item = Result<RecordBatch, ArrowError>>>, ParquetError> {
    let mut reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path)?)?.with_batch_size(BATCH_ROWS);
    let bytes: i64 = reader.metadata().row_groups().iter().map(RowGroupMetaData::total_byte_size).sum();
    let column = |field: &FieldRef| (field.name().clone(), field.data_type().clone());
    let found = reader.schema().fields().iter().filter(|field| schema.index_of(field.name()).is_ok()).map(column);
    let is_as_written = found.eq(schema.fields().iter().map(column));
    let is_for_this_way = is_as_written && bytes.unsigned_abs() <= bytes_max;
    let Some(column) = table.partition.as_deref().filter(|_| is_for_this_way) else { return Ok(None) };
    let names = table.columns.iter().map(|column| column.name.as_str());
    let columns = ProjectionMask::columns(reader.parquet_schema(), names);
    if let Some(TimeBounds { start_us, end_us }) = within {
        let moments = ProjectionMask::columns(reader.parquet_schema(), [column]);
        // The last partition reaches to the end of time, and has what lies there.
        let last_us = if end_us == i64::MAX { end_us } else { end_us - 1 };
        let is_within = ArrowPredicateFn::new(moments, move |rows: RecordBatch| {
            let (first, last) =
                (TimestampMicrosecondArray::new_scalar(start_us), TimestampMicrosecondArray::new_scalar(last_us));
            and(&cmp::gt_eq(rows.column(0), &first)?, &cmp::lt_eq(rows.column(0), &last)?)
        });
        reader = reader.with_row_filter(RowFilter::new(vec![Box::new(is_within)]));
    }
    reader.with_projection(columns).build().map(Some)
}

fn unreadable(path: &Path, error: ParquetError) -> LoadError {
    match error {
        ParquetError::External(source) => io_error("read", path, std::io::Error::other(source)),
        error => LoadError::Damaged { path: path.to_owned(), why: format!("it cannot be read: {error}") },
    }
}
