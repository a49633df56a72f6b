//! Cron expressions in a time zone.
//!
//! If a time does not exist because the clock is put forward, the next existing time is due. If a time occurs twice
//! because the clock is put back, the time is due once. The library croner does both, and the tests in this file check
//! it.

use chrono::{DateTime, TimeZone, Utc};
use chrono_tz::Tz;
use croner::Cron;

use crate::config::{ServeSettings, parse_cron};

use super::ServeError;

/// Number of ticks that are compared to find the longest gap. A year of nightly ticks includes both changes of the
/// clock.
const GAPS_COMPARED: u32 = 370;

/// The times at which a run is due.
#[derive(Clone, Debug)]
pub struct Schedule {
    cron: Cron,
    zone: Tz,
    text: String,
}

impl Schedule {
    /// Returns the configured schedule; `None` if there is none.
    ///
    /// # Errors
    /// `Schedule` or `Zone`.
    pub fn configured(settings: &ServeSettings) -> Result<Option<Schedule>, ServeError> {
        settings.schedule.as_deref().map(|text| Schedule::parse(text, &settings.timezone)).transpose()
    }

    /// Returns the schedule of the report.
    ///
    /// # Errors
    /// `ReportSchedule` or `Zone`.
    pub fn of_report(settings: &ServeSettings, expression: &str) -> Result<Schedule, ServeError> {
        Schedule::parse(expression, &settings.timezone).map_err(|error| match error {
            ServeError::Schedule { expression, why } => ServeError::ReportSchedule { expression, why },
            error => error,
        })
    }

    /// Parses an expression of five fields (`0 2 * * *`, also `@daily`) and the name of a time zone.
    ///
    /// # Errors
    /// `Schedule` or `Zone`, with the text that cannot be parsed.
    pub fn parse(expression: &str, zone: &str) -> Result<Schedule, ServeError> {
        let wrong = |why: String| ServeError::Schedule { expression: expression.to_owned(), why };
        let cron = parse_cron(expression).map_err(wrong)?;
        let zone: Tz = zone.parse().map_err(|_| ServeError::Zone { zone: zone.to_owned() })?;
        Ok(Schedule { cron, zone, text: format!("{expression} {zone}") })
    }

    /// Returns the first tick after this time, epoch milliseconds; `None` if there is none.
    pub fn next(&self, after_ms: i64) -> Option<i64> {
        let found = self.cron.find_next_occurrence(&self.local(after_ms)?, false).ok()?;
        Some(found.timestamp_millis())
    }

    /// Returns the last tick at or before this time, epoch milliseconds; `None` if there is none.
    pub fn last(&self, until_ms: i64) -> Option<i64> {
        let found = self.cron.find_previous_occurrence(&self.local(until_ms)?, true).ok()?;
        Some(found.timestamp_millis())
    }

    /// Returns the longest time between two consecutive ticks of the next 370, in milliseconds.
    pub fn longest_gap_ms(&self, from_ms: i64) -> i64 {
        let mut longest_ms = 0;
        let mut at_ms = self.next(from_ms);
        for _ in 0..GAPS_COMPARED {
            let Some(next_ms) = at_ms.and_then(|at_ms| self.next(at_ms)) else { break };
            longest_ms = longest_ms.max(at_ms.map_or(0, |at_ms| next_ms - at_ms));
            at_ms = Some(next_ms);
        }
        longest_ms
    }

    /// Returns the expression and the time zone.
    pub fn text(&self) -> &str {
        &self.text
    }

    fn local(&self, at_ms: i64) -> Option<DateTime<Tz>> {
        Some(self.zone.from_utc_datetime(&DateTime::<Utc>::from_timestamp_millis(at_ms)?.naive_utc()))
    }
}

/// Checks that the schedules and their time zone can be parsed.
///
/// # Errors
/// `Schedule` or `Zone`, with the text that cannot be parsed.
pub fn check_schedule(settings: &ServeSettings) -> Result<(), ServeError> {
    // The zone is checked even without a schedule, so that a wrong zone is found before a schedule is set.
    Schedule::parse(settings.schedule.as_deref().unwrap_or("@daily"), &settings.timezone)?;
    settings.report.as_ref().map_or(Ok(()), |report| Schedule::of_report(settings, &report.schedule).map(drop))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{format_ms, parse_date};

    fn nexts(schedule: &Schedule, from: &str, count: usize) -> Vec<String> {
        let mut at_ms = parse_date(from).unwrap();
        let mut found = Vec::new();
        for _ in 0..count {
            at_ms = schedule.next(at_ms).unwrap();
            found.push(format_ms(at_ms));
        }
        found
    }

    #[test]
    fn the_longest_gap_includes_weekends_and_clock_changes() {
        let hours = |expression: &str, zone: &str| {
            let schedule = Schedule::parse(expression, zone).unwrap();
            schedule.longest_gap_ms(parse_date("2026-01-05").unwrap()) / crate::model::HOUR_MS
        };
        assert_eq!(hours("0 2 * * *", "UTC"), 24);
        assert_eq!(hours("0 2 * * *", "Europe/Berlin"), 25);
        assert_eq!(hours("0 2 * * 1-5", "UTC"), 72);
        assert_eq!(hours("0 */6 * * *", "UTC"), 6);
    }

    #[test]
    fn a_moment_of_a_zone_moves_with_its_clock() {
        let schedule = Schedule::parse("30 2 * * *", "Europe/Berlin").unwrap();
        // Berlin goes forward on 2026-03-29 at 2:00, and back on 2026-10-25 at 3:00.
        let spring = nexts(&schedule, "2026-03-27T12:00:00Z", 3);
        assert_eq!(spring[0], "2026-03-28T01:30:00Z");
        assert!(spring[1].starts_with("2026-03-29T01:"), "the hour that does not exist: {spring:?}");
        assert_eq!(spring[2], "2026-03-30T00:30:00Z");
        let autumn = nexts(&schedule, "2026-10-24T12:00:00Z", 2);
        assert!(autumn[0].starts_with("2026-10-25T0"), "{autumn:?}");
        assert_eq!(autumn[1], "2026-10-26T01:30:00Z", "the hour that is there twice counts once");
    }

    #[test]
    fn the_last_tick_includes_the_given_time() {
        let schedule = Schedule::parse("0 2 * * *", "UTC").unwrap();
        let at = |text: &str| parse_date(text).unwrap();
        assert_eq!(schedule.last(at("2026-01-31T02:00:00Z")), Some(at("2026-01-31T02:00:00Z")));
        assert_eq!(schedule.last(at("2026-01-31T01:59:59.999Z")), Some(at("2026-01-30T02:00:00Z")));
        assert_eq!(schedule.next(at("2026-01-31T02:00:00Z")), Some(at("2026-02-01T02:00:00Z")));
    }

    #[test]
    fn errors_name_the_invalid_text() {
        for wrong in ["", "daily", "0 2 * *", "61 2 * * *", "0 0 2 * * *", "0 0 30 2 *"] {
            let error = Schedule::parse(wrong, "UTC").unwrap_err().to_string();
            assert!(error.contains(&format!("'{wrong}'")), "{error}");
        }
        assert!(Schedule::parse("0 2 * * *", "Berlin").unwrap_err().to_string().contains("'Berlin'"));
    }
}
