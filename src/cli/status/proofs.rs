//! For any interval of creation time: is the warehouse complete there, since when, when was it last read,
//! and how was that proven.

use serde::Serialize;

use crate::{
    config::Settings,
    model::{EndStyle, Flag, IntervalSet, NEEDS_RECHECK_MS, Scope, Window, format_ms},
    state::{Proven, State, StateError, StoredInterval},
};

use crate::sync_status::is_selected;

use super::shown::seconds;

/// What is known of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Standing {
    /// Every record was read, to the end of results.
    Complete,
    /// Complete once; rows seem to be gone at the service since, and that is not believed yet.
    InDoubt,
    /// No scan of it came to its end.
    NeverRead,
}

/// An interval in which everything below holds alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct ProofStatus {
    pub stream: &'static str,
    pub survey_id: Option<i64>,
    pub start: String,
    pub end: String,
    pub state: Standing,
    /// When the scan began that first proved it complete, by the service's clock.
    pub complete_since: Option<String>,
    /// When the last scans that read it began; the earliest of them.
    pub last_read: Option<String>,
    /// The optional parts that the last scans asked for.
    pub flags: Vec<&'static str>,
    /// Records that they returned, those that came twice included; an estimate where an interval was cut.
    pub records: Option<u64>,
    /// How many scans they were.
    pub scans: u64,
    /// Their pages; an estimate where an interval was cut.
    pub pages: u64,
    /// How the service said that there was no more.
    pub ends: Vec<&'static str>,
    /// The latest of them: `sync_windows.scan_id`, if it changed anything.
    pub scan_id: Option<String>,
    /// The same ends for people.
    #[serde(skip)]
    said: Vec<String>,
    #[serde(skip)]
    is_whole: bool,
}

/// What is known of a range; `None` means all that was ever covered.
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
        let whole = covered.bounding_range();
        let Some(range) = range.map(|range| Window::new(range.start_ms, range.end_ms.min(now_ms))).or(whole) else {
            continue;
        };
        // A stream that is read whole is told whole.
        let range = if scope.stream.is_windowed() { range } else { whole.unwrap_or(range) };
        all.extend(of_scope(scope, &intervals, &state.proofs(scope)?, &covered, range));
    }
    Ok(all)
}

fn of_scope(
    scope: Scope,
    intervals: &[StoredInterval],
    proven: &[Proven],
    covered: &IntervalSet,
    range: Window,
) -> Vec<ProofStatus> {
    let mut found: Vec<(i64, ProofStatus)> = Vec::new();
    for gap in covered.gaps_in(range) {
        found.push((gap.start_ms, ProofStatus::never(scope, gap)));
    }
    for stored in intervals.iter().filter_map(|stored| stored.part(range)) {
        let known: IntervalSet = proven.iter().map(|proof| proof.window).collect();
        let pieces = proven.iter().map(|proof| (proof.window.intersect(stored.interval.window), Some(proof.proven_ms)));
        let unknown = known.gaps_in(stored.interval.window).into_iter().map(|gap| (gap, None));
        for (piece, proven_ms) in pieces.chain(unknown).filter(|(piece, _)| !piece.is_empty()) {
            if let Some(part) = stored.part(piece) {
                found.push((piece.start_ms, ProofStatus::read(scope, &part, proven_ms)));
            }
        }
    }
    found.sort_by_key(|(start_ms, _)| *start_ms);
    found.into_iter().map(|(_, status)| status).collect()
}

impl ProofStatus {
    fn never(scope: Scope, window: Window) -> Self {
        ProofStatus {
            stream: scope.stream.name(),
            survey_id: scope.survey_id,
            start: format_ms(window.start_ms),
            end: format_ms(window.end_ms),
            state: Standing::NeverRead,
            complete_since: None,
            last_read: None,
            flags: Vec::new(),
            records: None,
            scans: 0,
            pages: 0,
            ends: Vec::new(),
            scan_id: None,
            said: Vec::new(),
            is_whole: !scope.stream.is_windowed(),
        }
    }

    fn read(scope: Scope, stored: &StoredInterval, proven_ms: Option<i64>) -> Self {
        let StoredInterval { interval, read } = stored;
        let needs_recheck = interval.scanned_ms == NEEDS_RECHECK_MS;
        // Coverage of an earlier version with a doubt on it knows no time at all.
        let moment = |at_ms: i64| (at_ms > 0).then(|| seconds(at_ms));
        ProofStatus {
            state: if needs_recheck { Standing::InDoubt } else { Standing::Complete },
            complete_since: proven_ms.and_then(moment),
            last_read: moment(read.read_ms),
            flags: interval.flags.iter().map(Flag::name).collect(),
            records: Some(interval.rows),
            scans: read.scans,
            // A small part of a page is on a page.
            pages: read.pages.max(u64::from(read.scans > 0)),
            ends: read.ends.iter().map(EndStyle::name).collect(),
            scan_id: read.scan_id.as_ref().map(|id| id.0.clone()),
            said: read.ends.iter().map(|end| end.to_string()).collect(),
            ..ProofStatus::never(scope, interval.window)
        }
    }

    fn name(&self) -> String {
        self.survey_id.map_or(self.stream.to_owned(), |id| format!("{} of survey {id}", self.stream))
    }
}

/// The intervals for people, stream by stream.
pub(super) fn describe(proofs: &[ProofStatus]) -> String {
    let mut text = String::new();
    let mut last = None;
    for proof in proofs {
        if last.as_ref() != Some(&proof.name()) {
            let whole = if proof.is_whole { " (always read whole)" } else { "" };
            text.push_str(&format!("\n{}{whole}\n", proof.name()));
            last = Some(proof.name());
        }
        text.push_str(&describe_one(proof));
    }
    text
}

fn describe_one(proof: &ProofStatus) -> String {
    let unknown = || "before this was noted".to_owned();
    let stored = format!("{} .. {}", proof.start, proof.end);
    let since = || proof.complete_since.clone().unwrap_or_else(unknown);
    let mut text = match proof.state {
        Standing::NeverRead => return format!("  NEVER READ  {stored}\n"),
        Standing::Complete => format!("  complete    {stored}\n              complete since {}", since()),
        Standing::InDoubt => format!(
            "  IN DOUBT    {stored}\n              rows seem to be gone at the service; `sync --accept-vanished` believes it\n              \
             complete since {}",
            since()
        ),
    };
    match (&proof.last_read, &proof.complete_since) {
        // Moments of one calendar, written alike: their texts are in their order.
        (Some(last_read), Some(since)) if last_read <= since => text.push_str(", not read again since\n"),
        (last_read, _) => text.push_str(&format!(", last read {}\n", last_read.clone().unwrap_or_else(unknown))),
    }
    text.push_str(&format!("              {} records", proof.records.unwrap_or(0)));
    if proof.scans > 0 {
        let many = |count: u64, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        text.push_str(&format!(" in {} of {}", many(proof.pages, "page"), many(proof.scans, "scan")));
    }
    if !proof.said.is_empty() {
        text.push_str(&format!(", to the end of results ({})", proof.said.join("; ")));
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
