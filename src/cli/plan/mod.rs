//! `studysync plan`: what `sync` or `backfill` would do. Sends nothing, but for the sample of --probe.

mod cost;
mod people;
mod planned;
mod probe;
mod text;

pub(super) use people::{PlannedPeople, planned_people};

use clap::Args;

use crate::{
    clock,
    config::Settings,
    model::{Ties, Window, behaviour_names, format_ms},
    pipeline::{self, CLOCK_SKEW, Sample, ScopeBacklog},
    plan::{Cutter, estimate, minutes},
    state::State,
};

use super::{
    CommandError, Context,
    flags::{PlaceFlags, StreamFlags, SurveyFlags, check_range, parse_moment},
};
use cost::{Speed, Total};
use planned::{Plan, PlannedStream};
use probe::probe;

/// Shows what `sync` or `backfill` would request; sends nothing.
///
/// With --from it plans a backfill. Records, requests and minutes are estimated from earlier runs. Where no run
/// has seen data, --probe asks the service for a sample, with 6 to 36 requests for each stream.
///
/// Exit codes: 0 planned; 1 the checkpoints cannot be read, or the service does not answer to --probe; 2 usage or
/// configuration; 3 planned, and the warehouse does not know a survey that was named; 4 key refused;
/// 6 the service asks to be left alone: try later.
#[derive(Args, Debug)]
pub(super) struct PlanArgs {
    /// Plan a backfill from this moment on: 2026-01-31, 2026-01, 7d, yesterday, RFC 3339 or epoch milliseconds
    #[arg(long, value_name = "DATE", value_parser = parse_moment)]
    from: Option<i64>,

    /// End of the backfill, exclusive [default: now]
    #[arg(long, value_name = "DATE", value_parser = parse_moment, requires = "from")]
    to: Option<i64>,

    /// List every window
    #[arg(long)]
    days: bool,

    /// Ask the service for a sample of each stream first
    #[arg(long)]
    probe: bool,

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

pub(super) fn run(args: &PlanArgs, context: Context) -> Result<u8, CommandError> {
    let settings = args.place.given(&context).streams(&args.streams).surveys(&args.surveys).settings()?;
    check_range(args.from, args.to)?;
    let plan = plan(args, &settings, &context)?;
    if args.json {
        context.printer.print_json(&plan)?;
    } else {
        context.printer.print(&text::describe(&plan, args.days))?;
    }
    Ok(if args.surveys.tell_unknown(&settings) { 3 } else { 0 })
}

fn plan(args: &PlanArgs, settings: &Settings, context: &Context) -> Result<Plan, CommandError> {
    let state = State::open_read_only(&settings.state_path).map_err(CommandError::State)?;
    // Without an address there is nothing to be held against: what is planned is that of the state file.
    if let (Some(state), Ok(identity)) = (&state, pipeline::identity(settings)) {
        state.check_owner(&identity.base_url, &identity.environment).map_err(CommandError::State)?;
    }
    let read = |error| CommandError::State(error);
    let skew_ms = state.as_ref().map(|state| state.behaviour::<i64>(CLOCK_SKEW)).transpose().map_err(read)?.flatten();
    let under_way = state.as_ref().map(State::scans_under_way).transpose().map_err(read)?.unwrap_or_default().len();
    let backfill = |now_ms: i64| args.from.map(|from| Window::new(from, args.to.unwrap_or(now_ms)));
    let work_at = |now_ms: i64| pipeline::backlog(settings, state.as_ref(), backfill(now_ms), now_ms).map_err(read);
    let mut probed = if args.probe { Some(probe(settings, context, work_at)?) } else { None };
    let now_ms = match &probed {
        Some(probed) => probed.now_ms,
        None => clock::now_ms() + skew_ms.map_or(0, |(skew_ms, _)| skew_ms),
    };
    let work = match &mut probed {
        Some(probed) => std::mem::take(&mut probed.work),
        None => work_at(now_ms)?,
    };
    let speed = Speed::known(settings, state.as_ref(), probed.as_ref()).map_err(read)?;
    let ties = state.as_ref().map(|state| state.behaviour::<Ties>(behaviour_names::TIES)).transpose().map_err(read)?;
    let ties = ties.flatten().map_or(Ties::Unknown, |(ties, _)| ties);
    let requests_per_sec = speed.map(|speed| speed.requests_per_sec);
    let mut samples = probed.as_ref().map(|probed| probed.samples.clone()).unwrap_or_default().into_iter();
    let streams: Vec<PlannedStream> =
        work.into_iter().map(|work| planned(work, samples.next().flatten(), requests_per_sec, ties)).collect();
    let users = settings.users.is_enabled.then(|| planned_people(settings, state.as_ref(), now_ms)).flatten();
    let users = users.map(|people| PlannedPeople { minutes: minutes(people.due, requests_per_sec), ..people });
    Ok(Plan {
        command: if args.from.is_some() { "backfill" } else { "sync" },
        now: format_ms(now_ms / 1000 * 1000),
        total: Total::of(streams.iter().map(|stream| &stream.estimate), users.as_ref(), requests_per_sec),
        under_way,
        requests_per_sec,
        speed_from: speed.map(|speed| speed.basis),
        ties,
        probe_requests: probed.map(|probed| probed.requests),
        streams,
        users,
    })
}

fn planned(work: ScopeBacklog, sample: Option<Sample>, requests_per_sec: Option<f64>, ties: Ties) -> PlannedStream {
    let is_windowed = work.scope.stream.is_windowed();
    let mut cutter = Cutter::new(work.due, work.covered, work.page_rows, is_windowed);
    if let Some(Sample { rows, length_ms }) = sample {
        cutter.sampled(rows, length_ms);
    }
    PlannedStream {
        stream: work.scope.stream.name(),
        survey_id: work.scope.survey_id,
        estimate: estimate(cutter, work.page_rows, ties).at_rate(requests_per_sec),
    }
}
