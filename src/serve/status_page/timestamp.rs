//! Times and ages as the status page writes them.

use chrono::{DateTime, SecondsFormat};
use maud::{Markup, html};
use serde::{Serialize, Serializer};

use crate::model::format_duration;

/// A time in epoch milliseconds. A timestamp is serialized as RFC 3339 in whole seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Timestamp(pub i64);

impl Timestamp {
    /// Returns the time as `2026-01-31T08:00:00Z`.
    pub fn rfc3339(self) -> String {
        let time = DateTime::from_timestamp_millis(self.0.div_euclid(1000) * 1000);
        time.map(|time| time.to_rfc3339_opts(SecondsFormat::Secs, true)).unwrap_or_default()
    }

    /// Returns the time as `2026-01-31 08:00 UTC`.
    fn text(self) -> String {
        let time = DateTime::from_timestamp_millis(self.0);
        time.map(|time| time.format("%Y-%m-%d %H:%M UTC").to_string()).unwrap_or_default()
    }

    /// Returns the time as a `time` element.
    pub fn markup(self) -> Markup {
        html! { time datetime=(self.rfc3339()) { (self.text()) } }
    }

    /// Returns the time with its age: `2026-01-31 08:00 UTC, 3 min ago`.
    pub fn with_age(self, now: Timestamp) -> Markup {
        html! { (self.markup()) ", " (age((now.0 - self.0) / 1000)) }
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.rfc3339())
    }
}

/// Returns the age of something in the past, such as `3 min ago`. For a negative age, returns the time until something
/// in the future, such as `in 3 min`. Seconds are not shown, because the page would change every second.
pub(super) fn age(secs: i64) -> String {
    let length = match secs.unsigned_abs() {
        0..60 => "less than a minute".to_owned(),
        secs => format_duration(secs),
    };
    if secs >= 0 { format!("{length} ago") } else { format!("in {length}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_utc_and_have_an_age() {
        let at = Timestamp(1_769_817_600_123);
        assert_eq!(at.rfc3339(), "2026-01-31T00:00:00Z", "midnight is written with its time");
        let shown = at.with_age(Timestamp(at.0 + 3 * 60_000)).into_string();
        assert_eq!(shown, "<time datetime=\"2026-01-31T00:00:00Z\">2026-01-31 00:00 UTC</time>, 3 min ago");
        assert_eq!([age(59), age(60), age(-7300)], ["less than a minute ago", "1 min ago", "in 2 h 1 min"]);
    }
}
