//! Formats dates and times. Arrow formats the usual ones. The engine also has infinite times, years before 1 and after
//! 9999, and 24:00:00: these get the text that the engine gives them.

use std::fmt::Write;

use arrow::{
    array::{
        Array, AsArray,
        types::{
            Date32Type, Time64MicrosecondType, Time64NanosecondType, TimestampMicrosecondType,
            TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
        },
    },
    datatypes::{DataType, TimeUnit},
    error::ArrowError,
    util::display::{ArrayFormatter, DisplayIndex, FormatOptions, FormatResult},
};

/// Seconds of a day.
const DAY_SECS: i64 = 86_400;
/// The days of 0001-01-01 and 9999-12-31 since 1970-01-01.
const USUAL_DAYS: std::ops::RangeInclusive<i64> = -719_162..=2_932_896;

/// Returns the formatter of a column.
pub(super) fn formatter<'a>(
    column: &'a dyn Array,
    options: &FormatOptions<'a>,
) -> Result<ArrayFormatter<'a>, ArrowError> {
    let usual = ArrayFormatter::try_new(column, options)?;
    Ok(match is_moment(column.data_type()) {
        true => ArrayFormatter::new(Box::new(Moments { column, usual }), options.safe()),
        false => usual,
    })
}

/// Returns true for the types that have values which Arrow cannot format.
pub(super) fn is_moment(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Date32 | DataType::Timestamp(..) | DataType::Time64(_))
}

struct Moments<'a> {
    column: &'a dyn Array,
    usual: ArrayFormatter<'a>,
}

impl DisplayIndex for Moments<'_> {
    fn write(&self, row: usize, out: &mut dyn Write) -> FormatResult {
        match self.column.is_valid(row).then(|| unusual(self.column, row)).flatten() {
            Some(text) => out.write_str(&text)?,
            None => self.usual.value(row).write(out)?,
        }
        Ok(())
    }
}

/// Returns the text of a value that Arrow cannot format as the engine does; `None` for every other value.
fn unusual(column: &dyn Array, row: usize) -> Option<String> {
    // The value, and how many of its units are a second.
    let (value, per_second) = match column.data_type() {
        DataType::Date32 => {
            let day = column.as_primitive::<Date32Type>().value(row);
            return match day {
                i32::MAX => Some("infinity".to_owned()),
                -2_147_483_647 => Some("-infinity".to_owned()),
                _ => unusual_date(i64::from(day), ""),
            };
        }
        DataType::Time64(TimeUnit::Microsecond) => {
            let time = column.as_primitive::<Time64MicrosecondType>().value(row);
            return (time >= DAY_SECS * 1_000_000).then(|| "24:00:00".to_owned());
        }
        DataType::Time64(_) => {
            let time = column.as_primitive::<Time64NanosecondType>().value(row);
            return (time >= DAY_SECS * 1_000_000_000).then(|| "24:00:00".to_owned());
        }
        DataType::Timestamp(TimeUnit::Second, _) => (column.as_primitive::<TimestampSecondType>().value(row), 1),
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            (column.as_primitive::<TimestampMillisecondType>().value(row), 1000)
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            (column.as_primitive::<TimestampMicrosecondType>().value(row), 1_000_000)
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            (column.as_primitive::<TimestampNanosecondType>().value(row), 1_000_000_000)
        }
        _ => return None,
    };
    if value == i64::MAX || value == -i64::MAX {
        return Some(if value > 0 { "infinity" } else { "-infinity" }.to_owned());
    }
    let (secs, fraction) = (value.div_euclid(per_second), value.rem_euclid(per_second));
    let (day, secs) = (secs.div_euclid(DAY_SECS), secs.rem_euclid(DAY_SECS));
    let mut time = format!(" {:02}:{:02}:{:02}", secs / 3600, secs / 60 % 60, secs % 60);
    if fraction > 0 {
        let digits = per_second.ilog10() as usize;
        time.push_str(format!(".{fraction:0digits$}").trim_end_matches('0'));
    }
    unusual_date(day, &time)
}

/// Returns the date of a day and the text behind it, if the year is before 1 or after 9999.
fn unusual_date(day: i64, behind: &str) -> Option<String> {
    if USUAL_DAYS.contains(&day) {
        return None;
    }
    // The calendar repeats every 400 years, which are 146,097 days. Years begin in March here, so that a leap day is
    // the last day of a year.
    let from_march = day + 719_468;
    let (era, day_of_era) = (from_march.div_euclid(146_097), from_march.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    Some(match year {
        1.. => format!("{year:04}-{month:02}-{day:02}{behind}"),
        // The year before 1 is 1 BC.
        _ => format!("{:04}-{month:02}-{day:02} (BC){behind}", 1 - year),
    })
}
