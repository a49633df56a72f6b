//! Numbers of seconds, milliseconds, microseconds or nanoseconds since the epoch. The magnitude of a number shows the
//! unit.

use chrono::DateTime;

use super::time::format_ms;

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
