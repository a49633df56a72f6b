//! `studysync plan`: estimates what `sync` or `backfill` would request. Only --probe sends requests.

mod cost;
mod describe;

pub(super) use cost::{PlannedUsers, planned_users};

use std::collections::BTreeMap;

use clap::Args;

use crate::{
    clock,
    config::Settings,
    load::{NightEstimate, TimeRange},
    model::{Shard, Stream, Ties, Window, behaviour_names, format_second},
    pipeline::{self, Sample, ScopeBacklog, ValidCoverage},
    plan::{Cutter, PlannedWindow, Reason, estimate, minutes},
    state::{State, StateError},
    sync_status::HealthReason,
};

use super::{
    CommandError, Context,
    disk::DiskEstimate,
    flags::{LocationArgs, SelectionArgs, check_range, parse_moment, warn_of_unknown_surveys},
};
use cost::{Speed, Total, probe};
use describe::describe;
use describe::{Plan, PlannedStream, RateLimitWait};

/// Shows what `sync` or `backfill` would request; sends nothing.
///
/// With --from it plans a backfill. Names a warehouse that is new or was lost, for which the run pulls everything again
/// and `replay` needs no request. Records, requests and minutes are estimated from earlier runs. For ranges that no
/// run has read, --probe requests a sample from the service, with 6 to 36 requests per stream. Also estimates the bytes
/// that new records need on each disk.
///
/// Exit codes: 0 planned; 1 the checkpoints cannot be read, or the service does not answer to --probe; 2 usage or
/// configuration; 3 planned, but the warehouse does not know a named survey; 4 key refused;
/// 6 rate limited: try later.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  studysync plan
  studysync plan --from 2024-01-01 --days")]
pub(super) struct PlanArgs {
    /// Plan a backfill from this moment on: 2026-01-31, 2026-01, 2026, 7d, 6mo, 3y, yesterday or RFC 3339
    #[arg(long, alias = "since", value_name = "DATE", value_parser = parse_moment)]
    from: Option<i64>,

    /// End of the backfill, exclusive [default: now]
    #[arg(long, alias = "until", value_name = "DATE", value_parser = parse_moment, requires = "from")]
    to: Option<i64>,

    /// List every window
    #[arg(long)]
    days: bool,

    /// Request a sample of each stream from the service first
    #[arg(long)]
    probe: bool,

    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    locations: LocationArgs,

    #[command(flatten)]
    selection: SelectionArgs,

    /// The share of one of several workers in a backfill.
    #[arg(skip)]
    pub shard: Option<Shard>,
}

/// The flags that `plan` shares with the run that it plans.
pub(super) struct RunSelection {
    pub json: bool,
    pub locations: LocationArgs,
    pub selection: SelectionArgs,
}

impl PlanArgs {
    /// Returns the plan of a run: `sync`, or with `from` a backfill.
    pub fn of_run(from: Option<i64>, to: Option<i64>, run: RunSelection) -> PlanArgs {
        let RunSelection { json, locations, selection } = run;
        PlanArgs { from, to, days: false, probe: false, json, locations, selection, shard: None }
    }
}

pub(super) fn run(args: &PlanArgs, context: Context) -> Result<u8, CommandError> {
    let settings = args.locations.settings(&context).selection(&args.selection).shard(args.shard).build()?;
    check_range(args.from, args.to)?;
    let plan = plan(args, &settings, &context)?;
    context.printer.print_value(args.json, &plan, |plan| describe(plan, args.days))?;
    Ok(if warn_of_unknown_surveys(&settings) { 3 } else { 0 })
}

/// The values of the checkpoints that a plan needs.
struct StoredValues {
    /// The service's time by the stored difference of the clocks.
    service_ms: i64,
    /// Number of scans that an earlier run began and did not finish.
    unfinished_scans: usize,
    ties: Ties,
    /// The remaining wait of the last `Retry-After`.
    wait: Option<RateLimitWait>,
}

impl StoredValues {
    fn read(state: Option<&State>, settings: &Settings) -> Result<StoredValues, StateError> {
        let now_ms = clock::now_ms();
        let Some(state) = state else {
            return Ok(StoredValues { service_ms: now_ms, unfinished_scans: 0, ties: Ties::Unknown, wait: None });
        };
        let until_ms = pipeline::retry_after_until_ms(state, now_ms)?;
        Ok(StoredValues {
            service_ms: pipeline::service_time_ms(state, now_ms)?,
            unfinished_scans: state.unfinished_scans()?.len(),
            ties: state.behaviour::<Ties>(behaviour_names::TIES)?.map_or(Ties::Unknown, |(ties, _)| ties),
            wait: until_ms.map(|until_ms| RateLimitWait::new(until_ms, now_ms, settings.throttle.patience)),
        })
    }
}

/// Estimates the run that the arguments describe. With --probe, requests a sample of each due scope first.
fn plan(args: &PlanArgs, settings: &Settings, context: &Context) -> Result<Plan, CommandError> {
    let state = State::open_read_only(&settings.state_path)?;
    if state.is_none() {
        settings.require_configuration()?;
    }
    // Without an address in the settings, the service of the state file is planned for, and its owner is not checked.
    if let (Some(state), Ok(identity)) = (&state, pipeline::identity(settings)) {
        state.check_owner(&identity.base_url, &identity.environment)?;
    }
    let stored = StoredValues::read(state.as_ref(), settings)?;
    let backfill = |now_ms: i64| args.from.map(|from| Window::new(from, args.to.unwrap_or(now_ms)));
    let has_coverage = state.as_ref().map(|state| state.covered_scopes()).transpose()?.is_some_and(|of| !of.is_empty());
    let reasons = HealthReason::missing_warehouses(settings, has_coverage);
    // A run into an empty warehouse pulls everything again, because a range is complete if every warehouse has it.
    let valid = if reasons.is_empty() { ValidCoverage::Stored } else { ValidCoverage::Nothing };
    let backlog_at = |now_ms: i64| Ok(pipeline::backlog(settings, state.as_ref(), backfill(now_ms), now_ms, valid)?);
    let mut probed = if args.probe { Some(probe(settings, context, backlog_at)?) } else { None };
    let now_ms = probed.as_ref().map_or(stored.service_ms, |probed| probed.now_ms);
    let (backlog, samples) = match &mut probed {
        Some(probed) => (std::mem::take(&mut probed.backlog), std::mem::take(&mut probed.samples)),
        None => (backlog_at(now_ms)?, Vec::new()),
    };
    let stored_rows = stored_rows(&backlog);
    let speed = Speed::known(settings, state.as_ref(), probed.as_ref())?;
    let requests_per_sec = speed.map(|speed| speed.requests_per_sec);
    let mut samples = samples.into_iter();
    let streams: Vec<PlannedStream> = backlog
        .into_iter()
        .map(|backlog| planned_stream(backlog, samples.next().flatten(), requests_per_sec, stored.ties))
        .collect();
    let users = settings
        .users
        .is_enabled
        .then(|| planned_users(settings, state.as_ref().filter(|_| reasons.is_empty()), now_ms))
        .flatten();
    let users = users.map(|users| PlannedUsers { minutes: minutes(users.due, requests_per_sec), ..users });
    let bucket = if args.from.is_none() { estimate_night(settings, &streams, users.as_ref()) } else { None };
    Ok(Plan {
        command: if args.from.is_some() { "backfill" } else { "sync" },
        now: format_second(now_ms),
        reasons,
        wait: stored.wait,
        total: Total::of(streams.iter().map(|stream| &stream.estimate), users.as_ref(), requests_per_sec),
        under_way: stored.unfinished_scans,
        requests_per_sec,
        speed_from: speed.map(|speed| speed.basis),
        ties: stored.ties,
        probe_requests: probed.map(|probed| probed.requests),
        disks: estimate_disks(settings, &streams, stored_rows),
        streams,
        users,
        bucket,
    })
}

/// Estimates the due windows of a stream, or of one survey of a stream. `sample` is the sample of --probe; `None` if
/// none was taken. `requests_per_sec` is the estimated speed; `None` if no speed is known.
fn planned_stream(
    backlog: ScopeBacklog,
    sample: Option<Sample>,
    requests_per_sec: Option<f64>,
    ties: Ties,
) -> PlannedStream {
    let is_windowed = backlog.scope.stream.is_windowed();
    let mut cutter = Cutter::new(backlog.due, backlog.covered, backlog.page_rows, is_windowed);
    if let Some(Sample { rows, length_ms }) = sample {
        cutter.sampled(rows, length_ms);
    }
    PlannedStream {
        stream: backlog.scope.stream,
        survey_id: backlog.scope.survey_id,
        estimate: estimate(cutter, backlog.page_rows, ties).at_rate(requests_per_sec),
    }
}

/// Estimates what a `sync` that reads these streams and users needs of a bucket. `None` without a bucket, and if
/// nothing is due.
fn estimate_night(
    settings: &Settings,
    streams: &[PlannedStream],
    users: Option<&PlannedUsers>,
) -> Option<NightEstimate> {
    let mut scans: BTreeMap<Stream, Vec<TimeRange>> = BTreeMap::new();
    for PlannedStream { stream, estimate, .. } in streams.iter().filter(|stream| !stream.estimate.windows.is_empty()) {
        let range = |window: &PlannedWindow| TimeRange::of(window.due.window);
        scans.entry(*stream).or_default().extend(estimate.windows.iter().map(range));
    }
    if users.is_some_and(|users| users.due > 0) {
        // Tables of users have no partitions, so the range does not matter.
        scans.insert(Stream::Users, vec![TimeRange::at(0)]);
    }
    let is_due = !scans.is_empty();
    pipeline::places(&settings.warehouse).iter().filter(|_| is_due).find_map(|place| place.estimate_night(&scans))
}

/// Returns the number of rows that earlier scans of these scopes found.
fn stored_rows(backlog: &[ScopeBacklog]) -> u64 {
    backlog.iter().flat_map(|scope| &scope.covered).map(|interval| interval.rows).sum()
}

/// Estimates what the planned records need on each disk, without those of ranges that are read again. `stored_rows` is
/// the number of rows that earlier scans of the planned streams found.
fn estimate_disks(settings: &Settings, streams: &[PlannedStream], stored_rows: u64) -> Vec<DiskEstimate> {
    let windows = streams.iter().flat_map(|stream| &stream.estimate.windows);
    let is_new = |window: &&PlannedWindow| window.due.reason != Reason::Rescan;
    let new_rows = windows.filter(is_new).filter_map(|window| window.rows).sum();
    // The sizes of files are those of all streams.
    let stored_rows = if settings.narrowed_to().is_some() { 0 } else { stored_rows };
    DiskEstimate::of_records(settings, new_rows, stored_rows)
}

/// Warns of each disk that is too small for a backfill, as far as earlier runs show how many records there are.
pub(super) fn warn_of_small_disks(settings: &Settings, range: Window) {
    let Ok(Some(state)) = State::open_read_only(&settings.state_path) else { return };
    let service_ms = pipeline::service_time_ms(&state, clock::now_ms());
    let Ok(now_ms) = service_ms else { return };
    let range = Window::new(range.start_ms, range.end_ms.min(now_ms));
    let Ok(backlog) = pipeline::backlog(settings, Some(&state), Some(range), now_ms, ValidCoverage::Stored) else {
        return;
    };
    let stored_rows = stored_rows(&backlog);
    let streams: Vec<PlannedStream> =
        backlog.into_iter().map(|backlog| planned_stream(backlog, None, None, Ties::Unknown)).collect();
    for disk in estimate_disks(settings, &streams, stored_rows).iter().filter(|disk| disk.is_too_small()) {
        tracing::warn!("the disk may be too small: this backfill needs {}", disk.sentence());
    }
}
