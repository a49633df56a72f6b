//! Moments as services write them, as microseconds since the epoch in UTC.
//!
//! Read are RFC 3339 (any offset, up to nine fraction digits, `T` or a space), the same without a zone, which then
//! means UTC, and a number since the epoch, whose magnitude tells its unit (the contract names none for people). Digits
//! beyond the microsecond are cut. A leap second (`:60`) is the first moment of the next minute. Nothing is guessed:
//! any other text is no moment.

use chrono::DateTime;

use super::{Shape, read_integer, read_number, shape, unescaped};
use crate::model::EpochUnit;

const SECOND_US: i64 = 1_000_000;
const DAY_SECS: i64 = 86_400;
/// The least number that may have a fraction: of seconds, one of 1973.
const FRACTION_MIN: f64 = 1e8;
/// Midnight of 0001-01-01 and of 10000-01-01: what every reader of the warehouse can show.
const MOMENTS_US: std::ops::Range<i64> = -62_135_596_800 * SECOND_US..253_402_300_800 * SECOND_US;

/// The moment that a JSON value names.
pub(crate) fn read_timestamp(raw: &str) -> Option<i64> {
    match shape(raw) {
        Shape::Text => {
            let inner = raw.get(1..raw.len().checked_sub(1)?)?;
            parse(inner).or_else(|| parse(&unescaped(inner).text))
        }
        Shape::Number => read_epoch(raw).filter(|micros| MOMENTS_US.contains(micros)),
        _ => None,
    }
}

/// Whether a JSON value is a number that is no whole number of epoch milliseconds.
pub(crate) fn is_of_another_unit(raw: &str) -> bool {
    let number = read_number(raw);
    number.is_some_and(|number| EpochUnit::of(number) != EpochUnit::Milliseconds || read_integer(raw).is_none())
}

fn read_epoch(raw: &str) -> Option<i64> {
    let number = read_number(raw)?;
    let per_second = EpochUnit::of(number).per_second();
    match read_integer(raw) {
        Some(whole) if per_second <= SECOND_US => whole.checked_mul(SECOND_US / per_second),
        Some(whole) => Some(whole.div_euclid(per_second / SECOND_US)),
        // A fraction of a number too small to be a moment of today says nothing.
        None if number.abs() < FRACTION_MIN => None,
        None => Some((number * (SECOND_US as f64 / per_second as f64)).round() as i64),
    }
}

/// The moment that a text names.
pub(crate) fn parse(text: &str) -> Option<i64> {
    parse_utc(text.as_bytes()).or_else(|| parse_any(text)).filter(|micros| MOMENTS_US.contains(micros))
}

/// The form that services send: `2026-01-31T08:15:30.123Z`, with up to six fraction digits. `None` means only that it
/// is another one.
fn parse_utc(text: &[u8]) -> Option<i64> {
    let (date_time, rest) = text.split_first_chunk::<19>()?;
    let [y0, y1, y2, y3, b'-', m0, m1, b'-', d0, d1, b'T', h0, h1, b':', n0, n1, b':', s0, s1] = *date_time else {
        return None;
    };
    let year = pair(y0, y1)? * 100 + pair(y2, y3)?;
    let (month, day) = (pair(m0, m1)?, pair(d0, d1)?);
    let (hour, minute, second) = (pair(h0, h1)?, pair(n0, n1)?, pair(s0, s1)?);
    if !(1..=12).contains(&month)
        || day < 1
        || day > days_in_month(year, month)
        || hour > 23
        || minute > 59
        || second > 59
    {
        return None;
    }
    let seconds = days_since_epoch(year, month, day) * DAY_SECS + hour * 3600 + minute * 60 + second;
    Some(seconds * SECOND_US + fraction_us(rest)?)
}

/// Microseconds of `Z` or `.digitsZ`.
fn fraction_us(rest: &[u8]) -> Option<i64> {
    let rest = rest.strip_suffix(b"Z")?;
    if rest.is_empty() {
        return Some(0);
    }
    let digits = rest.strip_prefix(b".")?;
    if !(1..=6).contains(&digits.len()) {
        return None;
    }
    let mut micros = 0;
    for digit in digits {
        micros = micros * 10 + i64::from(digit.is_ascii_digit().then(|| digit - b'0')?);
    }
    const SCALE: [i64; 7] = [1_000_000, 100_000, 10_000, 1000, 100, 10, 1];
    Some(micros * SCALE.get(digits.len())?)
}

fn pair(tens: u8, ones: u8) -> Option<i64> {
    (tens.is_ascii_digit() && ones.is_ascii_digit()).then(|| i64::from(tens - b'0') * 10 + i64::from(ones - b'0'))
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Days from 1970-01-01 in the Gregorian calendar. Years begin in March here, so that the leap day is the last of its
/// year.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    const DAYS_BEFORE_EPOCH: i64 = 719_468;
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - DAYS_BEFORE_EPOCH
}

/// Every other form, through chrono's reader of RFC 3339.
fn parse_any(text: &str) -> Option<i64> {
    let moment = match DateTime::parse_from_rfc3339(text) {
        Ok(moment) => moment,
        // Only a missing zone can make this one succeed: a text that names a zone would name two.
        Err(_) => DateTime::parse_from_rfc3339(&format!("{text}Z")).ok()?,
    };
    Some(moment.timestamp_micros())
}

#[cfg(test)]
mod tests;
