//! Reads NDJSON: one JSON object per line. Blank lines are skipped and not counted.

use std::io::{BufRead, BufReader, Read};

use super::{
    InputError, ROW_BYTES_MAX, Row, RowSink, UnsendableRow,
    row::{IdSource, read_json},
};
use crate::text::{bytes_without_mark, decoding};

/// Passes each row to `take` until `take` returns false. A row that cannot be sent is passed with the reason.
///
/// # Errors
/// If reading fails.
pub fn read_ndjson(input: impl Read, take: &mut RowSink<'_>) -> Result<(), InputError> {
    let mut input = BufReader::new(decoding(input, None).map_err(InputError::Read)?);
    let (mut line, mut number) = (Vec::new(), 0);
    for line_number in 1.. {
        line.clear();
        let limit = ROW_BYTES_MAX as u64 + 1;
        let read = input.by_ref().take(limit).read_until(b'\n', &mut line).map_err(InputError::Read)?;
        if read == 0 {
            return Ok(());
        }
        let is_cut = line.len() > ROW_BYTES_MAX && line.last() != Some(&b'\n');
        if is_cut {
            skip_line(&mut input)?;
        }
        // Files that were concatenated have byte order marks at the start of later lines.
        let text = bytes_without_mark(line.trim_ascii()).trim_ascii();
        if text.is_empty() {
            continue;
        }
        number += 1;
        let read = match is_cut {
            true => Err(UnsendableRow::of(format!("the row is longer than {ROW_BYTES_MAX} bytes"))),
            false => read_json(text, IdSource::Text),
        };
        if !take(Row { number, read: read.map_err(|aside| aside.on_line(line_number)) }) {
            return Ok(());
        }
    }
    Ok(())
}

/// Skips the rest of a line, including its line end.
fn skip_line(input: &mut impl BufRead) -> Result<(), InputError> {
    loop {
        let buffer = input.fill_buf().map_err(InputError::Read)?;
        let (count, is_end) = match buffer.iter().position(|byte| *byte == b'\n') {
            Some(at) => (at + 1, true),
            None => (buffer.len(), buffer.is_empty()),
        };
        input.consume(count);
        if is_end {
            return Ok(());
        }
    }
}
