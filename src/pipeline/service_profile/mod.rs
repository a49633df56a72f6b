//! The service profile: measures what the contract leaves open (`check --behaviours`), and records what runs observe.
//!
//! Measuring takes few requests, within the rate limit and under the lease. Any behaviour may stay unknown: a service
//! without rows shows nothing. No behaviour ever proves that a window is complete (promise P3).

pub mod clocks;
mod lists;
mod paging;
pub mod report;
mod rows;
pub mod statuses;
pub mod stored;
pub mod theme_times;
pub mod tie_probe;
pub mod tie_watch;
mod users;

use tokio_util::sync::CancellationToken;

use crate::{
    config::Settings,
    model::{DriftRules, RowTime, Scope, Stream, Ties, behaviour_names},
    person::Suppression,
    source::{SourceError, Stop},
    wording::counted,
};

use super::{
    assemble::{System, identity, source_settings, suppression},
    error::PipelineError,
    session::Session,
};

use report::{MeasureContext, Measured};
use statuses::{KnownStatuses, measure_statuses};
use tie_probe::MomentRequester;

/// The maximum number of requests that measuring may send, retries included.
pub const MEASURE_REQUESTS_MAX: u64 = 60;

/// Measures every behaviour of the service, and stores the measured values. Takes the lease. Values are also stored if
/// a measure fails, but the function then returns the error.
pub async fn measure_service_profile(settings: &Settings) -> Result<Vec<Measured>, PipelineError> {
    let identity = identity(settings)?;
    let session = Session::open(settings, &identity, "check", &System::default())?;
    let mut source_settings = source_settings(settings)?;
    let allowed = source_settings.requests_max.map_or(MEASURE_REQUESTS_MAX, |max| max.min(MEASURE_REQUESTS_MAX));
    source_settings.requests_max = Some(allowed);
    let timeout_ms = u64::try_from(source_settings.timeout.as_millis()).unwrap_or(u64::MAX);
    let source = session.source(source_settings, CancellationToken::new())?;
    let flags = settings.streams.iter().find(|stream| stream.stream == Stream::Responses).map(|stream| stream.flags);
    let (scope, rules) = (Scope::all(Stream::Responses), DriftRules::default());
    let requester =
        MomentRequester { source, account: session.account.clone(), scope, flags: flags.unwrap_or_default(), rules };
    let mut context = MeasureContext::new(requester, timeout_ms, session.started_ms);
    let mut reader = stored::reader(settings);
    let stored_ids = reader.as_mut().map(stored::user_ids).unwrap_or_default();
    let outcome = measure_all(&mut context, stored_ids, &suppression(settings)?).await;
    paging::measure_retry_after(&mut context, &session.state())?;
    context.measured.retain(|measured| measured.name != behaviour_names::ENVIRONMENT_IDS);
    context.add(stored::environments(settings, reader.as_mut())?);
    for measured in context.measured.iter_mut().filter(|measured| measured.measured_ms.is_none()) {
        if let Some(value) = &measured.value {
            let now_ms = session.now_ms();
            session.state().remember_measured(measured.name, value, &measured.how, now_ms)?;
            measured.measured_ms = Some(now_ms);
        }
    }
    session.remember(&context.requester.source)?;
    outcome?;
    Ok(report::in_order(context.measured))
}

/// Runs all measures that send requests. If a list fails, the behaviours of the list stay unknown. If the request
/// budget is spent, all further behaviours stay unknown. Any other failure is an error.
async fn measure_all(
    context: &mut MeasureContext,
    stored_ids: Vec<String>,
    suppression: &Suppression,
) -> Result<(), PipelineError> {
    let outcome = async {
        let probe = context.requester.source.probe().await?;
        context.now_ms = probe.service_now_ms.unwrap_or(context.now_ms);
        let outcome = statuses(context).await;
        unless_list_failed(context, report::STATUS_BEHAVIOURS, outcome)?;
        let outcome = responses(context).await;
        unless_list_failed(context, report::RESPONSES_BEHAVIOURS, outcome)?;
        let outcome = lists::themes(context).await;
        unless_list_failed(context, report::THEMES_BEHAVIOURS, outcome)?;
        let outcome = lists::surveys(context).await;
        unless_list_failed(context, report::SURVEY_RANGE_BEHAVIOURS, outcome)?;
        context.user_ids.extend(stored_ids);
        users::measure(context, suppression).await
    };
    match outcome.await {
        Err(PipelineError::Source(SourceError::Stopped(Stop::Budget { requests }))) => {
            report::fill_unknown(
                &mut context.measured,
                report::all(),
                &format!("the allowance of {} is used up", counted(requests, "request")),
            );
            Ok(())
        }
        outcome => outcome,
    }
}

/// Turns an error of one list into the reason why the behaviours `names` are unknown. Returns errors that end the run.
fn unless_list_failed(
    context: &mut MeasureContext,
    names: impl IntoIterator<Item = &'static str>,
    outcome: Result<(), PipelineError>,
) -> Result<(), PipelineError> {
    match outcome {
        Err(PipelineError::Source(error)) if !error.ends_the_run() => {
            report::fill_unknown(&mut context.measured, names, &error.to_string());
            Ok(())
        }
        outcome => outcome,
    }
}

/// Measures the list of responses: page size and order, the range, and ties.
async fn responses(context: &mut MeasureContext) -> Result<(), PipelineError> {
    let Some(sample) = paging::measure(context).await? else { return Ok(()) };
    lists::measure(context, &sample).await?;
    // If a range does not mean creation times, the rows of one millisecond cannot be requested alone.
    if context.has_other_value(behaviour_names::RESPONSES_FILTERED_BY, RowTime::Created) {
        context.add(Measured::unknown(behaviour_names::TIES, "start and end do not mean the creation of a row"));
        return Ok(());
    }
    ties(context, &sample).await
}

async fn statuses(context: &mut MeasureContext) -> Result<(), PipelineError> {
    for measured in measure_statuses(&context.requester.source, KnownStatuses::default()).await? {
        context.add(measured);
    }
    Ok(())
}

/// Measures how the service treats rows that share a millisecond. Stays unknown if the sample has no two such rows.
async fn ties(context: &mut MeasureContext, sample: &paging::ResponseSample) -> Result<(), PipelineError> {
    let (name, tie) = (behaviour_names::TIES, sample.tie());
    let Some(at_ms) = tie else {
        let how = format!("no two of {} share a millisecond", counted(sample.rows() as u64, "row"));
        context.add(Measured::unknown(name, how));
        return Ok(());
    };
    let ties = context.requester.measure(at_ms).await?;
    context.add(match ties {
        Ties::Unknown => Measured::unknown(name, format!("the lists of {at_ms} ms alone are inconclusive")),
        ties => Measured::known(name, ties, format!("the rows of {at_ms} ms alone, in small pages")),
    });
    Ok(())
}
