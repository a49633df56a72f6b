//! Entry points for the fuzzer; compiled for fuzzing only.

use crate::json::moments;

/// The moment that a JSON value names, in microseconds.
pub fn read_timestamp(raw: &str) -> Option<i64> {
    moments::read_timestamp(raw)
}

/// The moment that a text names, in microseconds.
pub fn read_text_moment(text: &str) -> Option<i64> {
    moments::parse(text)
}
