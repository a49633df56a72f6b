//! Applies webhook deliveries from the inbox to the warehouses. Sends no request.
//!
//! Every warehouse applies a batch before the inbox acknowledges it. After a kill in between, the batch is applied
//! again and adds no event twice.

use tokio_util::sync::CancellationToken;

use crate::{
    clock::Clock,
    config::Settings,
    flatten::{FlatDeliveries, FlattenError, flatten_deliveries, summarize_body},
    load::EventRows,
    model::{Delivery, DurableStep, EventKind, Failpoints, RunId},
    person::{Suppression, identifying_fields_of_table},
    schema::table,
    state::Inbox,
};

use super::{
    PipelineError, Run, Session, System,
    assemble::{failed, identity, suppression},
    drift::DriftSource,
    shared_destination::SharedDestination,
    threads::blocking,
};

/// The maximum size of a batch: deliveries, and about how many bytes.
const BATCH_ROWS_MAX: u32 = 2000;
const BATCH_BYTES_MAX: usize = 16 << 20;
/// The command name of a flush in the lease.
const COMMAND: &str = "serve";

/// The result of a flush of the inbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flushed {
    /// Deliveries that left the inbox.
    pub deliveries: u64,
    /// Events that no warehouse had.
    pub added: u64,
    /// Deliveries of another environment than the warehouse's.
    pub of_other_environments: u64,
}

/// Takes the lease and brings what waits in the inbox into every warehouse. `publishes`: readers of Parquet see it at
/// once, which rewrites the month; else with the next run.
///
/// # Errors
/// `Leased` while a run is at work, which does the same at its beginning.
pub async fn flush_deliveries(
    settings: &Settings,
    system: &System,
    stop: &CancellationToken,
    publishes: bool,
) -> Result<Flushed, PipelineError> {
    let (settings, system, stop) = (settings.clone(), system.clone(), stop.clone());
    blocking(move || flush(&settings, &system, &stop, publishes)).await?
}

fn flush(
    settings: &Settings,
    system: &System,
    stop: &CancellationToken,
    publishes: bool,
) -> Result<Flushed, PipelineError> {
    let identity = identity(settings)?;
    let Some(inbox) = inbox_of(settings)? else { return Ok(Flushed::default()) };
    if !publishes && inbox.count_waiting()?.deliveries == 0 {
        return Ok(Flushed::default());
    }
    let session = Session::open(settings, &identity, COMMAND, system)?;
    let destinations = SharedDestination::all(session.warehouses(stop, None)?);
    let applied = InboxReader::new(&session, inbox, suppression(settings)?).apply(&destinations);
    // Also after a failure: committed events are published and locks released.
    for destination in &destinations {
        let mut destination = destination.lock();
        let name = destination.name();
        let shown =
            if publishes || destination.should_compact() { destination.publish() } else { destination.release_lock() };
        shown.map_err(failed(name))?;
    }
    applied
}

/// The inbox of the state file, if `serve` ever ran there and this run has every warehouse that the deliveries are for.
fn inbox_of(settings: &Settings) -> Result<Option<Inbox>, PipelineError> {
    if !Inbox::is_there(&settings.state_path)? {
        return Ok(None);
    }
    let identity = identity(settings)?;
    let inbox = Inbox::open(&settings.state_path, &identity.base_url, &identity.environment)?;
    let wanted = inbox.destinations()?;
    let named = settings.warehouse.names();
    Ok(wanted.iter().all(|name| named.contains(&name.as_str())).then_some(inbox))
}

/// Brings what waits in an inbox into warehouses.
struct InboxReader {
    inbox: Inbox,
    run_id: RunId,
    kept_out: Suppression,
    /// The environment whose deliveries count; `None`: not known yet.
    environment_id: Option<String>,
    clock: Clock,
    failpoints: Failpoints,
}

impl InboxReader {
    fn new(session: &Session, inbox: Inbox, kept_out: Suppression) -> Self {
        let System { clock, failpoints, .. } = session.system.clone();
        let environment_id = session.settings.serve.environment_id.clone();
        InboxReader { inbox, run_id: session.run_id.clone(), kept_out, environment_id, clock, failpoints }
    }

    fn apply(&mut self, destinations: &[SharedDestination]) -> Result<Flushed, PipelineError> {
        let mut flushed = Flushed::default();
        if self.environment_id.is_none() {
            self.environment_id = self.inbox.environment_id()?;
        }
        loop {
            let waiting = self.inbox.waiting(BATCH_ROWS_MAX, BATCH_BYTES_MAX)?;
            if waiting.is_empty() {
                break;
            }
            let taken = self.without_the_erased(&waiting);
            let added = if taken.is_empty() { 0 } else { self.add(&taken, destinations, &mut flushed)? };
            let settles = self.failpoints.hit(DurableStep::DeliveriesRemoved);
            settles.map_err(|error| PipelineError::WorkerPanicked(error.to_string()))?;
            self.inbox.settle(&waiting, self.clock.now_ms())?;
            flushed.deliveries += waiting.len() as u64;
            flushed.added += added;
        }
        if flushed.deliveries > 0 {
            self.inbox.fold()?;
        }
        if flushed.of_other_environments > 0 {
            tracing::warn!(
                deliveries = flushed.of_other_environments,
                environment_id = self.environment_id.as_deref().unwrap_or_default(),
                "webhooks of another environment were stored and change nothing"
            );
        }
        Ok(flushed)
    }

    /// Drops deliveries about erased people.
    /// Webhooks keep mentioning an erased person until the service has purged them.
    fn without_the_erased(&self, waiting: &[Delivery]) -> Vec<Delivery> {
        let fields = table("webhook_events").map(identifying_fields_of_table).unwrap_or_default();
        let is_kept_out =
            |delivery: &Delivery| self.kept_out.matches_json(&fields, &String::from_utf8_lossy(&delivery.body));
        waiting.iter().filter(|delivery| !is_kept_out(delivery)).cloned().collect()
    }

    /// Adds a batch to every warehouse. Returns the events that some warehouse did not have.
    fn add(
        &mut self,
        taken: &[Delivery],
        destinations: &[SharedDestination],
        flushed: &mut Flushed,
    ) -> Result<u64, PipelineError> {
        if self.environment_id.is_none() {
            self.environment_id = self.learn_environment(taken)?;
        }
        let ours = self.environment_id.as_deref();
        let is_other =
            |delivery: &&Delivery| summarize_body(&delivery.body).kind_for(ours) == EventKind::OtherEnvironment;
        flushed.of_other_environments += taken.iter().filter(is_other).count() as u64;
        let flat = flatten_deliveries(taken, ours).map_err(FlattenError::Contract)?;
        let FlatDeliveries { flat, drift } = flat;
        let events = EventRows { flat, run_id: self.run_id.clone(), applied_ms: self.clock.now_ms() };
        let mut added = 0;
        for destination in destinations {
            let mut destination = destination.lock();
            let name = destination.name();
            added = destination.add_events(&events).map_err(failed(name))?.max(added);
        }
        self.inbox.note_drift(&drift)?;
        Ok(added)
    }

    /// The environment of the first delivery that tells one: from here on, others are told apart.
    fn learn_environment(&self, deliveries: &[Delivery]) -> Result<Option<String>, PipelineError> {
        let told = deliveries.iter().map(|delivery| summarize_body(&delivery.body));
        let named = told.filter(|told| told.kind.identifies_environment()).find_map(|told| told.environment_id);
        let Some(id) = named else { return Ok(None) };
        self.inbox.remember_environment_id(&id)?;
        Ok(Some(id))
    }
}

impl Run {
    /// Brings what waits in the inbox into the warehouses: before anything is asked for, so that a change of status
    /// that a webhook told is known to the scan that sees it too.
    pub(super) async fn take_in_deliveries(&mut self) -> Result<(), PipelineError> {
        let Some(inbox) = inbox_of(&self.session.settings)? else { return Ok(()) };
        let mut reader = InboxReader::new(&self.session, inbox, self.context.suppression.clone());
        let destinations = self.destinations.clone();
        let (flushed, drift) = blocking(move || {
            let flushed = reader.apply(&destinations)?;
            // With what was delivered between runs.
            Ok::<_, PipelineError>((flushed, reader.inbox.take_drift()?))
        })
        .await??;
        self.findings.drifted_in(DriftSource::Webhooks, &drift);
        if flushed.of_other_environments > 0 {
            self.findings.look_at(format!(
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
