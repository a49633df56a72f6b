//! The proofs of a range as text, for `status --from`.

use crate::sync_status::{IntervalState, LagCheck, ProofStatus};

use super::{
    super::printer::counted,
    describe::{Screen, service},
};

/// Returns the streams that lag too far, and the proofs of a range as text.
pub(super) fn describe_range(screen: &Screen) -> String {
    let status = &screen.status;
    let lag = status.lag.as_ref().map(LagCheck::describe).unwrap_or_default();
    format!("{lag}{}\n{}", service(status), describe_proofs(&status.proofs))
}

/// Returns the proofs as text, stream by stream.
fn describe_proofs(proofs: &[ProofStatus]) -> String {
    let mut text = String::new();
    let mut last = None;
    for proof in proofs {
        if last != Some(proof.scope) {
            let is_windowed = proof.scope.stream.is_windowed();
            let note = if is_windowed { "" } else { " (without windows: each scan reads all)" };
            text.push_str(&format!("\n{}{note}\n", proof.scope));
            last = Some(proof.scope);
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
    text.push_str(&format!("              {}", counted(proof.records.unwrap_or(0), "record")));
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
