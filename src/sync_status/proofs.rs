//! The proofs of completeness. For each interval of creation time they say if it is complete, since when, when it was
//! last read, and what proves this.

use serde::Serialize;

use crate::{
    config::Settings,
    model::{EndStyle, Flag, IntervalSet, NEEDS_RECHECK_MS, Scope, Window, format_ms, format_second},
    state::StoredInterval,
};

use super::{ScopeStatus, is_selected};

/// The state of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum IntervalState {
    /// A scan read every record, to the end of results.
    Complete,
    /// A scan proved the interval complete, but the last scan was inconclusive, so that every run scans it again.
    #[serde(rename = "in_doubt")]
    NeedsRecheck,
    /// No scan of the interval was completed.
    NeverRead,
}

/// An interval of creation time with one proof.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProofStatus {
    #[serde(flatten)]
    pub scope: Scope,
    pub start: String,
    pub end: String,
    pub state: IntervalState,
    /// Start of the scan that first proved the interval complete, by the service's clock.
    pub complete_since: Option<String>,
    /// Start of the last scans of the interval; if there are several, the earliest start.
    pub last_read: Option<String>,
    /// The optional parts that the last scans requested.
    pub flags: Vec<&'static str>,
    /// Records of the last scans, including duplicates; an estimate if the interval is part of a scan.
    pub records: Option<u64>,
    /// Number of the last scans.
    pub scans: u64,
    /// Pages of the last scans; an estimate if the interval is part of a scan.
    pub pages: u64,
    /// How the service marked the end of results.
    pub ends: Vec<&'static str>,
    /// The id of the latest scan. If this scan changed rows, it is in `sync_windows.scan_id`.
    pub scan_id: Option<String>,
    /// `ends` in words.
    #[serde(skip)]
    pub end_words: Vec<String>,
    /// `start` and `end` in epoch milliseconds.
    #[serde(skip)]
    pub window: Window,
}

/// Returns the proofs of the selected streams in a range; `None` stands for the whole coverage. `covered` are the
/// scopes that have coverage, and `now_ms` is the service's time. With a range, enabled streams without coverage are
/// included as never read.
pub fn proofs(settings: &Settings, covered: &[ScopeStatus], range: Option<Window>, now_ms: i64) -> Vec<ProofStatus> {
    let is_enabled = |scope: Scope| settings.streams.iter().any(|stream| stream.stream == scope.stream);
    let mut all = Vec::new();
    for known in covered.iter().filter(|known| is_enabled(known.scope)) {
        all.extend(known.proofs_in(range, now_ms));
    }
    let Some(range) = range else { return all };
    let enabled = settings.streams.iter().map(|stream| Scope::all(stream.stream));
    let unread = enabled.filter(|scope| covered.iter().all(|known| known.scope != *scope));
    let gap = Window::new(range.start_ms, range.end_ms.min(now_ms));
    let unread = unread.filter(|scope| is_selected(settings, *scope) && !gap.is_empty());
    all.extend(unread.map(|scope| ProofStatus::never_read(scope, gap)));
    all
}

impl ScopeStatus {
    /// Returns the proofs in `range`, ordered by time; `None` stands for the whole coverage. Gaps of the coverage are
    /// never read.
    fn proofs_in(&self, range: Option<Window>, now_ms: i64) -> Vec<ProofStatus> {
        let scope = self.scope;
        let covered: IntervalSet = self.intervals.iter().map(|stored| stored.interval.window).collect();
        let known: IntervalSet = self.proofs.iter().map(|proof| proof.window).collect();
        let wanted = range.filter(|_| scope.stream.is_windowed());
        let wanted = wanted.map(|range| Window::new(range.start_ms, range.end_ms.min(now_ms)));
        let Some(range) = wanted.or(covered.bounding_range()) else { return Vec::new() };
        let mut statuses: Vec<(i64, ProofStatus)> = Vec::new();
        for gap in covered.gaps_in(range) {
            statuses.push((gap.start_ms, ProofStatus::never_read(scope, gap)));
        }
        for stored in self.intervals.iter().filter_map(|stored| stored.part(range)) {
            let proven = self.proofs.iter();
            let pieces = proven.map(|proof| (proof.window.intersect(stored.interval.window), Some(proof.proven_ms)));
            let unknown = known.gaps_in(stored.interval.window).into_iter().map(|gap| (gap, None));
            for (piece, proven_ms) in pieces.chain(unknown).filter(|(piece, _)| !piece.is_empty()) {
                if let Some(part) = stored.part(piece) {
                    statuses.push((piece.start_ms, ProofStatus::read(scope, &part, proven_ms)));
                }
            }
        }
        statuses.sort_by_key(|(start_ms, _)| *start_ms);
        statuses.into_iter().map(|(_, status)| status).collect()
    }
}

impl ProofStatus {
    /// Builds the status of an interval that was never read.
    fn never_read(scope: Scope, window: Window) -> Self {
        ProofStatus {
            scope,
            start: format_ms(window.start_ms),
            end: format_ms(window.end_ms),
            state: IntervalState::NeverRead,
            complete_since: None,
            last_read: None,
            flags: Vec::new(),
            records: None,
            scans: 0,
            pages: 0,
            ends: Vec::new(),
            scan_id: None,
            end_words: Vec::new(),
            window,
        }
    }

    /// Builds the proof of a stored interval. `proven_ms` is when it was first proven complete; `None` if unknown.
    fn read(scope: Scope, stored: &StoredInterval, proven_ms: Option<i64>) -> Self {
        let StoredInterval { interval, read } = stored;
        let needs_recheck = interval.scanned_ms == NEEDS_RECHECK_MS;
        // In coverage of an earlier version, an interval that needs a recheck has no times.
        let moment = |at_ms: i64| (at_ms > 0).then(|| format_second(at_ms));
        ProofStatus {
            state: if needs_recheck { IntervalState::NeedsRecheck } else { IntervalState::Complete },
            complete_since: proven_ms.and_then(moment),
            last_read: moment(read.read_ms),
            flags: interval.flags.iter().map(Flag::name).collect(),
            records: Some(interval.rows),
            scans: read.scans,
            // The number of pages may be rounded to 0, but a scan has at least one page.
            pages: read.pages.max(u64::from(read.scans > 0)),
            ends: read.ends.iter().map(EndStyle::name).collect(),
            scan_id: read.scan_id.as_ref().map(|id| id.0.clone()),
            end_words: read.ends.iter().map(|end| end.to_string()).collect(),
            ..ProofStatus::never_read(scope, interval.window)
        }
    }
}
