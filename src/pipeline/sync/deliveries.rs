//! Applies webhook deliveries from the inbox to the warehouses. Sends no request.
//!
//! Every warehouse applies a batch of deliveries before the inbox acknowledges the batch. After a kill in between, the
//! next run applies the batch again, which adds no event twice.

use tokio_util::sync::CancellationToken;

use crate::{
    clock::Clock,
    config::Settings,
    flatten::{FlatDeliveries, FlattenError, flatten_deliveries, summarize_body},
    load::EventRows,
    model::{Delivery, DurableStep, EventKind, Failpoints, RunId},
    person::{Suppression, identifying_fields_of_events, text_of_bytes},
    pipeline::{
        assemble::{System, identity, suppression},
        drift::DriftSource,
        error::PipelineError,
        memory::Memory,
        scan::shared_destination::SharedDestination,
        session::Session,
        threads::{blocking, until_stopped},
    },
    state::Inbox,
};

use super::run::Run;

/// The maximum number of deliveries in a batch.
const BATCH_ROWS_MAX: u32 = 2000;
/// The command name of a flush in the lease.
const COMMAND: &str = "serve";

/// The result of a flush of the inbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlushResult {
    /// Number of deliveries that were removed from the inbox.
    pub deliveries: u64,
    /// Number of events that were added, in the warehouse to which most were added.
    pub added: u64,
    /// Number of deliveries of another environment than the warehouse's.
    pub of_other_environments: u64,
}

/// Takes the lease and applies the pending deliveries of the inbox to every warehouse. If `publishes` is true, readers
/// of Parquet see the events at once, and the partition of the month is rewritten. Otherwise, readers of Parquet see
/// the events after the next publish, usually that of a run.
///
/// # Errors
/// `Leased` during a run. A run applies the deliveries at its start.
pub async fn flush_deliveries(
    settings: &Settings,
    system: &System,
    stop: &CancellationToken,
    publishes: bool,
) -> Result<FlushResult, PipelineError> {
    let (settings, system, token) = (settings.clone(), system.clone(), stop.clone());
    until_stopped(stop, move || flush(&settings, &system, &token, publishes)).await?
}

/// Applies the pending deliveries; see [`flush_deliveries`]. Does nothing if there is no inbox, or if nothing is
/// pending and nothing has to be published.
fn flush(
    settings: &Settings,
    system: &System,
    stop: &CancellationToken,
    publishes: bool,
) -> Result<FlushResult, PipelineError> {
    let identity = identity(settings)?;
    let Some(inbox) = inbox_of(settings)? else { return Ok(FlushResult::default()) };
    if !publishes && inbox.count_pending()?.deliveries == 0 {
        return Ok(FlushResult::default());
    }
    let session = Session::open(settings, &identity, COMMAND, system)?;
    let destinations = SharedDestination::all(session.warehouses(stop, None)?);
    let applied = InboxReader::new(&session, inbox, suppression(settings)?).apply(&destinations);
    // Publishes committed events and releases the locks also after a failure.
    for destination in &destinations {
        destination.with(|destination| match publishes || destination.should_compact(false) {
            true => destination.publish(),
            false => destination.release_lock(),
        })?;
    }
    applied
}

/// Opens the inbox of the state file. Returns `None` if there is no inbox, or if the settings lack a warehouse that the
/// deliveries are for: the deliveries then stay in the inbox.
fn inbox_of(settings: &Settings) -> Result<Option<Inbox>, PipelineError> {
    if !Inbox::exists(&settings.state_path)? {
        return Ok(None);
    }
    let identity = identity(settings)?;
    let inbox = Inbox::open(&settings.state_path, &identity.base_url, &identity.environment)?;
    let required = inbox.destinations()?;
    let configured = settings.warehouse.names();
    Ok(required.iter().all(|name| configured.contains(&name.as_str())).then_some(inbox))
}

/// Applies the pending deliveries of an inbox to warehouses.
struct InboxReader {
    inbox: Inbox,
    /// The maximum size of the bodies in a batch, exceeded by at most one body.
    batch_bytes_max: usize,
    run_id: RunId,
    suppression: Suppression,
    /// The service's id of the environment whose deliveries count. `None` until a delivery names an environment.
    environment_id: Option<String>,
    clock: Clock,
    failpoints: Failpoints,
}

impl InboxReader {
    fn new(session: &Session, inbox: Inbox, suppression: Suppression) -> Self {
        let System { clock, failpoints, .. } = session.system.clone();
        let environment_id = session.settings.serve.environment_id.clone();
        let batch_bytes_max = Memory::of(&session.settings.warehouse).bodies;
        let run_id = session.run_id.clone();
        InboxReader { inbox, batch_bytes_max, run_id, suppression, environment_id, clock, failpoints }
    }

    /// Applies all pending deliveries in batches, and removes their bodies from the inbox. Deliveries about erased
    /// people are removed without being applied.
    fn apply(&mut self, destinations: &[SharedDestination]) -> Result<FlushResult, PipelineError> {
        let mut flushed = FlushResult::default();
        if self.environment_id.is_none() {
            self.environment_id = self.inbox.environment_id()?;
        }
        loop {
            let pending = self.inbox.pending(BATCH_ROWS_MAX, self.batch_bytes_max)?;
            if pending.is_empty() {
                break;
            }
            let allowed = self.without_erased_people(&pending);
            let added = if allowed.is_empty() { 0 } else { self.add(&allowed, destinations, &mut flushed)? };
            let hit = self.failpoints.hit(DurableStep::DeliveriesRemoved);
            hit.map_err(|error| PipelineError::WorkerPanicked(error.to_string()))?;
            self.inbox.acknowledge(&pending, self.clock.now_ms())?;
            flushed.deliveries += pending.len() as u64;
            flushed.added += added;
        }
        if flushed.deliveries > 0 {
            self.inbox.empty_log()?;
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

    /// Returns the deliveries that are not about erased people. Webhooks keep mentioning an erased person until the
    /// service has purged them.
    fn without_erased_people(&self, pending: &[Delivery]) -> Vec<Delivery> {
        let fields = identifying_fields_of_events();
        let is_suppressed = |delivery: &Delivery| self.suppression.matches_json(fields, &text_of_bytes(&delivery.body));
        pending.iter().filter(|delivery| !is_suppressed(delivery)).cloned().collect()
    }

    /// Adds a batch to every warehouse. Returns the number of added events, in the warehouse to which most were added.
    /// Counts deliveries of other environments in `flushed`; they are stored as events and change nothing.
    fn add(
        &mut self,
        deliveries: &[Delivery],
        destinations: &[SharedDestination],
        flushed: &mut FlushResult,
    ) -> Result<u64, PipelineError> {
        if self.environment_id.is_none() {
            self.environment_id = self.learn_environment(deliveries)?;
        }
        let ours = self.environment_id.as_deref();
        let is_other =
            |delivery: &&Delivery| summarize_body(&delivery.body).kind_for(ours) == EventKind::OtherEnvironment;
        flushed.of_other_environments += deliveries.iter().filter(is_other).count() as u64;
        let flat = flatten_deliveries(deliveries, ours).map_err(FlattenError::Contract)?;
        let FlatDeliveries { flat, drift } = flat;
        let events = EventRows { flat, run_id: self.run_id.clone(), applied_ms: self.clock.now_ms() };
        let mut added = 0;
        for destination in destinations {
            added = destination.with(|destination| destination.add_events(&events))?.max(added);
        }
        self.inbox.add_drift(&drift)?;
        Ok(added)
    }

    /// Stores and returns the environment of the first delivery that names an environment, so that later deliveries of
    /// other environments are recognized. Returns `None` if no delivery names an environment.
    fn learn_environment(&self, deliveries: &[Delivery]) -> Result<Option<String>, PipelineError> {
        let bodies = deliveries.iter().map(|delivery| summarize_body(&delivery.body));
        let named = bodies.filter(|body| body.kind.identifies_environment()).find_map(|body| body.environment_id);
        let Some(id) = named else { return Ok(None) };
        self.inbox.remember_environment_id(&id)?;
        Ok(Some(id))
    }
}

impl Run {
    /// Applies the pending deliveries of the inbox, before the run sends a request. The events are applied before the
    /// scans, so that a scan confirms a change of status that a webhook has reported.
    pub(super) async fn apply_deliveries(&mut self) -> Result<(), PipelineError> {
        let Some(inbox) = inbox_of(&self.session.settings)? else { return Ok(()) };
        let mut reader = InboxReader::new(&self.session, inbox, self.context.suppression.clone());
        let destinations = self.destinations.clone();
        let (flushed, drift) = blocking(move || {
            let flushed = reader.apply(&destinations)?;
            Ok::<_, PipelineError>((flushed, reader.inbox.take_drift()?))
        })
        .await??;
        self.findings.add_drift_from(DriftSource::Webhooks, &drift);
        if flushed.of_other_environments > 0 {
            self.findings.add_attention_note(format!(
                "{} webhooks are of another environment of the service than those before; webhook_events has them as \
                 other_environment, and they changed nothing. If their environment is the right one, set [serve] environment_id",
                flushed.of_other_environments
            ));
        }
        self.findings.wrote |= flushed.added > 0;
        self.findings.webhook_events += flushed.added;
        Ok(())
    }
}
