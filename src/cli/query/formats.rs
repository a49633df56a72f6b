//! Writes rows as CSV, JSON lines, a JSON array or Parquet. Each format streams: only some batches are in memory at a
//! time.

use std::{
    io::{self, Write},
    sync::Arc,
};

use arrow::{
    array::{
        Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray, RecordBatch, StringArray,
        types::{Float32Type, Float64Type},
    },
    datatypes::{DataType, Field, FieldRef, Schema},
    error::ArrowError,
    json::writer::{Encoder, EncoderFactory, EncoderOptions, LineDelimited, NullableEncoder, WriterBuilder},
    util::display::{ArrayFormatter, FormatOptions},
};
use serde::Serialize;

use crate::load::ParquetRows;

use super::moments;

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
        with_texts(batch).and_then(|batch| writer.write(&batch)).map_err(io::Error::other)?;
        drop(writer);
        self.has_header = true;
        out.write_all(&text)
    }

    fn finish(&mut self, _: &mut dyn Write) -> io::Result<()> {
        Ok(())
    }
}

/// Replaces columns of times by their text, because the CSV writer cannot write every time.
fn with_texts(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let with_text = |(field, column): (&FieldRef, &ArrayRef)| {
        if !moments::is_moment(field.data_type()) {
            return Ok((Arc::clone(field), Arc::clone(column)));
        }
        let formatter = moments::formatter(column.as_ref(), &FormatOptions::default())?;
        let text = |row| column.is_valid(row).then(|| formatter.value(row).try_to_string()).transpose();
        let texts = (0..column.len()).map(text).collect::<Result<StringArray, _>>()?;
        let field = Field::new(field.name(), DataType::Utf8, true);
        Ok((Arc::new(field), Arc::new(texts) as ArrayRef))
    };
    let columns: Vec<_> =
        batch.schema().fields().iter().zip(batch.columns()).map(with_text).collect::<Result<_, ArrowError>>()?;
    let (fields, columns): (Vec<FieldRef>, Vec<ArrayRef>) = columns.into_iter().unzip();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
}

/// One JSON object per line, with NULLs.
#[derive(Debug)]
pub(super) struct Json;

impl RowWriter for Json {
    fn write(&mut self, out: &mut dyn Write, batch: &RecordBatch) -> io::Result<()> {
        out.write_all(&json_lines(batch)?)
    }

    fn finish(&mut self, _: &mut dyn Write) -> io::Result<()> {
        Ok(())
    }
}

/// One JSON array, with an object for each row on a line of its own.
#[derive(Debug, Default)]
pub(super) struct JsonArray {
    has_rows: bool,
}

impl RowWriter for JsonArray {
    fn write(&mut self, out: &mut dyn Write, batch: &RecordBatch) -> io::Result<()> {
        // A line break in a value is escaped, so each line is a whole object.
        for object in json_lines(batch)?.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            out.write_all(if self.has_rows { ",\n" } else { "[" }.as_bytes())?;
            out.write_all(object)?;
            self.has_rows = true;
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(if self.has_rows { "]\n" } else { "[]\n" }.as_bytes())
    }
}

fn json_lines(batch: &RecordBatch) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let builder = WriterBuilder::new().with_explicit_nulls(true).with_encoder_factory(Arc::new(Encoders));
    let mut writer = builder.build::<_, LineDelimited>(&mut text);
    writer.write(batch).and_then(|()| writer.finish()).map_err(io::Error::other)?;
    drop(writer);
    Ok(text)
}

/// Makes the encoders of values that Arrow does not write as JSON, or writes as NULL.
#[derive(Debug)]
struct Encoders;

impl EncoderFactory for Encoders {
    fn make_default_encoder<'a>(
        &self,
        _: &'a FieldRef,
        array: &'a dyn Array,
        _: &'a EncoderOptions,
    ) -> Result<Option<NullableEncoder<'a>>, ArrowError> {
        let encoder: Box<dyn Encoder + 'a> = match array.data_type() {
            DataType::Float32 => match floats::<Float32Type>(array) {
                Some(floats) => Box::new(floats),
                None => return Ok(None),
            },
            DataType::Float64 => match floats::<Float64Type>(array) {
                Some(floats) => Box::new(floats),
                None => return Ok(None),
            },
            data_type if moments::is_moment(data_type) => {
                Box::new(Times(moments::formatter(array, &FormatOptions::default())?))
            }
            _ => return Ok(None),
        };
        Ok(Some(NullableEncoder::new(encoder, array.nulls().cloned())))
    }
}

/// Writes numbers of which some are infinite or none: JSON has no such numbers, so these are the texts that the engine
/// and other programs read as numbers.
struct Floats<'a, T: ArrowPrimitiveType>(&'a PrimitiveArray<T>);

/// Returns an encoder if a value is infinite or no number.
fn floats<T: ArrowPrimitiveType<Native: Into<f64>>>(array: &dyn Array) -> Option<Floats<'_, T>> {
    let values = array.as_primitive::<T>();
    values.iter().flatten().any(|value| !value.into().is_finite()).then_some(Floats(values))
}

impl<T: ArrowPrimitiveType<Native: Into<f64> + Serialize>> Encoder for Floats<'_, T> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        let value = self.0.value(row);
        let text: &[u8] = match value.into() {
            number if number.is_finite() => {
                // Writing a number to memory cannot fail.
                serde_json::to_writer(out, &value).ok();
                return;
            }
            number if number.is_nan() => b"\"NaN\"",
            number if number > 0.0 => b"\"Infinity\"",
            _ => b"\"-Infinity\"",
        };
        out.extend_from_slice(text);
    }
}

/// Writes times as texts, which need no escapes.
struct Times<'a>(ArrayFormatter<'a>);

impl Encoder for Times<'_> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        // Writing to memory cannot fail.
        write!(out, "\"{}\"", self.0.value(row)).ok();
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

/// Writes the rows of a result in one format.
pub(super) trait RowWriter {
    /// Writes the next rows, or stores them until [`RowWriter::finish`]. The first batch has no rows, only the columns.
    fn write(&mut self, out: &mut dyn Write, batch: &RecordBatch) -> io::Result<()>;

    /// Writes the end of the output, and all rows that were stored.
    fn finish(&mut self, out: &mut dyn Write) -> io::Result<()>;
}
