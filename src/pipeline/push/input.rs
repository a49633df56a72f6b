//! The input of a push: rows of a file, of standard input or of a query over the warehouse. A separate thread reads
//! some rows ahead of the lanes.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use arrow::record_batch::RecordBatch;
use tokio::sync::mpsc;

use crate::{
    config::{Settings, WarehouseSettings},
    load::{LoadError, json_rows, read_parquet_file},
    pipeline::{
        assemble::open_reader,
        error::PipelineError,
        memory::{ByteBudget, Memory, Reservation},
    },
    text::{Encoding, decoding},
    upsert::{InputError, Row, RowSink, check_columns, read_csv, read_ndjson, read_table_row},
};

/// The maximum number of rows that are read ahead of the lanes. [`ByteBudget`] limits their bytes.
const ROWS_AHEAD: usize = 256;
/// Time limit of a query.
const QUERY_TIME: Duration = Duration::from_secs(24 * 3600);

/// Where rows come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PushInput {
    File(PathBuf, InputFormat),
    /// CSV or NDJSON.
    Stdin(InputFormat),
    /// One SELECT over the warehouse.
    Query(String),
}

/// The format and encoding of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputFormat {
    pub format: PushFormat,
    /// The encoding of text without a byte order mark; `None` is UTF-8.
    pub encoding: Option<Encoding>,
}

/// The file format of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushFormat {
    Csv,
    Ndjson,
    Parquet,
}

impl PushFormat {
    /// Returns the format for the extension of a file name, or `None` for an unknown extension.
    pub fn of(path: &Path) -> Option<PushFormat> {
        let extension = path.extension()?.to_str()?.to_ascii_lowercase();
        match extension.as_str() {
            "csv" | "tsv" => Some(PushFormat::Csv),
            "ndjson" | "jsonl" => Some(PushFormat::Ndjson),
            "parquet" => Some(PushFormat::Parquet),
            _ => None,
        }
    }
}

/// An event of the thread that reads the input.
pub(super) enum InputEvent {
    /// A row, and the reservation of its memory, which the row has until it is answered.
    Row(Row, Reservation),
    /// The input has ended; no event follows.
    Ended(Result<(), PipelineError>),
}

/// Starts the thread that reads the input. The thread ends after the last row. If the receiver is dropped, the thread
/// ends at the next row that it reads.
pub(super) fn start_reading(input: &PushInput, settings: &Settings) -> mpsc::Receiver<InputEvent> {
    let (sender, receiver) = mpsc::channel(ROWS_AHEAD);
    let (input, warehouse) = (input.clone(), settings.warehouse.clone());
    let budget = ByteBudget::new(Memory::of(&warehouse).bodies);
    // The thread is never joined, because a read of standard input may never return.
    std::thread::spawn(move || {
        let ended = read(&input, &warehouse, &mut |row| {
            let memory = budget.reserve(row.memory_bytes());
            sender.blocking_send(InputEvent::Row(row, memory)).is_ok()
        });
        sender.blocking_send(InputEvent::Ended(ended)).ok();
    });
    receiver
}

/// Reads the rows on this thread, and passes each row to `take` until `take` returns false.
pub(super) fn read(
    input: &PushInput,
    warehouse: &WarehouseSettings,
    take: &mut RowSink<'_>,
) -> Result<(), PipelineError> {
    match input {
        PushInput::File(path, InputFormat { format: PushFormat::Parquet, .. }) => {
            read_parquet(path, Memory::of(warehouse), take)
        }
        PushInput::File(path, format) => {
            let opened = File::open(path);
            let file = opened.map_err(|source| PipelineError::InputFile { path: path.clone(), source })?;
            read_text(file, *format, take)
        }
        PushInput::Stdin(format) => read_text(io::stdin().lock(), *format, take),
        PushInput::Query(sql) => read_query(sql, warehouse, take),
    }
}

/// Reads the rows of a CSV or NDJSON text, and passes them to `take`.
fn read_text(input: impl io::Read, format: InputFormat, take: &mut RowSink<'_>) -> Result<(), PipelineError> {
    let input = decoding(input, format.encoding).map_err(|error| PipelineError::Input(InputError::Read(error)))?;
    let read = match format.format {
        PushFormat::Csv => read_csv(input, take),
        PushFormat::Ndjson => read_ndjson(input, take),
        PushFormat::Parquet => Err(InputError::Columns("Parquet is read from a file only".to_owned())),
    };
    read.map_err(PipelineError::Input)
}

/// Why the reading of record batches ends early.
#[derive(Debug, thiserror::Error)]
enum ReadStop {
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Input(InputError),
    /// `take` returned false.
    #[error("no further row is wanted")]
    NotWanted,
}

/// Splits record batches into rows.
struct BatchReader<'t, 'a> {
    take: &'t mut RowSink<'a>,
    /// Number of rows read so far.
    rows: u64,
    /// The maximum size of the rows that are converted at a time.
    bytes_max: usize,
}

impl BatchReader<'_, '_> {
    /// Fails if the columns are not those of a push.
    fn check_schema(schema: &arrow::datatypes::Schema) -> Result<(), ReadStop> {
        let names = schema.fields().iter().map(|field| field.name().as_str());
        check_columns(names).map_err(|problem| ReadStop::Input(InputError::Columns(problem)))
    }

    /// Passes each row of a batch to `take`. Returns `NotWanted` if `take` returns false.
    fn take(&mut self, batch: &RecordBatch) -> Result<(), ReadStop> {
        let rows = batch.num_rows();
        let row_bytes = batch.get_array_memory_size() / rows.max(1);
        let at_once = self.bytes_max.checked_div(row_bytes).unwrap_or(rows).max(1);
        for begin in (0..rows).step_by(at_once) {
            let text = json_rows(&batch.slice(begin, at_once.min(rows - begin)))?;
            for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                self.rows += 1;
                if !read_table_row(self.rows, line, self.take) {
                    return Err(ReadStop::NotWanted);
                }
            }
        }
        Ok(())
    }
}

/// Returns the error of a read. A read that ended because no further row was wanted succeeded.
fn outcome(read: Result<(), ReadStop>) -> Result<(), PipelineError> {
    match read {
        Ok(()) | Err(ReadStop::NotWanted) => Ok(()),
        Err(ReadStop::Load(error)) => Err(PipelineError::InputTable(error)),
        Err(ReadStop::Input(error)) => Err(PipelineError::Input(error)),
    }
}

fn read_parquet(path: &Path, shares: Memory, take: &mut RowSink<'_>) -> Result<(), PipelineError> {
    let mut batches = BatchReader { take, rows: 0, bytes_max: shares.bodies };
    let check = |schema: &arrow::datatypes::SchemaRef| BatchReader::check_schema(schema);
    outcome(read_parquet_file(path, shares.bodies, check, |batch| batches.take(&batch).map(|()| true)))
}

fn read_query(sql: &str, warehouse: &WarehouseSettings, take: &mut RowSink<'_>) -> Result<(), PipelineError> {
    let (_, mut reader) = open_reader(warehouse, QUERY_TIME)?;
    let mut batches = BatchReader { take, rows: 0, bytes_max: Memory::of(warehouse).bodies };
    let mut is_checked = false;
    let read = reader.stream(sql, usize::MAX, |batch| {
        if !std::mem::replace(&mut is_checked, true) {
            BatchReader::check_schema(&batch.schema())?;
        }
        batches.take(&batch)
    });
    outcome(read.map(drop))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p8_wide_rows_of_a_table_are_converted_in_parts() {
        let text = "x".repeat(100);
        let ids: Vec<String> = (0..50).map(|id| format!("{id}{text}")).collect();
        let column: arrow::array::ArrayRef = std::sync::Arc::new(arrow::array::StringArray::from(ids.clone()));
        let batch = RecordBatch::try_from_iter([("userId", column)]).unwrap();
        for bytes_max in [0, 300, 1 << 20] {
            let mut rows = Vec::new();
            let mut take = |row: Row| {
                rows.push((row.number, row.read.unwrap().user_id));
                true
            };
            BatchReader { take: &mut take, rows: 0, bytes_max }.take(&batch).unwrap();
            assert!(rows.iter().map(|(number, id)| (*number, id)).eq((1..).zip(&ids)), "{bytes_max}");
        }
    }
}
