//! Moments and ages as the status page writes them.

use chrono::{DateTime, SecondsFormat};
use maud::{Markup, html};
use serde::{Serialize, Serializer};

use crate::model::format_duration;

/// A moment, epoch milliseconds; RFC 3339 in whole seconds where it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment(pub i64);

impl Moment {
    /// `2026-01-31T08:00:00Z`
    pub fn rfc3339(self) -> String {
        let moment = DateTime::from_timestamp_millis(self.0.div_euclid(1000) * 1000);
        moment.map(|moment| moment.to_rfc3339_opts(SecondsFormat::Secs, true)).unwrap_or_default()
    }

    /// `2026-01-31 08:00 UTC`
    fn shown(self) -> String {
        let moment = DateTime::from_timestamp_millis(self.0);
        moment.map(|moment| moment.format("%Y-%m-%d %H:%M UTC").to_string()).unwrap_or_default()
    }

    /// The moment without an age.
    pub fn plain(self) -> Markup {
        html! { time datetime=(self.rfc3339()) { (self.shown()) } }
    }

    /// The moment with its age: `2026-01-31 08:00 UTC, 3 min ago`.
    pub fn aged(self, now: Moment) -> Markup {
        html! { (self.plain()) ", " (age((now.0 - self.0) / 1000)) }
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.rfc3339())
    }
}

/// How long ago something was, or how long it still takes. Seconds are left out: they would change all the time.
pub(super) fn age(secs: i64) -> String {
    let far = match secs.unsigned_abs() {
        0..60 => "less than a minute".to_owned(),
        secs => format_duration(secs),
    };
    if secs >= 0 { format!("{far} ago") } else { format!("in {far}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_utc_with_their_age() {
        let at = Moment(1_769_817_600_123);
        assert_eq!(at.rfc3339(), "2026-01-31T00:00:00Z", "midnight too has a time");
        let shown = at.aged(Moment(at.0 + 3 * 60_000)).into_string();
        assert_eq!(shown, "<time datetime=\"2026-01-31T00:00:00Z\">2026-01-31 00:00 UTC</time>, 3 min ago");
        assert_eq!([age(59), age(60), age(-7300)], ["less than a minute ago", "1 min ago", "in 2 h 1 min"]);
    }
}
