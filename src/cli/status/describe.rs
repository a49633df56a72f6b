//! The status as text that fits a terminal of 80 columns and 24 lines: health, lag, runs, coverage, and what waits.
//! Long lists are shortened; the JSON has all of them.

use serde::Serialize;

use crate::{
    model::{Scope, Stream, format_duration, format_second},
    pipeline::{RunReason, drift_lines},
    sync_status::{
        BEHIND, CopyStatus, Health, HealthSummary, LagCheck, MaintenanceStatus, RunStatus, ScanStatus, ScopeStatus,
        Status, TimeRange, UsersStatus, WaitingErasure,
    },
};

use super::super::{
    printer::{counted, counted_grouped, outcome_words},
    terminal::wrapped,
};

/// The smallest difference of the clocks that is shown, in milliseconds.
const SKEW_MS_MIN: i64 = 2000;
/// Maximum reasons of the health.
const REASONS_MAX: usize = 2;
/// Maximum letters of a reason or a hint.
const LETTERS_MAX: usize = 280;
/// Maximum runs.
const RUNS_MAX: usize = 4;
/// Maximum scopes of single surveys with a line of coverage.
const SCOPES_MAX: usize = 3;
/// Maximum lines of drift.
const DRIFT_LINES_MAX: usize = 3;
/// Reasons against figures that have lines of their own: MISSING, RECHECK, the drift and the clock.
const SHOWN_ELSEWHERE: [&str; 4] = ["uncovered", "needs_recheck", "drift", "clock"];
/// The indent of the texts beside the labels.
const INDENT: &str = "          ";
/// The indent of the reason and the hint of a run.
const RUN_INDENT: &str = "            ";

/// What the command shows. Serialized, it is the JSON of `status --json`.
#[derive(Serialize)]
pub(super) struct Screen {
    #[serde(flatten)]
    pub status: Status,
    #[serde(flatten)]
    pub health: Health,
}

/// Returns the status as text.
pub(super) fn describe(screen: &Screen) -> String {
    let Screen { status, health } = screen;
    let mut text = status.lag.as_ref().map(LagCheck::describe).unwrap_or_default();
    text.push_str(&describe_health(status, health));
    text.push_str(&labelled("service", &service(status)));
    text.push_str(&labelled("lag", &lags(status)));
    text.push_str(&status.running.as_ref().map(|holder| labelled("running", holder)).unwrap_or_default());
    text.push_str(&describe_runs(status, health));
    text.push_str(&labelled("next run", &next_run(status)));
    text.push_str(&status.copies.iter().map(describe_copy).collect::<String>());
    text.push_str(&describe_maintenance(status));
    text.push_str(&describe_untrusted(status));
    text.push_str(&describe_coverage(status));
    text.push_str(&describe_unfinished(&status.unfinished_scans));
    text.push_str(&describe_waiting(status));
    text.push_str(&describe_drift(status));
    text.push_str(&describe_clock(status));
    text
}

/// Returns the address and the environment of the service.
pub(super) fn service(status: &Status) -> String {
    let known = |value: &Option<String>| value.clone().unwrap_or_else(|| "?".to_owned());
    format!("{} ({})", known(&status.base_url), known(&status.environment))
}

/// Returns a label and its text, wrapped.
fn labelled(label: &str, text: &str) -> String {
    wrapped(&format!("{label:<9} {text}"), "", INDENT)
}

/// Returns a text without control characters, shortened to [`LETTERS_MAX`].
fn shortened(text: &str) -> String {
    let mut letters = text.chars();
    let shown: String = letters.by_ref().take(LETTERS_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if letters.next().is_some() { format!("{shown}... (--json has all)") } else { shown }
}

/// Returns the health in one word, and its reasons with their hints. With `--max-lag`, the streams that lag too far are
/// listed before.
fn describe_health(status: &Status, health: &Health) -> String {
    let is_behind = status.lag.as_ref().is_some_and(|lag| !lag.is_within_limit());
    let word = match health.summary() {
        _ if is_behind => HealthSummary::Failing.to_string().to_uppercase(),
        HealthSummary::Failing => HealthSummary::Failing.to_string().to_uppercase(),
        summary => summary.to_string(),
    };
    let is_listed = |code: &str| status.lag.is_some() && code == BEHIND;
    let reasons: Vec<_> = health.reasons.iter().filter(|reason| !is_listed(reason.code)).collect();
    let mut lines: Vec<String> = Vec::new();
    if is_behind {
        lines.push("a stream is further behind than --max-lag allows".to_owned());
    }
    for reason in reasons.iter().take(REASONS_MAX) {
        lines.push(reason.text.clone());
        lines.extend(reason.hint.as_ref().map(|hint| format!("hint: {hint}")));
    }
    if reasons.len() > REASONS_MAX {
        lines.push(format!(
            "and {} (--json lists all)",
            counted(reasons.len() as u64 - REASONS_MAX as u64, "more reason")
        ));
    }
    let first =
        if lines.is_empty() { "runs succeed, and no stream is too far behind".to_owned() } else { lines.remove(0) };
    let rest = lines.iter().map(|line| wrapped(&shortened(line), INDENT, INDENT));
    labelled("health", &shortened(&format!("{word}: {first}"))) + &rest.collect::<String>()
}

/// Returns the lag of each stream.
fn lags(status: &Status) -> String {
    if status.stream_lags.iter().all(|stream| stream.lag_secs.is_none()) {
        return "nothing is complete yet".to_owned();
    }
    let lag = |secs: i64| format_duration(secs.unsigned_abs());
    let lags = status
        .stream_lags
        .iter()
        .map(|stream| format!("{} {}", stream.stream, stream.lag_secs.map_or("nothing is complete".to_owned(), lag)));
    let mut lags: Vec<String> = lags.collect();
    lags.sort();
    lags.join("; ")
}

/// Returns when the next scheduled run starts, if this program knows it.
fn next_run(status: &Status) -> String {
    match &status.serve {
        None => "not known: cron or another scheduler starts runs, not `serve`".to_owned(),
        Some(serve) if !serve.is_running && !serve.is_configured => {
            let last = serve.last_run.as_ref().map(|at| format!(" since its run of {at}")).unwrap_or_default();
            format!("not known: `serve` does not run{last}, and the configuration has no [serve]")
        }
        Some(serve) if !serve.is_running => {
            format!("`serve` is NOT RUNNING, so its schedule {} starts none", serve.schedule)
        }
        Some(serve) => {
            let next = serve.next_run.as_deref().unwrap_or("none is planned");
            format!("{next} (`serve` is running, schedule {})", serve.schedule)
        }
    }
}

/// Returns the line of a copy for readers.
fn describe_copy(copy: &CopyStatus) -> String {
    let CopyStatus { path, age, as_of, .. } = copy;
    let as_of = as_of.as_deref().unwrap_or("?");
    let path: String = path.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    let text = match *age {
        "current" => format!("{path} has all data of the warehouse ({as_of})"),
        "older" => format!("{path} is OLDER than the warehouse: as of {as_of}. A run makes it again at its end"),
        _ => format!("{path} is MISSING: a run makes it at its end"),
    };
    labelled("copy", &text)
}

/// Returns the line with the reasons why figures may be wrong or incomplete, without those that other lines show; empty
/// if there are none.
fn describe_untrusted(status: &Status) -> String {
    let reasons = status.untrusted.iter().flatten().map(|one| one.reason.as_str());
    let mut reasons: Vec<&str> = reasons.filter(|reason| !SHOWN_ELSEWHERE.contains(reason)).collect();
    reasons.sort_unstable();
    reasons.dedup();
    if reasons.is_empty() {
        return String::new();
    }
    let reasons = reasons.join(", ");
    labelled("trust", &format!("figures may be wrong: {reasons}. studysync query \"FROM untrusted\" has each"))
}

/// Returns the newest runs, newest first. The reason and the hint stand under their run, unless the health has them, or
/// the same command ran again later. A hint is left out if the run that held the lease has ended.
fn describe_runs(status: &Status, health: &Health) -> String {
    let runs = &status.runs[..status.runs.len().min(RUNS_MAX)];
    let mut text = String::new();
    let reasons = health.reasons.iter().take(REASONS_MAX);
    let reasons: Vec<&str> = reasons.map(|reason| reason.text.as_str()).collect();
    for (at, run) in runs.iter().enumerate() {
        let label = if at == 0 { "last runs " } else { INDENT };
        text.push_str(&wrapped(&run_line(run, status.now_ms), label, RUN_INDENT));
        let is_newest = runs[..at].iter().all(|newer| newer.command != run.command);
        let is_shown = |why: &&String| is_newest && !reasons.contains(&why.as_str());
        let Some(why) = run.why.as_ref().filter(is_shown) else { continue };
        text.push_str(&wrapped(&shortened(why), RUN_INDENT, RUN_INDENT));
        let is_over = run.reason == Some(RunReason::LeaseHeld) && status.running.is_none();
        let hint = run.hint.as_ref().filter(|_| !is_over);
        let line = |hint: &String| wrapped(&shortened(&format!("hint: {hint}")), RUN_INDENT, RUN_INDENT);
        text.push_str(&hint.map(line).unwrap_or_default());
    }
    text
}

/// Returns the line of a run: start, command, outcome, duration, and the time since its start.
fn run_line(run: &RunStatus, now_ms: i64) -> String {
    let took = run.secs.map(|secs| format!(" in {}", duration(secs))).unwrap_or_default();
    let age = format_duration((now_ms - run.started_ms).max(0).unsigned_abs() / 1000);
    format!("{}  {:<8} {}{took}, {age} ago", run.started, run.command, outcome_words(&run.outcome))
}

fn duration(secs: f64) -> String {
    if secs < 60.0 { format!("{secs:.1} s") } else { format_duration(secs as u64) }
}

/// Returns the coverage: a line for each stream, and the users. Surveys that runs read alone are only counted, unless
/// nothing else was read.
fn describe_coverage(status: &Status) -> String {
    let (streams, surveys): (Vec<&ScopeStatus>, Vec<&ScopeStatus>) =
        status.scopes.iter().partition(|scope| scope.scope.survey_id.is_none());
    let shown: Vec<&ScopeStatus> =
        if streams.is_empty() { surveys.iter().take(SCOPES_MAX).copied().collect() } else { streams };
    let mut text = "\ncoverage\n".to_owned();
    if shown.is_empty() {
        text.push_str("  Nothing is proven complete yet.\n");
    }
    let names = shown.iter().map(|scope| scope.scope.to_string().len());
    let width = names.max().unwrap_or(0).max("responses".len());
    text.extend(shown.iter().map(|scope| describe_scope(scope, width, status.rows_left_out)));
    text.push_str(&describe_later_themes(&shown));
    if let more @ 1.. = status.scopes.len() - shown.len() {
        let more = counted(more as u64, "scope");
        text.push_str(&format!("  and {more} of single surveys (--json lists all)\n"));
    }
    let users = status.users.as_ref().map(describe_users);
    text + &users.map(|users| wrapped(&format!("{:<width$}  {users}", "users"), "  ", "    ")).unwrap_or_default()
}

/// Returns the line of a scope, and lines for its missing ranges and those that need a recheck.
fn describe_scope(scope: &ScopeStatus, width: usize, left_out: Option<&str>) -> String {
    let unknown = || left_out.map_or_else(|| "rows unknown".to_owned(), |why| format!("rows not counted ({why})"));
    let rows = scope.rows.map_or_else(unknown, |rows| counted_grouped(rows, "row"));
    let (first, last) = (scope.complete.first(), scope.complete.last());
    let (start, end) = (first.map_or("?", |range| &range.start), last.map_or("?", |range| &range.end));
    let range = match scope.scope.stream.is_windowed() {
        true => format!("complete {start} .. {end}"),
        false => format!("complete up to {end}"),
    };
    let text = wrapped(&format!("{:<width$}  {range}, {rows}", scope.scope.to_string()), "  ", "    ");
    text + &ranges("MISSING", &scope.missing) + &ranges("RECHECK", &scope.in_doubt)
}

/// Returns the line that names the command for older themes, if the responses begin on an earlier day; empty otherwise,
/// and while responses are missing.
fn describe_later_themes(scopes: &[&ScopeStatus]) -> String {
    let first_day = |stream: Stream| {
        let of = Scope::all(stream);
        let scope = scopes.iter().find(|scope| scope.scope == of && scope.missing.is_empty())?;
        scope.complete.first()?.start.get(..10)
    };
    let (Some(responses), Some(themes)) = (first_day(Stream::Responses), first_day(Stream::Themes)) else {
        return String::new();
    };
    // All times have the same format, so comparing the texts compares the days.
    if themes <= responses {
        return String::new();
    }
    let text = format!("LATER than responses: studysync backfill --from {responses} --stream themes");
    wrapped(&text, "    ", "            ")
}

/// Returns the line of some ranges of a scope: the only one, or their number and the first; empty if there are none.
fn ranges(label: &str, ranges: &[TimeRange]) -> String {
    let Some(first) = ranges.first() else { return String::new() };
    let count = if ranges.len() == 1 { String::new() } else { format!("{} ranges, the first ", ranges.len()) };
    wrapped(&format!("{label} {count}{} .. {}", first.start, first.end), "    ", "            ")
}

fn describe_users(users: &UsersStatus) -> String {
    let due = match (users.due, users.named) {
        (Some(due), Some(named)) => format!("{due} of {named} named in the warehouse are due"),
        _ => "due users unknown (the warehouse cannot be read now)".to_owned(),
    };
    format!("{} known to the service, {} not; {due}", users.found, users.absent)
}

fn describe_unfinished(scans: &[ScanStatus]) -> String {
    if scans.is_empty() {
        return String::new();
    }
    let (pages, records) =
        scans.iter().fold((0, 0), |(pages, records), scan| (pages + scan.pages, records + scan.records));
    let (count, pages) = (counted(scans.len() as u64, "unfinished scan"), counted(pages, "page"));
    wrapped(&format!("{count}, {pages}, {}: the next run resumes", counted_grouped(records, "record")), "", "  ")
}

/// Returns lines on what waits: deliveries, requests, erasures.
fn describe_waiting(status: &Status) -> String {
    let mut text = String::new();
    if let Some((serve, since)) = status.serve.as_ref().and_then(|serve| Some((serve, serve.waiting_since.as_ref()?))) {
        let waiting = format!("deliveries of webhooks that wait for the warehouses: {}", serve.waiting_deliveries);
        text.push_str(&wrapped(&format!("{waiting}, the oldest since {since}"), "", "  "));
    }
    if let Some(until) = status.rate_limited_until_ms.map(format_second) {
        let limited = format!("rate limited: no request before {until} (--ignore-rate-limit)");
        text.push_str(&wrapped(&limited, "", "  "));
    }
    if let Some(rate) = status.learned_requests_per_sec {
        text.push_str(&format!("learned rate: {rate:.1} requests per second\n"));
    }
    text + &describe_erasures(&status.erasures_waiting)
}

/// Returns the line on the snapshots of a catalog; empty without one.
fn describe_maintenance(status: &Status) -> String {
    let Some(MaintenanceStatus { snapshots, oldest_snapshot, due_at, is_due }) = &status.maintenance else {
        return String::new();
    };
    let kept = counted(snapshots.unsigned_abs(), "snapshot");
    let due = match is_due {
        true => format!("maintenance is due since {due_at} (howto/catalogs of the documentation)"),
        false => format!("maintenance is due on {due_at}"),
    };
    labelled("catalog", &format!("{kept}, the oldest of {oldest_snapshot}: {due}"))
}

/// Returns the waiting erasures as text; empty if there are none.
fn describe_erasures(waiting: &[WaitingErasure]) -> String {
    let (Some(first), Some(last)) = (waiting.first(), waiting.last()) else { return String::new() };
    let people: usize = waiting.iter().map(|erasure| erasure.people).sum();
    let people = counted(people as u64, "named identifier");
    let until = match first.until == last.until {
        true => first.until.clone(),
        false => format!("{} to {}", first.until, last.until),
    };
    let erasures = if waiting.len() == 1 { "erasure waits" } else { "erasures wait" };
    let text = format!(
        "{} {erasures} for the service to purge: {people} suppressed until {until}, and until complete scans meet \
         none of them. If somebody signed up again: studysync erase --end ID (of the person or the erasure)",
        waiting.len()
    );
    wrapped(&text, "", "  ")
}

fn describe_drift(status: &Status) -> String {
    let lines = drift_lines(&status.drift, status.drift_unlisted, DRIFT_LINES_MAX);
    let heading = if lines.is_empty() { "" } else { "\nunknown to this version, in the last run\n" };
    heading.to_owned() + &lines.iter().map(|line| wrapped(line, "  ", "    ")).collect::<String>()
}

/// Returns the difference of the clocks as text; empty if it is small.
fn describe_clock(status: &Status) -> String {
    let Some(skew_ms) = status.clock.skew_ms.filter(|skew_ms| skew_ms.abs() >= SKEW_MS_MIN) else {
        return String::new();
    };
    let (secs, relation) = (skew_ms.unsigned_abs() / 1000, if skew_ms > 0 { "ahead of" } else { "behind" });
    let doubt = if status.clock.is_in_doubt { ", and may be wrong: lags are by this machine's clock" } else { "" };
    wrapped(&format!("the service's clock is {} {relation} this machine's{doubt}", format_duration(secs)), "", "  ")
}
