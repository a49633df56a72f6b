//! The time zone of days and weeks in views and reports. Stored times are UTC.

use std::str::FromStr;

use chrono::{DateTime, Datelike as _, Months, NaiveDate, NaiveDateTime, NaiveTime, Offset as _, TimeZone as _};
use chrono_tz::Tz;

use super::{DAY_MS, parse_moment};

/// The times for which changes of the clock are known: 1970 to 2099. Before and after them the nearest offset applies.
const YEARS: (i32, i32) = (1970, 2100);

/// A time zone of the IANA database, such as Europe/Berlin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeZone(Tz);

/// How far local time is ahead of UTC from one change of the clock to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneOffset {
    /// Start in epoch seconds; `None` for the first offset: from the beginning.
    pub from_secs: Option<i64>,
    /// Local time minus UTC, in seconds.
    pub offset_secs: i64,
}

impl Default for TimeZone {
    fn default() -> Self {
        TimeZone(Tz::UTC)
    }
}

impl FromStr for TimeZone {
    type Err = String;

    fn from_str(name: &str) -> Result<TimeZone, String> {
        let unknown = |_| format!("there is no zone '{name}'; write a name such as Europe/Berlin, or UTC");
        name.parse().map(TimeZone).map_err(unknown)
    }
}

impl TimeZone {
    /// Returns the name in the IANA database.
    pub fn name(self) -> &'static str {
        self.0.name()
    }

    /// Returns true if the clock always shows UTC.
    pub fn is_utc(self) -> bool {
        self.offsets().iter().all(|offset| offset.offset_secs == 0)
    }

    /// Returns every offset, in order of time.
    pub fn offsets(self) -> Vec<ZoneOffset> {
        let start_of = |year| {
            NaiveDate::from_ymd_opt(year, 1, 1).map_or(0, |day| day.and_time(NaiveTime::MIN).and_utc().timestamp())
        };
        let (start, end) = (start_of(YEARS.0), start_of(YEARS.1));
        let mut offsets = vec![ZoneOffset { from_secs: None, offset_secs: self.offset_secs(start) }];
        // No zone changes its clock twice within a day and a half, and then back.
        let (step, mut at) = (DAY_MS / 1000, start);
        while at < end {
            let next = (at + step).min(end);
            let (before, after) = (self.offset_secs(at), self.offset_secs(next));
            if before != after {
                let (mut low, mut high) = (at, next);
                while high - low > 1 {
                    let middle = low + (high - low) / 2;
                    if self.offset_secs(middle) == before { low = middle } else { high = middle }
                }
                offsets.push(ZoneOffset { from_secs: Some(high), offset_secs: after });
            }
            at = next;
        }
        offsets
    }

    /// Returns the offset at a moment in epoch seconds.
    fn offset_secs(self, at_secs: i64) -> i64 {
        let utc = DateTime::from_timestamp(at_secs, 0).map(|moment| moment.naive_utc()).unwrap_or_default();
        self.0.offset_from_utc_datetime(&utc).fix().local_minus_utc().into()
    }

    /// Returns what the clock shows at a moment, as epoch milliseconds of a clock that shows UTC.
    pub fn local_ms(self, at_ms: i64) -> i64 {
        at_ms.saturating_add(self.offset_secs(at_ms.div_euclid(1000)).saturating_mul(1000))
    }

    /// Parses a time as [`parse_moment`] does, with days and months of this zone: `2026-01-31`, `2026-01`, `2026`,
    /// `today` and `yesterday` begin at midnight here. A midnight that the clock skips is the first moment after it.
    ///
    /// # Errors
    /// As [`parse_moment`].
    pub fn parse_moment(self, text: &str, now_ms: i64) -> Result<i64, String> {
        let text = text.trim();
        let is_year = text.len() == 4 && text.bytes().all(|byte| byte.is_ascii_digit());
        let is_day = matches!(text, "today" | "yesterday")
            || is_year
            || (matches!(text.len(), 7 | 10) && text.as_bytes().get(4) == Some(&b'-'));
        match is_day {
            true => Ok(self.start_of_local(parse_moment(text, self.local_ms(now_ms))?)),
            false => parse_moment(text, now_ms),
        }
    }

    /// Returns the begin of the period before a range, in epoch milliseconds: as many months earlier if the range has
    /// whole months here, else as many days and hours. `None` if that time cannot be represented.
    pub fn start_before(self, from_ms: i64, to_ms: i64) -> Option<i64> {
        let local = |at_ms: i64| DateTime::from_timestamp_millis(self.local_ms(at_ms)).map(|at| at.naive_utc());
        let (from, to) = (local(from_ms)?, local(to_ms)?);
        let month = |at: NaiveDateTime| {
            (at.day() == 1 && at.time() == NaiveTime::MIN).then(|| i64::from(at.year()) * 12 + i64::from(at.month0()))
        };
        let start = match month(from).zip(month(to)) {
            Some((first, end)) => from.checked_sub_months(Months::new(u32::try_from(end - first).ok()?))?,
            None => from.checked_sub_signed(to - from)?,
        };
        Some(self.start_of_local(start.and_utc().timestamp_millis()))
    }

    /// Returns the first moment at which the clock shows `local_ms` or later.
    fn start_of_local(self, local_ms: i64) -> i64 {
        let Some(local) = DateTime::from_timestamp_millis(local_ms).map(|moment| moment.naive_utc()) else {
            return local_ms;
        };
        // The clock is put forward by at most a day, when a zone moves over the date line.
        let later = (0..=96).filter_map(|quarters| local.checked_add_signed(chrono::TimeDelta::minutes(15 * quarters)));
        let exists = |local: NaiveDateTime| self.0.from_local_datetime(&local).earliest();
        later.filter_map(exists).next().map_or(local_ms, |moment| moment.timestamp_millis())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(name: &str) -> TimeZone {
        name.parse().unwrap()
    }

    #[test]
    fn offsets_change_when_the_clock_changes() {
        let berlin = zone("Europe/Berlin").offsets();
        let of_2026: Vec<_> = berlin
            .iter()
            .filter(|offset| offset.from_secs.is_some_and(|at| (1_767_225_600..1_798_761_600).contains(&at)))
            .collect();
        // 29 March 01:00 UTC and 25 October 01:00 UTC.
        assert_eq!(
            of_2026,
            [
                &ZoneOffset { from_secs: Some(1_774_746_000), offset_secs: 7200 },
                &ZoneOffset { from_secs: Some(1_792_890_000), offset_secs: 3600 },
            ]
        );
        assert_eq!(zone("UTC").offsets(), [ZoneOffset { from_secs: None, offset_secs: 0 }]);
        assert!(zone("Etc/UTC").is_utc() && !zone("Europe/London").is_utc());
        assert_eq!(zone("Asia/Kolkata").offsets().len(), 1);
        assert!("Europe/Nowhere".parse::<TimeZone>().unwrap_err().contains("'Europe/Nowhere'"));
    }

    #[test]
    fn days_begin_at_midnight_of_the_zone() {
        let now_ms = 1_774_789_200_000; // 2026-03-29T13:00:00Z
        let at = |zone: TimeZone, text: &str| super::super::format_ms(zone.parse_moment(text, now_ms).unwrap());
        let berlin = zone("Europe/Berlin");
        assert_eq!(at(berlin, "2026-03-29"), "2026-03-28T23:00:00Z");
        assert_eq!(at(berlin, "2026-03-30"), "2026-03-29T22:00:00Z", "the day has 23 hours");
        assert_eq!(at(berlin, "2026-01"), "2025-12-31T23:00:00Z");
        assert_eq!(at(berlin, "2026"), "2025-12-31T23:00:00Z");
        assert_eq!(at(zone("Pacific/Kiritimati"), "today"), "2026-03-29T10:00:00Z");
        assert_eq!(at(berlin, "1h"), "2026-03-29T12:00:00Z");
        assert_eq!(at(berlin, "2026-03-29T00:00:00Z"), "2026-03-29");
        // On 4 September 2022 the clock of Santiago went from 00:00 to 01:00.
        assert_eq!(at(zone("America/Santiago"), "2022-09-04"), "2022-09-04T04:00:00Z");
    }

    #[test]
    fn the_period_before_whole_months_is_whole_months() {
        let before = |zone: TimeZone, from: &str, to: &str| {
            let [from_ms, to_ms] = [from, to].map(|text| zone.parse_moment(text, 0).unwrap());
            super::super::format_ms(zone.start_before(from_ms, to_ms).unwrap())
        };
        let berlin = zone("Europe/Berlin");
        assert_eq!(before(berlin, "2026-10", "2026-11"), "2026-08-31T22:00:00Z", "September");
        assert_eq!(before(berlin, "2026-04", "2026-07"), "2025-12-31T23:00:00Z", "a quarter");
        assert_eq!(before(zone("UTC"), "2026-03", "2026-04"), "2026-02-01", "28 days");
        assert_eq!(before(berlin, "2026-03-30", "2026-03-31"), "2026-03-28T23:00:00Z", "a day of 23 hours");
        assert_eq!(before(berlin, "2026-10-05", "2026-10-12"), "2026-09-27T22:00:00Z", "a week");
    }
}
