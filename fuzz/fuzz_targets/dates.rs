//! Times in the forms of people and services: the parser agrees with chrono, or rejects the text.

#![no_main]

use chrono::{DateTime, Datelike, Timelike};
use libfuzzer_sys::fuzz_target;
use studysync::{
    flatten::fuzzing::{read_text_moment, read_timestamp},
    model::{format_ms, parse_date},
    plan::Tier,
};

fuzz_target!(|text: &str| {
    if let Ok(at_ms) = parse_date(text) {
        let shown = format_ms(at_ms);
        // Years of more than four digits are printed in a form that the parser does not accept.
        if (-62_135_596_800_000..253_402_300_800_000).contains(&at_ms) {
            assert_eq!(parse_date(&shown), Ok(at_ms), "{text} is shown as {shown}");
        }
    }
    if let Ok(tier) = text.parse::<Tier>() {
        assert!(tier.every_ms >= 0 && tier.younger_than_ms.is_none_or(|age_ms| age_ms >= 0), "{tier:?}");
    }
    let moment = read_text_moment(text);
    if let Ok(known) = DateTime::parse_from_rfc3339(text) {
        let utc = known.to_utc();
        // A leap second is read as the first instant of the next minute.
        if (1..=9999).contains(&utc.year()) && utc.nanosecond() < 1_000_000_000 {
            assert_eq!(moment, Some(utc.timestamp_micros()), "{text}");
        }
    }
    // As a JSON value inside a record: the quoted text gives the same time, and valid JSON never fails.
    if !text.bytes().any(|byte| byte == b'"' || byte == b'\\' || byte < 0x20) {
        assert_eq!(read_timestamp(&format!("\"{text}\"")), moment, "{text}");
    }
    if serde_json::from_str::<&serde_json::value::RawValue>(text).is_ok() {
        read_timestamp(text.trim());
    }
});
