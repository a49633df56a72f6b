//! The coverage and the lag of each stream: the time since the end of its newest complete window. Gaps before that
//! window do not count. `status`, `--max-lag`, metrics, the status page and the health of `serve` share this
//! computation.

use std::time::Duration;

use serde::Serialize;

use crate::{
    config::Settings,
    model::{
        CoverageInterval, IntervalSet, NEEDS_RECHECK_MS, Scope, Stream, Window, format_duration, format_ms,
        format_second, is_in_future,
    },
    pipeline::{clock_skew_ms, is_clock_in_doubt},
    state::{ProvenInterval, State, StateError, StoredInterval},
};

/// The present time by which lags are measured, and what is known of the clock of the service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PresentTime {
    /// Epoch milliseconds: by the service's clock, or by this machine's clock if the service's is in doubt.
    #[serde(skip)]
    pub now_ms: i64,
    /// Milliseconds by which the service's clock is ahead of this machine's; `None` if no run has compared them.
    #[serde(rename = "clock_skew_ms")]
    pub skew_ms: Option<i64>,
    /// True if the service's clock is days off, and no comparison with its rows found that it can be right.
    #[serde(rename = "clock_in_doubt")]
    pub is_in_doubt: bool,
}

impl PresentTime {
    /// Reads what runs found about the clocks. `here_ms` is the time of this machine's clock.
    pub fn read(state: &State, here_ms: i64) -> Result<PresentTime, StateError> {
        let skew_ms = clock_skew_ms(state, here_ms)?;
        let is_in_doubt = is_clock_in_doubt(state, -skew_ms.unwrap_or(0))?;
        let present = PresentTime { now_ms: here_ms, skew_ms, is_in_doubt };
        Ok(PresentTime { now_ms: if is_in_doubt { here_ms } else { present.service_ms(here_ms) }, ..present })
    }

    /// Converts a time of this machine's clock into a time of the service's clock, even if that clock is in doubt.
    pub fn service_ms(&self, here_ms: i64) -> i64 {
        here_ms.saturating_add(self.skew_ms.unwrap_or(0))
    }

    /// Returns the time up to which the coverage is complete: the latest end of an interval that was read after its
    /// end. Earlier intervals may be missing. Returns `None` without such an interval.
    ///
    /// A scan proves nothing about the time after it. So a clock that is ahead, of the service or of this machine,
    /// does not make later times complete.
    pub fn complete_until_ms(&self, intervals: &[StoredInterval]) -> Option<i64> {
        let ahead_ms = self.skew_ms.filter(|skew_ms| self.is_in_doubt && *skew_ms > 0).unwrap_or(0);
        let ends = intervals.iter().filter_map(|StoredInterval { interval, read }| {
            let read_ms = read.read_ms.saturating_sub(ahead_ms);
            let is_past = interval.window.start_ms <= self.now_ms && !is_in_future(read_ms, self.now_ms);
            // An interval of an earlier version of the program has no time of its scan.
            let is_read = read.scans > 0 && ahead_ms > 0;
            is_past.then(|| if is_read { interval.window.end_ms.min(read_ms) } else { interval.window.end_ms })
        });
        ends.max()
    }

    /// Returns the seconds since the coverage is complete; `None` if nothing is.
    pub fn lag_secs(&self, intervals: &[StoredInterval]) -> Option<i64> {
        self.complete_until_ms(intervals).map(|until_ms| self.now_ms.saturating_sub(until_ms).max(0) / 1000)
    }
}

/// The coverage and the lag of a stream, or of one survey of a stream.
#[derive(Clone, Debug, Serialize)]
pub struct ScopeStatus {
    #[serde(flatten)]
    pub scope: Scope,
    /// Ranges that are proven complete, including those in `in_doubt`.
    pub complete: Vec<TimeRange>,
    /// Ranges between complete ranges that were never proven complete.
    pub missing: Vec<TimeRange>,
    /// Ranges that need a recheck, because their last scan withheld vanished rows, or rows may be lost at a page
    /// boundary.
    pub in_doubt: Vec<TimeRange>,
    /// Number of rows in the table of the stream, or of the survey. The checkpoints do not have it: `None` until it is
    /// counted, and if the warehouse cannot be read now.
    pub rows: Option<u64>,
    /// Seconds from the end of the newest complete window to the [`PresentTime`]. Earlier windows may be missing.
    /// `None` if every scan began in the future, by a clock that was wrong.
    pub lag_secs: Option<i64>,
    /// The earliest time of a range's last scan, without ranges that need a recheck. The current time if all need one.
    pub oldest_scan: String,
    /// The coverage with the scans that read it last.
    #[serde(skip)]
    pub intervals: Vec<StoredInterval>,
    /// When each part of the coverage was first proven complete.
    #[serde(skip)]
    pub proofs: Vec<ProvenInterval>,
}

/// A range of creation time.
#[derive(Clone, Debug, Serialize)]
pub struct TimeRange {
    pub start: String,
    pub end: String,
    /// When the last part of the range was first proven complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complete_since: Option<String>,
}

impl TimeRange {
    fn of(window: &Window) -> TimeRange {
        TimeRange { start: format_ms(window.start_ms), end: format_ms(window.end_ms), complete_since: None }
    }
}

impl ScopeStatus {
    /// Reads the status of every scope that has coverage and that `--stream` and `--survey` select.
    ///
    /// # Errors
    /// The checkpoints cannot be read.
    pub fn read_all(settings: &Settings, state: &State, present: &PresentTime) -> Result<Vec<ScopeStatus>, StateError> {
        let mut scopes = Vec::new();
        for scope in state.covered_scopes()?.into_iter().filter(|scope| is_selected(settings, *scope)) {
            scopes.extend(ScopeStatus::read(state, scope, present)?);
        }
        Ok(scopes)
    }

    /// Reads the status of one scope; `None` if its coverage is empty.
    fn read(state: &State, scope: Scope, present: &PresentTime) -> Result<Option<ScopeStatus>, StateError> {
        let (intervals, proofs) = (state.intervals(scope)?, state.proofs(scope)?);
        let covered: IntervalSet = intervals.iter().map(|stored| stored.interval.window).collect();
        let Some(bounding_range) = covered.bounding_range() else { return Ok(None) };
        let complete = |window: &Window| {
            let parts = proofs.iter().filter(|proof| proof.window.overlaps(*window));
            let last_ms = parts.map(|proof| proof.proven_ms).max().filter(|proven_ms| *proven_ms > 0);
            TimeRange { complete_since: last_ms.map(format_second), ..TimeRange::of(window) }
        };
        let (rechecks, scanned): (Vec<&CoverageInterval>, Vec<&CoverageInterval>) = intervals
            .iter()
            .map(|stored| &stored.interval)
            .partition(|interval| interval.scanned_ms == NEEDS_RECHECK_MS);
        let oldest_ms = scanned.iter().map(|interval| interval.scanned_ms).min().unwrap_or(present.now_ms);
        Ok(Some(ScopeStatus {
            scope,
            complete: covered.windows().iter().map(complete).collect(),
            missing: covered.gaps_in(bounding_range).iter().map(TimeRange::of).collect(),
            in_doubt: rechecks.iter().map(|interval| TimeRange::of(&interval.window)).collect(),
            rows: None,
            lag_secs: present.lag_secs(&intervals),
            oldest_scan: format_second(oldest_ms),
            intervals,
            proofs,
        }))
    }
}

/// Returns true if `--stream` and `--survey` select the scope. Every `--survey` selects the scopes of all surveys.
pub fn is_selected(settings: &Settings, scope: Scope) -> bool {
    let is_of_stream = settings.named_streams.is_empty() || settings.named_streams.contains(&scope.stream);
    let is_of_survey = scope.survey_id.is_none_or(|id| settings.surveys.is_empty() || settings.surveys.contains(&id));
    is_of_stream && is_of_survey
}

/// Returns the lag of a scope; `None` if nothing of it is complete. A range that is complete for all surveys is
/// complete for each single survey.
pub fn lag_secs(scopes: &[ScopeStatus], scope: Scope) -> Option<i64> {
    let covering = scopes.iter().filter(|known| known.scope == scope || known.scope == Scope::all(scope.stream));
    covering.filter_map(|known| known.lag_secs).min()
}

/// The lag of a stream, or of a survey that is read alone.
#[derive(Clone, Debug, Serialize)]
pub struct StreamLag {
    pub stream: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub survey_id: Option<i64>,
    /// Seconds since the end of the newest complete window; `None` if nothing is complete.
    pub lag_secs: Option<i64>,
}

/// Returns the lag of each configured stream: the lag of its scope of all surveys. If only single surveys were read, it
/// is the largest lag of these surveys.
pub fn stream_lags(settings: &Settings, scopes: &[ScopeStatus]) -> Vec<StreamLag> {
    let of_stream = |stream: Stream| {
        let single_surveys = scopes.iter().filter(|known| known.scope.stream == stream).map(|known| known.lag_secs);
        let lag_secs = lag_secs(scopes, Scope::all(stream)).or_else(|| single_surveys.flatten().max());
        StreamLag { stream: stream.name(), survey_id: None, lag_secs }
    };
    settings.streams.iter().map(|settings| of_stream(settings.stream)).collect()
}

/// The result of comparing each lag with the allowed lag.
#[derive(Clone, Debug, Serialize)]
pub struct LagCheck {
    /// The allowed lag.
    max_lag_secs: u64,
    /// The scopes that are further behind than allowed.
    behind: Vec<StreamLag>,
}

impl LagCheck {
    /// Compares the lags of the configured streams with `max_lag`. A stream that was never read is behind.
    pub fn new(settings: &Settings, max_lag: Duration, scopes: &[ScopeStatus]) -> LagCheck {
        let max_lag_secs = max_lag.as_secs();
        let max_secs = i64::try_from(max_lag_secs).unwrap_or(i64::MAX);
        let mut behind = Vec::new();
        for stream in settings.streams.iter().map(|stream| stream.stream) {
            let late = |survey_id, lag_secs| StreamLag { stream: stream.name(), survey_id, lag_secs };
            let of_stream = || scopes.iter().filter(|known| known.scope.stream == stream && known.lag_secs.is_some());
            if of_stream().next().is_none() {
                behind.push(late(None, None));
            }
            let lags = of_stream().map(|known| late(known.scope.survey_id, lag_secs(scopes, known.scope)));
            behind.extend(lags.filter(|late| late.lag_secs.is_some_and(|secs| secs > max_secs)));
        }
        LagCheck { max_lag_secs, behind }
    }

    /// Returns true if no scope is further behind than allowed.
    pub fn is_within_limit(&self) -> bool {
        self.behind.is_empty()
    }

    /// Returns each scope that is behind, with a sentence such as `responses: 3 days behind, limit 26 h`.
    pub fn sentences(&self) -> impl Iterator<Item = (&StreamLag, String)> {
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
    use crate::{
        config::{Overrides, resolve},
        model::{DAY_MS, EndStyles, FlagSet, HOUR_MS},
        state::LastRead,
    };

    fn lag(stream: Stream, survey_id: Option<i64>, lag_secs: i64) -> ScopeStatus {
        ScopeStatus {
            scope: Scope { stream, survey_id },
            complete: Vec::new(),
            missing: Vec::new(),
            in_doubt: Vec::new(),
            rows: None,
            lag_secs: Some(lag_secs),
            oldest_scan: String::new(),
            intervals: Vec::new(),
            proofs: Vec::new(),
        }
    }

    #[test]
    fn the_json_of_a_scope_has_the_fields_of_the_command() {
        let json = serde_json::to_string(&lag(Stream::Responses, Some(7), 90)).unwrap();
        let expected = r#"{"stream":"responses","survey_id":7,"complete":[],"missing":[],"in_doubt":[],"rows":null,"lag_secs":90,"oldest_scan":""}"#;
        assert_eq!(json, expected);
    }

    #[test]
    fn late_and_unread_streams_are_behind() {
        let settings = resolve(Overrides::default()).unwrap();
        let behind = |max_secs: u64, lags: &[ScopeStatus]| -> Vec<String> {
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
        let of_responses = |lags: &[ScopeStatus]| {
            let lags = stream_lags(&settings, lags);
            lags.into_iter().find(|lag| lag.stream == "responses").unwrap().lag_secs
        };
        assert_eq!(of_responses(&with_survey), Some(100), "the lag of all surveys");
        with_survey.remove(0);
        assert_eq!(behind(7300, &with_survey), ["BEHIND  responses of survey 7: 25 h behind, limit 2 h 1 min"]);
        assert_eq!(of_responses(&with_survey), Some(90_000));
        assert_eq!(of_responses(&[]), None);
    }

    fn interval(start_ms: i64, end_ms: i64, read_ms: i64) -> StoredInterval {
        let interval = CoverageInterval {
            window: Window::new(start_ms, end_ms),
            flags: FlagSet::EMPTY,
            scanned_ms: read_ms,
            rows: 1,
        };
        let read = LastRead { read_ms, scan_id: None, scans: 1, pages: 1, ends: EndStyles::default() };
        StoredInterval { interval, read }
    }

    fn lag_days(time: PresentTime, intervals: &[StoredInterval]) -> Option<i64> {
        time.lag_secs(intervals).map(|secs| secs * 1000 / DAY_MS)
    }

    #[test]
    fn p3_a_lag_counts_no_time_that_a_wrong_clock_names() {
        const NOW: i64 = 1000 * DAY_MS;
        let time =
            |skew_days: i64, is_in_doubt| PresentTime { now_ms: NOW, skew_ms: Some(skew_days * DAY_MS), is_in_doubt };
        let nightly = [interval(0, NOW - DAY_MS, NOW - DAY_MS), interval(NOW - DAY_MS, NOW, NOW)];
        assert_eq!(lag_days(time(0, false), &nightly), Some(0));
        assert_eq!(lag_days(time(0, false), &[]), None);
        // The service's clock is 40 days behind, and so is the end of everything that was read by it.
        let behind = NOW - 40 * DAY_MS;
        assert_eq!(lag_days(time(-40, true), &[interval(0, behind, behind)]), Some(40));
        // It is 40 days ahead: what it calls complete was read three days ago, and the last two nights read nothing.
        let ahead = NOW + 40 * DAY_MS;
        let nights = [
            interval(0, ahead - 3 * DAY_MS, ahead - 3 * DAY_MS),
            interval(ahead - 3 * DAY_MS, ahead - DAY_MS, ahead - DAY_MS),
            interval(ahead - DAY_MS, ahead, ahead),
        ];
        assert_eq!(lag_days(time(40, true), &nights), Some(3));
        // This machine's clock was set back behind the scans, or the scans had a clock that was ahead.
        let future = interval(NOW - 9 * DAY_MS, NOW + 2 * DAY_MS, NOW + 2 * DAY_MS);
        assert_eq!(lag_days(time(0, false), std::slice::from_ref(&future)), None);
        assert_eq!(lag_days(time(0, false), &[interval(0, NOW - 9 * DAY_MS, NOW - 9 * DAY_MS), future]), Some(9));
        // A difference of minutes is none.
        assert_eq!(lag_days(time(0, false), &[interval(0, NOW + 60_000, NOW + 60_000)]), Some(0));
    }

    #[test]
    fn coverage_of_the_future_is_no_proof_of_freshness() {
        let interval = |end_hours: i64, scanned_hours: i64| interval(0, end_hours * HOUR_MS, scanned_hours * HOUR_MS);
        let time = PresentTime { now_ms: 100 * HOUR_MS, skew_ms: Some(0), is_in_doubt: false };
        assert_eq!(time.lag_secs(&[interval(90, 90)]), Some(10 * 3600));
        assert_eq!(time.lag_secs(&[interval(90, 90), interval(101, 101)]), Some(0), "clocks differ a little");
        assert_eq!(time.lag_secs(&[interval(90, 90), interval(9000, 9000)]), Some(10 * 3600), "a clock was ahead");
        assert_eq!(time.lag_secs(&[interval(9000, 9000)]), None);
    }
}
