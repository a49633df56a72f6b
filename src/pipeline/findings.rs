//! Collects the findings of a command for its report.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use crate::{
    load::RowCounts,
    model::{Drift, Scope, Stream, Window},
    source::Stop,
};

use super::{
    DriftReport, Failure, Frozen, Outcome, Reached, StreamReport,
    drift::{DriftSource, reports},
    limits::KEPT_WAIT_MAX,
};

/// Vanished rows that are withheld, because they are too many to believe.
#[derive(Clone, Copy, Debug)]
pub(super) struct WithheldRows {
    pub scope: Scope,
    pub window: Window,
    pub withheld: u64,
}

impl fmt::Display for WithheldRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WithheldRows { scope, window, withheld } = self;
        write!(
            f,
            "{withheld} rows of {scope} in {window} are no longer returned by the service; too many to believe, so they stay. \
             If they are really gone, run with --accept-vanished"
        )
    }
}

/// The findings of a run, collected for its report.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub streams: BTreeMap<&'static str, StreamReport>,
    pub failures: Vec<Failure>,
    pub notes: Vec<String>,
    pub stop: Option<Stop>,
    /// Whether any warehouse changed.
    pub wrote: bool,
    /// Notes that a person has to read; each is in `notes` as well.
    looks: Vec<String>,
    /// Withheld rows, as of the last scan of each window.
    pub withheld_rows: Vec<WithheldRows>,
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

    /// Adds a note that a person has to read, whatever the outcome of the run.
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
        counted
            .chain(self.looks.iter().cloned())
            .chain(self.withheld_rows.iter().map(WithheldRows::to_string))
            .collect()
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
        self.withheld_rows.retain(|withheld| withheld.scope != scope || !withheld.window.overlaps(window));
        if withheld > 0 {
            self.withheld_rows.push(WithheldRows { scope, window, withheld });
        }
    }

    /// The streams with the rows that are withheld at the end.
    pub fn streams(&self) -> BTreeMap<&'static str, StreamReport> {
        let mut streams = self.streams.clone();
        for withheld in &self.withheld_rows {
            streams.entry(withheld.scope.stream.name()).or_default().counts.withheld += withheld.withheld;
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
        self.notes.iter().cloned().chain(self.withheld_rows.iter().map(WithheldRows::to_string)).collect()
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
