//! Where rows come from: a file, standard input or a query over the warehouse,
//! read on a thread of its own a few rows ahead.

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
    text::{Encoding, decoding},
    upsert::{InputError, Row, RowSink, check_columns, read_csv, read_ndjson, read_table_row},
};

use super::super::{
    PipelineError,
    assemble::{failed, open_reader},
};

/// Rows that are read ahead of the lanes.
const ROWS_AHEAD: usize = 256;
/// What the engine may take for a query.
const QUERY_TIME: Duration = Duration::from_secs(24 * 3600);

/// Where rows come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PushInput {
    File(PathBuf, Written),
    /// CSV or NDJSON.
    Stdin(Written),
    /// One SELECT over the warehouse.
    Query(String),
}

/// How rows are written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    pub format: PushFormat,
    /// The encoding of text without a byte order mark; `None` is UTF-8.
    pub encoding: Option<Encoding>,
}

/// The format of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushFormat {
    Csv,
    Ndjson,
    Parquet,
}

impl PushFormat {
    /// The format that a file's name tells.
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

/// What the reader hands over.
pub(super) enum Fed {
    Row(Row),
    /// The last thing.
    Ended(Result<(), PipelineError>),
}

/// Begins to read. The reader ends with its input, or when nobody takes rows any more.
pub(super) fn feed(input: &PushInput, settings: &Settings) -> mpsc::Receiver<Fed> {
    let (sender, receiver) = mpsc::channel(ROWS_AHEAD);
    let (input, warehouse) = (input.clone(), settings.warehouse.clone());
    // A thread that nobody waits for: standard input may never say another word.
    std::thread::spawn(move || {
        let ended = read(&input, &warehouse, &mut |row| sender.blocking_send(Fed::Row(row)).is_ok());
        sender.blocking_send(Fed::Ended(ended)).ok();
    });
    receiver
}

/// Reads every row, on this thread.
pub(super) fn read(
    input: &PushInput,
    warehouse: &WarehouseSettings,
    take: &mut RowSink<'_>,
) -> Result<(), PipelineError> {
    match input {
        PushInput::File(path, Written { format: PushFormat::Parquet, .. }) => read_parquet(path, take),
        PushInput::File(path, written) => {
            let opened = File::open(path);
            let file = opened.map_err(|source| PipelineError::InputFile { path: path.clone(), source })?;
            read_text(file, *written, take)
        }
        PushInput::Stdin(written) => read_text(io::stdin().lock(), *written, take),
        PushInput::Query(sql) => read_query(sql, warehouse, take),
    }
}

fn read_text(input: impl io::Read, written: Written, take: &mut RowSink<'_>) -> Result<(), PipelineError> {
    let input = decoding(input, written.encoding).map_err(|error| PipelineError::Input(InputError::Read(error)))?;
    let read = match written.format {
        PushFormat::Csv => read_csv(input, take),
        PushFormat::Ndjson => read_ndjson(input, take),
        PushFormat::Parquet => Err(InputError::Columns("Parquet is read from a file only".to_owned())),
    };
    read.map_err(PipelineError::Input)
}

/// Why rows of batches are not read on.
enum Refused {
    Load(LoadError),
    Input(InputError),
    /// Nobody takes them.
    NotWanted,
}

impl From<LoadError> for Refused {
    fn from(error: LoadError) -> Self {
        Refused::Load(error)
    }
}

/// Takes batches apart.
struct Batches<'t, 'a> {
    take: &'t mut RowSink<'a>,
    rows: u64,
}

impl Batches<'_, '_> {
    fn begin(schema: &arrow::datatypes::Schema) -> Result<(), Refused> {
        let names = schema.fields().iter().map(|field| field.name().as_str());
        check_columns(names).map_err(|problem| Refused::Input(InputError::Columns(problem)))
    }

    fn take(&mut self, batch: &RecordBatch) -> Result<(), Refused> {
        let text = json_rows(batch)?;
        for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            self.rows += 1;
            if !read_table_row(self.rows, line, self.take) {
                return Err(Refused::NotWanted);
            }
        }
        Ok(())
    }
}

fn outcome(read: Result<(), Refused>, name: &'static str) -> Result<(), PipelineError> {
    match read {
        Ok(()) | Err(Refused::NotWanted) => Ok(()),
        Err(Refused::Load(error)) => Err(failed(name)(error)),
        Err(Refused::Input(error)) => Err(PipelineError::Input(error)),
    }
}

fn read_parquet(path: &Path, take: &mut RowSink<'_>) -> Result<(), PipelineError> {
    let mut batches = Batches { take, rows: 0 };
    let begin = |schema: &arrow::datatypes::SchemaRef| Batches::begin(schema);
    let read = read_parquet_file(path, begin, |batch| batches.take(&batch).map(|()| true));
    match read {
        Err(Refused::Load(source)) => Err(PipelineError::InputTable(source)),
        read => outcome(read, "parquet"),
    }
}

fn read_query(sql: &str, warehouse: &WarehouseSettings, take: &mut RowSink<'_>) -> Result<(), PipelineError> {
    let (name, mut reader) = open_reader(warehouse, QUERY_TIME)?;
    let mut batches = Batches { take, rows: 0 };
    let mut is_begun = false;
    let read = reader.stream(sql, usize::MAX, |batch| {
        if !std::mem::replace(&mut is_begun, true) {
            Batches::begin(&batch.schema())?;
        }
        batches.take(&batch)
    });
    match read.map(drop) {
        Err(Refused::Load(source)) => Err(PipelineError::InputTable(source)),
        read => outcome(read, name),
    }
}
