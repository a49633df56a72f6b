//! How far each stream is behind: one computation for `status`, `--max-lag`, metrics and the health of `serve`.

use std::time::Duration;

use serde::Serialize;

use crate::{
    config::Settings,
    model::{IntervalSet, Scope, Stream},
    state::{State, StateError},
};

/// How far a stream, or a survey that was read alone, is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScopeLag {
    pub stream: Stream,
    pub survey_id: Option<i64>,
    /// How far the newest complete moment lies back.
    pub lag_secs: i64,
}

/// The lag of every scope that `--stream` and `--survey` leave in. `now_ms` is the service's time.
pub fn scope_lags(settings: &Settings, state: &State, now_ms: i64) -> Result<Vec<ScopeLag>, StateError> {
    let mut lags = Vec::new();
    for scope in state.covered_scopes()?.into_iter().filter(|scope| is_asked_for(settings, *scope)) {
        let covered: IntervalSet = state.coverage(scope)?.iter().map(|interval| interval.window).collect();
        let Some(bounding_range) = covered.bounding_range() else { continue };
        lags.push(ScopeLag {
            stream: scope.stream,
            survey_id: scope.survey_id,
            lag_secs: lag_secs(bounding_range.end_ms, now_ms),
        });
    }
    Ok(lags)
}

/// How far this end of what is complete lies back, in seconds.
pub fn lag_secs(end_ms: i64, now_ms: i64) -> i64 {
    now_ms.saturating_sub(end_ms).max(0) / 1000
}

/// Whether --stream and --survey leave the scope in. What was covered for all surveys is covered for each.
pub fn is_asked_for(settings: &Settings, scope: Scope) -> bool {
    let is_of_stream = settings.named_streams.is_empty() || settings.named_streams.contains(&scope.stream);
    let is_of_survey = scope.survey_id.is_none_or(|id| settings.surveys.is_empty() || settings.surveys.contains(&id));
    is_of_stream && is_of_survey
}

/// How far one of the lists that the settings name is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamLag {
    pub stream: Stream,
    /// `None` if nothing of it is complete.
    pub lag_secs: Option<i64>,
}

/// Of each list that the settings name: the lag of all surveys together or, where only single surveys were read,
/// the largest of theirs.
pub fn stream_lags(settings: &Settings, lags: &[ScopeLag]) -> Vec<StreamLag> {
    let of = |stream: Stream| {
        let of_it = || lags.iter().filter(move |lag| lag.stream == stream);
        let whole = of_it().filter(|lag| lag.survey_id.is_none()).map(|lag| lag.lag_secs).min();
        StreamLag { stream, lag_secs: whole.or_else(|| of_it().map(|lag| lag.lag_secs).max()) }
    };
    settings.streams.iter().map(|settings| of(settings.stream)).collect()
}

/// Which streams are further behind than they may be.
#[derive(Clone, Debug, Serialize)]
pub struct Lag {
    /// What was allowed.
    max_lag_secs: u64,
    /// The streams that are further behind.
    behind: Vec<Behind>,
}

/// A stream, or a survey that was read alone, that is further behind than it may be.
#[derive(Clone, Debug, Serialize)]
pub struct Behind {
    pub stream: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub survey_id: Option<i64>,
    /// How far the newest complete moment lies back; `None` if nothing is complete.
    pub lag_secs: Option<i64>,
}

impl Lag {
    /// Of the lists that the settings name: also one that was never read is behind.
    pub fn of(settings: &Settings, max_lag: Duration, lags: &[ScopeLag]) -> Lag {
        let max_lag_secs = max_lag.as_secs();
        let max_secs = i64::try_from(max_lag_secs).unwrap_or(i64::MAX);
        let mut behind = Vec::new();
        for wanted in settings.streams.iter().map(|stream| stream.stream) {
            let of_it = || lags.iter().filter(|lag| lag.stream == wanted);
            // What all surveys are complete for, each one is.
            let whole = of_it().filter(|lag| lag.survey_id.is_none()).map(|lag| lag.lag_secs).min();
            if of_it().next().is_none() {
                behind.push(Behind { stream: wanted.name(), survey_id: None, lag_secs: None });
            }
            for lag in of_it() {
                let lag_secs = whole.map_or(lag.lag_secs, |whole| whole.min(lag.lag_secs));
                if lag_secs > max_secs {
                    behind.push(Behind { stream: wanted.name(), survey_id: lag.survey_id, lag_secs: Some(lag_secs) });
                }
            }
        }
        Lag { max_lag_secs, behind }
    }

    /// Whether nothing is further behind than it may be.
    pub fn is_well(&self) -> bool {
        self.behind.is_empty()
    }

    /// What is further behind, each with its sentence.
    pub fn sentences(&self) -> impl Iterator<Item = (&Behind, String)> {
        let allowed = length(i64::try_from(self.max_lag_secs).unwrap_or(i64::MAX));
        self.behind.iter().map(move |behind| {
            let survey = behind.survey_id.map(|id| format!(" of survey {id}")).unwrap_or_default();
            let lag =
                behind.lag_secs.map_or("nothing is complete".to_owned(), |secs| format!("{} behind", length(secs)));
            (behind, format!("{}{survey}: {lag}, allowed are {allowed}", behind.stream))
        })
    }

    /// A line for each stream that is behind.
    pub fn describe(&self) -> String {
        self.sentences().map(|(_, sentence)| format!("BEHIND  {sentence}\n")).collect()
    }
}

/// A length in its largest unit.
pub fn length(secs: i64) -> String {
    match secs {
        0..120 => format!("{secs} s"),
        120..7200 => format!("{} min", secs / 60),
        7200..172_800 => format!("{} h", secs / 3600),
        _ => format!("{} days", secs / 86_400),
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
    fn a_stream_that_is_late_or_was_never_read_is_behind() {
        let settings = resolve(Overrides::default()).unwrap();
        let behind = |max_secs: u64, lags: &[ScopeLag]| -> Vec<String> {
            let lag = Lag::of(&settings, Duration::from_secs(max_secs), lags);
            assert_eq!(lag.is_well(), lag.behind.is_empty());
            lag.describe().lines().map(str::to_owned).collect()
        };
        let all =
            || vec![lag(Stream::Responses, None, 100), lag(Stream::Surveys, None, 50), lag(Stream::Themes, None, 7300)];
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
        with_survey.push(lag(Stream::Responses, Some(7), 90_000));
        assert_eq!(behind(7300, &with_survey), [""; 0]);
        let of_responses = |lags: &[ScopeLag]| {
            let lags = stream_lags(&settings, lags);
            lags.into_iter().find(|lag| lag.stream == Stream::Responses).unwrap().lag_secs
        };
        assert_eq!(of_responses(&with_survey), Some(100), "what all surveys are complete for");
        with_survey.remove(0);
        assert_eq!(behind(7300, &with_survey), ["BEHIND  responses of survey 7: 25 h behind, allowed are 2 h"]);
        assert_eq!(of_responses(&with_survey), Some(90_000));
        assert_eq!(of_responses(&[]), None);
    }
}
