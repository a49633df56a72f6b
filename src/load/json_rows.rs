//! Converts Arrow rows to JSON objects and CSV, and reads Parquet files of any schema.
//!
//! Writes the result of a query as a Parquet file of any schema, in a stream. The files of a warehouse are written by
//! `store::parquet`.

use std::{
    fs::File,
    io::{self, Write},
    path::Path,
    sync::Arc,
};

use arrow::{
    array::{Array as _, ArrayRef, RecordBatch, StringArray},
    datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit},
    error::ArrowError,
    json::writer::LineDelimited,
    util::display::{ArrayFormatter, FormatOptions},
};
use parquet::{
    arrow::{ArrowWriter, arrow_reader::ParquetRecordBatchReaderBuilder},
    basic::{Compression, ZstdLevel},
    file::properties::WriterProperties,
};

use super::{LoadError, store::fit_column};

/// Maximum number of rows of a batch that is read from a Parquet file.
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

/// Rows of one table as JSON and as CSV.
#[derive(Clone, Debug, Default)]
pub struct ExportedRows {
    pub table: String,
    /// Number of rows.
    pub count: u64,
    /// One JSON object on each line. Times are RFC 3339 texts in UTC; NULL is left out.
    pub json_lines: Vec<u8>,
    /// CSV with a header. Times as in `json_lines`; NULL is empty, and lists are written as `[1, 2]`.
    pub csv: Vec<u8>,
}

impl ExportedRows {
    /// Adds the rows of a batch. All batches must have the same columns.
    pub(super) fn add(&mut self, batch: &RecordBatch) -> Result<(), LoadError> {
        let failed = |error: ArrowError| LoadError::Unsupported(format!("rows cannot be written as CSV: {error}"));
        let has_header = !self.csv.is_empty();
        let texts = texts_of(batch).map_err(failed)?;
        let mut writer = arrow::csv::WriterBuilder::new().with_header(!has_header).build(&mut self.csv);
        writer.write(&texts).map_err(failed)?;
        drop(writer);
        self.json_lines.extend(json_rows(batch)?);
        self.count += batch.num_rows() as u64;
        Ok(())
    }
}

/// Returns the batch with every column as text, because the CSV writer cannot write lists.
fn texts_of(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let options = FormatOptions::default().with_timestamp_format(Some(PLAIN_TIME));
    let (mut fields, mut columns) = (Vec::new(), Vec::new());
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        let formatter = ArrayFormatter::try_new(column.as_ref(), &options)?;
        let text = |row| column.is_valid(row).then(|| formatter.value(row).try_to_string()).transpose();
        columns.push(Arc::new((0..column.len()).map(text).collect::<Result<StringArray, _>>()?) as ArrayRef);
        fields.push(Field::new(field.name(), DataType::Utf8, true));
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
}

/// Reads a Parquet file of any schema: calls `begin` with the schema, and afterwards `take` with each batch, until
/// `take` returns false. A batch has about `batch_bytes_max`, or one row. Fails with `NotOurs` if the file is not a
/// readable Parquet file.
pub fn read_parquet_file<E: From<LoadError>>(
    path: &Path,
    batch_bytes_max: usize,
    begin: impl FnOnce(&SchemaRef) -> Result<(), E>,
    mut take: impl FnMut(RecordBatch) -> Result<bool, E>,
) -> Result<(), E> {
    let not_ours = |why: String| LoadError::NotOurs { path: path.to_owned(), why };
    let file = File::open(path).map_err(LoadError::io("open", path))?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(|error| not_ours(error.to_string()))?;
    begin(builder.schema())?;
    let groups = builder.metadata().row_groups().iter();
    let row_bytes = groups.map(|group| group.total_byte_size() / group.num_rows().max(1)).max();
    let row_bytes = row_bytes.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(0);
    let rows = batch_bytes_max.checked_div(row_bytes).unwrap_or(BATCH_ROWS).clamp(1, BATCH_ROWS);
    let reader = builder.with_batch_size(rows).build().map_err(|error| not_ours(error.to_string()))?;
    for batch in reader {
        if !take(batch.map_err(|error| not_ours(error.to_string()))?)? {
            break;
        }
    }
    Ok(())
}

/// The time zone of all times in the file.
const UTC: &str = "UTC";
/// Rows of a complete row group.
const ROW_GROUP_ROWS: usize = 122_880;
/// Bytes at which a row group ends early, because the writer keeps it in memory.
const ROW_GROUP_BYTES: usize = 64 << 20;

/// Writes batches as a Parquet file with zstd compression. Times get the zone UTC.
pub struct ParquetRows {
    writer: ArrowWriter<Vec<u8>>,
    schema: SchemaRef,
}

impl ParquetRows {
    /// Begins a file with this schema.
    ///
    /// # Errors
    /// `InvalidData` for a column type that Parquet does not have.
    pub fn new(schema: &Schema) -> io::Result<Self> {
        let fields: Vec<Field> = schema.fields().iter().map(|field| file_field(field)).collect();
        let schema: SchemaRef = Arc::new(Schema::new(fields));
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
            .set_created_by(format!("studysync {}", env!("CARGO_PKG_VERSION")))
            .build();
        let writer = ArrowWriter::try_new(Vec::new(), Arc::clone(&schema), Some(properties)).map_err(unwritable)?;
        Ok(ParquetRows { writer, schema })
    }

    /// Adds rows, and writes the bytes of finished row groups to `out`.
    pub fn write(&mut self, out: &mut dyn Write, batch: &RecordBatch) -> io::Result<()> {
        let fields = batch.columns().iter().zip(self.schema.fields());
        let columns = fields.map(|(column, field)| fit_column(column, field)).collect::<Result<Vec<_>, _>>();
        let batch = columns.and_then(|columns| RecordBatch::try_new(Arc::clone(&self.schema), columns));
        let batch = batch.map_err(io::Error::other)?;
        self.writer.write(&batch).map_err(unwritable)?;
        if self.writer.in_progress_size() > ROW_GROUP_BYTES {
            self.writer.flush().map_err(unwritable)?;
        }
        // The writer keeps its own count of the bytes, so its buffer can be emptied.
        let ready = std::mem::take(self.writer.inner_mut());
        out.write_all(&ready)
    }

    /// Finishes the file, and writes the remaining bytes to `out`.
    pub fn finish(self, out: &mut dyn Write) -> io::Result<()> {
        let rest = self.writer.into_inner().map_err(unwritable)?;
        out.write_all(&rest)
    }
}

/// Returns a field of a query result as the file declares it. A time without a zone gets the zone UTC, because all
/// times are UTC. Every field is nullable, so that each column can contain NULL.
fn file_field(field: &Field) -> Field {
    let data_type = match field.data_type() {
        DataType::Timestamp(TimeUnit::Microsecond, None) => {
            DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into()))
        }
        other => other.clone(),
    };
    field.clone().with_data_type(data_type).with_nullable(true)
}

fn unwritable(error: parquet::errors::ParquetError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
