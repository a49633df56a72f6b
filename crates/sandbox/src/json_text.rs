//! JSON text of values that serde_json does not know, and of single members. Every page is rendered with these
//! functions, so they use neither a tree nor intermediate strings.

use chrono::{DateTime, Datelike as _, Timelike as _};
use serde::{Serialize, Serializer};
use uuid::Uuid;

/// Appends a value as JSON.
pub(crate) fn push<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    // Writing to a vector cannot fail, and no value of the sandbox has keys that are not strings.
    let _ = serde_json::to_writer(out, value);
}

/// Appends a member of an object, with a comma before it. The name needs no escaping.
pub(crate) fn push_member<T: Serialize + ?Sized>(out: &mut Vec<u8>, name: &str, value: &T) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
    push(out, value);
}

/// Returns a value as JSON text.
pub(crate) fn json_of<T: Serialize + ?Sized>(value: &T) -> String {
    // No value of the sandbox has keys that are not strings.
    serde_json::to_string(value).unwrap_or_default()
}

/// A UUID.
pub(crate) struct Id(pub(crate) u128);

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(Uuid::from_u128(self.0).hyphenated().encode_lower(&mut Uuid::encode_buffer()))
    }
}

/// The spelling of a timestamp. The contract says ISO 8601 and shows only `Millis`; the other spellings are for hostile
/// rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TimeStyle {
    /// `2026-01-31T08:15:30.123Z`
    #[default]
    Millis,
    /// `2026-01-31T08:15:30Z`, without the milliseconds.
    Seconds,
    /// `2026-01-31T10:15:30.123+02:00`
    Offset,
}

/// A timestamp: epoch milliseconds and their spelling. Only years from 0 to 9999 are supported.
#[derive(Clone, Copy)]
pub(crate) struct Time {
    pub(crate) at_ms: i64,
    pub(crate) style: TimeStyle,
}

impl From<i64> for Time {
    fn from(at_ms: i64) -> Self {
        Self { at_ms, style: TimeStyle::Millis }
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let shift_ms = if self.style == TimeStyle::Offset { 7_200_000 } else { 0 };
        let at = DateTime::from_timestamp_millis(self.at_ms + shift_ms).unwrap_or_default();
        let mut text = *b"0000-00-00T00:00:00.000+02:00";
        // chrono's own formatting takes many times as long, and pages consist of times to a large part.
        put_digits(&mut text[..4], at.year() as u32);
        put_digits(&mut text[5..7], at.month());
        put_digits(&mut text[8..10], at.day());
        put_digits(&mut text[11..13], at.hour());
        put_digits(&mut text[14..16], at.minute());
        put_digits(&mut text[17..19], at.second());
        put_digits(&mut text[20..23], at.timestamp_subsec_millis());
        let end = match self.style {
            TimeStyle::Millis => 23,
            TimeStyle::Seconds => 19,
            TimeStyle::Offset => text.len(),
        };
        if let Some(zone) = text.get_mut(end) {
            *zone = b'Z';
        }
        serializer.serialize_str(std::str::from_utf8(text.get(..=end).unwrap_or(&text)).unwrap_or_default())
    }
}

/// Writes the last decimal digits of a number, as many as `digits` is long.
fn put_digits(digits: &mut [u8], mut value: u32) {
    for byte in digits.iter_mut().rev() {
        *byte = b'0' + (value % 10) as u8;
        value /= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_agree_with_chrono() {
        let text = |at_ms: i64, style: TimeStyle| json_of(&Time { at_ms, style });
        for at_ms in (-2_208_988_800_000..4_102_444_800_000_i64).step_by(86_399_977 * 31) {
            let moment = DateTime::from_timestamp_millis(at_ms).unwrap();
            let expected = moment.format("\"%Y-%m-%dT%H:%M:%S%.3fZ\"").to_string();
            assert_eq!(text(at_ms, TimeStyle::Millis), expected);
            let offset = text(at_ms, TimeStyle::Offset);
            assert_eq!(DateTime::parse_from_rfc3339(offset.trim_matches('"')).unwrap(), moment);
        }
        assert_eq!(text(1_769_847_330_123, TimeStyle::Seconds), "\"2026-01-31T08:15:30Z\"");
    }

    #[test]
    fn uuids_agree_with_the_library() {
        let uuid = super::super::random::uuid_of(3, 4);
        assert_eq!(json_of(&Id(uuid)), format!("\"{}\"", Uuid::from_u128(uuid)));
        assert_eq!(Uuid::from_u128(uuid).get_version_num(), 4);
    }
}
