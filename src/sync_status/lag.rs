//! The lag of each stream: the time since the end of its newest complete window. Gaps before that window do not count.
//! `status`, `--max-lag`, metrics and the health of `serve` share this computation.

use std::time::Duration;

use serde::Serialize;

use crate::{
    config::Settings,
    model::{Scope, Stream, format_duration},
    state::{State, StateError},
};

use super::PresentTime;

/// The lag of one scope that has coverage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScopeLag {
    pub stream: Stream,
    pub survey_id: Option<i64>,
    /// Seconds from the end of the newest complete window to the [`PresentTime`]. Earlier windows may be missing.
    pub lag_secs: i64,
}

/// Returns the lag of every scope that has coverage and that `--stream` and `--survey` select.
pub fn scope_lags(settings: &Settings, state: &State, present: PresentTime) -> Result<Vec<ScopeLag>, StateError> {
    let mut lags = Vec::new();
    for scope in state.covered_scopes()?.into_iter().filter(|scope| is_selected(settings, *scope)) {
        let Some(lag_secs) = present.lag_secs(&state.intervals(scope)?) else { continue };
        lags.push(ScopeLag { stream: scope.stream, survey_id: scope.survey_id, lag_secs });
    }
    Ok(lags)
}

/// Returns true if `--stream` and `--survey` select the scope. Every `--survey` selects the scopes of all surveys.
pub fn is_selected(settings: &Settings, scope: Scope) -> bool {
    let is_of_stream = settings.named_streams.is_empty() || settings.named_streams.contains(&scope.stream);
    let is_of_survey = scope.survey_id.is_none_or(|id| settings.surveys.is_empty() || settings.surveys.contains(&id));
    is_of_stream && is_of_survey
}

/// The lag of one configured stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamLag {
    pub stream: Stream,
    /// `None` if nothing of the stream is complete.
    pub lag_secs: Option<i64>,
}

/// Returns the lag of each configured stream: the lag of its scope of all surveys. If only single surveys were read, it
/// is the largest lag of these surveys.
pub fn stream_lags(settings: &Settings, lags: &[ScopeLag]) -> Vec<StreamLag> {
    let of_stream = |stream: Stream| {
        let single_surveys = lags.iter().filter(|lag| lag.stream == stream).map(|lag| lag.lag_secs);
        StreamLag { stream, lag_secs: all_surveys_lag(lags, stream).or_else(|| single_surveys.max()) }
    };
    settings.streams.iter().map(|settings| of_stream(settings.stream)).collect()
}

/// Returns the lag of the stream's scope of all surveys; `None` if only single surveys were read.
fn all_surveys_lag(lags: &[ScopeLag], stream: Stream) -> Option<i64> {
    let of_all = lags.iter().filter(|lag| lag.stream == stream && lag.survey_id.is_none());
    of_all.map(|lag| lag.lag_secs).min()
}

/// The result of comparing each lag with the allowed lag.
#[derive(Clone, Debug, Serialize)]
pub struct LagCheck {
    /// The allowed lag.
    max_lag_secs: u64,
    /// The scopes that are further behind than allowed.
    behind: Vec<LateScope>,
}

/// A stream, or a survey that is read alone, that is further behind than allowed.
#[derive(Clone, Debug, Serialize)]
pub struct LateScope {
    pub stream: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub survey_id: Option<i64>,
    /// Seconds since the end of the newest complete window; `None` if nothing is complete.
    pub lag_secs: Option<i64>,
}

impl LagCheck {
    /// Compares the lags of the configured streams with `max_lag`. A stream that was never read is behind.
    pub fn new(settings: &Settings, max_lag: Duration, lags: &[ScopeLag]) -> LagCheck {
        let max_lag_secs = max_lag.as_secs();
        let max_secs = i64::try_from(max_lag_secs).unwrap_or(i64::MAX);
        let mut behind = Vec::new();
        for stream in settings.streams.iter().map(|stream| stream.stream) {
            let of_stream = || lags.iter().filter(|lag| lag.stream == stream);
            if of_stream().next().is_none() {
                behind.push(LateScope { stream: stream.name(), survey_id: None, lag_secs: None });
            }
            // A range that is complete for all surveys is complete for each single survey.
            let all_surveys = all_surveys_lag(lags, stream).unwrap_or(i64::MAX);
            let late = of_stream().map(|lag| (lag.survey_id, lag.lag_secs.min(all_surveys)));
            behind.extend(late.filter(|(_, lag_secs)| *lag_secs > max_secs).map(|(survey_id, lag_secs)| LateScope {
                stream: stream.name(),
                survey_id,
                lag_secs: Some(lag_secs),
            }));
        }
        LagCheck { max_lag_secs, behind }
    }

    /// Returns true if no scope is further behind than allowed.
    pub fn is_within_limit(&self) -> bool {
        self.behind.is_empty()
    }

    /// Returns each scope that is behind, with a sentence such as `responses: 3 days behind, limit 26 h`.
    pub fn sentences(&self) -> impl Iterator<Item = (&LateScope, String)> {
        self.behind.iter().map(|scope| {
            let survey = scope.survey_id.map(|id| format!(" of survey {id}")).unwrap_or_default();
            let behind = |secs: i64| format!("{} behind", format_duration(secs.unsigned_abs()));
            let lag = scope.lag_secs.map_or("nothing is complete".to_owned(), behind);
            (scope, format!("{}{survey}: {lag}, limit {}", scope.stream, format_duration(self.max_lag_secs)))
        })
    }

    /// Returns a line `BEHIND  ...` for each scope that is behind.
    pub fn describe(&self) -> String {
        self.sentences().map(|(_, sentence)| format!("BEHIND  {sentence}\n")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Overrides, resolve};

    fn lag(stream: Stream, survey_id: Option<i64>, lag_secs: i64) -> ScopeLag {
        ScopeLag { stream, survey_id, lag_secs }
    }

    #[test]
    fn late_and_unread_streams_are_behind() {
        let settings = resolve(Overrides::default()).unwrap();
        let behind = |max_secs: u64, lags: &[ScopeLag]| -> Vec<String> {
            let lag = LagCheck::new(&settings, Duration::from_secs(max_secs), lags);
            assert_eq!(lag.is_within_limit(), lag.behind.is_empty());
            lag.describe().lines().map(str::to_owned).collect()
        };
        let all =
            || vec![lag(Stream::Responses, None, 100), lag(Stream::Surveys, None, 50), lag(Stream::Themes, None, 7300)];
        assert_eq!(behind(7300, &all()), [""; 0]);
        assert_eq!(behind(7299, &all()), ["BEHIND  themes: 2 h 1 min behind, limit 2 h 1 min"]);
        assert_eq!(behind(99, &all()).len(), 2);
        assert_eq!(
            behind(7300, &all()[..2]),
            ["BEHIND  themes: nothing is complete, limit 2 h 1 min"],
            "a stream that was never read"
        );
        // A single survey was read before all surveys were.
        let mut with_survey = all();
        with_survey.push(lag(Stream::Responses, Some(7), 90_000));
        assert_eq!(behind(7300, &with_survey), [""; 0]);
        let of_responses = |lags: &[ScopeLag]| {
            let lags = stream_lags(&settings, lags);
            lags.into_iter().find(|lag| lag.stream == Stream::Responses).unwrap().lag_secs
        };
        assert_eq!(of_responses(&with_survey), Some(100), "the lag of all surveys");
        with_survey.remove(0);
        assert_eq!(behind(7300, &with_survey), ["BEHIND  responses of survey 7: 25 h behind, limit 2 h 1 min"]);
        assert_eq!(of_responses(&with_survey), Some(90_000));
        assert_eq!(of_responses(&[]), None);
    }
}
