//! The proofs of completeness. For each interval of creation time they say if it is complete, since when, when it was
//! last read, and what proves this.

use serde::Serialize;

use crate::{
    config::Settings,
    model::{EndStyle, Flag, IntervalSet, NEEDS_RECHECK_MS, Scope, Window, format_ms},
    state::{ProvenInterval, State, StateError, StoredInterval},
    sync_status::is_selected,
};

use super::super::printer::{counted, format_second, scope_name};

/// The state of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum IntervalState {
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
pub(super) struct ProofStatus {
    pub stream: &'static str,
    pub survey_id: Option<i64>,
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
    end_words: Vec<String>,
    /// True if the stream has no windows, so that a scan always reads the whole stream.
    #[serde(skip)]
    is_unwindowed: bool,
}

/// Returns the proofs of the selected streams in a range; `None` stands for the whole coverage. `now_ms` is the
/// service's time. With a range, enabled streams without coverage are included as never read.
pub(super) fn proofs(
    settings: &Settings,
    state: &State,
    range: Option<Window>,
    now_ms: i64,
) -> Result<Vec<ProofStatus>, StateError> {
    let mut scopes = state.covered_scopes()?;
    if range.is_some() {
        let enabled = settings.streams.iter().map(|stream| Scope::all(stream.stream));
        scopes.extend(enabled.filter(|scope| !scopes.contains(scope)).collect::<Vec<_>>());
    }
    scopes.retain(|scope| {
        is_selected(settings, *scope) && settings.streams.iter().any(|stream| stream.stream == scope.stream)
    });
    let mut all = Vec::new();
    for scope in scopes {
        let intervals = state.intervals(scope)?;
        let covered: IntervalSet = intervals.iter().map(|stored| stored.interval.window).collect();
        let bounding_range = covered.bounding_range();
        let Some(range) = range.map(|range| Window::new(range.start_ms, range.end_ms.min(now_ms))).or(bounding_range)
        else {
            continue;
        };
        let range = if scope.stream.is_windowed() { range } else { bounding_range.unwrap_or(range) };
        all.extend(of_scope(scope, &intervals, &state.proofs(scope)?, &covered, range));
    }
    Ok(all)
}

/// Returns the proofs of one scope in `range`, ordered by time. `proven` says when each part of the coverage was first
/// proven complete. Gaps of the coverage are never read.
fn of_scope(
    scope: Scope,
    intervals: &[StoredInterval],
    proven: &[ProvenInterval],
    covered: &IntervalSet,
    range: Window,
) -> Vec<ProofStatus> {
    let mut statuses: Vec<(i64, ProofStatus)> = Vec::new();
    for gap in covered.gaps_in(range) {
        statuses.push((gap.start_ms, ProofStatus::never_read(scope, gap)));
    }
    for stored in intervals.iter().filter_map(|stored| stored.part(range)) {
        let known: IntervalSet = proven.iter().map(|proof| proof.window).collect();
        let pieces = proven.iter().map(|proof| (proof.window.intersect(stored.interval.window), Some(proof.proven_ms)));
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

impl ProofStatus {
    /// Builds the status of an interval that was never read.
    fn never_read(scope: Scope, window: Window) -> Self {
        ProofStatus {
            stream: scope.stream.name(),
            survey_id: scope.survey_id,
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
            is_unwindowed: !scope.stream.is_windowed(),
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

    fn name(&self) -> String {
        scope_name(self.stream, self.survey_id)
    }
}

/// Returns the proofs as text, stream by stream.
pub(super) fn describe(proofs: &[ProofStatus]) -> String {
    let mut text = String::new();
    let mut last = None;
    for proof in proofs {
        if last.as_ref() != Some(&proof.name()) {
            let note = if proof.is_unwindowed { " (without windows: each scan reads all)" } else { "" };
            text.push_str(&format!("\n{}{note}\n", proof.name()));
            last = Some(proof.name());
        }
        text.push_str(&describe_interval(proof));
    }
    text
}

/// Returns the text of one interval: its state, since when it is complete, when it was last read, and what proves this.
fn describe_interval(proof: &ProofStatus) -> String {
    let unknown = || "an unknown time".to_owned();
    let range = format!("{} .. {}", proof.start, proof.end);
    let since = || proof.complete_since.clone().unwrap_or_else(unknown);
    let mut text = match proof.state {
        IntervalState::NeverRead => return format!("  NEVER READ  {range}\n"),
        IntervalState::Complete => format!("  complete    {range}\n              complete since {}", since()),
        IntervalState::NeedsRecheck => format!(
            "  RECHECK     {range}\n              the last scan was inconclusive; if it withheld vanished rows, `sync --accept-vanished` accepts them\n              \
             complete since {}",
            since()
        ),
    };
    match (&proof.last_read, &proof.complete_since) {
        // Both texts have the same format, so comparing the texts compares the times.
        (Some(last_read), Some(since)) if last_read <= since => text.push_str(", not read again since\n"),
        (Some(last_read), _) => text.push_str(&format!(", last read {last_read}\n")),
        (None, _) => text.push_str(", last read at an unknown time\n"),
    }
    text.push_str(&format!("              {} records", proof.records.unwrap_or(0)));
    if proof.scans > 0 {
        text.push_str(&format!(" in {} of {}", counted(proof.pages, "page"), counted(proof.scans, "scan")));
    }
    if !proof.end_words.is_empty() {
        text.push_str(&format!(", to the end of results ({})", proof.end_words.join("; ")));
    }
    text.push('\n');
    if !proof.flags.is_empty() {
        text.push_str(&format!("              {}\n", proof.flags.join(", ")));
    }
    if let Some(scan) = &proof.scan_id {
        text.push_str(&format!("              scan {scan}\n"));
    }
    text
}
