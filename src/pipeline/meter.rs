//! Measures the speed, the finished share and the remaining time of a run, for the progress line, log lines and web
//! pages. Also the counters that are measured.

use std::{
    collections::VecDeque,
    convert::Infallible,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde::Serialize;
use tokio::time::Instant;

use crate::{
    model::{DAY_MS, Scope, Stream, Window, format_duration_short, format_elapsed, format_ms},
    source::{Source, WaitReason},
    wording::counted,
};

/// The interval over which speeds are averaged.
const SPEED_OVER: Duration = Duration::from_secs(10);
/// The time after which the remaining time of a run is estimated.
const LEFT_AFTER: Duration = Duration::from_secs(3);
/// The minimum length of a wait that is shown. Nobody could read a shorter one.
const WAIT_MIN: Duration = Duration::from_millis(500);

/// The committed share from which the number of all windows is estimated.
const ESTIMATED_FROM: f64 = 0.05;

/// The name of a wait for the learned rate, which no failure caused.
const PACING: &str = "pacing";

/// Time before the first progress line in the log. A short run has none.
const LOG_AFTER: Duration = Duration::from_secs(5);
/// Interval between progress lines in the log.
const LOG_EVERY: Duration = Duration::from_secs(30);

/// Measures a run in progress.
#[derive(Debug)]
pub struct Meter {
    progress: Arc<Progress>,
    source: Source,
    started: Instant,
    /// Recent samples, oldest first.
    samples: VecDeque<ProgressSample>,
    /// The highest [`Reading::percent`] so far.
    percent: f64,
}

/// The counts of a run at one time, from which speeds are computed.
#[derive(Clone, Copy, Debug)]
struct ProgressSample {
    at: Instant,
    /// Rows pulled so far.
    rows: u64,
    /// Requests sent so far.
    requests: u64,
}

/// The progress of a run at one time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Reading {
    /// The stream whose window was committed last.
    pub stream: Option<&'static str>,
    /// The end of the window that was committed last. `None` for a stream without windows.
    pub reached: Option<String>,
    pub windows_done: u64,
    /// The estimated number of all windows. `None` if it is too early to estimate it.
    pub windows_expected: Option<u64>,
    /// The fetched share of the creation time that is due, 0 to 100. It never falls, and is below 100 until all windows
    /// are committed.
    pub percent: f64,
    pub rows: u64,
    pub rows_per_sec: f64,
    pub requests: u64,
    pub requests_per_sec: f64,
    /// The learned rate limit of the service, if it is known.
    pub requests_per_sec_max: Option<f64>,
    /// The estimated remaining time. `None` if it is too early to estimate it.
    pub secs_left: Option<u64>,
    /// The wait that delays all requests at this time, if any.
    pub waiting: Option<Wait>,
    /// The failure that the wait follows: `429`, `503` or `connection refused`. `None` without a wait, and for pacing.
    pub wait_cause: Option<String>,
    pub elapsed_secs: u64,
    /// The step after the last window: `publishing`, or `writing the copy for readers`.
    pub phase: Option<&'static str>,
}

/// A wait that delays all requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Wait {
    /// The remaining seconds, rounded up.
    pub secs: u64,
    /// `rate limited` (`Retry-After`), `backing off`, or `pacing` (the learned rate).
    pub why: &'static str,
}

impl Meter {
    /// Creates a meter for a run that begins now.
    pub fn new(progress: Arc<Progress>, source: Source) -> Meter {
        Meter { progress, source, started: Instant::now(), samples: VecDeque::new(), percent: 0.0 }
    }

    /// Reads the progress now.
    pub fn read(&mut self) -> Reading {
        let now = Instant::now();
        let snapshot = self.progress.snapshot();
        let sample =
            ProgressSample { at: now, rows: snapshot.rows_pulled, requests: self.source.request_stats().total };
        let before = self.sample_before(sample);
        let waiting = self.source.current_wait().and_then(|waiting| {
            let left = waiting.until.saturating_duration_since(now);
            let why = match waiting.reason {
                WaitReason::RateLimited => "rate limited",
                WaitReason::Backoff => "backing off",
                WaitReason::Pacing => PACING,
            };
            (left >= WAIT_MIN).then_some(Wait { secs: left.as_secs_f64().ceil() as u64, why })
        });
        let has_cause = waiting.is_some_and(|wait: Wait| wait.why != PACING);
        let elapsed = now.saturating_duration_since(self.started);
        // The share falls if a list starts over, or if a window has to be scanned a second time.
        self.percent = self.percent.max(snapshot.fetched_share() * 100.0);
        Reading {
            percent: self.percent,
            wait_cause: if has_cause { self.source.wait_cause() } else { None },
            elapsed_secs: elapsed.as_secs(),
            phase: snapshot.phase,
            requests_per_sec_max: self.source.learned_rate().requests_per_sec,
            secs_left: secs_left(&snapshot, elapsed.saturating_sub(self.source.rate_limited_time()))
                .map(|secs| secs + waiting.filter(|_| has_cause).map_or(0, |wait| wait.secs)),
            waiting,
            ..reading(&snapshot, before, sample)
        }
    }

    /// Stores a sample, and returns the sample of about [`SPEED_OVER`] ago. In the first seconds, returns a sample of
    /// the start of the run.
    fn sample_before(&mut self, sample: ProgressSample) -> ProgressSample {
        self.samples.push_back(sample);
        let is_old = |earlier: &ProgressSample| earlier.at + SPEED_OVER < sample.at;
        while self.samples.get(1).is_some_and(is_old) {
            self.samples.pop_front();
        }
        let first = ProgressSample { at: self.started, rows: 0, requests: 0 };
        match self.samples.front() {
            Some(oldest) if self.samples.len() > 1 && oldest.at + SPEED_OVER / 2 < sample.at => *oldest,
            _ => first,
        }
    }
}

/// Logs the progress of a run after five seconds and then every half minute, for as long as it is polled.
pub async fn log_progress(mut read: impl FnMut() -> Reading) -> Infallible {
    tokio::time::sleep(LOG_AFTER).await;
    loop {
        read().log();
        tokio::time::sleep(LOG_EVERY).await;
    }
}

/// Computes a reading from the counters of a run, and the speeds from two samples. Leaves the other fields empty.
fn reading(snapshot: &Snapshot, before: ProgressSample, now: ProgressSample) -> Reading {
    let secs = now.at.saturating_duration_since(before.at).as_secs_f64().max(0.05);
    let per_sec = |now: u64, before: u64| now.saturating_sub(before) as f64 / secs;
    Reading {
        stream: snapshot.reached.map(|reached| reached.stream.name()),
        reached: snapshot.reached.and_then(|reached| reached.until_ms).map(format_ms),
        windows_done: snapshot.windows_done,
        windows_expected: snapshot.windows_expected(),
        rows: now.rows,
        rows_per_sec: per_sec(now.rows, before.rows),
        requests: now.requests,
        requests_per_sec: per_sec(now.requests, before.requests),
        ..Reading::default()
    }
}

/// Estimates the remaining seconds from the finished share and `active`, the elapsed time without rate limits. Returns
/// `None` in the first seconds, without a finished window, or if everything is done.
fn secs_left(snapshot: &Snapshot, active: Duration) -> Option<u64> {
    let share = snapshot.share();
    let is_known = active >= LEFT_AFTER && share > 0.0 && snapshot.done_ms < snapshot.due_ms;
    is_known.then(|| (active.as_secs_f64() * (1.0 - share) / share).ceil() as u64)
}

impl Reading {
    /// Writes a progress line to the log.
    fn log(&self) {
        let Reading { stream, reached, windows_done, windows_expected, rows, requests, secs_left, .. } = self;
        let percent = self.percent.floor();
        let waiting = self.waiting.map(|wait| format!("{} for {} s", self.why_it_waits(wait), wait.secs));
        let Reading { elapsed_secs, phase, .. } = self;
        tracing::info!(
            elapsed_secs,
            phase,
            stream,
            reached,
            windows_done,
            windows_expected,
            percent,
            rows,
            requests,
            secs_left,
            waiting,
            "progress"
        );
    }

    fn why_it_waits(&self, Wait { why, .. }: Wait) -> String {
        match &self.wait_cause {
            Some(cause) => format!("{why} ({cause})"),
            None => why.to_owned(),
        }
    }

    /// Returns a progress line of at most `columns`: elapsed time, date, share, windows, rows, speed or wait, and the
    /// remaining time. What matters least is left out if the line is too short.
    pub fn line(&self, columns: usize) -> String {
        let parts = self.parts();
        let mut ranks: Vec<u8> = parts.iter().map(|part| part.rank).collect();
        ranks.sort_unstable();
        let joined = |rank_max: u8| {
            let shown = parts.iter().filter(|part| part.rank <= rank_max).map(|part| part.text.as_str());
            shown.collect::<Vec<_>>().join("  ")
        };
        let mut lines = ranks.iter().rev().map(|rank| joined(*rank));
        let shortest = || ranks.first().map(|rank| joined(*rank)).unwrap_or_default();
        lines.find(|line| line.len() <= columns).unwrap_or_else(shortest)
    }

    /// Returns the parts of the progress line in their order.
    fn parts(&self) -> Vec<LinePart> {
        let part = |rank: u8, text: String| LinePart { rank, text };
        let mut parts = vec![part(0, format_elapsed(self.elapsed_secs))];
        let rows = match self.rows {
            rows @ ..1000 => counted(rows, "row"),
            rows => format!("{} rows", short(rows as f64)),
        };
        if let Some(phase) = self.phase {
            parts.extend([part(1, rows), part(0, phase.to_owned())]);
            return parts;
        }
        match (self.stream, &self.reached) {
            // Only the day is shown, because shorter windows follow each other quickly.
            (Some(stream), Some(reached)) => {
                parts.push(part(5, format!("{stream} {}", reached.get(..10).unwrap_or(reached))));
            }
            (Some(stream), None) => parts.push(part(5, stream.to_owned())),
            (None, _) => {}
        }
        parts.push(part(1, format!("{:.0}%", self.percent.floor())));
        // The number of all windows is an estimate, which may grow and shrink.
        let of = self.windows_expected.filter(|expected| *expected > self.windows_done);
        let done = self.windows_done;
        parts.push(part(4, of.map_or_else(|| counted(done, "window"), |of| format!("{done}/~{of} windows"))));
        parts.push(part(1, rows));
        if let Some(wait) = self.waiting {
            let length = format_duration_short(wait.secs);
            parts.push(part(0, format!("{}: waits {length}", self.why_it_waits(wait))));
        } else if self.rows == 0 {
            parts.push(part(0, format!("waits for the first rows ({})", counted(self.requests, "request"))));
        } else {
            parts.push(part(3, format!("{}/s", short(self.rows_per_sec))));
            let limit = self.requests_per_sec_max.map(|limit| format!(" of {}", short(limit))).unwrap_or_default();
            parts.push(part(6, format!("{}{limit} req/s", short(self.requests_per_sec))));
        }
        parts.extend(self.secs_left.map(|secs| part(2, format!("{} left", format_duration_short(secs)))));
        parts
    }
}

/// A part of the progress line.
struct LinePart {
    /// The part with the highest rank is left out first.
    rank: u8,
    text: String,
}

/// Formats a number: `9.5`, `950`, `12k`, `1.2M`.
fn short(number: f64) -> String {
    match number {
        ..9.95 => format!("{number:.1}"),
        ..999.5 => format!("{number:.0}"),
        ..9_950.0 => format!("{:.1}k", number / 1e3),
        ..999_500.0 => format!("{:.0}k", number / 1e3),
        _ => format!("{:.1}M", number / 1e6),
    }
}

/// Counters of a run in progress.
#[derive(Debug, Default)]
pub struct Progress {
    windows_done: AtomicU64,
    /// Milliseconds of creation time in all windows that were due.
    due_ms: AtomicU64,
    /// Milliseconds of creation time that pages have covered.
    fetched_ms: AtomicU64,
    /// Milliseconds of creation time in committed windows.
    done_ms: AtomicU64,
    rows_pulled: AtomicU64,
    reached: Mutex<Option<Reach>>,
    phase: Mutex<Option<&'static str>>,
}

/// The window that a run committed last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    pub stream: Stream,
    /// The end of the window in epoch milliseconds. `None` for a list without windows.
    pub until_ms: Option<i64>,
}

/// The counters at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    pub windows_done: u64,
    pub due_ms: u64,
    pub fetched_ms: u64,
    pub done_ms: u64,
    pub rows_pulled: u64,
    pub reached: Option<Reach>,
    /// The step after the last window; see [`Reading::phase`].
    pub phase: Option<&'static str>,
}

impl Snapshot {
    /// Returns the committed share of the creation time that was due: 0 to 1. Returns 0 if nothing was due.
    pub fn share(&self) -> f64 {
        match self.due_ms {
            0 => 0.0,
            due_ms => self.done_ms.min(due_ms) as f64 / due_ms as f64,
        }
    }

    /// Returns the fetched share of the creation time that was due: 0 to 1, and at most 0.99 until all of it is
    /// committed.
    fn fetched_share(&self) -> f64 {
        match self.share() {
            share if share < 1.0 && self.due_ms > 0 => {
                (self.fetched_ms as f64 / self.due_ms as f64).clamp(share, 0.99_f64.max(share))
            }
            share => share,
        }
    }

    /// Estimates the number of all windows, as if the remaining windows were as long as the finished ones. Returns
    /// `None` until [`ESTIMATED_FROM`] is committed: the first windows of a run are shorter than the others.
    pub fn windows_expected(&self) -> Option<u64> {
        let share = self.share();
        let expected = (self.windows_done as f64 / share).round() as u64;
        (share >= ESTIMATED_FROM).then_some(expected.max(self.windows_done))
    }
}

impl Progress {
    /// Reads the counters.
    pub fn snapshot(&self) -> Snapshot {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Snapshot {
            windows_done: read(&self.windows_done),
            due_ms: read(&self.due_ms),
            fetched_ms: read(&self.fetched_ms),
            done_ms: read(&self.done_ms),
            rows_pulled: read(&self.rows_pulled),
            reached: *self.reached.lock().unwrap_or_else(PoisonError::into_inner),
            phase: *self.phase.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Adds a window that the run has to scan.
    pub(super) fn due(&self, scope: Scope, window: Window) {
        self.due_ms.fetch_add(length_ms(scope, window), Ordering::Relaxed);
    }

    /// Adds rows that were received.
    pub(super) fn pulled(&self, rows: u64) {
        self.rows_pulled.fetch_add(rows, Ordering::Relaxed);
    }

    /// Replaces the milliseconds of creation time that the pages of a scan have covered.
    pub(super) fn fetched(&self, before_ms: u64, now_ms: u64) {
        // Atomic additions wrap around, so that this one subtracts if the scan starts over.
        self.fetched_ms.fetch_add(now_ms.wrapping_sub(before_ms), Ordering::Relaxed);
    }

    /// Records that the run begins a step after its last window.
    pub(super) fn enter(&self, phase: &'static str) {
        tracing::debug!("{phase}");
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner) = Some(phase);
    }

    /// Records that a window was committed, or compared by a verify.
    pub(super) fn committed(&self, scope: Scope, window: Window) {
        self.windows_done.fetch_add(1, Ordering::Relaxed);
        self.done_ms.fetch_add(length_ms(scope, window), Ordering::Relaxed);
        let until_ms = scope.stream.is_windowed().then_some(window.end_ms);
        *self.reached.lock().unwrap_or_else(PoisonError::into_inner) = Some(Reach { stream: scope.stream, until_ms });
    }
}

/// Returns the milliseconds by which a window counts in the progress. A stream without windows counts as one day.
pub(super) fn length_ms(scope: Scope, window: Window) -> u64 {
    let length_ms = if scope.stream.is_windowed() { window.len_ms() } else { DAY_MS };
    length_ms.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use crate::model::Stream;

    use super::*;

    fn snapshot(done_ms: u64, windows_done: u64) -> Snapshot {
        let reached = Some(Reach { stream: Stream::Responses, until_ms: Some(1_793_491_200_000) });
        Snapshot { windows_done, due_ms: 1000, done_ms, reached, ..Snapshot::default() }
    }

    #[test]
    fn the_line_fits_its_columns_and_keeps_what_matters() {
        let long = Reading {
            stream: Some("responses"),
            reached: Some("2026-11-01T13:05:00Z".to_owned()),
            windows_done: 9_999,
            windows_expected: Some(12_345),
            percent: 81.999,
            rows: 1_234_567,
            elapsed_secs: 80,
            rows_per_sec: 123_456.0,
            requests_per_sec: 98.76,
            requests_per_sec_max: Some(100.0),
            secs_left: Some(190_000),
            ..Reading::default()
        };
        let wide =
            "1m20s  responses 2026-11-01  81%  9999/~12345 windows  1.2M rows  123k/s  99 of 100 req/s  2d4h left";
        assert_eq!((long.line(120).as_str(), long.line(wide.len()).as_str()), (wide, wide));
        let typical = Reading { windows_done: 12, windows_expected: Some(57), secs_left: Some(250), ..long.clone() };
        assert_eq!(typical.line(80), "1m20s  responses 2026-11-01  81%  12/~57 windows  1.2M rows  123k/s  4m left");
        assert_eq!(typical.line(60), "1m20s  81%  12/~57 windows  1.2M rows  123k/s  4m left");
        assert_eq!(typical.line(10), "1m20s");
        let waiting = Wait { secs: 3_700, why: "rate limited" };
        let waiting = Reading { waiting: Some(waiting), wait_cause: Some("429".into()), ..typical.clone() };
        let line = waiting.line(80);
        assert!(line.contains("1.2M rows  rate limited (429): waits 1h1m") && line.len() <= 80, "{line}");
        let refused = Wait { secs: 12, why: "backing off" };
        let refused =
            Reading { waiting: Some(refused), wait_cause: Some("connection refused".into()), ..typical.clone() };
        let line = refused.line(80);
        assert!(line.contains("backing off (connection refused): waits 12s") && line.len() <= 80, "{line}");
        let first = Reading { requests: 1, ..Reading::default() };
        assert_eq!(first.line(80), "0s  0%  0 windows  0 rows  waits for the first rows (1 request)");
        let done = Reading { windows_done: 12, windows_expected: Some(12), ..typical.clone() };
        assert!(done.line(80).contains("  12 windows  "), "{}", done.line(80));
        let phase = Reading { phase: Some("publishing"), ..typical };
        assert_eq!(phase.line(80), "1m20s  1.2M rows  publishing");
    }

    #[test]
    fn speed_share_and_time_left_follow_from_the_samples() {
        let at = Instant::now();
        let before = ProgressSample { at, rows: 100, requests: 1 };
        let now = ProgressSample { at: at + Duration::from_secs(10), rows: 1_100, requests: 31 };
        let reading = reading(&snapshot(250, 5), before, now);
        assert_eq!((reading.rows_per_sec, reading.requests_per_sec), (100.0, 3.0));
        assert_eq!(reading.windows_expected, Some(20));
        assert_eq!(secs_left(&snapshot(250, 5), Duration::from_secs(60)), Some(180));
        for (done_ms, secs) in [(0, 60), (250, 1), (1000, 60)] {
            assert_eq!(secs_left(&snapshot(done_ms, 5), Duration::from_secs(secs)), None, "{done_ms} {secs}");
        }
        assert_eq!([snapshot(0, 0).windows_expected(), snapshot(49, 1).windows_expected()], [None; 2]);
    }

    #[test]
    fn the_share_counts_fetched_pages_and_is_whole_at_the_end() {
        let share = |fetched_ms, done_ms| Snapshot { fetched_ms, ..snapshot(done_ms, 5) }.fetched_share();
        assert_eq!([share(0, 0), share(250, 0), share(1000, 0), share(5000, 600)], [0.0, 0.25, 0.99, 0.99]);
        // A scan that an earlier run has fetched is committed without a page.
        assert_eq!([share(0, 600), share(0, 995), share(700, 1000), share(0, 2000)], [0.6, 0.995, 1.0, 1.0]);
        assert_eq!(Snapshot::default().fetched_share(), 0.0);
        let progress = Progress::default();
        progress.fetched(0, 700);
        progress.fetched(700, 200);
        assert_eq!(progress.snapshot().fetched_ms, 200);
    }
}
