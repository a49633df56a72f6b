//! Entry points for the fuzzer; compiled for fuzzing only.

use crate::json::moments;

/// Parses a JSON value as a time, in microseconds.
pub fn read_timestamp(raw: &str) -> Option<i64> {
    moments::read_timestamp(raw)
}

/// Parses a text as a time, in microseconds.
pub fn read_text_moment(text: &str) -> Option<i64> {
    moments::parse(text)
}
