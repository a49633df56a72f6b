//! Runs an erasure from the lease to the receipt; [`Erase::apply`] shows the order of the steps. [`erase_vanished`]
//! erases sessions that the service no longer returns: `[erase] on_vanish = "erase"`.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    time::Duration,
};

use tokio_util::sync::CancellationToken;

use super::{
    EraseError, EraseRequest, Plan, Purged, Reason, Receipt, SearchReport, UnsearchedVersions,
    error::in_each,
    export::{ExportFolder, PersonExport},
    journal::{Journal, Journals, OpenJournal},
    place::{hard_linked, search},
    places::{REMOVED_LAST, places},
    plan,
    purge::purge,
};
use crate::{
    archive::Archive,
    config::Settings,
    load::{ErasureRecord, LoadError, Place, Warehouse},
    model::{DAY_MS, DurableStep, Fault, Identifier, IdentifierKind, RunReason, WarehouseKind, format_ms},
    person::{SUPPRESSION_MARGIN_MS, SuppressionEntry, SuppressionList},
    pipeline::{self, PipelineError, Session, System, chain, service_time_ms, until_stopped},
    source::Source,
    state::State,
};

/// The delay before the service purges a person, if a request names no delay. The service's contract says so.
const DELAY_DEFAULT: Duration = Duration::from_secs(10 * 86_400);
/// The maximum delay that a request may name: a year.
pub const DELAY_SECONDS_MAX: u64 = 366 * 86_400;

/// An erasure that has taken the lease.
pub struct Erase {
    request: EraseRequest,
    archive: Archive,
    destinations: Vec<Warehouse>,
    list: SuppressionList,
    journals: Journals,
    /// The journal of an interrupted attempt. `None` before [`Erase::plan`], or if there was no such attempt.
    journal: Option<Journal>,
    /// The client. `None` if the service is not asked to purge.
    source: Option<Source>,
    session: Session,
}

impl Erase {
    /// Takes the lease, and opens the archive, the warehouses and the suppression list. Sends nothing. Blocks the
    /// thread.
    pub fn open(settings: Settings, request: EraseRequest, stop: CancellationToken) -> Result<Erase, EraseError> {
        Erase::open_in(settings, request, stop, System::default())
    }

    /// Like [`Erase::open`], with a given clock, transport and failpoints.
    pub fn open_in(
        settings: Settings,
        request: EraseRequest,
        stop: CancellationToken,
        system: System,
    ) -> Result<Erase, EraseError> {
        let identity = pipeline::identity(&settings)?;
        settings.require_warehouse()?;
        let source_settings = if request.local_only { None } else { Some(pipeline::source_settings(&settings)?) };
        require_paths(&settings)?;
        let command = if request.only_exports { "person" } else { "erase" };
        let session = Session::open(&settings, &identity, command, &system)?;
        if request.reason == Reason::Asked {
            require_known_warehouses(&settings, &session.state())?;
        }
        let source = source_settings.map(|source| session.source(source, stop.clone())).transpose()?;
        let archive = session.archive()?;
        pipeline::clear_leftovers(&settings)?;
        let destinations = session.warehouses(&stop, None)?;
        let mut list = SuppressionList::read(&settings.erasures_folder())?;
        let journals = Journals::new(&settings.erasures_folder(), list.key()?, system.failpoints);
        Ok(Erase { request, archive, destinations, list, journals, journal: None, source, session })
    }

    /// Finds the linked identifiers of the named people, or the vanished sessions, and counts what the erasure would
    /// delete. Changes no data. Fails if the bytes of removed rows could not be removed from a warehouse.
    pub fn plan(&mut self) -> Result<Plan, EraseError> {
        let (journal, earlier) = self.journals.find(&self.request.people, &self.request.people_as_written())?.unzip();
        self.journal = journal;
        let erasure_id = match &self.journal {
            Some(journal) => journal.erasure_id.clone(),
            None => self.session.run_id.0.clone(),
        };
        let earlier = earlier.unwrap_or_default();
        let identifiers = match self.request.reason {
            Reason::Asked => plan::find_linked(&self.request, earlier, &self.archive, &mut self.destinations)?,
            Reason::Vanished { before_ms } => plan::vanished(before_ms, earlier, &mut self.destinations)?,
        };
        let others_unfinished = self.journals.others(self.journal.as_ref())?;
        let is_resumed = self.journal.is_some();
        let mut plan = Plan { erasure_id, is_resumed, identifiers, others_unfinished, ..Plan::default() };
        if !plan.identifiers.named.is_empty() {
            let people = plan.people();
            for place in &mut places(&self.session, &self.archive, &mut self.destinations) {
                place.find(&people, &mut plan)?;
            }
            let without_rows = plan.identifiers.without_rows.iter().cloned().collect();
            plan.unknown = plan::unknown_among(without_rows, &mut self.destinations)?;
        }
        in_each(&mut self.destinations, |warehouse| {
            if !plan.identifiers.named.is_empty() && !self.request.only_exports {
                // Fails here, before `Erase::apply` asks the service to purge and changes the archive.
                warehouse.require_erasable()?;
            }
            // Releases the warehouse, so that other programs can read it while a person reads the plan.
            warehouse.publish()
        })?;
        plan.hard_linked = hard_linked(&places(&self.session, &self.archive, &mut self.destinations))?;
        Ok(plan)
    }

    /// Writes everything about the people of the plan to a new folder, and returns the summary. Without a folder, or if
    /// nobody was found, only returns the summary. Changes no data.
    pub fn export(mut self, plan: &Plan, folder: Option<&Path>) -> Result<PersonExport, EraseError> {
        let summary = plan.summary(self.session.now_ms());
        let Some(folder) = folder.filter(|_| plan.has_found()) else { return Ok(summary) };
        let mut out = ExportFolder::begin(folder)?;
        let people = plan.people();
        for place in &mut places(&self.session, &self.archive, &mut self.destinations) {
            place.export(&people, plan, &mut out)?;
        }
        Ok(out.finish(summary)?)
    }

    /// Carries out the plan, and returns the receipt and the path of its file. After an interruption, the same command
    /// resumes the erasure.
    ///
    /// 1. Writes the encrypted identifiers to the journal, because the rows that link them will be deleted.
    /// 2. Adds the people to the suppression list, so that no scan stores their records again.
    /// 3. Asks the service to purge the people. The service still sends their records until its delay is over.
    /// 4. Deletes the people's data: archived records, waiting deliveries, results of `users push`, recordings, rows of
    ///    the warehouses, and entries in the checkpoints.
    /// 5. Searches everything for remaining data. Redacts mentions of the people in the stored reports of runs, and in
    ///    all other texts if the request says so.
    /// 6. Writes the receipt, and removes the journal.
    ///
    /// Step 2 is skipped for vanished sessions, and step 3 for a local erasure.
    pub async fn apply(mut self, plan: Plan) -> Result<(Receipt, PathBuf), EraseError> {
        self.session.begin_run()?;
        let identifiers = plan.identifiers.all();
        let (earlier, begun_ms) = (self.journal.take(), self.session.started_ms);
        let mut journal =
            self.journals.begin(earlier, &plan.erasure_id, begun_ms, &self.request.people, &identifiers)?;
        journal.content.hard_linked = journal.content.hard_linked.max(plan.hard_linked.len());
        journal.content.begin_attempt(plan.counts.clone());
        journal.write()?;
        if self.request.reason == Reason::Asked {
            self.suppress(&plan, &mut journal)?;
        }
        let purged = match &self.source {
            None => Purged::default(),
            Some(source) => {
                let purged = purge(source, &mut journal, &plan.identifiers, self.request.delay_seconds).await;
                self.session.remember(source)?;
                purged?
            }
        };
        tracing::info!(requests = purged.requests, names = purged.names, unknown = purged.unknown, "asked the service");
        let work = move || self.remove_and_verify(&plan, journal);
        let done = tokio::task::spawn_blocking(work).await;
        done.map_err(|error| PipelineError::WorkerPanicked(error.to_string()))?
    }

    /// Adds the people to the suppression list. The entry can expire after the service's delay and a margin, once scans
    /// find no record of the people. A resumed erasure keeps the start of the suppression, and the time ranges that its
    /// first attempt found.
    fn suppress(&mut self, plan: &Plan, journal: &mut OpenJournal) -> Result<(), EraseError> {
        let stored_ms = service_time_ms(&self.session.state(), self.session.now_ms())?;
        let now_ms = self.source.as_ref().and_then(Source::service_now_ms).unwrap_or(stored_ms);
        let from_ms = *journal.content.suppressed_from_ms.get_or_insert(now_ms);
        let delay = self.request.delay_seconds.map_or(DELAY_DEFAULT, Duration::from_secs);
        let delay_ms = i64::try_from(delay.as_millis()).unwrap_or(i64::MAX);
        // For each stream, the time ranges in which the people have rows.
        let mut met: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (stream, window) in plan.warehouses.values().flat_map(|found| &found.met) {
            met.entry(*stream).or_default().push(*window);
        }
        let earlier = self.list.entries().iter().find(|entry| entry.erasure_id == plan.erasure_id);
        for (stream, windows) in earlier.into_iter().flat_map(|entry| &entry.met) {
            met.entry(*stream).or_default().extend(windows);
        }
        let hash = |identifiers: &BTreeSet<_>| identifiers.iter().map(|one| journal.journals.key.hash(one)).collect();
        let is_user = |one: &&Identifier| one.kind == IdentifierKind::UserId;
        let user_ids: Vec<&str> = plan.identifiers.named.iter().filter(is_user).map(|one| one.value.as_str()).collect();
        // Without a purge request, the service keeps the people. The entry gets no user ids, so that no later run
        // checks whether the service has purged them.
        let user_ids = if self.source.is_some() { &user_ids[..] } else { &[] };
        let unsealed = || std::io::Error::other("the system has no random bytes");
        let users =
            SuppressionEntry::sealed_users(&journal.journals.key, &plan.erasure_id, user_ids).ok_or_else(unsealed);
        let users = users.map_err(EraseError::io("seal", self.session.settings.erasures_folder()))?;
        let entry = SuppressionEntry {
            users,
            erasure_id: plan.erasure_id.clone(),
            until_ms: from_ms.saturating_add(delay_ms).saturating_add(SUPPRESSION_MARGIN_MS),
            named: hash(&plan.identifiers.named),
            linked: hash(&plan.identifiers.linked),
            met,
            absent: BTreeMap::new(),
        };
        let failed = EraseError::io("write", self.session.settings.erasures_folder());
        self.session.system.failpoints.hit(DurableStep::SuppressionWritten).map_err(failed)?;
        self.list.put(entry)?;
        journal.write()?;
        // A worker without this disk must know whom not to store again.
        self.session.keep_state();
        Ok(())
    }

    /// Carries out steps 4 to 6 of [`Erase::apply`]. What the plan counts is counted also if a kill comes between a
    /// removal and the journal.
    fn remove_and_verify(mut self, plan: &Plan, mut journal: OpenJournal) -> Result<(Receipt, PathBuf), EraseError> {
        let people = plan.people();
        let mut places = places(&self.session, &self.archive, &mut self.destinations);
        let (removed_last, removed_first) = places.split_at_mut(REMOVED_LAST);
        for place in removed_first.iter_mut().chain(removed_last) {
            place.remove(&people, plan, &mut journal)?;
        }
        let state = &self.session.settings.state_path;
        // The copy of the state in a bucket is searched too.
        self.session.keep_state();
        let mut verified = search(&mut places, &people, state)?;
        let redacted_before = journal.content.redacted;
        for place in &mut places {
            place.redact(&people, !self.request.redact_mentions, &mut journal)?;
        }
        if journal.content.redacted > redacted_before {
            self.session.keep_state();
            verified = search(&mut places, &people, state)?;
        }
        drop(places);
        for place in pipeline::places(&self.session.settings.warehouse) {
            place.remove_fetched().map_err(EraseError::load(place.name()))?;
        }
        let receipt = self.receipt(plan, &journal.content, verified)?;
        self.write_receipt(receipt, &journal)
    }

    /// Creates the receipt of an erasure. `verified` is the result of the last search for data of the people.
    fn receipt(&self, plan: &Plan, journal: &Journal, verified: SearchReport) -> Result<Receipt, EraseError> {
        let finished_ms = self.session.now_ms();
        // Data of the people was removed here, so the service once knew them. If the service calls all names unknown,
        // it has probably refused for another reason.
        let is_refused = journal.purge_requests.is_empty() && journal.unknown_there > 0 && !journal.removed.is_empty();
        let kept_under_other_names = if plan.is_resumed {
            // The interrupted attempt may have rewritten any hard-linked file, so all of them are counted.
            journal.hard_linked
        } else {
            plan.hard_linked.iter().filter(|file| file.was_replaced()).count()
        };
        let unsearched = unsearched_versions(&self.session.settings, &self.archive)?;
        let needs_review = is_refused
            || unsearched.iter().any(UnsearchedVersions::needs_a_look)
            || kept_under_other_names > 0
            || verified.mentions() > 0
            || verified.left() > 0
            || verified.in_tables_of_others() > 0
            || !plan.identifiers.is_complete
            || !plan.identifiers.not_followed.is_empty();
        let (outcome, exit_code) = if needs_review { ("needs_a_look", 3) } else { ("done", 0) };
        Ok(Receipt {
            erasure_id: journal.erasure_id.clone(),
            run_id: self.session.run_id.clone(),
            kind: match self.request.reason {
                Reason::Vanished { .. } => "vanished",
                Reason::Asked if self.request.local_only => "local_only",
                Reason::Asked => "service_and_local",
            },
            requested_at: format_ms(journal.requested_ms),
            finished_at: format_ms(finished_ms),
            people: plan.identifiers.named.len(),
            identifiers: plan.identifiers.named.len() + plan.identifiers.linked.len(),
            not_followed: plan.identifiers.not_followed.len(),
            leads_are_complete: plan.identifiers.is_complete,
            purge_requests: journal.purge_requests.clone(),
            unknown_to_the_service: journal.unknown_there,
            service_refused_all: is_refused,
            delay_seconds: self.request.delay_seconds,
            suppressed_from: journal.suppressed_from_ms.map(format_ms),
            removed: journal.removed.clone(),
            kept_under_other_names,
            unsearched,
            verified,
            redacted: journal.redacted,
            outcome,
            exit_code,
            requested_ms: journal.requested_ms,
            finished_ms,
            suppressed_from_ms: journal.suppressed_from_ms,
        })
    }

    /// Writes the receipt to its file and to the warehouses, ends the run and removes the journal.
    fn write_receipt(mut self, receipt: Receipt, journal: &OpenJournal) -> Result<(Receipt, PathBuf), EraseError> {
        let folder = self.session.settings.erasures_folder();
        self.session.system.failpoints.hit(DurableStep::ReceiptWritten).map_err(EraseError::io("write", &folder))?;
        let path = receipt.write(&folder)?;
        in_each(&mut self.destinations, |warehouse| record_erasures(warehouse, &[receipt.record()]))?;
        let report = serde_json::to_string(&receipt).unwrap_or_default();
        self.session.finish_run(receipt.outcome, receipt.exit_code, &report)?;
        // The copy of the journal in a bucket does no harm: it has a receipt.
        journal.remove()?;
        Ok((receipt, path))
    }
}

/// Writes rows of `erasures`, and makes them visible to other readers.
pub(super) fn record_erasures(warehouse: &mut Warehouse, records: &[ErasureRecord]) -> Result<(), LoadError> {
    warehouse.record_erasures(records)?;
    warehouse.publish()?;
    warehouse.export_reader_copy()
}

/// Returns the buckets and catalogs that keep old content of the warehouses and the archive, or may keep it.
fn unsearched_versions(settings: &Settings, archive: &Archive) -> Result<Vec<UnsearchedVersions>, EraseError> {
    let mut found = Vec::new();
    if let Some((address, versions)) = archive.old_versions()? {
        found.extend(UnsearchedVersions::of(address, versions));
    }
    for place in pipeline::places(&settings.warehouse) {
        let catalog = place.location.catalog.as_ref();
        found.extend(catalog.and_then(|catalog| UnsearchedVersions::of_catalog(&catalog.address)));
        let versions = place.old_versions().map_err(EraseError::load(place.name()))?;
        if let (Some(address), Some(versions)) = (&place.location.bucket, versions) {
            found.extend(UnsearchedVersions::of(address, versions));
        }
    }
    Ok(found)
}

/// Fails if the path of a warehouse or of the state file does not exist, because data of the people may be elsewhere.
pub(super) fn require_paths(settings: &Settings) -> Result<(), EraseError> {
    let warehouses = pipeline::places(&settings.warehouse).into_iter().filter(|place| !place.exists());
    let missing = warehouses.map(|place| place.location.to_string());
    let state = &settings.state_path;
    let no_state = (!state.try_exists().unwrap_or(true)).then(|| state.display().to_string());
    match missing.chain(no_state).next() {
        Some(missing) => Err(EraseError::Names(format!(
            "{missing} is not there: data of people may be elsewhere, so name the places of the syncs"
        ))),
        None => Ok(()),
    }
}

/// Fails if the settings lack a warehouse that earlier runs filled and that still exists, because the people's data
/// would stay in that warehouse. The settings may name another warehouse of the same kind.
pub(super) fn require_known_warehouses(settings: &Settings, state: &State) -> Result<(), EraseError> {
    let places = pipeline::places(&settings.warehouse);
    for kind in WarehouseKind::ALL {
        let name = kind.name();
        let Some(known) = state.destination(name)? else { continue };
        let is_named = places.iter().any(|place| place.kind == kind && place.is_at(&known.location));
        if is_named || !Place::may_exist(&known.location) {
            continue;
        }
        return Err(EraseError::Names(format!(
            "the {name} warehouse {} was filled as well, and would be left out: name it with --{name}, or remove it",
            known.location
        )));
    }
    Ok(())
}

/// Erases sessions that vanished more than `erase_vanished_after_days` ago, and returns the receipt and its path.
/// Returns `None` if there are no such sessions, or if the setting is unset.
pub async fn erase_vanished(settings: Settings, stop: CancellationToken, system: System) -> ErasedVanished {
    let Some(days) = settings.erase_vanished_after_days else { return Ok(None) };
    let token = stop.clone();
    let planned = until_stopped(&token, move || {
        // `_vanished_at` is a time of the service's clock, so the difference of the clocks is added.
        let state = State::open_read_only(&settings.state_path)?;
        let here_ms = system.clock.now_ms();
        let now_ms = state.map_or(Ok(here_ms), |state| service_time_ms(&state, here_ms))?;
        let request = EraseRequest::vanished(now_ms.saturating_sub(i64::from(days) * DAY_MS));
        let mut erase = Erase::open_in(settings, request, stop, system)?;
        let plan = erase.plan()?;
        Ok::<_, EraseError>((erase, plan))
    });
    let (erase, plan) = planned.await??;
    if plan.identifiers.named.is_empty() {
        return Ok(None);
    }
    erase.apply(plan).await.map(Some)
}

/// The result of [`erase_vanished`].
pub type ErasedVanished = Result<Option<(Receipt, PathBuf)>, EraseError>;

/// Returns why somebody should look at the erasure, in a sentence; `None` if nobody has to. An interrupted erasure goes
/// on after the next run.
pub fn attention_for(erased: &ErasedVanished) -> Option<String> {
    match erased {
        Ok(Some((receipt, path))) if receipt.exit_code != 0 => {
            Some(format!("the erasure of vanished sessions needs attention: see {}", path.display()))
        }
        Ok(_) => None,
        Err(error) if error.reason() == RunReason::Interrupted => None,
        Err(error) => Some(format!("the vanished sessions were not erased: {}", chain(error))),
    }
}

/// Logs an erasure of vanished sessions. `path` is the path of its receipt.
pub fn log_erased(receipt: &Receipt, path: &Path) {
    let (sessions, path) = (receipt.people, path.display());
    tracing::info!("{sessions} sessions that the service no longer returns were erased: {path}");
}
