//! What a run did and where its time went: the JSON of `--json`, of `sync_runs` and of `status`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    config::Settings,
    load::RowCounts,
    model::{RunId, TimeParts},
    source::{RequestStats, Stop},
};

use super::{
    DriftReport, Failure, Outcome, PipelineError, ReportHeader, RunMoments, RunReason, hint::pipeline_hint,
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
    #[serde(flatten)]
    pub header: ReportHeader,
    /// What `--stream` and `--survey` left of the lists; absent if they left all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub narrowed_to: Option<String>,
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
    /// Why the run ended early, and until when it should be left alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped_because: Option<String>,
    /// Before this time the service is not to be asked again, epoch milliseconds by this machine.
    #[serde(skip)]
    pub resume_after_ms: Option<i64>,
    /// Until when the service must be left alone, if that is longer than the run was willing to wait.
    #[serde(skip)]
    pub limited_until_ms: Option<i64>,
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
    pub fn not_begun(run_id: RunId, command: &'static str, moments: RunMoments, error: &PipelineError) -> RunReport {
        let report = RunReport {
            run_id,
            header: ReportHeader::new(command, moments, TimeParts::default(), Outcome::Failed, Some(error)),
            narrowed_to: None,
            streams: BTreeMap::new(),
            drift: Vec::new(),
            drift_unlisted: 0,
            webhook_events: 0,
            recordings: None,
            requests: RequestStats::default(),
            stopped_because: None,
            resume_after_ms: None,
            limited_until_ms: None,
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
        self.reason = RunReason::of(self.header.outcome, error, stop);
        self.hint = error.and_then(pipeline_hint).map(str::to_owned);
        self.why = match self.header.outcome {
            Outcome::Done => None,
            Outcome::NeedsALook => Some(self.looks.join("; ")),
            Outcome::Failed => {
                self.header.error.clone().or_else(|| self.failures.first().map(|first| first.sentence())).map(|why| {
                    match self.failures.len().saturating_sub(1) {
                        more if more > 0 && self.header.error.is_none() => format!("{why} (and {more} more)"),
                        _ => why,
                    }
                })
            }
            Outcome::StoppedEarly | Outcome::Interrupted => self.stopped_because.clone(),
        };
        self
    }
}
