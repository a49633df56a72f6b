//! One JSON object a line. Lines with nothing in them are passed over, and not counted.

use std::io::{BufRead, BufReader, Read};

use super::{InputError, ROW_BYTES_MAX, Row, SetAside, Take, take_json};

/// Hands over each row.
///
/// # Errors
/// If the bytes stop coming.
pub fn read_ndjson(input: impl Read, take: &mut Take<'_>) -> Result<(), InputError> {
    let mut input = BufReader::new(input);
    let (mut line, mut number) = (Vec::new(), 0);
    loop {
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
        let text = line.trim_ascii();
        if text.is_empty() {
            continue;
        }
        number += 1;
        let goes_on = match is_cut {
            true => {
                let reason = format!("the row is longer than {ROW_BYTES_MAX} bytes");
                take(Row { number, read: Err(SetAside::of(reason)) })
            }
            false => take_json(number, text, take),
        };
        if !goes_on {
            return Ok(());
        }
    }
}

/// Reads over the rest of a line, without keeping it.
fn skip_line(input: &mut impl BufRead) -> Result<(), InputError> {
    loop {
        let buffer = input.fill_buf().map_err(InputError::Read)?;
        let (count, is_over) = match buffer.iter().position(|byte| *byte == b'\n') {
            Some(at) => (at + 1, true),
            None => (buffer.len(), buffer.is_empty()),
        };
        input.consume(count);
        if is_over {
            return Ok(());
        }
    }
}
