//! Accepted and refused times, and the fast path compared with chrono.

use chrono::DateTime;
use proptest::prelude::*;

use super::*;

fn moment(text: &str) -> Option<i64> {
    read_timestamp(&serde_json::to_string(text).unwrap())
}

const MORNING_US: i64 = 1_769_847_330_000_000;

#[test]
fn every_accepted_form_is_read() {
    for (text, micros) in [
        ("2026-01-31T08:15:30Z", 0),
        ("2026-01-31T08:15:30.1Z", 100_000),
        ("2026-01-31T08:15:30.123Z", 123_000),
        ("2026-01-31T08:15:30.123456Z", 123_456),
        ("2026-01-31T08:15:30.123456789Z", 123_456),
        ("2026-01-31T10:15:30.5+02:00", 500_000),
        ("2026-01-31T03:15:30-05:00", 0),
        ("2026-01-31T08:15:30", 0),
        ("2026-01-31 08:15:30", 0),
        ("2026-01-31 08:15:30.25", 250_000),
        ("2026-01-31t08:15:30z", 0),
        ("2026-01-31T08:14:60Z", -30_000_000),
    ] {
        assert_eq!(moment(text), Some(MORNING_US + micros), "{text}");
    }
    assert_eq!(read_timestamp(r#""2026\u002d01-31T08:15:30Z""#), Some(MORNING_US));
    assert_eq!(read_timestamp("1769847330123"), Some(MORNING_US + 123_000));
    assert_eq!(read_timestamp("1.769847330123e12"), Some(MORNING_US + 123_000));
    for other_unit in ["1769847330", "1769847330.123", "1.76984733e9", "1769847330000000", "1769847330000000999"] {
        let fraction = if other_unit.ends_with(".123") { 123_000 } else { 0 };
        assert_eq!(read_timestamp(other_unit), Some(MORNING_US + fraction), "{other_unit}");
        assert!(has_guessed_unit(other_unit));
    }
    assert!(!has_guessed_unit("1769847330123") && !has_guessed_unit("\"2026-01-31T08:15:30Z\""));
    assert_eq!(read_timestamp("0"), Some(0));
    assert_eq!(moment("0001-01-01T00:00:00Z"), Some(MOMENTS_US.start));
    assert_eq!(moment("0000-12-31T23:59:59Z"), None, "readers of Parquet and Python know no year 0");
    assert_eq!(moment("9999-12-31T23:59:59.999999Z"), Some(MOMENTS_US.end - 1));
}

#[test]
fn other_values_are_refused() {
    for text in [
        "",
        "yesterday",
        "2026-01-31",
        "2026-02-30T00:00:00Z",
        "2025-02-29T00:00:00Z",
        "1900-02-29T00:00:00Z",
        "2026-13-01T00:00:00Z",
        "2026-00-01T00:00:00Z",
        "2026-01-00T00:00:00Z",
        "2026-01-31T24:00:00Z",
        "2026-01-31T08:60:00Z",
        "2026-01-31T08:15:61Z",
        "2026-01-31T08:15:30.Z",
        "2026-01-31T08:15:30.12xZ",
        "2026-01-31T08:15:30ZZ",
        "2026-01-31T08:15:30 +02:00 ",
        "+2026-01-31T08:15:30Z",
        "１２３４-01-31T08:15:30Z",
        "1769847330123",
    ] {
        assert_eq!(moment(text), None, "{text}");
    }
    for raw in ["true", "null", "[]", "{}", "1.5", "1e400", "9223372036854775807", "253402300800000", "\""] {
        assert_eq!(read_timestamp(raw), None, "{raw}");
    }
}

proptest! {
    #[test]
    fn the_fast_path_agrees_with_chrono(
        (year, month, day) in (0..=9999_u32, 0..=13_u32, 0..=32_u32),
        (hour, minute, second) in (0..=24_u32, 0..=60_u32, 0..=59_u32),
        fraction in "(\\.[0-9]{1,6})?",
    ) {
        let text = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z");
        let expected = DateTime::parse_from_rfc3339(&text).ok().map(|moment| moment.timestamp_micros());
        prop_assert_eq!(parse_utc(text.as_bytes()), expected, "{}", text);
    }

    #[test]
    fn the_fast_path_refuses_what_chrono_refuses(at in 0..24_usize, byte in 32..127_u8) {
        let mut text = b"2026-01-31T08:15:30.123Z".to_vec();
        text[at] = byte;
        let text = String::from_utf8(text).unwrap();
        if let Some(micros) = parse_utc(text.as_bytes()) {
            prop_assert_eq!(DateTime::parse_from_rfc3339(&text).unwrap().timestamp_micros(), micros);
        }
    }
}
