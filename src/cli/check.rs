//! `studysync check`: whether a run could work, and what to do about each thing that stands in its way.

mod disk;
mod finding;
mod network;
mod receiver;
mod told;
mod trial;

use std::{path::PathBuf, time::Duration};

use clap::Args;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::{
    clock,
    config::Settings,
    model::{Stream, TimeAccount},
    notify::{TestResult, send_test},
    pipeline::{self, Measured, PipelineError, Session, System},
    source::{Source, SourceError},
    state::State,
};

use super::{
    CommandError, Context,
    flags::{EffortFlags, PlaceFlags},
    printer::Printer,
    service_profile::describe_measured,
};
use finding::Finding;
use trial::can_be_made;

/// The longest wait for the service.
const PATIENCE: Duration = Duration::from_secs(5);
/// Rows that are held against the service's clock: few, since it may not be able to send many.
const CLOCK_ROWS: u32 = 10;
/// Attempts for one answer.
const ATTEMPTS_MAX: u32 = 2;
/// What one answer may take.
const TIMEOUT_MAX: Duration = Duration::from_secs(20);
/// A clock that is off by more is worth a word.
const SKEW_MS_MAX: i64 = 60_000;

/// Checks everything that a run needs, and says what to do.
///
/// Checks that the service answers, the key is accepted, the clocks agree, certificates and proxy work, state, archive
/// and warehouse can be written, there is room on the disks, and what `serve` needs. This takes seconds.
///
/// Each failure says what to do. Nothing is pulled. With `full_text_search` it also loads DuckDB's extension.
///
/// With --service-profile it also measures how the service behaves where its documents leave it open: the order of
/// lists, what `start` and `end` of each list mean and whether they belong to the range, how a list ends, what happens
/// to rows that share a millisecond at a page boundary, the largest page that comes in time, which states of surveys
/// are listed without being asked for, the unit of the times of users (at most three users are asked for), and the
/// environments that webhooks named. That takes at most 60 requests; each behaviour is shown with its value, its date
/// and how it was measured. The results are stored, `status` shows them, and runs use them. `unknown` is no failure: a
/// service with few rows shows little, and no refusal is provoked to see its form.
///
/// With --notify it sends a test message to the command and the webhook of [notify].
///
/// Exit codes: 0 all is well; 1 something is not; 2 usage or configuration; 3 a clock is days off; 4 key refused; 5
/// another run holds the lease; 6 the service asks to be left alone: try later.
#[derive(Args, Debug)]
pub(super) struct CheckArgs {
    /// Also measure how the service behaves where its documents leave it open
    #[arg(long, alias = "traits")]
    service_profile: bool,

    /// Also send a test message to whom [notify] names
    #[arg(long)]
    notify: bool,

    /// JSON on stdout: the list of findings; with --service-profile an object with findings and traits
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    place: PlaceFlags,

    #[command(flatten)]
    effort: EffortFlags,
}

/// The JSON of `check --service-profile`.
#[derive(Serialize)]
struct WithBehaviours<'a> {
    findings: &'a [Finding],
    /// `None` if they could not be measured; a finding says why.
    traits: Option<&'a [Measured]>,
}

/// What was found so far. People see each finding as soon as there is one.
struct Findings<'a> {
    printer: Option<&'a Printer>,
    found: Vec<Finding>,
}

impl Findings<'_> {
    fn add(&mut self, found: impl IntoIterator<Item = Finding>) -> Result<(), CommandError> {
        for finding in found {
            if let Some(printer) = self.printer {
                printer.print(&describe(&finding))?;
            }
            self.found.push(finding);
        }
        Ok(())
    }
}

pub(super) async fn run(args: CheckArgs, context: Context) -> Result<u8, CommandError> {
    let settings = args.place.given(&context).effort(&args.effort).settings()?;
    settings.base_url().map_err(CommandError::Config)?;
    let mut findings = Findings { printer: (!args.json).then_some(&context.printer), found: Vec::new() };
    findings.add(network::findings())?;
    findings.add(service(&settings, &context).await)?;
    findings.add([state(&settings)])?;
    // A warehouse is locked while a run works on it, so it is looked at only if the lease is free.
    if findings.found.iter().all(|finding| finding.exit_code != 5) {
        findings.add([warehouse(&settings)])?;
    }
    findings.add(disk::findings(&settings))?;
    findings.add(recordings(&settings))?;
    findings.add(search(&settings))?;
    findings.add([receiver::finding(&settings)])?;
    findings.add(told::findings(&settings))?;
    if args.notify {
        findings.add(notify(&settings).await)?;
    }
    let mut measured = None;
    // A list that does not answer leaves its own traits unknown.
    let is_no_obstacle = |what: &str| {
        ["warehouse", "search", "disk", "serve", "metrics", "notify"].contains(&what)
            || Stream::LISTS.into_iter().any(|list| list.name() == what)
    };
    if args.service_profile && findings.found.iter().all(|finding| finding.is_well || is_no_obstacle(finding.what)) {
        match pipeline::measure_service_profile(&settings).await {
            Ok(found) => measured = Some(found),
            Err(error) => findings.add([Finding::broken("traits", CommandError::Pipeline(error))])?,
        }
    }
    let findings = findings.found;
    match (args.json, args.service_profile) {
        (true, false) => context.printer.print_json(&findings)?,
        (true, true) => {
            context.printer.print_json(&WithBehaviours { findings: &findings, traits: measured.as_deref() })?;
        }
        (false, _) => {
            if let Some(traits) = measured.as_deref().map(describe_measured) {
                context.printer.print(&traits)?;
            }
        }
    }
    Ok(findings.iter().map(|finding| finding.exit_code).find(|code| *code != 0).unwrap_or(0))
}

fn describe(finding: &Finding) -> String {
    let mark = if finding.is_well { "ok  " } else { "FAIL" };
    let hint = finding.what_to_do.as_ref().map(|hint| format!("\n     hint: {hint}")).unwrap_or_default();
    format!("{mark} {:<10} {}{hint}\n", finding.what, finding.found)
}

/// Whether the index of words can be made, where it is wanted.
fn search(settings: &Settings) -> Option<Finding> {
    let search = pipeline::full_text_search(&settings.warehouse);
    search.is_on.then(|| match search.check() {
        Ok(path) => Finding::well("search", format!("DuckDB's extension fts at {} can be loaded", path.display())),
        Err(error) => Finding::broken("search", CommandError::Load(error)),
    })
}

/// Whether a test message arrives.
async fn notify(settings: &Settings) -> Vec<Finding> {
    if !settings.notify.is_enabled() {
        let error = CommandError::Usage("[notify] names neither a command nor a webhook".to_owned());
        return vec![Finding::broken("notify", error)];
    }
    let sent = send_test(settings, clock::now_ms()).await;
    let finding = |tried: TestResult| match tried.result {
        Ok(()) => Finding::well("notify", format!("the {} took a test message", tried.channel.name())),
        Err(why) => Finding::broken("notify", CommandError::Refused(why)),
    };
    sent.into_iter().map(finding).collect()
}

async fn service(settings: &Settings, context: &Context) -> Vec<Finding> {
    let broken = |error| vec![Finding::broken("service", CommandError::Pipeline(error))];
    let source = match client(settings, None) {
        Ok(source) => source,
        Err(error) => return broken(error),
    };
    let base_url = settings.service.base_url.as_deref().unwrap_or_default();
    context.tell(&format!("asking {base_url} ...\n"));
    let findings = ask(&source, settings).await;
    remember(&source, settings);
    findings
}

/// A client that does not wait long: somebody sits before the screen.
/// `requests_max`: the most that it sends; `None`: as many as the settings allow.
pub(super) fn client(settings: &Settings, requests_max: Option<u64>) -> Result<Source, PipelineError> {
    let mut source = pipeline::source_settings(settings)?;
    source.requests_max = requests_max.or(source.requests_max);
    (source.attempts_max, source.timeout) = (ATTEMPTS_MAX, source.timeout.min(TIMEOUT_MAX));
    source.patience = source.patience.min(PATIENCE);
    let learned = match own_state(settings)? {
        Some(state) => pipeline::recall(&state, &mut source, settings.throttle.ignores_retry_after),
        None => Ok(None),
    };
    let learned = learned?;
    Source::new(source, learned, TimeAccount::default(), CancellationToken::new()).map_err(PipelineError::Source)
}

/// The checkpoints, if there are any of this service. A file that cannot be read is another finding's business.
fn own_state(settings: &Settings) -> Result<Option<State>, PipelineError> {
    let identity = pipeline::identity(settings)?;
    let state = State::open_read_only(&settings.state_path).ok().flatten();
    Ok(state.filter(|state| state.is_of(&identity.base_url, &identity.environment).unwrap_or(false)))
}

/// What the service told of its limits, for the next command; if that cannot be written, the next one asks for itself.
pub(super) fn remember(source: &Source, settings: &Settings) {
    let is_news = source.told_until_ms().is_some() || settings.throttle.ignores_retry_after;
    if !is_news || !matches!(own_state(settings), Ok(Some(_))) {
        return;
    }
    let Ok(identity) = pipeline::identity(settings) else { return };
    let state = State::open(&settings.state_path, &identity.base_url, &identity.environment);
    if let Err(error) = state.and_then(|state| pipeline::remember(&state, source, clock::now_ms())) {
        tracing::warn!(why = pipeline::chain(&error), "cannot store the rate limits that the service reported");
    }
}

async fn ask(source: &Source, settings: &Settings) -> Vec<Finding> {
    let broken = |error| vec![Finding::broken("service", CommandError::Pipeline(error))];
    let base_url = settings.service.base_url.as_deref().unwrap_or_default();
    let probe = match source.probe().await {
        Err(error @ SourceError::KeyRefused { .. }) => {
            return vec![
                Finding::well("service", "it answers"),
                Finding::broken("key", CommandError::Pipeline(PipelineError::Source(error))),
            ];
        }
        Err(error) => return broken(PipelineError::Source(error)),
        Ok(probe) => probe,
    };
    let mut findings = vec![
        Finding::well("service", format!("{base_url} answers in {} ms", probe.latency_ms)),
        Finding::well("key", "accepted"),
        clock_skew(source, settings, probe.service_now_ms).await,
    ];
    let lists = settings.streams.iter().map(|stream| stream.stream).filter(|list| *list != probe.list);
    for list in lists {
        if let Err(error) = source.try_list(list).await {
            findings.push(Finding::broken(list.name(), CommandError::Pipeline(PipelineError::Source(error))));
        }
    }
    findings
}

/// A small skew hurts nobody: windows go by the service's clock. It is said because it may surprise a reader of logs.
async fn clock_skew(source: &Source, settings: &Settings, service_now_ms: Option<i64>) -> Finding {
    let list = settings.streams.iter().find(|stream| stream.stream.is_windowed());
    let sample = list.map(|list| pipeline::ClockSample { list: list.stream, page_rows: CLOCK_ROWS });
    if let Some(service_ms) = service_now_ms
        && let Ok(Some(doubt)) = pipeline::compare_clocks(source, sample, service_ms, clock::now_ms(), None).await
    {
        let what_to_do =
            "correct the clock that is wrong: what is newer than the service's clock is not asked for".to_owned();
        let (what, found) = ("clock", doubt.to_string());
        return Finding::wrong(what, found, what_to_do, 3);
    }
    match service_now_ms.map(|service_ms| service_ms - clock::now_ms()) {
        None => Finding::well("clock", "the service does not tell its time; this machine's is used"),
        Some(skew_ms) if skew_ms.abs() > SKEW_MS_MAX => {
            let minutes = skew_ms.abs() as f64 / 60_000.0;
            let side = if skew_ms > 0 { "ahead of" } else { "behind" };
            Finding::well(
                "clock",
                format!("the service is {minutes:.1} min {side} this machine; windows go by its clock"),
            )
        }
        Some(_) => Finding::well("clock", "both agree within a minute"),
    }
}

/// The folder of recordings, where they are fetched.
fn recordings(settings: &Settings) -> Option<Finding> {
    let path = &settings.recordings.path;
    if !settings.recordings.is_enabled {
        return None;
    }
    // In the folder itself, if it is there.
    let trial = if path.is_dir() { path.join("trial") } else { path.clone() };
    Some(match can_be_made(&trial) {
        Ok(()) => Finding::well("recordings", format!("{} can be written", path.display())),
        Err(error) => Finding::broken("recordings", error),
    })
}

/// What is not there yet is not made: it would belong to the address of this check for good.
fn state(settings: &Settings) -> Finding {
    let path = settings.state_path.display();
    if !settings.state_path.exists() {
        return match can_be_made(&settings.state_path) {
            Ok(()) => Finding::well("state", format!("{path} can be made by the first run")),
            Err(error) => Finding::broken("state", error),
        };
    }
    let opened = pipeline::identity(settings).and_then(|identity| {
        let opened = Session::open(settings, &identity, "check", &System::default());
        opened.map(drop).map_err(PipelineError::State)
    });
    match opened {
        Ok(()) => Finding::well("state", format!("{path} can be written, and no run is under way")),
        Err(error) => Finding::broken("state", CommandError::Pipeline(error)),
    }
}

fn warehouse(settings: &Settings) -> Finding {
    if let Err(error) = settings.require_warehouse() {
        return Finding::broken("warehouse", CommandError::Config(error));
    }
    let there = |path: &PathBuf| path.exists();
    let mut existing = settings.clone();
    existing.warehouse.duckdb = existing.warehouse.duckdb.filter(there);
    existing.warehouse.parquet = existing.warehouse.parquet.filter(there);
    let named = settings.warehouse.duckdb.iter().chain(&settings.warehouse.parquet);
    let mut places = Vec::new();
    for path in named.filter(|path| !there(path)) {
        match can_be_made(path) {
            Ok(()) => places.push(format!("{} can be made by the first run", path.display())),
            Err(error) => return Finding::broken("warehouse", error),
        }
    }
    if existing.require_warehouse().is_ok() {
        let opened = pipeline::identity(settings).and_then(|identity| pipeline::open_warehouses(&existing, &identity));
        match opened {
            Ok(destinations) => places.extend(
                destinations
                    .iter()
                    .map(|destination| format!("{} at {} can be written", destination.name(), destination.location())),
            ),
            Err(error) => return Finding::broken("warehouse", CommandError::Pipeline(error)),
        }
    }
    Finding::well("warehouse", places.join(", "))
}
