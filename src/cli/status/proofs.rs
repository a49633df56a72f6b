//! The proofs of a range as text, for `status --from`.

use crate::{
    model::{DAY_MS, IntervalSet, Window, format_ms},
    sync_status::{IntervalState, LagCheck, ProofStatus},
};

use super::{
    super::printer::{counted, counted_grouped},
    describe::{Screen, service},
};

/// Maximum intervals that are shown one by one. If a range has more, neighbours are joined.
const INTERVALS_MAX: usize = 4;

/// Maximum ranges that are shown, so that they fit on about one screen.
const RANGES_MAX: usize = 6;

/// Returns the streams that lag too far, whether `range` is complete, and the proofs of the range as text.
pub(super) fn describe_range(screen: &Screen, range: Window) -> String {
    let status = &screen.status;
    let lag = status.lag.as_ref().map(LagCheck::describe).unwrap_or_default();
    let total = completeness(&status.proofs, range, status.clock.now_ms);
    format!("{lag}{total}{}\n{}", service(status), describe_proofs(&status.proofs))
}

/// Returns the line that says if anything is missing in `range` up to now. Without a start of the range, it begins with
/// the first complete interval. Empty if the range is empty.
fn completeness(proofs: &[ProofStatus], range: Window, now_ms: i64) -> String {
    let windowed: Vec<&ProofStatus> = proofs.iter().filter(|proof| proof.scope.stream.is_windowed()).collect();
    let (missing, read): (Vec<&ProofStatus>, Vec<&ProofStatus>) =
        windowed.iter().partition(|proof| proof.state == IntervalState::NeverRead);
    let first_ms = read.iter().map(|proof| proof.window.start_ms).min();
    let start_ms = if range.start_ms > 0 { Some(range.start_ms) } else { first_ms };
    let end_ms = range.end_ms.min(now_ms);
    let Some(start_ms) = start_ms.filter(|start_ms| *start_ms < end_ms && !windowed.is_empty()) else {
        return String::new();
    };
    let range = Window::new(start_ms, end_ms);
    let missing: IntervalSet = missing.iter().map(|proof| proof.window.intersect(range)).collect();
    let between = format!("between {} and {}", format_ms(start_ms), format_ms(end_ms));
    let rechecks = read.iter().filter(|proof| proof.state == IntervalState::NeedsRecheck).count();
    let rechecks = match rechecks {
        0 => String::new(),
        rechecks => format!("; to check again: {}", counted(rechecks as u64, "range")),
    };
    if missing.is_empty() {
        return format!("complete: nothing is missing {between}{rechecks}\n");
    }
    let days = || start_ms.div_euclid(DAY_MS)..=(end_ms - 1).div_euclid(DAY_MS);
    let is_missing = |day: &i64| {
        let day = Window::new(day * DAY_MS, (day + 1) * DAY_MS);
        missing.windows().iter().any(|window| window.overlaps(day))
    };
    let (number, all) = (days().filter(is_missing).count(), counted(days().count() as u64, "day"));
    let verb = if number == 1 { "is" } else { "are" };
    let up_to = match missing.windows() {
        [tail] if tail.end_ms == end_ms && tail.start_ms > start_ms => {
            format!(" (complete up to {})", format_ms(tail.start_ms))
        }
        _ => String::new(),
    };
    format!("{number} of {all} {verb} missing, in whole or in part, {between}{up_to}{rechecks}\n")
}

/// Returns the proofs as text, stream by stream.
fn describe_proofs(proofs: &[ProofStatus]) -> String {
    let joined = if proofs.len() > INTERVALS_MAX { joined(proofs) } else { proofs.to_vec() };
    let mut text = String::new();
    let mut last = None;
    for proof in joined.iter().take(RANGES_MAX) {
        if last != Some(proof.scope) {
            let is_windowed = proof.scope.stream.is_windowed();
            let note = if is_windowed { "" } else { " (without windows: each scan reads all)" };
            text.push_str(&format!("\n{}{note}\n", proof.scope));
            last = Some(proof.scope);
        }
        text.push_str(&describe_interval(proof));
    }
    match joined.len().saturating_sub(RANGES_MAX) {
        0 => text,
        more => text + &format!("\nand {}: --json lists all\n", counted(more as u64, "more range")),
    }
}

/// Joins neighbours of the same stream and state. The times of a joined range hold for all of it: complete since the
/// latest, last read at the earliest. The JSON has every interval.
fn joined(proofs: &[ProofStatus]) -> Vec<ProofStatus> {
    let mut joined: Vec<ProofStatus> = Vec::new();
    for proof in proofs {
        let is_next = |last: &&mut ProofStatus| {
            (last.scope, last.state, &last.end, &last.flags) == (proof.scope, proof.state, &proof.start, &proof.flags)
        };
        let Some(last) = joined.last_mut().filter(is_next) else {
            joined.push(proof.clone());
            continue;
        };
        last.end.clone_from(&proof.end);
        // All times have the same format, so comparing the texts compares the times. An unknown time stays unknown.
        let known = last.complete_since.take().zip(proof.complete_since.clone());
        last.complete_since = known.map(|(last, next)| last.max(next));
        let known = last.last_read.take().zip(proof.last_read.clone());
        last.last_read = known.map(|(last, next)| last.min(next));
        last.records = Some(last.records.unwrap_or(0) + proof.records.unwrap_or(0));
        (last.scans, last.pages) = (last.scans + proof.scans, last.pages + proof.pages);
        last.scan_id = None;
        for words in &proof.end_words {
            if !last.end_words.contains(words) {
                last.end_words.push(words.clone());
            }
        }
    }
    joined
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
    text.push_str(&format!("              {}", counted_grouped(proof.records.unwrap_or(0), "record")));
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
