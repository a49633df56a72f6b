//! Writes rows as CSV, JSON lines or Parquet. Each format streams: only some batches are in memory at a time.

use std::{
    io::{self, Write},
    sync::Arc,
};

use arrow::{
    array::{Array, ArrayRef, RecordBatch, StringArray},
    datatypes::{DataType, Field, FieldRef, Schema},
    error::ArrowError,
    util::display::{ArrayFormatter, FormatOptions},
};

use crate::load::ParquetRows;

use super::rows::RowWriter;

/// CSV with a header.
#[derive(Debug, Default)]
pub(super) struct Csv {
    has_header: bool,
}

impl RowWriter for Csv {
    fn write(&mut self, out: &mut dyn Write, batch: &RecordBatch) -> io::Result<()> {
        // The batch is formatted in memory first, because the CSV writer would turn an error of the output into text
        // and hide a closed pipe.
        let mut text = Vec::new();
        let mut writer = arrow::csv::WriterBuilder::new().with_header(!self.has_header).build(&mut text);
        flat(batch).and_then(|batch| writer.write(&batch)).map_err(io::Error::other)?;
        drop(writer);
        self.has_header = true;
        out.write_all(&text)
    }

    fn finish(&mut self, _: &mut dyn Write) -> io::Result<()> {
        Ok(())
    }
}

/// Replaces columns of lists and structs by their text, because a CSV cell is a single text.
fn flat(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let flat_column = |(field, column): (&FieldRef, &ArrayRef)| {
        if !field.data_type().is_nested() {
            return Ok((Arc::clone(field), Arc::clone(column)));
        }
        let formatter = ArrayFormatter::try_new(column.as_ref(), &FormatOptions::default())?;
        let text = |row| column.is_valid(row).then(|| formatter.value(row).try_to_string()).transpose();
        let texts = (0..column.len()).map(text).collect::<Result<StringArray, _>>()?;
        let field = Field::new(field.name(), DataType::Utf8, true);
        Ok((Arc::new(field), Arc::new(texts) as ArrayRef))
    };
    let columns: Vec<_> =
        batch.schema().fields().iter().zip(batch.columns()).map(flat_column).collect::<Result<_, ArrowError>>()?;
    let (fields, columns): (Vec<FieldRef>, Vec<ArrayRef>) = columns.into_iter().unzip();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
}

/// One JSON object per line, with NULLs.
#[derive(Debug)]
pub(super) struct Json;

impl RowWriter for Json {
    fn write(&mut self, out: &mut dyn Write, batch: &RecordBatch) -> io::Result<()> {
        let mut text = Vec::new();
        let builder = arrow::json::writer::WriterBuilder::new().with_explicit_nulls(true);
        let mut writer = builder.build::<_, arrow::json::writer::LineDelimited>(&mut text);
        writer.write(batch).and_then(|()| writer.finish()).map_err(io::Error::other)?;
        drop(writer);
        out.write_all(&text)
    }

    fn finish(&mut self, _: &mut dyn Write) -> io::Result<()> {
        Ok(())
    }
}

/// A Parquet file, written row group by row group.
#[derive(Default)]
pub(super) struct Parquet {
    file: Option<ParquetRows>,
}

impl RowWriter for Parquet {
    fn write(&mut self, out: &mut dyn Write, batch: &RecordBatch) -> io::Result<()> {
        let mut file = match self.file.take() {
            Some(file) => file,
            None => ParquetRows::new(&batch.schema())?,
        };
        file.write(out, batch)?;
        self.file = Some(file);
        Ok(())
    }

    fn finish(&mut self, out: &mut dyn Write) -> io::Result<()> {
        self.file.take().map_or(Ok(()), |file| file.finish(out))
    }
}
