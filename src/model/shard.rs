//! The share of one of several workers in a backfill.

use std::{fmt, str::FromStr};

use chrono::{DateTime, Datelike as _, NaiveDate, NaiveDateTime, NaiveTime};

use super::Window;

/// The largest number of workers.
const WORKERS_MAX: u32 = 1000;

/// Worker `index` of `count`, from 1 on. Every worker has every `count`-th month (UTC), whatever range it is given, so
/// workers that begin at different times have disjoint windows, and partitions by month have one writer each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    index: u32,
    count: u32,
}

impl Shard {
    /// Returns the number of workers.
    pub fn count(self) -> u32 {
        self.count
    }

    /// Returns true for the worker that also reads the streams without windows.
    pub fn is_first(self) -> bool {
        self.index == 1
    }

    /// Returns the parts of a window that belong to this worker, in order of time.
    pub fn parts_of(self, window: Window) -> Vec<Window> {
        let mut parts = Vec::new();
        let mut rest = window;
        while !rest.is_empty() {
            let Some((number, end_ms)) = month_of(rest.start_ms) else { break };
            let part = Window::new(rest.start_ms, end_ms.min(rest.end_ms));
            if number.rem_euclid(i64::from(self.count)) == i64::from(self.index - 1) {
                parts.push(part);
            }
            rest.start_ms = part.end_ms;
        }
        parts
    }
}

/// Returns the number of the month (UTC) of a time, and the time of its end; `None` for a time that no calendar has.
fn month_of(at_ms: i64) -> Option<(i64, i64)> {
    let day = DateTime::from_timestamp_millis(at_ms)?.date_naive();
    let number = i64::from(day.year()) * 12 + i64::from(day.month0());
    let next = number + 1;
    let (year, month) = (i32::try_from(next.div_euclid(12)).ok()?, u32::try_from(next.rem_euclid(12)).ok()?);
    let end = NaiveDateTime::new(NaiveDate::from_ymd_opt(year, month + 1, 1)?, NaiveTime::MIN);
    Some((number, end.and_utc().timestamp_millis()))
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let numbers = text.split_once('/').and_then(|(index, count)| Some((index.parse().ok()?, count.parse().ok()?)));
        match numbers {
            Some((index, count)) if 1 <= index && index <= count && count <= WORKERS_MAX => Ok(Self { index, count }),
            _ => Err(format!(
                "'{text}' is not I/N, as in 2/8: the number of this worker and that of all, at most {WORKERS_MAX}"
            )),
        }
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{DAY_MS, IntervalSet, parse_date};

    #[test]
    fn workers_share_a_range_without_gap_or_overlap() {
        for count in [1_u32, 2, 3, 4, 7, 12, 40] {
            for (from, days) in [("2023-11-17", 800), ("1970-01-15", 95), ("2026-02-01", 28), ("2024-02-29", 1)] {
                let start_ms = parse_date(from).unwrap() + 1234;
                let range = Window::new(start_ms, start_ms + days * DAY_MS);
                let shards = (1..=count).map(|index| format!("{index}/{count}").parse::<Shard>().unwrap());
                let parts: Vec<Window> = shards.flat_map(|shard| shard.parts_of(range)).collect();
                assert_eq!(parts.iter().map(|part| part.len_ms()).sum::<i64>(), range.len_ms(), "{from} {count}");
                let together: IntervalSet = parts.into_iter().collect();
                assert_eq!(together.windows(), [range], "{from} {count}");
            }
        }
    }

    #[test]
    fn a_month_has_the_same_worker_in_every_range() {
        let shard: Shard = "2/3".parse().unwrap();
        let [from, later] = ["2024-01-01", "2024-05-10"].map(|day| parse_date(day).unwrap());
        let end = parse_date("2025-01-01").unwrap();
        let long = shard.parts_of(Window::new(from, end));
        let short = shard.parts_of(Window::new(later, end));
        let cut: Vec<Window> =
            long.iter().map(|part| part.intersect(Window::new(later, end))).filter(|part| !part.is_empty()).collect();
        assert_eq!(short, cut);
    }

    #[test]
    fn wrong_shards_are_refused() {
        for text in ["0/4", "5/4", "1/0", "1", "a/b", "-1/4", "1/1001", "1/2/3"] {
            assert!(text.parse::<Shard>().unwrap_err().contains("I/N"), "{text}");
        }
    }
}
