//! Appends JSON tokens to a byte buffer. Every page is rendered with these functions, so they use neither a tree nor
//! intermediate strings.

const HEX: &[u8; 16] = b"0123456789abcdef";
const DAY_MS: i64 = 86_400_000;

/// Appends an integer.
pub(crate) fn push_integer(out: &mut Vec<u8>, value: i64) {
    let mut digits = [0_u8; 20];
    let mut at = digits.len();
    let mut rest = value.unsigned_abs();
    loop {
        at -= 1; // u64::MAX has 20 digits, so `at` stays in range
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

/// Appends a UUID in quotes.
pub(crate) fn push_uuid(out: &mut Vec<u8>, uuid: u128) {
    let mut text = *b"\"00000000-0000-0000-0000-000000000000\"";
    let mut shift = 128;
    for byte in text.iter_mut().filter(|byte| **byte == b'0') {
        shift -= 4; // 32 zeros, four bits each
        *byte = HEX[(uuid >> shift) as usize & 15];
    }
    out.extend_from_slice(&text);
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

/// Appends a timestamp in quotes. Only years from 0 to 9999 are supported.
pub(crate) fn push_time(out: &mut Vec<u8>, at_ms: i64, style: TimeStyle) {
    let at_ms = if style == TimeStyle::Offset { at_ms + 7_200_000 } else { at_ms };
    let (year, month, day) = civil_date(at_ms.div_euclid(DAY_MS));
    let in_day = at_ms.rem_euclid(DAY_MS) as u64;
    let mut text = *b"\"0000-00-00T00:00:00";
    put_digits(&mut text[1..5], year as u64);
    put_digits(&mut text[6..8], month);
    put_digits(&mut text[9..11], day);
    put_digits(&mut text[12..14], in_day / 3_600_000);
    put_digits(&mut text[15..17], in_day / 60_000 % 60);
    put_digits(&mut text[18..20], in_day / 1000 % 60);
    out.extend_from_slice(&text);
    if style != TimeStyle::Seconds {
        let mut fraction = *b".000";
        put_digits(&mut fraction[1..], in_day % 1000);
        out.extend_from_slice(&fraction);
    }
    out.extend_from_slice(if style == TimeStyle::Offset { b"+02:00\"" } else { b"Z\"" });
}

/// Appends a time, or `null`.
pub(crate) fn push_time_or_null(out: &mut Vec<u8>, at_ms: Option<i64>, style: TimeStyle) {
    match at_ms {
        Some(at_ms) => push_time(out, at_ms, style),
        None => out.extend_from_slice(b"null"),
    }
}

/// Appends a text as a JSON string, in quotes and escaped.
pub(crate) fn push_text(out: &mut Vec<u8>, text: &str) {
    // Writing to a vector cannot fail, and a string is always valid JSON.
    let _ = serde_json::to_writer(out, text);
}

/// Returns the text as a JSON string, in quotes and escaped.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Writes the last decimal digits of a number, as many as `digits` is long.
fn put_digits(digits: &mut [u8], mut value: u64) {
    for byte in digits.iter_mut().rev() {
        *byte = b'0' + (value % 10) as u8;
        value /= 10;
    }
}

/// Converts a number of days since 1970-01-01 to year, month and day of the proleptic Gregorian calendar.
fn civil_date(day_number: i64) -> (i64, u64, u64) {
    let shifted = day_number + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month as u64, day as u64)
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn times_agree_with_chrono() {
        for at_ms in (-2_208_988_800_000..4_102_444_800_000_i64).step_by(86_399_977 * 31) {
            let moment = DateTime::from_timestamp_millis(at_ms).unwrap();
            let expected = moment.format("\"%Y-%m-%dT%H:%M:%S%.3fZ\"").to_string();
            assert_eq!(text(|out| push_time(out, at_ms, TimeStyle::Millis)), expected);
            let offset = text(|out| push_time(out, at_ms, TimeStyle::Offset));
            assert_eq!(DateTime::parse_from_rfc3339(offset.trim_matches('"')).unwrap(), moment);
        }
        assert_eq!(text(|out| push_time(out, 1_769_847_330_123, TimeStyle::Seconds)), "\"2026-01-31T08:15:30Z\"");
    }

    #[test]
    fn integers_and_uuids_agree_with_the_libraries() {
        for value in [0, 9, 10, -1, i64::MAX, i64::MIN, 1_769_847_330_123] {
            assert_eq!(text(|out| push_integer(out, value)), value.to_string());
        }
        let uuid = super::super::random::uuid_of(3, 4);
        assert_eq!(text(|out| push_uuid(out, uuid)), format!("\"{}\"", uuid::Uuid::from_u128(uuid)));
        assert_eq!(uuid::Uuid::from_u128(uuid).get_version_num(), 4);
    }
}
