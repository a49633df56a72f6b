//! Parses and formats times and durations as people write them. Times are epoch milliseconds in UTC (promise P7). The
//! magnitude of a number of seconds, milliseconds, microseconds or nanoseconds shows its unit.

use std::time::Duration;

use chrono::{DateTime, Months, NaiveDate, NaiveDateTime};

/// Milliseconds in a second.
pub const SECOND_MS: i64 = 1000;
/// Milliseconds in a minute.
pub const MINUTE_MS: i64 = 60_000;
/// Milliseconds in an hour.
pub const HOUR_MS: i64 = 60 * MINUTE_MS;
/// Milliseconds in a UTC day.
pub const DAY_MS: i64 = 24 * HOUR_MS;

/// Maximum difference between two right clocks.
const CLOCKS_DIFFER_MS_MAX: i64 = HOUR_MS;

/// Returns true if a stored time is further in the future than right clocks differ. So it comes from a clock that was
/// ahead and was set right, and proves nothing about the time since then.
pub fn is_in_future(at_ms: i64, now_ms: i64) -> bool {
    at_ms > now_ms.saturating_add(CLOCKS_DIFFER_MS_MAX)
}

/// Returns true if a stored time is less than `age_max_ms` old. A time in the future is not: see [`is_in_future`].
pub fn is_recent(at_ms: i64, now_ms: i64, age_max_ms: i64) -> bool {
    now_ms.saturating_sub(at_ms) < age_max_ms && !is_in_future(at_ms, now_ms)
}

/// Formats a time: `2026-01-31` at midnight, otherwise RFC 3339, with milliseconds if they are not zero.
pub fn format_ms(at_ms: i64) -> String {
    let Some(moment) = DateTime::from_timestamp_millis(at_ms) else {
        return format!("{at_ms} ms");
    };
    if at_ms.rem_euclid(DAY_MS) == 0 {
        moment.format("%Y-%m-%d").to_string()
    } else if at_ms.rem_euclid(1000) == 0 {
        moment.format("%Y-%m-%dT%H:%M:%SZ").to_string()
    } else {
        moment.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
    }
}

/// Formats a time, rounded down to the second.
pub fn format_second(at_ms: i64) -> String {
    format_ms(at_ms.div_euclid(1000) * 1000)
}

/// Numbers that are accepted as epoch milliseconds: the years 1973 to 5138. Smaller numbers are probably seconds,
/// larger ones microseconds or nanoseconds.
const EPOCH_MS: std::ops::Range<u128> = 100_000_000_000..100_000_000_000_000;
/// Epoch milliseconds that an error suggests for a number in another unit: the years 1973 to 2286.
const SUGGESTED_MS: std::ops::Range<u128> = 100_000_000_000..10_000_000_000_000;

/// The accepted forms of a date, for errors.
const DATE_FORMS: &str = "2026-01-31, 2026-01-31T08:00:00Z or epoch milliseconds (1769846400000)";

/// Parses a time: `2026-01-31` (midnight UTC), RFC 3339, or epoch milliseconds.
///
/// # Errors
/// If the text has another form or lies before 1970. The error names the accepted forms, or the time that was probably
/// meant.
pub fn parse_date(text: &str) -> Result<i64, String> {
    let text = text.trim();
    let since_1970 = |at_ms: i64| match at_ms {
        0.. => Ok(at_ms),
        _ => Err(format!("'{text}' is before 1970: is the year right?")),
    };
    if let Ok(day) = NaiveDate::parse_from_str(text, "%Y-%m-%d") {
        return since_1970(day.and_time(chrono::NaiveTime::MIN).and_utc().timestamp_millis());
    }
    if let Ok(moment) = DateTime::parse_from_rfc3339(text) {
        return since_1970(moment.timestamp_millis());
    }
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.len() >= 9 && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return parse_epoch(text);
    }
    if NaiveDateTime::parse_from_str(text, "%Y-%m-%dT%H:%M:%S%.f").is_ok() {
        return Err(format!("'{text}' has no time zone: write '{text}Z' for UTC"));
    }
    Err(format!("'{text}' is not a date: write {DATE_FORMS}"))
}

/// Parses epoch milliseconds. If the number is probably in another unit, the error suggests the same time in
/// milliseconds.
fn parse_epoch(text: &str) -> Result<i64, String> {
    let number: u128 = text.parse().map_err(|_| format!("'{text}' is too large, or before 1970"))?;
    let meant = match number {
        _ if EPOCH_MS.contains(&number) => return text.parse().map_err(|_| format!("'{text}' is too large")),
        _ if number < EPOCH_MS.start => Some(("seconds", number.saturating_mul(1000))),
        _ if SUGGESTED_MS.contains(&(number / 1000)) => Some(("microseconds", number / 1000)),
        _ if SUGGESTED_MS.contains(&(number / 1_000_000)) => Some(("nanoseconds", number / 1_000_000)),
        _ => None,
    };
    let suggestion = meant.and_then(|(unit, meant_ms)| {
        let meant_ms = i64::try_from(meant_ms).ok()?;
        Some(format!("'{text}' is in {unit}: write {meant_ms} (milliseconds), which is {}", format_ms(meant_ms)))
    });
    Err(suggestion.unwrap_or_else(|| format!("'{text}' is too large for epoch milliseconds")))
}

/// Parses a time in one of the forms of [`parse_date`], or a time relative to `now_ms`: `now`, `today`, `yesterday`
/// (midnight UTC), or a length before now such as `3y`, `6mo`, `7d` or `36h`. `2026-11` and `2026` are the start of the
/// month or year in UTC.
///
/// # Errors
/// If the text has another form or lies before 1970. The error names the accepted forms.
pub fn parse_moment(text: &str, now_ms: i64) -> Result<i64, String> {
    let text = text.trim();
    let midnight_ms = now_ms - now_ms.rem_euclid(DAY_MS);
    match text {
        "now" => return Ok(now_ms),
        "today" => return Ok(midnight_ms),
        "yesterday" => return Ok(midnight_ms - DAY_MS),
        _ => {}
    }
    if let Some(at_ms) = parse_month(text) {
        return Ok(at_ms);
    }
    if let Some(at_ms) = parse_ago(text, now_ms) {
        return if at_ms >= 0 { Ok(at_ms) } else { Err(format!("'{text}' ago is before 1970")) };
    }
    parse_date(text).map_err(|problem| match problem.ends_with(DATE_FORMS) {
        true => format!("{problem}; or 2026-01, 2026, 7d, 6mo, 3y, yesterday, today, now"),
        false => problem,
    })
}

/// Returns the time that lies a length such as `3y`, `1y6mo`, `7d` or `36h` before `now_ms`; `None` if the text is no
/// length. Years and months are those of the calendar.
fn parse_ago(text: &str, now_ms: i64) -> Option<i64> {
    let number_before = |text: &str, unit: &str| -> Option<u32> {
        let (number, _) = text.split_once(unit)?;
        number.bytes().all(|byte| byte.is_ascii_digit()).then(|| number.parse().ok())?
    };
    let (mut rest, mut months) = (text, 0_u32);
    for (unit, length) in [("y", 12), ("mo", 1)] {
        if let Some(number) = number_before(rest, unit) {
            months = months.checked_add(number.checked_mul(length)?)?;
            rest = rest.split_once(unit)?.1;
        }
    }
    let ago = match (months, rest) {
        (1.., "") => Duration::ZERO,
        (_, rest) => parse_duration(rest).ok()?,
    };
    let before = DateTime::from_timestamp_millis(now_ms)?.checked_sub_months(Months::new(months));
    let before_ms = before.map_or(i64::MIN, |before| before.timestamp_millis());
    Some(before_ms.saturating_sub(i64::try_from(ago.as_millis()).unwrap_or(i64::MAX)))
}

/// Parses `2026-11` or `2026` into the start of the month or year in UTC, in epoch milliseconds; `None` if the text has
/// another form or lies before 1970.
pub fn parse_month(text: &str) -> Option<i64> {
    let is_year = text.len() == 4 && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_month = text.len() == 7 && text.as_bytes().get(4) == Some(&b'-');
    let first = if is_year { format!("{text}-01-01") } else { format!("{text}-01") };
    let day = NaiveDate::parse_from_str(&first, "%Y-%m-%d").ok().filter(|_| is_year || is_month)?;
    let at_ms = day.and_time(chrono::NaiveTime::MIN).and_utc().timestamp_millis();
    (at_ms >= 0).then_some(at_ms)
}

/// Parses a duration: `90s`, `30m`, `2h`, `3h30m`, `30d`. Units go from large to small, each at most once.
///
/// # Errors
/// If the text has another form, or the duration is zero.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is not a duration: write 90s, 30m, 2h, 3h30m or 30d");
    let (mut rest, mut secs, mut larger_secs) = (text, 0_u64, u64::MAX);
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
        let number: u32 = rest[..digits].parse().map_err(|_| wrong())?;
        let unit_secs = match rest.as_bytes().get(digits) {
            Some(b's') => 1,
            Some(b'm') => 60,
            Some(b'h') => 3600,
            Some(b'd') => 86_400,
            _ => return Err(wrong()),
        };
        if unit_secs >= larger_secs {
            return Err(wrong());
        }
        secs += u64::from(number) * unit_secs;
        (rest, larger_secs) = (&rest[digits + 1..], unit_secs);
    }
    match (text, secs) {
        ("", _) => Err(wrong()),
        (_, 0) => Err(format!("'{text}' is a duration of zero: write a longer one")),
        _ => Ok(Duration::from_secs(secs)),
    }
}

/// Formats a number of seconds in its one or two largest units, rounded down: `45 s`, `12 min`, `3 h 20 min`,
/// `2 days 4 h`.
pub fn format_duration(secs: u64) -> String {
    let (minutes, hours, days) = (secs / 60, secs / 3600, secs / 86_400);
    let (large, rest) = match secs {
        0..60 => (format!("{secs} s"), None),
        60..3600 => (format!("{minutes} min"), None),
        3600..172_800 => (format!("{hours} h"), Some((minutes % 60, "min"))),
        _ => (format!("{days} days"), Some((hours % 24, "h"))),
    };
    match rest {
        Some((count @ 1.., unit)) => format!("{large} {count} {unit}"),
        _ => large,
    }
}

/// Formats a number of seconds like [`format_duration`], for narrow lines: `45s`, `12m`, `3h20m`, `2d4h`.
pub fn format_duration_short(secs: u64) -> String {
    format_duration(secs).replace("days", "d").replace("min", "m").replace(' ', "")
}

/// Formats a number of seconds like [`format_duration_short`], with the seconds below an hour: `45s`, `1m05s`, `3h20m`.
pub fn format_elapsed(secs: u64) -> String {
    match secs {
        60..3600 => format!("{}m{:02}s", secs / 60, secs % 60),
        _ => format_duration_short(secs),
    }
}

/// The unit of a number of time since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EpochUnit {
    Seconds,
    Milliseconds,
    Microseconds,
    Nanoseconds,
}

impl EpochUnit {
    /// Returns the unit of a number by its magnitude; milliseconds if the number fits no unit. For times after 1979 the
    /// ranges of the units do not overlap.
    pub fn of(number: f64) -> EpochUnit {
        match number.abs() {
            size if (1e8..1e11).contains(&size) => EpochUnit::Seconds,
            size if (3e14..3e17).contains(&size) => EpochUnit::Microseconds,
            size if (3e17..8e18).contains(&size) => EpochUnit::Nanoseconds,
            _ => EpochUnit::Milliseconds,
        }
    }

    /// Returns how many of these units make one second.
    pub fn per_second(self) -> i64 {
        match self {
            EpochUnit::Seconds => 1,
            EpochUnit::Milliseconds => 1000,
            EpochUnit::Microseconds => 1_000_000,
            EpochUnit::Nanoseconds => 1_000_000_000,
        }
    }

    /// Returns the name in the plural.
    pub fn name(self) -> &'static str {
        match self {
            EpochUnit::Seconds => "seconds",
            EpochUnit::Milliseconds => "milliseconds",
            EpochUnit::Microseconds => "microseconds",
            EpochUnit::Nanoseconds => "nanoseconds",
        }
    }
}

/// Parses epoch milliseconds.
///
/// # Errors
/// If the text is not a whole number, the number has another unit, or the time is outside the calendar. For another
/// unit, the error names the same time in milliseconds.
pub fn epoch_ms(text: &str) -> Result<i64, String> {
    let number: i64 = text.parse().map_err(|_| format!("'{text}' is not a whole number of epoch milliseconds"))?;
    let unit = EpochUnit::of(number as f64);
    if unit != EpochUnit::Milliseconds {
        let meant_ms = i64::try_from(i128::from(number) * 1000 / i128::from(unit.per_second())).unwrap_or(i64::MAX);
        let (unit, moment) = (unit.name(), format_ms(meant_ms));
        return Err(format!("{number} is in {unit}: write {meant_ms} (milliseconds), which is {moment}"));
    }
    match DateTime::from_timestamp_millis(number) {
        Some(_) => Ok(number),
        None => Err(format!("'{text}' is outside the calendar")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_parsed_in_three_forms() {
        assert_eq!(parse_date("2026-01-31"), Ok(1_769_817_600_000));
        assert_eq!(parse_date("2026-01-31T01:00:00+01:00"), Ok(1_769_817_600_000));
        assert_eq!(parse_date("1769817600000"), Ok(1_769_817_600_000));
        assert!(parse_date("2026-01-31T01:00:00").unwrap_err().contains("zone"));
        assert!(parse_date("31.1.2026").unwrap_err().contains("not a date"));
        assert!(parse_date("99999999999999999999").unwrap_err().contains("too large"));
    }

    #[test]
    fn a_time_may_be_relative_or_a_month() {
        let now_ms = parse_date("2026-11-26T21:05:07Z").unwrap();
        for (text, expected) in [
            ("now", "2026-11-26T21:05:07Z"),
            (" today ", "2026-11-26"),
            ("yesterday", "2026-11-25"),
            ("7d", "2026-11-19T21:05:07Z"),
            ("1d12h", "2026-11-25T09:05:07Z"),
            ("2026-11", "2026-11-01"),
            ("2026", "2026-01-01"),
            ("3y", "2023-11-26T21:05:07Z"),
            ("6mo", "2026-05-26T21:05:07Z"),
            ("1y9mo", "2025-02-26T21:05:07Z"),
            ("1y1d", "2025-11-25T21:05:07Z"),
            ("9mo", "2026-02-26T21:05:07Z"),
            ("5m", "2026-11-26T21:00:07Z"),
            ("2026-01-31", "2026-01-31"),
            ("1769817600000", "2026-01-31"),
        ] {
            assert_eq!(parse_moment(text, now_ms).map(format_ms).as_deref(), Ok(expected), "{text}");
        }
        for wrong in [
            "",
            "202",
            "1926",
            "0y",
            "y",
            "mo",
            "3y2y",
            "6mo1y",
            "99y",
            "99999999y",
            "2026-13",
            "26-11",
            "2026-1",
            "Yesterday",
            "tomorrow",
            "-7d",
            "7 d",
            "1926-01",
            "99999d",
        ] {
            assert!(parse_moment(wrong, now_ms).is_err(), "{wrong}");
        }
        assert!(parse_moment("last week", now_ms).unwrap_err().contains("7d, 6mo, 3y, yesterday"));
    }

    #[test]
    fn a_unit_other_than_milliseconds_is_refused_with_a_suggestion() {
        for (text, unit) in [
            ("1793491200", "seconds"),
            ("999999999", "seconds"),
            ("1793491200000000", "microseconds"),
            ("1793491200000000000", "nanoseconds"),
        ] {
            let error = parse_date(text).unwrap_err();
            assert!(error.contains(&format!("is in {unit}: write ")), "{error}");
        }
        let error = parse_date("1793491200").unwrap_err();
        assert!(error.contains("write 1793491200000 (milliseconds), which is 2026-11-01"), "{error}");
        assert_eq!(parse_date("1793491200000"), Ok(1_793_491_200_000));
        for early in ["206-01-31", "1926-01-31T00:00:00Z", "-1793491200000"] {
            assert!(parse_date(early).unwrap_err().contains("before 1970"), "{early}");
        }
        assert_eq!(parse_date("1970-01-01"), Ok(0));
    }

    #[test]
    fn times_are_formatted_without_needless_digits() {
        assert_eq!(format_ms(1_769_817_600_000), "2026-01-31");
        assert_eq!(format_ms(1_769_817_601_000), "2026-01-31T00:00:01Z");
        assert_eq!(format_ms(1_769_817_601_005), "2026-01-31T00:00:01.005Z");
        assert_eq!(format_ms(i64::MAX), format!("{} ms", i64::MAX));
    }

    #[test]
    fn durations_are_parsed_with_their_unit() {
        assert_eq!(parse_duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("2h"), Ok(Duration::from_secs(7200)));
        assert_eq!(parse_duration("3h30m"), Ok(Duration::from_secs(12_600)));
        assert_eq!(parse_duration("1d2h3m4s"), Ok(Duration::from_secs(93_784)));
        for wrong in [
            "",
            "h",
            "2",
            "-1h",
            "1.5h",
            "2 h",
            "2w",
            "0s",
            "0h0m",
            "99999999999h",
            "30m3h",
            "1h1h",
            "3h30",
            "1h\u{e9}",
        ] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_length_is_shown_in_its_two_largest_units() {
        for (secs, text, short) in [
            (0, "0 s", "0s"),
            (59, "59 s", "59s"),
            (60, "1 min", "1m"),
            (3_599, "59 min", "59m"),
            (7_300, "2 h 1 min", "2h1m"),
            (26 * 3600, "26 h", "26h"),
            (172_800, "2 days", "2d"),
            (190_000, "2 days 4 h", "2d4h"),
        ] {
            assert_eq!((format_duration(secs), format_duration_short(secs)), (text.to_owned(), short.to_owned()));
        }
        assert_eq!([59, 65, 3_599, 7_300].map(format_elapsed), ["59s", "1m05s", "59m59s", "2h1m"]);
    }

    #[test]
    fn another_unit_is_refused_with_the_number_in_milliseconds() {
        for (text, meant) in [
            ("1793491200", "in seconds: write 1793491200000 (milliseconds), which is 2026-11-01"),
            ("1769846400123456", "in microseconds: write 1769846400123 "),
            ("1769846400123456789", "in nanoseconds: write 1769846400123 "),
            ("1769846400.5", "not a whole number"),
            ("9223372036854775807", "outside the calendar"),
        ] {
            let problem = epoch_ms(text).unwrap_err();
            assert!(problem.contains(meant), "{text}: {problem}");
        }
        assert_eq!((epoch_ms("1000"), epoch_ms("1769846400123")), (Ok(1000), Ok(1_769_846_400_123)));
    }
}
