//! Cuts tables into partitions by the time in the partition column, and names the folders of the partitions.
//!
//! The name of a folder consists of the column and the ISO date of the partition's first day, as in Hive partitioning.

use std::{collections::BTreeSet, fmt};

use chrono::{DateTime, Datelike, Days, Months, NaiveDate};
use serde::{Deserialize, Serialize};

use crate::{
    load::store::{TimeRange, clamped_us},
    schema::partition_stem,
};

/// First year of partitions. Many programs that read the files know only dates of the years 1 to 9999. Rows of an
/// earlier time go to the first partition.
const YEAR_MIN: i32 = 1;
/// Last year of partitions. Rows of a later time go to the last partition.
const YEAR_MAX: i32 = 9999;

/// The length of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartitionBy {
    /// A month, in a folder such as `created_month=2026-01-01`.
    #[default]
    Month,
    /// A day, in a folder such as `created_date=2026-01-31`.
    Day,
}

impl fmt::Display for PartitionBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PartitionBy::Month => "month",
            PartitionBy::Day => "day",
        })
    }
}

impl PartitionBy {
    /// Returns the name of a partition's folder: `created_month=2026-01-01` for a table whose partition column is
    /// `created_at`.
    pub(super) fn folder(self, column: &str, partition: Partition) -> String {
        let stem = partition_stem(column);
        let suffix = match self {
            PartitionBy::Month => "month",
            PartitionBy::Day => "date",
        };
        format!("{stem}_{suffix}={}", partition.first_day.format("%Y-%m-%d"))
    }

    /// Reads the partition from the name of its folder. Returns `None` for any name that [`PartitionBy::folder`] does
    /// not give.
    pub(super) fn read_folder(self, column: &str, name: &str) -> Option<Partition> {
        let (_, day) = name.split_once('=')?;
        let partition = Partition { first_day: NaiveDate::parse_from_str(day, "%Y-%m-%d").ok()? };
        (self.folder(column, partition) == name).then_some(partition)
    }

    /// Returns the partition to which a row with this creation time (epoch microseconds) belongs.
    pub(super) fn of(self, created_us: i64) -> Partition {
        let day = DateTime::from_timestamp_micros(clamped_us(created_us)).unwrap_or_default().date_naive();
        let first_day = match self {
            PartitionBy::Month => day.with_day(1).unwrap_or(day),
            PartitionBy::Day => day,
        };
        Partition { first_day }
    }

    /// Returns the partitions that have a part of one of the ranges.
    pub(super) fn within(self, ranges: &[TimeRange]) -> BTreeSet<Partition> {
        let of_range = |range: &TimeRange| {
            let last = self.of(range.end_us.saturating_sub(1));
            let next = move |at: &Partition| (*at < last).then(|| self.of(self.bounds(*at).end_us));
            std::iter::successors(Some(self.of(range.start_us)), next)
        };
        ranges.iter().flat_map(of_range).collect()
    }

    /// Returns the range of creation times of a partition. The first partition begins at `i64::MIN`, and the last one
    /// ends at `i64::MAX`.
    pub(super) fn bounds(self, partition: Partition) -> TimeRange {
        let first = partition.first_day;
        let next = match self {
            PartitionBy::Month => first.checked_add_months(Months::new(1)),
            PartitionBy::Day => first.checked_add_days(Days::new(1)),
        };
        let start_us = if first.year() <= YEAR_MIN && first.ordinal() == 1 { i64::MIN } else { micros(first) };
        let end_us = next.filter(|day| day.year() <= YEAR_MAX).map_or(i64::MAX, micros);
        TimeRange { start_us, end_us }
    }
}

/// A partition, identified by its first day: a month or a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Partition {
    pub(super) first_day: NaiveDate,
}

/// Returns the start of a day in epoch microseconds.
fn micros(day: NaiveDate) -> i64 {
    day.and_time(chrono::NaiveTime::MIN).and_utc().timestamp_micros()
}
