//! What a run did and where its time went: the JSON of `--json`, of `sync_runs` and of `status`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    config::Settings,
    load::RowCounts,
    model::{Drift, RunId, Scope, Stream, TimeParts, Window},
    source::{RequestStats, Stop},
};

use super::{
    DriftReport, Failure, Frozen, Outcome, PipelineError, RunReason, chain,
    drift::{DriftSource, reports},
    hint::pipeline_hint,
    limits::KEPT_WAIT_MAX,
    recordings::RecordingsReport,
};

/// How far a run came with a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reached {
    /// The run ended before it began with the stream.
    #[default]
    None,
    /// Something is left to the next run.
    Part,
    /// Nothing that was due is left.
    All,
}

impl Reached {
    fn is_all(&self) -> bool {
        *self == Reached::All
    }
}

/// One stream's part of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StreamReport {
    /// How far the run came with it.
    #[serde(skip_serializing_if = "Reached::is_all")]
    pub reached: Reached,
    /// Scans that were committed.
    pub windows: u64,
    /// Pages of those scans.
    pub pages: u64,
    /// Their rows by fate.
    #[serde(flatten)]
    pub counts: RowCounts,
}

impl StreamReport {
    pub(super) fn add(&mut self, pages: u64, counts: &RowCounts) {
        self.windows += 1;
        self.pages += pages;
        let mine = &mut self.counts;
        mine.rows_read += counts.rows_read;
        mine.inserted += counts.inserted;
        mine.updated += counts.updated;
        mine.unchanged += counts.unchanged;
        mine.soft_deleted += counts.soft_deleted;
        mine.vanished += counts.vanished;
        mine.withheld += counts.withheld;
        mine.rejected += counts.rejected;
        mine.collisions += counts.collisions;
        mine.outside_window += counts.outside_window;
    }
}

/// A run of `sync`, `backfill` or `users pull`: what it did, and where its time went.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RunReport {
    /// A version 7 UUID; the column `_run_id` of the rows that the run wrote.
    #[schemars(with = "String")]
    pub run_id: RunId,
    /// The command: `sync`, `backfill`, `users pull`.
    pub command: String,
    /// What `--stream` and `--survey` left of the lists; absent if they left all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub narrowed_to: Option<String>,
    /// How the run ended.
    pub outcome: Outcome,
    /// The exit code of the command.
    pub exit_code: u8,
    /// When the run began: RFC 3339, by this machine's clock.
    pub started_at: String,
    /// When the run ended: RFC 3339, by this machine's clock.
    pub finished_at: String,
    /// Windows and rows by stream: `responses`, `surveys`, `themes`, `users`.
    pub streams: BTreeMap<&'static str, StreamReport>,
    /// What the service sent and the contracts do not know, at most 100 places a stream (`DRIFT_PLACES_MAX`).
    pub drift: Vec<DriftReport>,
    /// How often such was met at places that found no room in the list.
    pub drift_unlisted: u64,
    /// Events that webhooks told and that this run brought into the warehouses.
    #[serde(skip_serializing_if = "is_none")]
    pub webhook_events: u64,
    /// Recordings, where they are fetched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recordings: Option<RecordingsReport>,
    /// Requests that the run sent.
    pub requests: RequestStats,
    /// Where the time went, in milliseconds; everything but `wall` adds up to it.
    pub time_ms: TimeParts,
    /// The most memory that the process had; 0 where the system does not say.
    pub peak_rss_bytes: u64,
    /// Why the run ended early, and until when it should be left alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped_because: Option<String>,
    /// Before this time the service is not to be asked again, epoch milliseconds by this machine.
    #[serde(skip)]
    pub resume_after_ms: Option<i64>,
    /// Until when the service must be left alone, if that is longer than the run was willing to wait.
    #[serde(skip)]
    pub limited_until_ms: Option<i64>,
    /// What ended the run, if an error did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Why the outcome is not `done`: a word of a short list, for monitors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<RunReason>,
    /// The same for people, in the words of the error, of the first failure or of what needs a look.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// What to do about it, where there is a way out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// What needs a look, a sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub looks: Vec<String>,
    /// Windows that could not be scanned.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<Failure>,
    /// What else people should know.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

fn is_none(count: &u64) -> bool {
    *count == 0
}

impl RunReport {
    /// The report of a run that ended before it could ask for anything.
    pub fn not_begun(run_id: RunId, command: &str, moments: RunMoments, error: &PipelineError) -> RunReport {
        let report = RunReport {
            run_id,
            command: command.to_owned(),
            narrowed_to: None,
            outcome: Outcome::Failed,
            exit_code: error.exit_code(),
            started_at: rfc3339(moments.started_ms),
            finished_at: rfc3339(moments.finished_ms),
            streams: BTreeMap::new(),
            drift: Vec::new(),
            drift_unlisted: 0,
            webhook_events: 0,
            recordings: None,
            requests: RequestStats::default(),
            time_ms: TimeParts::default(),
            peak_rss_bytes: peak_rss_bytes(),
            stopped_because: None,
            resume_after_ms: None,
            limited_until_ms: None,
            error: Some(chain(error)),
            reason: None,
            why: None,
            hint: None,
            looks: Vec::new(),
            failures: Vec::new(),
            notes: Vec::new(),
        };
        report.explained(Some(error), None)
    }

    /// The same for the lists of these settings.
    pub fn for_lists_of(mut self, settings: &Settings) -> RunReport {
        self.narrowed_to = settings.narrowed_to();
        self
    }

    /// The same with its reason, in a word and in a sentence, and the way out.
    pub(super) fn explained(mut self, error: Option<&PipelineError>, stop: Option<Stop>) -> RunReport {
        self.reason = RunReason::of(self.outcome, error, stop);
        self.hint = error.and_then(pipeline_hint).map(str::to_owned);
        self.why =
            match self.outcome {
                Outcome::Done => None,
                Outcome::NeedsALook => Some(self.looks.join("; ")),
                Outcome::Failed => {
                    self.error.clone().or_else(|| self.failures.first().map(|first| first.sentence())).map(|why| {
                        match self.failures.len().saturating_sub(1) {
                            more if more > 0 && self.error.is_none() => format!("{why} (and {more} more)"),
                            _ => why,
                        }
                    })
                }
                Outcome::StoppedEarly | Outcome::Interrupted => self.stopped_because.clone(),
            };
        self
    }
}

/// When a run began and ended, epoch milliseconds by this machine.
#[derive(Clone, Copy, Debug)]
pub struct RunMoments {
    pub started_ms: i64,
    pub finished_ms: i64,
}

/// Rows that the service no longer returns, too many at once to be believed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doubt {
    pub scope: Scope,
    pub window: Window,
    pub withheld: u64,
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Doubt { scope, window, withheld } = self;
        write!(
            f,
            "{withheld} rows of {scope} in {window} are no longer returned by the service; too many to believe, so they stay. \
             If they are really gone, run with --accept-vanished"
        )
    }
}

/// What a run gathers for its report.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub streams: BTreeMap<&'static str, StreamReport>,
    pub failures: Vec<Failure>,
    pub notes: Vec<String>,
    pub stop: Option<Stop>,
    /// Whether any warehouse changed.
    pub wrote: bool,
    /// What somebody has to look at; each is in `notes` as well.
    looks: Vec<String>,
    /// Where rows were withheld, as of the last look at each window.
    pub doubts: Vec<Doubt>,
    /// Events of webhooks that were added.
    pub webhook_events: u64,
    /// What the contracts do not know.
    drift: BTreeMap<DriftSource, Drift>,
    /// Streams of which a scan was not applied.
    frozen: BTreeSet<Stream>,
    /// Streams that the run began with.
    begun: BTreeSet<Stream>,
    /// Streams of which something is left.
    left: BTreeSet<Stream>,
}

impl Findings {
    pub fn add(&mut self, stream: Stream, pages: u64, counts: &RowCounts) {
        self.streams.entry(stream.name()).or_default().add(pages, counts);
    }

    pub fn drifted(&mut self, stream: Stream, drift: &Drift) {
        self.drifted_in(DriftSource::List(stream), drift);
    }

    pub fn drifted_in(&mut self, source: DriftSource, drift: &Drift) {
        if !drift.is_empty() {
            self.drift.entry(source).or_default().merge(drift);
        }
    }

    /// Somebody has to look at this, whatever else the run came to.
    pub fn look_at(&mut self, note: String) {
        self.looks.push(note.clone());
        self.notes.push(note);
    }

    /// Everything that needs a look, a sentence each.
    pub fn looks(&self) -> Vec<String> {
        let counted = self.streams.iter().flat_map(|(name, stream)| {
            let RowCounts { rejected, collisions, .. } = stream.counts;
            let rejected =
                (rejected > 0).then(|| format!("{name}: {rejected} records were rejected; the table rejects has them"));
            let collisions = (collisions > 0).then(|| {
                format!("{name}: {collisions} records share the key of another record; response_history and rejects have them")
            });
            rejected.into_iter().chain(collisions)
        });
        counted.chain(self.looks.iter().cloned()).chain(self.doubts.iter().map(Doubt::to_string)).collect()
    }

    /// The run begins with these streams.
    pub fn begin_with(&mut self, streams: impl IntoIterator<Item = Stream>) {
        self.begun.extend(streams);
    }

    /// Something of these streams is left to the next run.
    pub fn leave(&mut self, streams: impl IntoIterator<Item = Stream>) {
        self.left.extend(streams);
    }

    /// How far the run came with a stream.
    pub fn reached(&self, stream: Stream) -> Reached {
        let has_part = self.streams.contains_key(stream.name());
        match (self.begun.contains(&stream), self.left.contains(&stream)) {
            (true, false) => Reached::All,
            (true, true) => Reached::Part,
            (false, _) if has_part => Reached::Part,
            (false, _) => Reached::None,
        }
    }

    /// A scan was not applied.
    pub fn freeze(&mut self, frozen: &Frozen) {
        self.drifted(frozen.stream, &frozen.drift);
        self.frozen.insert(frozen.stream);
    }

    pub fn is_frozen(&self, stream: Stream) -> bool {
        self.frozen.contains(&stream)
    }

    /// All drift, and how much of it is not listed.
    pub fn drift(&self) -> (Vec<DriftReport>, u64) {
        reports(&self.drift)
    }

    /// What a look at a window showed takes the place of what earlier looks at it showed: a scan that an earlier run
    /// began is looked at before the plan, which then finds its window still in doubt.
    pub fn looked(&mut self, scope: Scope, window: Window, withheld: u64) {
        self.doubts.retain(|doubt| doubt.scope != scope || !doubt.window.overlaps(window));
        if withheld > 0 {
            self.doubts.push(Doubt { scope, window, withheld });
        }
    }

    /// The streams with the rows that are withheld at the end.
    pub fn streams(&self) -> BTreeMap<&'static str, StreamReport> {
        let mut streams = self.streams.clone();
        for doubt in &self.doubts {
            streams.entry(doubt.scope.stream.name()).or_default().counts.withheld += doubt.withheld;
        }
        streams
    }

    /// Before this time the service is not to be asked again. A longer wait is not believed: then it is asked once.
    pub fn resume_after_ms(&self, now_ms: i64) -> Option<i64> {
        let longest_ms = i64::try_from(KEPT_WAIT_MAX.as_millis()).unwrap_or(i64::MAX);
        match self.stop {
            Some(Stop::Deadline { until_ms } | Stop::Patience { until_ms, .. }) => {
                Some(until_ms.min(now_ms.saturating_add(longest_ms)))
            }
            _ => None,
        }
    }

    /// Until when the service must be left alone, if that is longer than the run was willing to wait.
    pub fn limited_until_ms(&self) -> Option<i64> {
        match self.stop {
            Some(Stop::Patience { until_ms, .. }) => Some(until_ms),
            _ => None,
        }
    }

    /// What people should know.
    pub fn notes(&self) -> Vec<String> {
        self.notes.iter().cloned().chain(self.doubts.iter().map(Doubt::to_string)).collect()
    }

    pub fn outcome(&self) -> Outcome {
        let needs_a_look =
            |stream: &StreamReport| stream.counts.rejected + stream.counts.withheld + stream.counts.collisions > 0;
        match self.stop {
            Some(Stop::Cancelled) => Outcome::Interrupted,
            _ if !self.failures.is_empty() => Outcome::Failed,
            Some(_) => Outcome::StoppedEarly,
            None if !self.looks.is_empty() || self.streams().values().any(needs_a_look) => Outcome::NeedsALook,
            None => Outcome::Done,
        }
    }
}

/// A moment as reports write it.
pub(super) fn rfc3339(at_ms: i64) -> String {
    chrono::DateTime::from_timestamp_millis(at_ms)
        .map(|moment| moment.to_rfc3339_opts(chrono::SecondsFormat::Millis, true))
        .unwrap_or_default()
}

/// The most memory that the process ever had, in bytes; 0 where the system does not tell.
pub(super) fn peak_rss_bytes() -> u64 {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return 0 };
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
