//! `studysync status`: coverage and its proofs, lag, last runs, rate and what is pending. Sends nothing.

mod erasures;
mod people;
mod proofs;
mod rows;
mod serving;
mod shown;
mod streams;

use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::{
    clock,
    config::Settings,
    model::{IntervalSet, NEEDS_RECHECK_MS, Window, format_duration, format_ms, parse_duration},
    pipeline::{
        CLOCK_SKEW, DriftReport, KnownBehaviour, LEARNED_RATE, RunReason, chain, drift_lines, known_behaviours,
        told_wait_until,
    },
    source::LearnedRate,
    state::{Proven, RunEntry, State, StateError},
    sync_status::{LagCheck, RunSummary, is_selected, lag_secs, scope_lags},
};

use super::{
    CommandError, Context,
    flags::{PlaceFlags, StreamFlags, SurveyFlags, check_range, parse_moment},
    service_profile::describe_known,
};
use people::PeopleStatus;
use proofs::{ProofStatus, proofs};
use rows::RowCounter;
use serving::{ServeStatus, serving};
use shown::seconds;
use streams::{StreamStatus, TimeRangeJson};

const RUNS_SHOWN: u32 = 5;

/// Shows coverage, lag, recent runs and pending work.
///
/// Shows which ranges are proven complete, the lag of the warehouse, and the pending work. Sends nothing.
///
/// With --from and --to: shows for each interval of that range since when it is complete, when it was last read, with
/// which optional parts, and how many rows it had. It also shows the proof: the scan, its number of pages, and how the
/// service marked the end. `verify` asks the service whether this is still true.
///
/// With --max-lag: lists streams with a larger lag first and exits with code 3, for monitors that run commands.
///
/// Exit codes: 0 shown; 1 the checkpoints cannot be read; 2 usage or configuration; 3 shown, and the lag of a stream
/// exceeds --max-lag, or the warehouse does not know a survey that was named.
#[derive(Args, Debug)]
pub(super) struct StatusArgs {
    /// Show the proofs from this moment on: 2026-01-31, 2026-01, 7d, yesterday, RFC 3339 or epoch milliseconds
    #[arg(long, value_name = "DATE", value_parser = parse_moment)]
    from: Option<i64>,

    /// Show the proofs up to this moment [default: now]
    #[arg(long, value_name = "DATE", value_parser = parse_moment)]
    to: Option<i64>,

    /// Exit with code 3 if the lag of a stream is larger: 26h, 3d
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    max_lag: Option<Duration>,

    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    place: PlaceFlags,

    #[command(flatten)]
    streams: StreamFlags,

    #[command(flatten)]
    surveys: SurveyFlags,
}

#[derive(Serialize)]
struct Status {
    state: String,
    base_url: Option<String>,
    environment: Option<String>,
    running: Option<String>,
    streams: Vec<StreamStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    users: Option<PeopleStatus>,
    /// Each interval with its proof: of the range that was asked for, or all there are.
    proofs: Vec<ProofStatus>,
    under_way: Vec<ScanStatus>,
    requests_per_sec: Option<f64>,
    /// Before this time no command asks the service, which told so.
    #[serde(skip_serializing_if = "Option::is_none")]
    no_request_before: Option<String>,
    clock_skew_ms: Option<i64>,
    /// What --max-lag found.
    #[serde(flatten)]
    lag: Option<LagCheck>,
    /// What the service's documents leave open, as far as it was seen.
    traits: Vec<KnownBehaviour>,
    runs: Vec<RunStatus>,
    /// Erasures whose people the service may still send; they are kept out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    erasures_waiting: Vec<erasures::WaitingErasure>,
    /// What `serve` did and will do, if it ever ran here.
    #[serde(skip_serializing_if = "Option::is_none")]
    serve: Option<ServeStatus>,
    /// What the last sync or backfill met that no contract knows.
    #[serde(flatten)]
    last_drift: LastDrift,
}

/// These parts of a run's JSON.
#[derive(Default, Deserialize, Serialize)]
struct LastDrift {
    drift: Vec<DriftReport>,
    drift_unlisted: u64,
}

#[derive(Serialize)]
struct ScanStatus {
    stream: &'static str,
    window: String,
    pages: u64,
    records: u64,
}

#[derive(Serialize)]
struct RunStatus {
    run_id: String,
    command: String,
    started: String,
    secs: Option<f64>,
    outcome: String,
    exit_code: Option<i64>,
    /// Why it did not end as `done`: in a word, in a sentence, and what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<RunReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

pub(super) fn run(args: &StatusArgs, context: Context) -> Result<u8, CommandError> {
    let settings = args.place.given(&context).streams(&args.streams).surveys(&args.surveys).settings()?;
    let range = range_of(args)?;
    let Some(state) = State::open_read_only(&settings.state_path).map_err(CommandError::State)? else {
        let path = settings.state_path.display();
        if let Some(max_lag) = args.max_lag {
            let lag = LagCheck::new(&settings, max_lag, &[]);
            match args.json {
                true => context.printer.print_json(&lag)?,
                false => context.printer.print(&lag.describe())?,
            }
            return Ok(if lag.is_within_limit() { 0 } else { 3 });
        }
        context.printer.print(&if args.json {
            "{}".to_owned()
        } else {
            format!("Nothing was synced yet: there is no state file {path}. Run `studysync sync` or `studysync backfill --from DATE`.")
        })?;
        return Ok(0);
    };
    let waiting = erasures::waiting(&settings).map_err(|error| CommandError::Refused(chain(&error)))?;
    let mut status = gather(&settings, &state, range, waiting).map_err(CommandError::State)?;
    status.lag =
        args.max_lag.map(|max_lag| lag(&settings, &state, max_lag)).transpose().map_err(CommandError::State)?;
    match range {
        _ if args.json => context.printer.print_json(&status)?,
        Some(_) => context.printer.print(&describe_range(&status))?,
        None => context.printer.print(&describe(&status))?,
    }
    let is_well = status.lag.as_ref().is_none_or(LagCheck::is_within_limit);
    Ok(if args.surveys.tell_unknown(&settings) || !is_well { 3 } else { 0 })
}

/// The range whose proofs are asked for, if one is.
fn range_of(args: &StatusArgs) -> Result<Option<Window>, CommandError> {
    if args.from.is_none() && args.to.is_none() {
        return Ok(None);
    }
    check_range(args.from, args.to)?;
    Ok(Some(Window::new(args.from.unwrap_or(0), args.to.unwrap_or(i64::MAX))))
}

/// Since when all of an interval is complete: since its last part is.
fn complete_since(proofs: &[Proven], window: Window) -> Option<String> {
    let last_ms = proofs.iter().filter(|proof| proof.window.overlaps(window)).map(|proof| proof.proven_ms).max();
    last_ms.filter(|proven_ms| *proven_ms > 0).map(seconds)
}

/// How far the service's clock is ahead of this machine's, if that is known, and the time there.
fn service_clock(state: &State) -> Result<(Option<i64>, i64), StateError> {
    let skew_ms = state.behaviour::<i64>(CLOCK_SKEW)?.map(|(skew_ms, _)| skew_ms);
    Ok((skew_ms, clock::now_ms() + skew_ms.unwrap_or(0)))
}

fn lag(settings: &Settings, state: &State, max_lag: Duration) -> Result<LagCheck, StateError> {
    let (_, now_ms) = service_clock(state)?;
    Ok(LagCheck::new(settings, max_lag, &scope_lags(settings, state, now_ms)?))
}

fn gather(
    settings: &Settings,
    state: &State,
    range: Option<Window>,
    erasures_waiting: Vec<erasures::WaitingErasure>,
) -> Result<Status, StateError> {
    let (skew_ms, now_ms) = service_clock(state)?;
    let mut streams = Vec::new();
    let mut counter = RowCounter::open(&settings.warehouse);
    for scope in state.covered_scopes()?.into_iter().filter(|scope| is_selected(settings, *scope)) {
        let held = state.coverage(scope)?;
        let covered: IntervalSet = held.iter().map(|segment| segment.window).collect();
        let Some(bounding_range) = covered.bounding_range() else { continue };
        let proven = state.proofs(scope)?;
        let range_json = |window: &Window| TimeRangeJson {
            start: format_ms(window.start_ms),
            end: format_ms(window.end_ms),
            complete_since: None,
        };
        let complete =
            |window: &Window| TimeRangeJson { complete_since: complete_since(&proven, *window), ..range_json(window) };
        let settled =
            held.iter().map(|segment| segment.scanned_ms).filter(|scanned_ms| *scanned_ms != NEEDS_RECHECK_MS);
        let oldest_ms = settled.min().unwrap_or(now_ms);
        streams.push(StreamStatus {
            stream: scope.stream.name(),
            survey_id: scope.survey_id,
            complete: covered.windows().iter().map(complete).collect(),
            missing: covered.gaps_in(bounding_range).iter().map(range_json).collect(),
            in_doubt: held
                .iter()
                .filter(|held| held.scanned_ms == NEEDS_RECHECK_MS)
                .map(|held| range_json(&held.window))
                .collect(),
            rows: counter.count(scope),
            lag_secs: lag_secs(bounding_range.end_ms, now_ms),
            oldest_scan: seconds(oldest_ms),
        });
    }
    drop(counter);
    let scans = state.scans_under_way()?.into_iter().filter(|left| is_selected(settings, left.scan.scope));
    let scans = scans.map(|left| ScanStatus {
        stream: left.scan.scope.stream.name(),
        window: left.scan.window.to_string(),
        pages: left.pages,
        records: left.rows,
    });
    let holder = state.current_holder()?;
    let runs = state.runs(RUNS_SHOWN)?;
    let last_drift = last_drift(&runs);
    let runs = runs.into_iter().map(|run| {
        let is_running = holder.as_ref().is_some_and(|holder| holder.run_id == run.run_id);
        let run = RunSummary::from_entry(run, is_running);
        RunStatus {
            secs: run.finished_ms.map(|finished_ms| (finished_ms - run.started_ms) as f64 / 1000.0),
            outcome: run.outcome,
            started: seconds(run.started_ms),
            run_id: run.run_id,
            command: run.command,
            exit_code: run.exit_code,
            reason: run.reason,
            why: run.why,
            hint: run.hint,
        }
    });
    Ok(Status {
        state: state.path().display().to_string(),
        base_url: state.meta("base_url")?,
        environment: state.meta("environment")?,
        running: holder.as_ref().map(ToString::to_string),
        streams,
        users: people::people(settings, state, now_ms)?,
        proofs: proofs(settings, state, range, now_ms)?,
        under_way: scans.collect(),
        requests_per_sec: state.behaviour::<LearnedRate>(LEARNED_RATE)?.and_then(|(rate, _)| rate.requests_per_sec),
        no_request_before: told_wait_until(state, clock::now_ms())?.map(seconds),
        clock_skew_ms: skew_ms,
        lag: None,
        traits: known_behaviours(state)?,
        runs: runs.collect(),
        erasures_waiting,
        serve: serving(&settings.state_path)?,
        last_drift,
    })
}

/// Of the newest run that tells; one of an earlier version does not, and a `verify` or `replay` has nothing to tell.
fn last_drift(runs: &[RunEntry]) -> LastDrift {
    let reports = runs.iter().filter_map(|run| run.report.as_deref());
    reports.filter_map(|report| serde_json::from_str(report).ok()).next().unwrap_or_default()
}

fn describe(status: &Status) -> String {
    let unknown = || "?".to_owned();
    let mut text = status.lag.as_ref().map(LagCheck::describe).unwrap_or_default();
    text += &format!(
        "{} ({})\n",
        status.base_url.clone().unwrap_or_else(unknown),
        status.environment.clone().unwrap_or_else(unknown)
    );
    if let Some(holder) = &status.running {
        text.push_str(&format!("running now: {holder}\n"));
    }
    if status.streams.is_empty() {
        text.push_str("\nNothing is proven complete yet.\n");
    }
    for stream in &status.streams {
        let survey = stream.survey_id.map(|id| format!(" of survey {id}")).unwrap_or_default();
        let lag = format_duration(stream.lag_secs.unsigned_abs());
        let uncounted = || "rows unknown (the warehouse cannot be read now)".to_owned();
        let rows = stream.rows.map_or_else(uncounted, |rows| format!("{rows} rows"));
        text.push_str(&format!(
            "\n{}{survey}: {rows}, {lag} behind, looked at since {}\n",
            stream.stream, stream.oldest_scan
        ));
        for range in &stream.complete {
            let since = range.complete_since.as_ref().map(|since| format!("   since {since}")).unwrap_or_default();
            text.push_str(&format!("  complete  {} .. {}{since}\n", range.start, range.end));
        }
        for range in &stream.missing {
            text.push_str(&format!("  MISSING   {} .. {}\n", range.start, range.end));
        }
        for range in &stream.in_doubt {
            text.push_str(&format!(
                "  IN DOUBT  {} .. {} (looked at in every run; its notes say why)\n",
                range.start, range.end
            ));
        }
    }
    text.push_str(&status.users.as_ref().map(people::describe).unwrap_or_default());
    text.push_str(&erasures::describe(&status.erasures_waiting));
    if !status.under_way.is_empty() {
        text.push_str("\nbegun and not committed (the next run goes on with them):\n");
        for scan in &status.under_way {
            text.push_str(&format!(
                "  {} {}: {} pages, {} records\n",
                scan.stream, scan.window, scan.pages, scan.records
            ));
        }
    }
    if !status.runs.is_empty() {
        text.push_str("\nlast runs:\n");
        for run in &status.runs {
            let took = run.secs.map(|secs| format!(" in {secs:.1} s")).unwrap_or_default();
            text.push_str(&format!("  {}  {:<8} {}{took}\n", run.started, run.command, run.outcome.replace('_', " ")));
            text.push_str(&run.why.as_ref().map(|why| format!("    {why}\n")).unwrap_or_default());
        }
        if let Some(hint) = status.runs.first().and_then(|run| run.hint.as_ref()) {
            text.push_str(&format!("  hint: {hint}\n"));
        }
    }
    if let Some(serve) = &status.serve {
        text.push_str(&serve.describe());
    }
    let LastDrift { drift, drift_unlisted } = &status.last_drift;
    for (at, line) in drift_lines(drift, *drift_unlisted).iter().enumerate() {
        let heading = if at == 0 { "\nnew to this version, in the last run:\n" } else { "" };
        text.push_str(&format!("{heading}  {line}\n"));
    }
    if let Some(until) = &status.no_request_before {
        text.push_str(&format!(
            "\nno request before {until}, as the service asked (--ignore-rate-limit asks at once)\n"
        ));
    }
    match status.requests_per_sec {
        Some(rate) => text.push_str(&format!("\nlearned rate: {rate:.1} requests a second\n")),
        None => text.push_str("\nlearned rate: no limit was met\n"),
    }
    if let Some(skew_ms) = status.clock_skew_ms.filter(|skew_ms| skew_ms.abs() >= 2000) {
        text.push_str(&format!("the service's clock is {:.1} s ahead of this machine's\n", skew_ms as f64 / 1000.0));
    }
    text.push_str(&describe_known(&status.traits));
    text
}

/// The proofs of a range, and nothing else.
fn describe_range(status: &Status) -> String {
    let unknown = || "?".to_owned();
    format!(
        "{} ({})\n{}",
        status.base_url.clone().unwrap_or_else(unknown),
        status.environment.clone().unwrap_or_else(unknown),
        proofs::describe(&status.proofs)
    )
}
