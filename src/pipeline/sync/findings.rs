//! The findings of a run: counts, notes, failures and drift, collected for the report.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use crate::{
    load::RowCounts,
    model::{Drift, Outcome, Scope, Stream, Untrusted, Window},
    pipeline::{
        drift::{DriftReport, DriftSource, Frozen, reports},
        error::Failure,
        limits::RETRY_AFTER_KEPT_MAX,
        report::{Reached, StreamReport},
    },
    source::Stop,
    wording::counted,
};

/// Vanished rows of one window that are withheld, because they are too many to believe.
#[derive(Clone, Copy, Debug)]
pub struct WithheldRows {
    pub scope: Scope,
    pub window: Window,
    pub withheld: u64,
}

impl fmt::Display for WithheldRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WithheldRows { scope, window, withheld } = self;
        write!(
            f,
            "{} of {scope} in {window}: no longer returned by the service; too many to believe, so they stay. If they are \
             really gone, run with --accept-vanished",
            counted(*withheld, "row")
        )
    }
}

/// The findings of a run, collected for its report.
#[derive(Debug, Default)]
pub struct Findings {
    pub streams: BTreeMap<&'static str, StreamReport>,
    /// Windows that failed.
    pub failures: Vec<Failure>,
    pub notes: Vec<String>,
    /// Why the run was stopped early. `None` if it was not stopped.
    pub stop: Option<Stop>,
    /// True if any warehouse changed.
    pub wrote: bool,
    /// Notes that somebody must read. Each of them is also in `notes`.
    attention_notes: Vec<String>,
    /// Withheld rows of the last scan of each window.
    withheld_rows: Vec<WithheldRows>,
    /// Number of webhook events that were added to the warehouses.
    pub webhook_events: u64,
    /// What the checkpoints and the clocks know against the data, once the scans are done.
    pub untrusted: Vec<Untrusted>,
    drift: BTreeMap<DriftSource, Drift>,
    /// Streams with a scan that was not applied because of drift.
    frozen: BTreeSet<Stream>,
    /// Streams that the run has begun to read.
    begun: BTreeSet<Stream>,
    /// Streams that the next run has to continue.
    unfinished: BTreeSet<Stream>,
}

impl Findings {
    /// Adds the counts of a committed scan.
    pub fn add_scan(&mut self, stream: Stream, pages: u64, counts: &RowCounts) {
        self.streams.entry(stream.name()).or_default().add_scan(pages, counts);
    }

    /// Adds the drift of a scan.
    pub fn add_drift(&mut self, stream: Stream, drift: &Drift) {
        self.add_drift_from(DriftSource::List(stream), drift);
    }

    pub fn add_drift_from(&mut self, source: DriftSource, drift: &Drift) {
        if !drift.is_empty() {
            self.drift.entry(source).or_default().merge(drift);
        }
    }

    /// Adds a note that somebody must read. A run with such a note ends as `needs_a_look` at best.
    pub fn add_attention_note(&mut self, note: String) {
        self.attention_notes.push(note.clone());
        self.notes.push(note);
    }

    /// Returns everything that somebody must read, one sentence each: notes, rejects, collisions and withheld rows.
    pub fn attention_notes(&self) -> Vec<String> {
        let counts = self.streams.iter().flat_map(|(name, stream)| {
            let RowCounts { rejected, collisions, .. } = stream.counts;
            let rejected = (rejected > 0)
                .then(|| format!("{name}: {} rejected; see the table rejects", counted(rejected, "record")));
            let collisions = (collisions > 0).then(|| {
                format!(
                    "{name}: {} with the key of another record; see response_history and rejects",
                    counted(collisions, "record")
                )
            });
            rejected.into_iter().chain(collisions)
        });
        counts
            .chain(self.attention_notes.iter().cloned())
            .chain(self.withheld_rows.iter().map(WithheldRows::to_string))
            .collect()
    }

    /// Records that the run begins to read these streams.
    pub fn begin_streams(&mut self, streams: impl IntoIterator<Item = Stream>) {
        self.begun.extend(streams);
    }

    /// Records that the next run has to continue these streams.
    pub fn leave_unfinished(&mut self, streams: impl IntoIterator<Item = Stream>) {
        self.unfinished.extend(streams);
    }

    /// Returns how much of a stream the run has read.
    pub fn reached(&self, stream: Stream) -> Reached {
        let has_scans = self.streams.contains_key(stream.name());
        match (self.begun.contains(&stream), self.unfinished.contains(&stream)) {
            (true, false) => Reached::All,
            (true, true) => Reached::Part,
            // The run did not begin the stream, but committed scans that an earlier run had begun.
            (false, _) if has_scans => Reached::Part,
            (false, _) => Reached::None,
        }
    }

    /// Records a scan that was not applied because of drift. No further scan of its stream starts in this run.
    pub fn freeze(&mut self, frozen: &Frozen) {
        self.add_drift(frozen.stream, &frozen.drift);
        self.frozen.insert(frozen.stream);
    }

    /// Returns true if a scan of the stream was not applied because of drift.
    pub fn is_frozen(&self, stream: Stream) -> bool {
        self.frozen.contains(&stream)
    }

    /// Returns the drift, and the number of records with drift that the list has no room for.
    pub fn drift(&self) -> (Vec<DriftReport>, u64) {
        reports(&self.drift)
    }

    /// Replaces the number of withheld rows of a window by that of the window's latest scan. A run may scan a window
    /// twice: as an unfinished scan of an earlier run, and as a recheck.
    pub fn set_withheld(&mut self, scope: Scope, window: Window, withheld: u64) {
        self.withheld_rows.retain(|rows| rows.scope != scope || !rows.window.overlaps(window));
        if withheld > 0 {
            self.withheld_rows.push(WithheldRows { scope, window, withheld });
        }
    }

    /// Returns the withheld rows of each window that has any.
    pub fn withheld_rows(&self) -> &[WithheldRows] {
        &self.withheld_rows
    }

    /// Returns the reports of all streams, with their withheld rows.
    pub fn streams(&self) -> BTreeMap<&'static str, StreamReport> {
        let mut streams = self.streams.clone();
        for rows in &self.withheld_rows {
            streams.entry(rows.scope.stream.name()).or_default().counts.withheld += rows.withheld;
        }
        streams
    }

    /// Returns the time before which the next run may not send requests, in epoch milliseconds, at most
    /// [`RETRY_AFTER_KEPT_MAX`] ahead. Returns `None` if the next run may send requests at any time.
    pub fn resume_after_ms(&self, now_ms: i64) -> Option<i64> {
        let longest_ms = i64::try_from(RETRY_AFTER_KEPT_MAX.as_millis()).unwrap_or(i64::MAX);
        match self.stop {
            Some(Stop::Deadline { until_ms } | Stop::Patience { until_ms, .. }) => {
                Some(until_ms.min(now_ms.saturating_add(longest_ms)))
            }
            _ => None,
        }
    }

    /// Returns the end of the wait, in epoch milliseconds, if a wait longer than the patience ended the run. Returns
    /// `None` for other runs.
    pub fn limited_until_ms(&self) -> Option<i64> {
        match self.stop {
            Some(Stop::Patience { until_ms, .. }) => Some(until_ms),
            _ => None,
        }
    }

    /// Returns the notes of the report, including notes about withheld rows.
    pub fn notes(&self) -> Vec<String> {
        self.notes.iter().cloned().chain(self.withheld_rows.iter().map(WithheldRows::to_string)).collect()
    }

    /// Returns the outcome of a run that no error has ended.
    pub fn outcome(&self) -> Outcome {
        match self.stop {
            Some(Stop::Cancelled) => Outcome::Interrupted,
            _ if !self.failures.is_empty() => Outcome::Failed,
            Some(_) => Outcome::StoppedEarly,
            None if self.attention_notes().is_empty() => Outcome::Done,
            None => Outcome::NeedsALook,
        }
    }
}
