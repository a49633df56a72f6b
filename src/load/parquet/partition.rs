//! How a table is cut into files by creation time, and what the pieces are called.
//!
//! Only ISO dates appear in folder names: they are the one form that every reader of such trees understands.

use std::fmt;

use chrono::{DateTime, Datelike, Days, Months, NaiveDate};
use serde::{Deserialize, Serialize};

use crate::{load::TimeBounds, schema::quote_identifier};

/// Readers know dates of the years 1 to 9999 only: rows before and after go to the first and the last partition.
const YEAR_MIN: i32 = 1;
const YEAR_MAX: i32 = 9999;
/// First microsecond of `YEAR_MIN`.
const FIRST_US: i64 = -62_135_596_800_000_000;
/// Last microsecond of `YEAR_MAX`.
const LAST_US: i64 = 253_402_300_799_999_999;

/// The length of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartitionBy {
    /// `created_month=2026-01-01`.
    #[default]
    Month,
    /// `created_date=2026-01-31`.
    Day,
}

impl fmt::Display for PartitionBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.unit())
    }
}

impl PartitionBy {
    /// The unit, as the engine's `date_trunc` calls it.
    fn unit(self) -> &'static str {
        match self {
            PartitionBy::Month => "month",
            PartitionBy::Day => "day",
        }
    }

    /// The name of a partition's folder: `created_month=2026-01-01` for a table cut by `created_at`.
    pub(super) fn folder(self, column: &str, partition: Partition) -> String {
        let stem = column.strip_suffix("_at").unwrap_or(column);
        let suffix = match self {
            PartitionBy::Month => "month",
            PartitionBy::Day => "date",
        };
        format!("{stem}_{suffix}={}", partition.first_day.format("%Y-%m-%d"))
    }

    /// The partition that such a folder holds; `None` for any other folder.
    pub(super) fn read_folder(self, column: &str, name: &str) -> Option<Partition> {
        let (_, day) = name.split_once('=')?;
        let partition = Partition { first_day: NaiveDate::parse_from_str(day, "%Y-%m-%d").ok()? };
        (self.folder(column, partition) == name).then_some(partition)
    }

    /// SQL of the first day of a row's partition, as a DATE.
    pub(super) fn first_day_sql(self, column: &str) -> String {
        let column = quote_identifier(column);
        let last = format!("TIMESTAMP '{YEAR_MAX}-12-31 00:00:00'");
        let clamped = format!("least(greatest({column}, TIMESTAMP '0001-01-01 00:00:00'), {last})");
        format!("CAST(date_trunc('{}', {clamped}) AS DATE)", self.unit())
    }

    /// The partition of a creation time, in epoch microseconds.
    pub(super) fn of(self, at_us: i64) -> Partition {
        let at = DateTime::from_timestamp_micros(at_us.clamp(FIRST_US, LAST_US)).unwrap_or_default().date_naive();
        let first_day = match self {
            PartitionBy::Month => at.with_day(1).unwrap_or(at),
            PartitionBy::Day => at,
        };
        Partition { first_day }
    }

    /// The creation times that belong to a partition; the first and the last one reach to the ends of time.
    pub(super) fn bounds(self, partition: Partition) -> TimeBounds {
        let first = partition.first_day;
        let next = match self {
            PartitionBy::Month => first.checked_add_months(Months::new(1)),
            PartitionBy::Day => first.checked_add_days(Days::new(1)),
        };
        let start_us = if first.year() <= YEAR_MIN && first.ordinal() == 1 { i64::MIN } else { micros(first) };
        let end_us = next.filter(|day| day.year() <= YEAR_MAX).map_or(i64::MAX, micros);
        TimeBounds { start_us, end_us }
    }
}

/// A month or a day, by its first day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Partition {
    pub(super) first_day: NaiveDate,
}

/// Whether some moment is in both.
pub(super) fn overlap(one: TimeBounds, other: TimeBounds) -> bool {
    one.start_us < other.end_us && other.start_us < one.end_us
}

/// SQL that keeps the rows inside, with constants that the engine can hold against a file's statistics; `None` for all of
/// time. `zoned` says that the column is adjusted to UTC, as in the files that readers see.
pub(super) fn condition_sql(bounds: TimeBounds, column: &str, zoned: bool) -> Option<String> {
    let literal = |at_us: i64| {
        let moment = DateTime::from_timestamp_micros(at_us)?.format("%Y-%m-%d %H:%M:%S%.6f");
        Some(if zoned { format!("TIMESTAMPTZ '{moment}+00'") } else { format!("TIMESTAMP '{moment}'") })
    };
    let side = |at_us: i64, sign: &str| {
        // Ends past the years of dates keep nothing out: what is there belongs to the first or the last partition.
        let known = (FIRST_US..=LAST_US).contains(&at_us);
        known.then(|| literal(at_us)).flatten().map(|literal| format!("{} {sign} {literal}", quote_identifier(column)))
    };
    let sides: Vec<String> = [side(bounds.start_us, ">="), side(bounds.end_us, "<")].into_iter().flatten().collect();
    (!sides.is_empty()).then(|| sides.join(" AND "))
}

fn micros(day: NaiveDate) -> i64 {
    day.and_time(chrono::NaiveTime::MIN).and_utc().timestamp_micros()
}
