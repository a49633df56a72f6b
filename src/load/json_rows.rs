//! Converts Arrow rows to JSON objects, and reads Parquet files of any schema.

use std::{fs::File, path::Path};

use arrow::{array::RecordBatch, datatypes::SchemaRef, json::writer::LineDelimited};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::LoadError;

/// Number of rows of a batch that is read from a Parquet file.
const BATCH_ROWS: usize = 1024;
/// Format of times without a zone. Times in a warehouse are UTC.
const PLAIN_TIME: &str = "%Y-%m-%dT%H:%M:%S%.fZ";

/// Converts the rows of a batch to JSON objects, one on each line. Times are RFC 3339 texts in UTC; NULL is left out.
///
/// # Errors
/// `Unsupported` for a column type that JSON cannot hold.
pub fn json_rows(batch: &RecordBatch) -> Result<Vec<u8>, LoadError> {
    let failed =
        |error: arrow::error::ArrowError| LoadError::Unsupported(format!("rows cannot be written as JSON: {error}"));
    let builder = arrow::json::WriterBuilder::new().with_timestamp_format(PLAIN_TIME.to_owned());
    let mut writer = builder.build::<_, LineDelimited>(Vec::new());
    writer.write(batch).and_then(|()| writer.finish()).map_err(failed)?;
    Ok(writer.into_inner())
}

/// Reads a Parquet file of any schema: calls `begin` with the schema, and afterwards `take` with each batch, until
/// `take` returns false. Fails with `NotOurs` if the file is not a readable Parquet file.
pub fn read_parquet_file<E: From<LoadError>>(
    path: &Path,
    begin: impl FnOnce(&SchemaRef) -> Result<(), E>,
    mut take: impl FnMut(RecordBatch) -> Result<bool, E>,
) -> Result<(), E> {
    let not_ours = |why: String| LoadError::NotOurs { path: path.to_owned(), why };
    let file = File::open(path).map_err(LoadError::io("open", path))?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(|error| not_ours(error.to_string()))?;
    begin(builder.schema())?;
    let reader = builder.with_batch_size(BATCH_ROWS).build().map_err(|error| not_ours(error.to_string()))?;
    for batch in reader {
        if !take(batch.map_err(|error| not_ours(error.to_string()))?)? {
            break;
        }
    }
    Ok(())
}
