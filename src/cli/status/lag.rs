//! `status --max-lag`: which streams are further behind than they may be.

use std::time::Duration;

use serde::Serialize;

use super::{shown::length, streams::StreamStatus};
use crate::config::Settings;

/// What --max-lag found.
#[derive(Serialize)]
pub(super) struct Lag {
    /// What was allowed.
    max_lag_secs: u64,
    /// The streams that are further behind.
    behind: Vec<Behind>,
}

#[derive(Serialize)]
struct Behind {
    stream: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    survey_id: Option<i64>,
    /// How far the newest complete moment lies back; `None` if nothing is complete.
    lag_secs: Option<i64>,
}

impl Lag {
    /// Of the lists that the settings name: also one that was never read is behind.
    pub fn of(settings: &Settings, max_lag: Duration, streams: &[StreamStatus]) -> Lag {
        let max_lag_secs = max_lag.as_secs();
        let max_secs = i64::try_from(max_lag_secs).unwrap_or(i64::MAX);
        let mut behind = Vec::new();
        for wanted in settings.streams.iter().map(|stream| stream.stream.name()) {
            let of_it = || streams.iter().filter(|status| status.stream == wanted);
            // What all surveys are complete for, each one is.
            let whole = of_it().filter(|status| status.survey_id.is_none()).map(|status| status.lag_secs).min();
            if of_it().next().is_none() {
                behind.push(Behind { stream: wanted, survey_id: None, lag_secs: None });
            }
            for status in of_it() {
                let lag_secs = whole.map_or(status.lag_secs, |whole| whole.min(status.lag_secs));
                if lag_secs > max_secs {
                    behind.push(Behind { stream: wanted, survey_id: status.survey_id, lag_secs: Some(lag_secs) });
                }
            }
        }
        Lag { max_lag_secs, behind }
    }

    /// Whether nothing is further behind than it may be.
    pub fn is_well(&self) -> bool {
        self.behind.is_empty()
    }

    /// A line for each stream that is behind.
    pub fn describe(&self) -> String {
        let allowed = length(i64::try_from(self.max_lag_secs).unwrap_or(i64::MAX));
        let line = |behind: &Behind| {
            let survey = behind.survey_id.map(|id| format!(" of survey {id}")).unwrap_or_default();
            let lag =
                behind.lag_secs.map_or("nothing is complete".to_owned(), |secs| format!("{} behind", length(secs)));
            format!("BEHIND  {}{survey}: {lag}, allowed are {allowed}\n", behind.stream)
        };
        self.behind.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Overrides, resolve};

    fn status(stream: &'static str, survey_id: Option<i64>, lag_secs: i64) -> StreamStatus {
        StreamStatus {
            stream,
            survey_id,
            complete: Vec::new(),
            missing: Vec::new(),
            in_doubt: Vec::new(),
            rows: None,
            lag_secs,
            oldest_scan: String::new(),
        }
    }

    #[test]
    fn a_stream_that_is_late_or_was_never_read_is_behind() {
        let settings = resolve(Overrides::default()).unwrap();
        let behind = |max_secs: u64, streams: &[StreamStatus]| -> Vec<String> {
            let lag = Lag::of(&settings, Duration::from_secs(max_secs), streams);
            assert_eq!(lag.is_well(), lag.behind.is_empty());
            lag.describe().lines().map(str::to_owned).collect()
        };
        let all = || vec![status("responses", None, 100), status("surveys", None, 50), status("themes", None, 7300)];
        assert_eq!(behind(7300, &all()), [""; 0]);
        assert_eq!(behind(7299, &all()), ["BEHIND  themes: 2 h behind, allowed are 2 h"]);
        assert_eq!(behind(99, &all()).len(), 2);
        assert_eq!(
            behind(7300, &all()[..2]),
            ["BEHIND  themes: nothing is complete, allowed are 2 h"],
            "a stream that was never read"
        );
        // A survey that was read alone before all of them were.
        let mut with_survey = all();
        with_survey.push(status("responses", Some(7), 90_000));
        assert_eq!(behind(7300, &with_survey), [""; 0]);
        with_survey.remove(0);
        assert_eq!(behind(7300, &with_survey), ["BEHIND  responses of survey 7: 25 h behind, allowed are 2 h"]);
    }
}
