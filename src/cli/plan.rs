//! `studysync plan`: what `sync` or `backfill` would do. Sends nothing.

use clap::Args;
use serde::Serialize;

use crate::{
    clock,
    config::Settings,
    model::{Ties, Window, format_ms, trait_names},
    pipeline::{self, CLOCK_SKEW, LEARNED_RATE, ScopeWork, people_due, people_rules},
    plan::{Cutter, Estimate, estimate},
    source::LearnedRate,
    state::State,
};

use super::{
    CommandError, Context,
    flags::{PlaceFlags, StreamFlags, SurveyFlags, check_range, parse_moment},
};

/// Windows that the text names one by one for each stream; `--json` has them all.
const WINDOWS_SHOWN: usize = 12;

/// Shows what `sync` or `backfill` would request; sends nothing.
///
/// With --from it plans a backfill. Rows and minutes are estimates from what earlier runs have seen; --probe sends a few requests first where nothing
/// is known yet.
///
/// Exit codes: 0 planned; 1 the checkpoints cannot be read; 2 usage or configuration; 3 planned, and the warehouse does not know a survey
/// that was named.
#[derive(Args, Debug)]
pub(super) struct PlanArgs {
    /// Plan a backfill from this moment on: 2026-01-31, 2026-01, 7d, yesterday, RFC 3339 or epoch milliseconds
    #[arg(long, value_name = "DATE", value_parser = parse_moment)]
    from: Option<i64>,

    /// ... up to this moment [default: now]
    #[arg(long, value_name = "DATE", value_parser = parse_moment, requires = "from")]
    to: Option<i64>,

    /// One JSON object on stdout
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
struct PlannedStream {
    stream: &'static str,
    survey_id: Option<i64>,
    #[serde(flatten)]
    estimate: Estimate,
}

#[derive(Serialize)]
struct Plan {
    command: &'static str,
    /// The service's time as far as it is known.
    now: String,
    /// Scans that an earlier run began; they go on first.
    under_way: usize,
    requests_per_sec: Option<f64>,
    /// What is known of rows that share a millisecond: each edge of a page is looked at, or a sample.
    ties: Ties,
    streams: Vec<PlannedStream>,
    /// The stream of users, if it is enabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    users: Option<PlannedPeople>,
}

/// Who would be asked for: one request each.
#[derive(Serialize)]
pub(super) struct PlannedPeople {
    /// Everybody whom the warehouse names.
    pub named: u64,
    /// Those of them who are due.
    pub due: u64,
    /// At the learned rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minutes: Option<f64>,
}

/// Looks into the warehouse for people who are due, without a rate. `None`: it cannot be read now, or there is none yet.
pub(super) fn planned_people(settings: &Settings, state: Option<&State>, now_ms: i64) -> Option<PlannedPeople> {
    let rules = people_rules(&settings.users, now_ms);
    let is_due = |user_id: &str| state.map_or(Ok(true), |state| state.is_person_due(user_id, &rules));
    match people_due(&settings.warehouse, is_due) {
        Ok(found) => Some(PlannedPeople { named: found.named, due: found.due, minutes: None }),
        Err(error) => {
            tracing::info!(%error, "who is due cannot be said now: the warehouse cannot be read");
            None
        }
    }
}

pub(super) fn run(args: &PlanArgs, context: Context) -> Result<u8, CommandError> {
    let settings = args.place.given(&context).streams(&args.streams).surveys(&args.surveys).settings()?;
    check_range(args.from, args.to)?;
    let plan = plan(&settings, args.from, args.to)?;
    if args.json {
        context.printer.print_json(&plan)?;
    } else {
        context.printer.print(&describe(&plan))?;
    }
    Ok(if args.surveys.tell_unknown(&settings) { 3 } else { 0 })
}

fn plan(settings: &Settings, from: Option<i64>, to: Option<i64>) -> Result<Plan, CommandError> {
    let state = State::open_read_only(&settings.state_path).map_err(CommandError::State)?;
    let read = |error| CommandError::State(error);
    let skew_ms =
        state.as_ref().map(|state| state.service_trait::<i64>(CLOCK_SKEW)).transpose().map_err(read)?.flatten();
    let rate = state
        .as_ref()
        .map(|state| state.service_trait::<LearnedRate>(LEARNED_RATE))
        .transpose()
        .map_err(read)?
        .flatten();
    let under_way = state.as_ref().map(State::scans_under_way).transpose().map_err(read)?.unwrap_or_default().len();
    let now_ms = clock::now_ms() + skew_ms.map_or(0, |(skew_ms, _)| skew_ms);
    let backfill = from.map(|from| Window::new(from, to.unwrap_or(now_ms)));
    let work = pipeline::work(settings, state.as_ref(), backfill, now_ms).map_err(read)?;
    let requests_per_sec = rate.and_then(|(rate, _)| rate.requests_per_sec).or(settings.throttle.requests_per_sec_max);
    let ties = state.as_ref().map(|state| state.service_trait::<Ties>(trait_names::TIES)).transpose().map_err(read)?;
    let ties = ties.flatten().map_or(Ties::Unknown, |(ties, _)| ties);
    let streams = work.into_iter().map(|work| planned(work, requests_per_sec, ties)).collect();
    let users = settings.users.is_enabled.then(|| planned_people(settings, state.as_ref(), now_ms)).flatten();
    let users = users.map(|people| {
        let minutes = requests_per_sec.map(|rate| people.due as f64 / rate / 60.0);
        PlannedPeople { minutes, ..people }
    });
    let command = if backfill.is_some() { "backfill" } else { "sync" };
    Ok(Plan { command, now: format_ms(now_ms / 1000 * 1000), under_way, requests_per_sec, ties, streams, users })
}

fn planned(work: ScopeWork, requests_per_sec: Option<f64>, ties: Ties) -> PlannedStream {
    let cutter = Cutter::new(work.due, work.held, work.page_rows, work.scope.stream.is_windowed());
    PlannedStream {
        stream: work.scope.stream.name(),
        survey_id: work.scope.survey_id,
        estimate: estimate(cutter, work.page_rows, requests_per_sec, ties),
    }
}

fn describe(plan: &Plan) -> String {
    let mut text = format!("`studysync {}` at {} would\n", plan.command, plan.now);
    if plan.under_way > 0 {
        text.push_str(&format!("  go on with {} scans that an earlier run began, then\n", plan.under_way));
    }
    if let Some(PlannedPeople { named, due, minutes }) = &plan.users {
        let minutes = minutes.map(|minutes| format!(", {minutes:.1} minutes at the learned rate")).unwrap_or_default();
        text.push_str(&format!(
            "\nusers: {due} of {named} people are due now, {due} requests{minutes}; and those who appear in new answers\n"
        ));
    }
    for stream in &plan.streams {
        let survey = stream.survey_id.map(|id| format!(" of survey {id}")).unwrap_or_default();
        let Estimate { windows, rows, requests, minutes } = &stream.estimate;
        if windows.is_empty() {
            text.push_str(&format!("\n{}{survey}: nothing is due\n", stream.stream));
            continue;
        }
        let about =
            |number: &Option<u64>| number.map_or("an unknown number of".to_owned(), |number| format!("about {number}"));
        let minutes = minutes.map(|minutes| format!(", {minutes:.1} minutes at the learned rate")).unwrap_or_default();
        text.push_str(&format!(
            "\n{}{survey}: {} windows, {} records, {} requests{minutes}\n",
            stream.stream,
            windows.len(),
            about(rows),
            about(requests)
        ));
        for planned in windows.iter().take(WINDOWS_SHOWN) {
            let window = planned.due.window;
            text.push_str(&format!(
                "  {:<13} {} .. {}\n",
                planned.due.reason.to_string(),
                format_ms(window.start_ms),
                format_ms(window.end_ms)
            ));
        }
        if windows.len() > WINDOWS_SHOWN {
            text.push_str(&format!("  ... and {} more (--json has them all)\n", windows.len() - WINDOWS_SHOWN));
        }
    }
    text
}
