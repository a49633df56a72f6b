//! Deliveries of webhooks on their way from the inbox into the warehouses. Sends nothing.
//!
//! A batch is applied by every warehouse, and only then settled in the inbox. A kill in between costs a second try, which finds
//! every event where it is and adds none.

use tokio_util::sync::CancellationToken;

use crate::{
    clock::Clock,
    config::Settings,
    flatten::{FlattenError, flatten_deliveries, tell},
    load::EventRows,
    model::{Delivery, DurableStep, EventKind, RunId, Steps},
    person::{Suppression, fields_of_table},
    schema::table,
    state::{Inbox, State},
};

use super::{
    PipelineError, Run, Surroundings,
    assemble::{failed, identity, lock_patience, open_watched, suppression},
    shared_destination::SharedDestination,
    threads::blocking,
};

/// Deliveries that are applied at once, and about how many bytes of them.
const BATCH_ROWS_MAX: u32 = 2000;
const BATCH_BYTES_MAX: usize = 16 << 20;
/// How a flush is named in the lease.
const COMMAND: &str = "serve";

/// What came of the inbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flushed {
    /// Deliveries that left the inbox.
    pub deliveries: u64,
    /// Events that no warehouse had.
    pub added: u64,
    /// Deliveries that tell of another environment than the warehouse's.
    pub of_other_environments: u64,
}

/// Takes the lease and brings what waits in the inbox into every warehouse. `publishes`: readers of Parquet see it at once, which
/// rewrites the month; else with the next run.
///
/// # Errors
/// `Leased` while a run is at work, which does the same at its beginning.
pub async fn flush_deliveries(
    settings: &Settings,
    surroundings: &Surroundings,
    stop: &CancellationToken,
    publishes: bool,
) -> Result<Flushed, PipelineError> {
    let (settings, surroundings, stop) = (settings.clone(), surroundings.clone(), stop.clone());
    blocking(move || flush(&settings, &surroundings, &stop, publishes)).await?
}

fn flush(
    settings: &Settings,
    surroundings: &Surroundings,
    stop: &CancellationToken,
    publishes: bool,
) -> Result<Flushed, PipelineError> {
    let identity = identity(settings)?;
    let Some(inbox) = inbox_of(settings)? else { return Ok(Flushed::default()) };
    let now_ms = surroundings.clock.now_ms();
    if !publishes && inbox.count_waiting().map_err(PipelineError::State)?.deliveries == 0 {
        return Ok(Flushed::default());
    }
    let run_id = RunId::drawn(now_ms, &surroundings.chance);
    let state = State::open(&settings.state_path, &identity.base_url, &identity.environment);
    let state = state.map_err(PipelineError::State)?.watched(surroundings.steps.clone());
    let _lease = state.take_lease(&run_id, COMMAND, now_ms).map_err(PipelineError::State)?;
    let opened = open_watched(settings, &identity, &lock_patience(settings, stop), surroundings, None)?;
    let destinations: Vec<SharedDestination> = opened.into_iter().map(SharedDestination::new).collect();
    let kept_out = suppression(settings)?;
    let environment_id = settings.serve.environment_id.clone();
    let surroundings = (&surroundings.clock, &surroundings.steps);
    let applied = apply(&inbox, &destinations, &run_id, (&kept_out, environment_id), surroundings);
    // Also after a failure: what was committed is let go of.
    for destination in &destinations {
        let mut destination = destination.lock();
        let name = destination.name();
        let shown = if publishes || destination.wants_publish() { destination.publish() } else { destination.rest() };
        shown.map_err(failed(name))?;
    }
    applied
}

/// The inbox of the state file, if `serve` ever ran there and this run has every warehouse that the deliveries are for.
fn inbox_of(settings: &Settings) -> Result<Option<Inbox>, PipelineError> {
    if !Inbox::is_there(&settings.state_path).map_err(PipelineError::State)? {
        return Ok(None);
    }
    let identity = identity(settings)?;
    let inbox = Inbox::open(&settings.state_path, &identity.base_url, &identity.environment);
    let inbox = inbox.map_err(PipelineError::State)?;
    let wanted = inbox.destinations().map_err(PipelineError::State)?;
    let named = settings.warehouse.names();
    Ok(wanted.iter().all(|name| named.contains(&name.as_str())).then_some(inbox))
}

fn apply(
    inbox: &Inbox,
    destinations: &[SharedDestination],
    run_id: &RunId,
    (kept_out, environment_id): (&Suppression, Option<String>),
    (clock, steps): (&Clock, &Steps),
) -> Result<Flushed, PipelineError> {
    let mut flushed = Flushed::default();
    let mut environment_id = match environment_id {
        None => inbox.environment_id().map_err(PipelineError::State)?,
        id => id,
    };
    let fields = table("webhook_events").map(fields_of_table).unwrap_or_default();
    loop {
        let waiting = inbox.waiting(BATCH_ROWS_MAX, BATCH_BYTES_MAX).map_err(PipelineError::State)?;
        if waiting.is_empty() {
            break;
        }
        // Who was erased is told about until the service has purged them: that goes nowhere, and leaves the inbox with the rest.
        let is_kept_out =
            |delivery: &Delivery| kept_out.matches_json(&fields, &String::from_utf8_lossy(&delivery.body));
        let taken: Vec<Delivery> = waiting.iter().filter(|delivery| !is_kept_out(delivery)).cloned().collect();
        let mut added = 0;
        if !taken.is_empty() {
            if environment_id.is_none() {
                environment_id = learn_environment(inbox, &taken)?;
            }
            let ours = environment_id.as_deref();
            let is_other = |delivery: &&Delivery| tell(&delivery.body).kind_in(ours) == EventKind::OtherEnvironment;
            flushed.of_other_environments += taken.iter().filter(is_other).count() as u64;
            let rows =
                flatten_deliveries(&taken, ours).map_err(FlattenError::Contract).map_err(PipelineError::Flatten)?;
            let events = EventRows { rows, run_id: run_id.clone(), applied_ms: clock.now_ms() };
            for destination in destinations {
                let mut destination = destination.lock();
                let name = destination.name();
                added = destination.add_events(&events).map_err(failed(name))?.max(added);
            }
        }
        steps.reach(DurableStep::DeliveriesSettled).map_err(|error| PipelineError::Died(error.to_string()))?;
        inbox.settle(&waiting, clock.now_ms()).map_err(PipelineError::State)?;
        flushed.deliveries += waiting.len() as u64;
        flushed.added += added;
    }
    if flushed.deliveries > 0 {
        inbox.fold().map_err(PipelineError::State)?;
    }
    if flushed.of_other_environments > 0 {
        tracing::warn!(
            deliveries = flushed.of_other_environments,
            environment_id = environment_id.unwrap_or_default(),
            "webhooks of another environment were stored and change nothing"
        );
    }
    Ok(flushed)
}

/// The environment of the first delivery that tells one: from here on, others are told apart.
fn learn_environment(inbox: &Inbox, deliveries: &[Delivery]) -> Result<Option<String>, PipelineError> {
    let named = deliveries.iter().map(|delivery| tell(&delivery.body)).filter(|told| told.kind.names_the_environment());
    let Some(id) = named.into_iter().find_map(|told| told.environment_id) else { return Ok(None) };
    inbox.remember_environment_id(&id).map_err(PipelineError::State)?;
    Ok(Some(id))
}

impl Run {
    /// Brings what waits in the inbox into the warehouses: before anything is asked for, so that a change of status that a webhook
    /// told is known to the scan that sees it too.
    pub(super) async fn take_in_deliveries(&mut self) -> Result<(), PipelineError> {
        let Some(inbox) = inbox_of(&self.settings)? else { return Ok(()) };
        let (destinations, run_id) = (self.destinations.clone(), self.run_id.clone());
        let (clock, steps) = (self.clock.clone(), self.steps.clone());
        let (kept_out, environment_id) = (self.context.suppression.clone(), self.settings.serve.environment_id.clone());
        let apply = move || apply(&inbox, &destinations, &run_id, (&kept_out, environment_id), (&clock, &steps));
        let flushed = blocking(apply).await??;
        if flushed.of_other_environments > 0 {
            self.findings.is_doubtful = true;
            self.findings.notes.push(format!(
                "{} webhooks told of another environment of the service than those before; they stand in webhook_events as \
                 other_environment and changed nothing. If they are the right ones, set [serve] environment_id",
                flushed.of_other_environments
            ));
        }
        self.findings.wrote |= flushed.added > 0;
        self.findings.webhook_events += flushed.added;
        Ok(())
    }
}
