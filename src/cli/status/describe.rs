//! The status as text.

use crate::{
    model::{format_duration, format_second},
    pipeline::{RunReason, drift_lines},
    sync_status::{
        IntervalState, LagCheck, ProofStatus, ScanStatus, ScopeStatus, ServeStatus, Status, UsersStatus, WaitingErasure,
    },
};

use super::super::{
    printer::{counted, outcome_words},
    service_profile::describe_known,
};

/// The smallest difference of the clocks that is shown, in milliseconds.
const SKEW_MS_MIN: i64 = 2000;

/// Returns the whole status as text.
pub(super) fn describe(status: &Status) -> String {
    let mut text = status.lag.as_ref().map(LagCheck::describe).unwrap_or_default();
    text.push_str(&service_line(status));
    if let Some(holder) = &status.running {
        text.push_str(&format!("running now: {holder}\n"));
    }
    if status.scopes.is_empty() {
        text.push_str("\nNothing is proven complete yet.\n");
    }
    text.extend(status.scopes.iter().map(describe_scope));
    text.push_str(&status.users.as_ref().map(describe_users).unwrap_or_default());
    text.push_str(&describe_erasures(&status.erasures_waiting));
    text.push_str(&describe_unfinished(&status.unfinished_scans));
    text.push_str(&describe_runs(status));
    if let Some(serve) = &status.serve {
        text.push_str(&describe_serve(serve));
    }
    text.push_str(&describe_drift(status));
    text.push_str(&describe_limits(status));
    text.push_str(&describe_known(&status.behaviours));
    text
}

/// Returns the streams that lag too far, and the proofs of a range as text.
pub(super) fn describe_range(status: &Status) -> String {
    let lag = status.lag.as_ref().map(LagCheck::describe).unwrap_or_default();
    lag + &service_line(status) + &describe_proofs(&status.proofs)
}

fn service_line(status: &Status) -> String {
    let known = |value: &Option<String>| value.clone().unwrap_or_else(|| "?".to_owned());
    format!("{} ({})\n", known(&status.base_url), known(&status.environment))
}

/// Returns the rows, the lag and the ranges of a stream as text.
fn describe_scope(scope: &ScopeStatus) -> String {
    let unknown = || "rows unknown (the warehouse cannot be read now)".to_owned();
    let rows = scope.rows.map_or_else(unknown, |rows| format!("{rows} rows"));
    let name = scope.scope;
    let lag = scope.lag_secs.map_or("unknown".to_owned(), |secs| format_duration(secs.unsigned_abs()));
    let mut text = format!("\n{name}: {rows}, lag {lag}, oldest scan {}\n", scope.oldest_scan);
    for range in &scope.complete {
        let since = range.complete_since.as_ref().map(|since| format!("   since {since}")).unwrap_or_default();
        text.push_str(&format!("  complete  {} .. {}{since}\n", range.start, range.end));
    }
    for range in &scope.missing {
        text.push_str(&format!("  MISSING   {} .. {}\n", range.start, range.end));
    }
    for range in &scope.in_doubt {
        text.push_str(&format!(
            "  RECHECK   {} .. {} (every run scans it again; the notes of the run say why)\n",
            range.start, range.end
        ));
    }
    text
}

fn describe_unfinished(scans: &[ScanStatus]) -> String {
    if scans.is_empty() {
        return String::new();
    }
    let line = |scan: &ScanStatus| {
        format!("  {} {}: {} pages, {} records\n", scan.stream, scan.window, scan.pages, scan.records)
    };
    "\nunfinished scans (the next run resumes them):\n".to_owned() + &scans.iter().map(line).collect::<String>()
}

/// Returns the runs as text, newest first. A hint stands under its run, unless the same command ran again later, or the
/// run that held the lease has ended.
fn describe_runs(status: &Status) -> String {
    let runs = &status.runs;
    if runs.is_empty() {
        return String::new();
    }
    let mut text = "\nlast runs:\n".to_owned();
    for (at, run) in runs.iter().enumerate() {
        let took = run.secs.map(|secs| format!(" in {secs:.1} s")).unwrap_or_default();
        text.push_str(&format!("  {}  {:<8} {}{took}\n", run.started, run.command, outcome_words(&run.outcome)));
        text.push_str(&run.why.as_ref().map(|why| format!("    {why}\n")).unwrap_or_default());
        let is_newest = runs[..at].iter().all(|newer| newer.command != run.command);
        let is_over = run.reason == Some(RunReason::LeaseHeld) && status.running.is_none();
        let hint = run.hint.as_ref().filter(|_| is_newest && !is_over);
        text.push_str(&hint.map(|hint| format!("    hint: {hint}\n")).unwrap_or_default());
    }
    text
}

fn describe_drift(status: &Status) -> String {
    let lines = drift_lines(&status.drift, status.drift_unlisted);
    let heading = if lines.is_empty() { "" } else { "\nunknown to this version, in the last run:\n" };
    heading.to_owned() + &lines.iter().map(|line| format!("  {line}\n")).collect::<String>()
}

/// Returns the rate limit and the difference of the clocks as text.
fn describe_limits(status: &Status) -> String {
    let mut text = String::new();
    if let Some(until) = status.rate_limited_until_ms.map(format_second) {
        text.push_str(&format!("\nrate limited: no request before {until} (--ignore-rate-limit sends requests now)\n"));
    }
    match status.learned_requests_per_sec {
        Some(rate) => text.push_str(&format!("\nlearned rate: {rate:.1} requests per second\n")),
        None => text.push_str("\nlearned rate: none\n"),
    }
    if let Some(skew_ms) = status.clock.skew_ms.filter(|skew_ms| skew_ms.abs() >= SKEW_MS_MIN) {
        let (secs, relation) = (skew_ms.abs() as f64 / 1000.0, if skew_ms > 0 { "ahead of" } else { "behind" });
        let doubt = if status.clock.is_in_doubt { ", and may be wrong: lags are by this machine's clock" } else { "" };
        text.push_str(&format!("the service's clock is {secs:.1} s {relation} this machine's{doubt}\n"));
    }
    text
}

fn describe_users(users: &UsersStatus) -> String {
    let due = match (users.due, users.named) {
        (Some(due), Some(named)) => format!("{due} of {named} named in the warehouse are due"),
        _ => "due users unknown (the warehouse cannot be read now)".to_owned(),
    };
    format!("\nusers: {} known to the service, {} not; {due}\n", users.found, users.absent)
}

/// Returns the waiting erasures as text; empty if there are none.
fn describe_erasures(waiting: &[WaitingErasure]) -> String {
    let (Some(first), Some(last)) = (waiting.first(), waiting.last()) else { return String::new() };
    let people: usize = waiting.iter().map(|erasure| erasure.people).sum();
    let until = match first.until == last.until {
        true => first.until.clone(),
        false => format!("{} to {}", first.until, last.until),
    };
    let erasures = if waiting.len() == 1 { "erasure waits" } else { "erasures wait" };
    format!(
        "\n{} {erasures} for the service to purge: {people} named, suppressed until {until}, and until\n  complete scans meet none of them. \
         If somebody signed up again: studysync erase --end ID (of the person or the erasure)\n",
        waiting.len()
    )
}

/// Returns the state of `serve` as text.
fn describe_serve(serve: &ServeStatus) -> String {
    let state = if serve.is_running { "running" } else { "NOT RUNNING" };
    let mut text = format!("\nserve: {state}, schedule {}\n", serve.schedule);
    if let Some(next) = &serve.next_run {
        text.push_str(&format!("  next run  {next}\n"));
    }
    if let (Some(last), Some(outcome)) = (&serve.last_run, &serve.last_outcome) {
        text.push_str(&format!("  last run  {last}, {}\n", outcome_words(outcome)));
    }
    if let Some(since) = &serve.waiting_since {
        text.push_str(&format!(
            "  {} deliveries wait since {since} to be written to the warehouses\n",
            serve.waiting_deliveries
        ));
    }
    text
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
