//! Parses times to epoch microseconds.
//!
//! Three forms are accepted: RFC 3339 (any offset, up to nine fraction digits, `T` or a space), the same form without a
//! zone, which means UTC, and a number since the epoch. The magnitude of a number decides its unit, because the
//! service's contract names no unit for the times of people. Digits after the microsecond are cut. A leap second
//! (`:60`) is the first second of the next minute. Any other text is not a time.

use chrono::DateTime;

use super::{Shape, read_integer, read_number, shape, unescaped};
use crate::model::EpochUnit;

const SECOND_US: i64 = 1_000_000;
const DAY_SECS: i64 = 86_400;
/// The smallest epoch number with a fraction that is accepted: in seconds, a time in 1973.
const FRACTION_MIN: f64 = 1e8;
/// The accepted times, from 0001-01-01 to 9999-12-31: those that every reader of the warehouse can show.
const MOMENTS_US: std::ops::Range<i64> = -62_135_596_800 * SECOND_US..253_402_300_800 * SECOND_US;

/// Parses a JSON value as a time, to epoch microseconds. `None` if the value is not a time, or outside of
/// [`MOMENTS_US`].
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

/// Returns true for a number that is not whole epoch milliseconds, so that [`read_timestamp`] guesses its unit from its
/// magnitude. False for other values.
pub(crate) fn has_guessed_unit(raw: &str) -> bool {
    let number = read_number(raw);
    number.is_some_and(|number| EpochUnit::of(number) != EpochUnit::Milliseconds || read_integer(raw).is_none())
}

/// Converts an epoch number to microseconds. The magnitude of the number decides its unit. An integer in a unit finer
/// than the microsecond is rounded down. `None` for a small number with a fraction, and if the result does not fit.
fn read_epoch(raw: &str) -> Option<i64> {
    let number = read_number(raw)?;
    let per_second = EpochUnit::of(number).per_second();
    match read_integer(raw) {
        Some(integer) if per_second <= SECOND_US => integer.checked_mul(SECOND_US / per_second),
        Some(integer) => Some(integer.div_euclid(per_second / SECOND_US)),
        // A small number with a fraction is not a time.
        None if number.abs() < FRACTION_MIN => None,
        None => Some((number * (SECOND_US as f64 / per_second as f64)).round() as i64),
    }
}

/// Parses a text as a time, to epoch microseconds.
pub(crate) fn parse(text: &str) -> Option<i64> {
    parse_utc(text.as_bytes()).or_else(|| parse_any(text)).filter(|micros| MOMENTS_US.contains(micros))
}

/// Parses the usual form, `2026-01-31T08:15:30.123Z` with up to six fraction digits. Returns `None` for other forms,
/// which may be times too.
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

/// Parses `Z` or `.digitsZ` as a fraction of a second, in microseconds.
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

/// Returns the number of two decimal digits.
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

/// Returns the days since 1970-01-01 in the Gregorian calendar. Years begin in March here, so that the leap day is the
/// last day of its year.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    const DAYS_BEFORE_EPOCH: i64 = 719_468;
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - DAYS_BEFORE_EPOCH
}

/// Parses the other accepted forms of a time with chrono.
fn parse_any(text: &str) -> Option<i64> {
    let moment = match DateTime::parse_from_rfc3339(text) {
        Ok(moment) => moment,
        // Succeeds only if the text has no zone: a second zone is an error.
        Err(_) => DateTime::parse_from_rfc3339(&format!("{text}Z")).ok()?,
    };
    Some(moment.timestamp_micros())
}

#[cfg(test)]
mod tests;
