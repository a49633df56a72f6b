//! `studysync status`: shows coverage, lag, recent runs and pending work.

mod describe;
mod proofs;

use std::{path::PathBuf, time::Duration};

use arrow::{array::AsArray as _, datatypes::Int64Type};
use clap::Args;

use crate::{
    clock,
    config::{Settings, WarehouseSettings},
    load::{CopyAge, LoadError, Reader},
    model::{Fault as _, Scope, WarehouseKind, Window, format_second, parse_duration},
    person::{SuppressionError, SuppressionList},
    pipeline::{Memory, PipelineError, RunReason, chain, places},
    report::untrusted,
    serve::health_rules,
    state::{State, StateError},
    sync_status::{
        CopyStatus, Health, HealthReason, HealthRules, LagCheck, ServeStatus, Status, WaitingErasure, proofs,
    },
};

use super::{
    CommandError, Context,
    flags::{LocationArgs, SelectionArgs, check_range, parse_moment, warn_of_unknown_surveys},
    plan::planned_users,
};
use describe::{Screen, describe};
use proofs::describe_range;

/// Shows health, lag, runs and coverage on one screen.
///
/// First the health with its reasons, the lag of each stream, the next and the last runs; then the ranges that are
/// proven complete, and what waits. Long lists are shortened: --from lists every range, and --json has everything,
/// also the measured behaviour of the service. Sends no request. The health has the rules of notifications and of
/// `serve`; max_lag under `[serve]` sets the allowed lag.
///
/// With --from and --to the command first says if anything is missing in that range. Then it shows each interval:
/// since when it is complete, when it was last read, with which optional parts, and how many records it had. It also
/// shows the proof: the scan, its number of pages, and how the service marked the end. Many neighbours are joined.
/// `verify` compares the range with the service.
///
/// With --max-lag the command first lists the streams with a larger lag, and exits with code 3, for monitors.
///
/// Exit codes: 0 shown; 1 the checkpoints cannot be read; 2 usage or configuration; 3 shown, and the lag of a stream
/// exceeds --max-lag, or the warehouse does not know a named survey.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  studysync status
  studysync status --max-lag 26h")]
pub(super) struct StatusArgs {
    /// Show the proofs from this moment on: 2026-01-31, 2026-01, 2026, 7d, 6mo, 3y, yesterday or RFC 3339
    #[arg(long, alias = "since", value_name = "DATE", value_parser = parse_moment)]
    from: Option<i64>,

    /// Show the proofs up to this moment [default: now]
    #[arg(long, alias = "until", value_name = "DATE", value_parser = parse_moment)]
    to: Option<i64>,

    /// Exit with code 3 if the lag of a stream is larger: 26h, 3d
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    max_lag: Option<Duration>,

    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    locations: LocationArgs,

    #[command(flatten)]
    selection: SelectionArgs,
}

/// Prints the status, or with `--from` or `--to` the proofs of the range. Returns 3 if a lag exceeds `--max-lag`, or if
/// the warehouse does not know a survey of `--survey`; otherwise 0.
pub(super) fn run(args: &StatusArgs, context: Context) -> Result<u8, CommandError> {
    let settings = args.locations.settings(&context).selection(&args.selection).build()?;
    let range = range_of(args)?;
    let Some(state) = State::open_read_only(&settings.state_path)? else {
        settings.require_configuration()?;
        return report_no_state(args, &settings, &context);
    };
    let erasures_waiting = erasures_waiting(&settings).map_err(|error| CommandError::Refused(chain(&error)))?;
    let status = Status::from_state(&settings, &state, clock::now_ms())?;
    let mut status = Status {
        proofs: proofs(&settings, &status.scopes, range, status.clock.now_ms),
        lag: args.max_lag.map(|max_lag| LagCheck::new(&settings, max_lag, &status.scopes)),
        erasures_waiting,
        ..status
    };
    let unreadable = complete(&mut status, args, &settings, &state)?;
    let mut health = Health::new(&status, &settings, rules(args, &settings, &status));
    health.reasons.splice(0..0, unreadable);
    let screen = Screen { status, health };
    context.printer.print_value(args.json, &screen, |screen| match range {
        Some(range) => describe_range(screen, range),
        None => describe(screen),
    })?;
    let is_well = screen.status.lag.as_ref().is_none_or(LagCheck::is_within_limit);
    Ok(if warn_of_unknown_surveys(&settings) || !is_well { 3 } else { 0 })
}

/// Reports that there is no state file yet. With --max-lag, reports that every stream lags.
fn report_no_state(args: &StatusArgs, settings: &Settings, context: &Context) -> Result<u8, CommandError> {
    if let Some(max_lag) = args.max_lag {
        let lag = LagCheck::new(settings, max_lag, &[]);
        context.printer.print_value(args.json, &lag, LagCheck::describe)?;
        return Ok(if lag.is_within_limit() { 0 } else { 3 });
    }
    let path = settings.state_path.display();
    context.printer.print_wrapped(&match args.json {
        true => "{}".to_owned(),
        false => format!(
            "Nothing was synced yet: there is no state file {path}. Run `studysync sync` or `studysync backfill --from DATE`."
        ),
    })?;
    Ok(0)
}

/// Returns the range whose proofs are requested; `None` without --from and --to.
fn range_of(args: &StatusArgs) -> Result<Option<Window>, CommandError> {
    if args.from.is_none() && args.to.is_none() {
        return Ok(None);
    }
    check_range(args.from, args.to)?;
    Ok(Some(Window::new(args.from.unwrap_or(0), args.to.unwrap_or(i64::MAX))))
}

/// Returns the rules of the health: those of `serve` while it runs, else those of a command. `--max-lag` replaces the
/// allowed lag.
fn rules(args: &StatusArgs, settings: &Settings, status: &Status) -> HealthRules {
    let is_served = status.serve.as_ref().is_some_and(|serve| serve.is_running);
    let of_serve = health_rules(settings, status.now_ms).ok().filter(|_| is_served);
    let rules = of_serve.unwrap_or_else(|| HealthRules::for_one_shot(settings));
    HealthRules { max_lag: args.max_lag.or(rules.max_lag), ..rules }
}

/// Adds the details, the counts of the warehouse and the state of `serve`. Without --json, nothing is fetched from a
/// bucket, and no view of a catalog is read. Returns a reason for each warehouse that cannot be read.
fn complete(
    status: &mut Status,
    args: &StatusArgs,
    settings: &Settings,
    state: &State,
) -> Result<Vec<HealthReason>, StateError> {
    status.add_details(settings, state)?;
    let (mut reader, unreadable) = open_reader(&settings.warehouse);
    // To count rows, the files of the tables would be fetched from the bucket.
    let is_here = settings.warehouse.locations.values().next().is_some_and(|location| location.bucket.is_none());
    let is_file = is_here && settings.warehouse.locations.values().all(|location| location.catalog.is_none());
    status.rows_left_out = match &reader {
        Some(_) if !is_here => Some("the warehouse is in a bucket"),
        None if unreadable.is_empty() && is_file => Some("the warehouse is missing, or a run writes it now"),
        _ => None,
    };
    for scope in &mut status.scopes {
        let counted = reader.as_mut().filter(|_| is_here).map(|reader| count(reader, scope.scope));
        let counted = counted.transpose().inspect_err(|error| tracing::info!(%error, "cannot count rows"));
        scope.rows = counted.ok().flatten();
    }
    let known = reader.as_mut().filter(|_| args.json || is_file).map(untrusted).transpose();
    status.untrusted =
        known.inspect_err(|error| tracing::info!(%error, "cannot read the view untrusted")).ok().flatten();
    // Counting the due users starts another engine.
    drop(reader);
    if let Some(users) = &mut status.users {
        let planned = planned_users(settings, Some(state), status.clock.now_ms);
        (users.named, users.due) = (planned.as_ref().map(|users| users.named), planned.as_ref().map(|users| users.due));
    }
    status.copies = copies(&settings.warehouse);
    status.serve = ServeStatus::read(settings)?;
    Ok(unreadable)
}

/// Returns the copies for readers. A copy whose files cannot be read is left out, and logged.
fn copies(warehouse: &WarehouseSettings) -> Vec<CopyStatus> {
    let copy = |(kind, path): (&WarehouseKind, &PathBuf)| {
        let found = CopyAge::of(*kind, &warehouse.locations.get(kind)?.path, path);
        let (age, as_of_ms) = found.inspect_err(|error| tracing::warn!(%error, "cannot look at a copy")).ok()?;
        Some(CopyStatus {
            warehouse: kind.name(),
            path: path.display().to_string(),
            without_personal_data: warehouse.publish.analysts.is_some(),
            age: age.name(),
            as_of: as_of_ms.map(format_second),
        })
    };
    warehouse.publish.paths.iter().filter_map(copy).collect()
}

/// Opens the first warehouse that can be read. Also returns why those before it cannot be read, without those that are
/// missing or locked.
fn open_reader(warehouse: &WarehouseSettings) -> (Option<Reader>, Vec<HealthReason>) {
    let limits = Memory::of(warehouse).reader_limits();
    let mut unreadable = Vec::new();
    let reader = warehouse.locations.iter().zip(places(warehouse)).find_map(|((kind, location), place)| {
        let opened = Reader::open_limited(&kind.at(location.clone()), limits);
        opened
            .map_err(|source| {
                tracing::info!(error = %source, "cannot count rows");
                let error = PipelineError::Load { destination: place.name(), source };
                if location.is_path() && place.exists() && error.reason() != RunReason::WarehouseLocked {
                    unreadable.push(HealthReason {
                        code: error.reason().name(),
                        is_failing: true,
                        text: chain(&error),
                        hint: error.hint().map(str::to_owned),
                    });
                }
            })
            .ok()
    });
    (reader, unreadable)
}

/// Counts the rows of the stream's table, or only those of the scope's survey.
fn count(reader: &mut Reader, scope: Scope) -> Result<u64, LoadError> {
    let survey = scope.survey_id.map(|id| format!(" WHERE survey_id = {id}")).unwrap_or_default();
    let result = reader.query(&format!("SELECT count(*) FROM {}{survey}", scope.stream), 1)?;
    let column = result.batches.first().and_then(|batch| batch.column(0).as_primitive_opt::<Int64Type>());
    let rows = column.and_then(|column| column.iter().next().flatten());
    Ok(rows.map_or(0, i64::unsigned_abs))
}

/// Returns the waiting erasures, ordered by the end of their suppression.
fn erasures_waiting(settings: &Settings) -> Result<Vec<WaitingErasure>, SuppressionError> {
    let list = SuppressionList::read(&settings.erasures_folder())?;
    let mut entries: Vec<_> = list.entries().iter().collect();
    entries.sort_by_key(|entry| (entry.until_ms, &entry.erasure_id));
    let waiting = entries.into_iter().map(|entry| WaitingErasure {
        erasure_id: entry.erasure_id.clone(),
        people: entry.named.len(),
        until: format_second(entry.until_ms),
    });
    Ok(waiting.collect())
}
