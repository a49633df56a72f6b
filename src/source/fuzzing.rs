//! Entry points for the fuzzer; compiled for fuzzing only.

use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderValue, RETRY_AFTER};

/// Reads `Retry-After` from header lines. Lines that are no valid HTTP header value are left out.
pub fn retry_after(lines: &[&[u8]], date_ms: i64) -> Option<Duration> {
    let mut headers = HeaderMap::new();
    for value in lines.iter().filter_map(|line| HeaderValue::from_bytes(line).ok()) {
        headers.append(RETRY_AFTER, value);
    }
    super::retry_after::read(&headers, date_ms)
}
