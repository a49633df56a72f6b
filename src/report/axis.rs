//! A chart axis of days, labelled by months or, for a short time, by days.

use std::ops::Range;

use chrono::{DateTime, Datelike, NaiveDate};
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

use crate::model::DAY_MS;

/// Maximum labels, so that labels do not overlap.
const LABELS_MAX: i64 = 8;
/// Width per label, in pixels.
const WIDTH_OF_LABEL: i64 = 90;
/// The longest range, in days, that has labels of days. A longer range has labels of months.
const LABELS_OF_DAYS_MAX: i64 = 45;

/// An axis of days since 1970.
#[derive(Clone, Debug)]
pub(super) struct DayAxis {
    range: Range<f64>,
    labels: Vec<i64>,
}

impl DayAxis {
    /// Makes an axis from the start of day `first` to the end of day `last`. `width` is in pixels.
    pub fn new(first: i64, last: i64, width: u32) -> Self {
        let last = last.max(first);
        let labels_max = (i64::from(width) / WIDTH_OF_LABEL).clamp(2, LABELS_MAX);
        let labels = match last - first < LABELS_OF_DAYS_MAX {
            true => every_few_days(first, last, labels_max),
            false => months(first, last, labels_max),
        };
        DayAxis { range: first as f64..(last + 1) as f64, labels }
    }
}

/// Returns the days to label, in steps of 1, 2, 7 or 14 days.
fn every_few_days(first: i64, last: i64, labels_max: i64) -> Vec<i64> {
    let steps = [1, 2, 7, 14];
    let step = steps.into_iter().find(|step| (last - first) / step < labels_max).unwrap_or(14);
    // Day 4, 1970-01-05, was a Monday, on which the weeks of the views begin.
    (first..=last).filter(|day| (day - 4).rem_euclid(step) == 0).collect()
}

/// Returns the first days of the months to label, in steps of whole months.
fn months(first: i64, last: i64, labels_max: i64) -> Vec<i64> {
    let begins: Vec<i64> = (first..=last).filter(|day| date(*day).is_some_and(|date| date.day() == 1)).collect();
    let steps = [1, 2, 3, 6, 12, 24];
    let months = i64::try_from(begins.len()).unwrap_or(i64::MAX);
    let step = steps.into_iter().find(|step| months / step < labels_max).unwrap_or(60);
    let is_wanted =
        |day: &i64| date(*day).is_some_and(|date| (i64::from(date.year()) * 12 + i64::from(date.month0())) % step == 0);
    begins.into_iter().filter(is_wanted).collect()
}

fn date(day: i64) -> Option<NaiveDate> {
    DateTime::from_timestamp_millis(day.saturating_mul(DAY_MS)).map(|moment| moment.date_naive())
}

impl Ranged for DayAxis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = (value - self.range.start) / (self.range.end - self.range.start);
        limit.0 + (share * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.labels.iter().map(|day| *day as f64).collect()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for DayAxis {
    fn format(value: &f64) -> String {
        let Some(date) = date(value.floor() as i64) else { return String::new() };
        match date.day() {
            1 => date.format("%b %Y").to_string(),
            _ => date.format("%-d %b").to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_few_and_inside_the_axis() {
        for (first, last) in [(20_000, 20_000), (20_000, 20_020), (20_000, 20_100), (10_000, 20_000)] {
            for width in [100, 360, 1000] {
                let axis = DayAxis::new(first, last, width);
                assert!(axis.labels.len() as i64 <= LABELS_MAX, "{first}..{last}: {:?}", axis.labels);
                assert!(axis.labels.iter().all(|day| (first..=last).contains(day)));
            }
        }
        assert_eq!(DayAxis::format(&20_454.0), "1 Jan 2026".trim_start_matches("1 "));
    }
}
