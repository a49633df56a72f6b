//! Measures what the contract leaves open (`check --behaviours`), and takes note of what runs see of it anyway.
//!
//! Few requests, under the gate and the lease. Everything may stay unknown: a service without rows shows nothing. No
//! behaviour ever closes a window (promise P3).

mod lab;
mod learned;
mod lists;
mod paging;
mod refusals;
mod report;
mod rows;
mod small_list;
mod statuses;
mod stored;
mod users;

use tokio_util::sync::CancellationToken;

use crate::{
    config::Settings,
    model::{DriftRules, RowTime, Scope, Stream, Ties, behaviour_names},
    person::Suppression,
    source::{SourceError, Stop},
};

use super::{
    PipelineError, Session, System,
    assemble::{identity, source_settings, suppression},
    ties::{Asker, TieProbeError},
};

use lab::Lab;

pub(super) use learned::Learned;
pub use report::{KnownBehaviour, Measured, known_behaviours};
pub(super) use statuses::{KnownStatuses, choose_statuses};

/// The most requests that measuring may take, retries included.
pub const MEASURE_REQUESTS_MAX: u64 = 60;

/// Measures every behaviour of the service and remembers those that could be told. Takes the lease.
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
    let asker = Asker { source, account: session.account.clone(), scope, flags: flags.unwrap_or_default(), rules };
    let mut lab = Lab::new(asker, timeout_ms, session.started_ms);
    let mut reader = stored::reader(settings);
    let stored_ids = reader.as_mut().map(stored::user_ids).unwrap_or_default();
    let outcome = measure_all(&mut lab, stored_ids, &suppression(settings)?).await;
    refusals::measure(&mut lab, &session.state())?;
    lab.found.retain(|measured| measured.name != behaviour_names::ENVIRONMENT_IDS);
    lab.note(stored::environments(settings, reader.as_mut())?);
    for measured in lab.found.iter_mut().filter(|measured| measured.measured_ms.is_none()) {
        if let Some(value) = &measured.value {
            let now_ms = session.now_ms();
            session.state().remember_measured(measured.name, value, &measured.how, now_ms)?;
            measured.measured_ms = Some(now_ms);
        }
    }
    session.remember(&lab.asker.source)?;
    outcome?;
    Ok(report::in_order(lab.found))
}

/// Each measure in turn. A list that does not answer leaves what it would show unknown, and a spent allowance all the
/// rest; any other end is an error.
async fn measure_all(lab: &mut Lab, stored_ids: Vec<String>, kept_out: &Suppression) -> Result<(), PipelineError> {
    let outcome = async {
        let probe = lab.asker.source.probe().await.map_err(TieProbeError::Source)?;
        lab.now_ms = probe.service_now_ms.unwrap_or(lab.now_ms);
        let outcome = statuses(lab).await;
        passed(lab, report::OF_SURVEYS, outcome)?;
        let outcome = responses(lab).await;
        passed(lab, report::OF_RESPONSES, outcome)?;
        let outcome = lists::themes(lab).await;
        passed(lab, report::OF_THEMES, outcome)?;
        let outcome = lists::surveys(lab).await;
        passed(lab, report::OF_SURVEY_RANGES, outcome)?;
        lab.user_ids.extend(stored_ids);
        users::measure(lab, kept_out).await
    };
    match outcome.await {
        Ok(()) => Ok(()),
        Err(TieProbeError::Run(error)) => Err(error),
        Err(TieProbeError::Source(SourceError::Stopped(Stop::Budget { requests }))) => {
            report::fill(&mut lab.found, report::all(), &format!("the allowance of {requests} requests is used up"));
            Ok(())
        }
        Err(TieProbeError::Source(error)) => Err(PipelineError::Source(error)),
    }
}

/// An error that is about one list alone becomes the reason why its behaviours are not known.
fn passed(
    lab: &mut Lab,
    names: impl IntoIterator<Item = &'static str>,
    outcome: Result<(), TieProbeError>,
) -> Result<(), TieProbeError> {
    match outcome {
        Err(TieProbeError::Source(error)) if !error.ends_the_run() => {
            report::fill(&mut lab.found, names, &error.to_string());
            Ok(())
        }
        outcome => outcome,
    }
}

async fn responses(lab: &mut Lab) -> Result<(), TieProbeError> {
    let Some(sample) = paging::measure(lab).await? else { return Ok(()) };
    lists::measure(lab, &sample).await?;
    // Rows of one millisecond cannot be asked for alone where a range means something else.
    if lab.has_found_other(behaviour_names::RESPONSES_FILTERED_BY, RowTime::Created) {
        lab.note(Measured::unknown(behaviour_names::TIES, "start and end do not mean the creation of a row"));
        return Ok(());
    }
    ties(lab, &sample).await
}

async fn statuses(lab: &mut Lab) -> Result<(), TieProbeError> {
    for measured in choose_statuses(&lab.asker.source, KnownStatuses::default()).await? {
        lab.note(measured);
    }
    Ok(())
}

async fn ties(lab: &mut Lab, sample: &paging::Sample) -> Result<(), TieProbeError> {
    let (name, tie) = (behaviour_names::TIES, sample.tie());
    let Some(at_ms) = tie else {
        let how = format!("no two of {} rows share a millisecond", sample.rows());
        lab.note(Measured::unknown(name, how));
        return Ok(());
    };
    let found = lab.asker.measure(at_ms).await?;
    lab.note(match found {
        Ties::Unknown => Measured::unknown(name, format!("the answers for {at_ms} ms alone do not tell")),
        ties => Measured::known(name, ties, format!("the rows of {at_ms} ms alone, in pages of a few")),
    });
    Ok(())
}
