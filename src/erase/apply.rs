//! Runs an erasure from the lease to the receipt; [`Erase::apply`] shows the order of the steps.

use std::{collections::BTreeMap, fs, path::PathBuf, time::Duration};

use tokio_util::sync::CancellationToken;

use super::{
    EraseError, EraseRequest, Plan, Purged, Reason, Receipt,
    archive::{self, RecordsOf},
    journal::{Journal, Journals},
    plan::{self, ARCHIVE_RECORDS, PUSH_RESULTS, RECORDINGS},
    purge::purge,
    recordings,
    verify::{self, Search},
};
use crate::{
    archive::Archive,
    config::Settings,
    load::Warehouse,
    model::{DurableStep, Identifier, IdentifierKind, WarehouseKind, format_ms},
    person::{
        IdentifierKey, IdentifierMatcher, SUPPRESSION_MARGIN_MS, SuppressionEntry, SuppressionList,
        identifying_fields_of_table, text_of_bytes,
    },
    pipeline::{self, PipelineError, Session, System},
    recordings::Recordings,
    schema::table,
    source::Source,
    state::{self, Inbox, State},
};

/// The location of the stored reports of runs in a receipt.
const STATE_REPORTS: &str = "state reports";
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
    key: IdentifierKey,
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
        settings.require_warehouse().map_err(PipelineError::Config)?;
        let source_settings = if request.local_only { None } else { Some(pipeline::source_settings(&settings)?) };
        require_paths(&settings)?;
        let session = Session::open(&settings, &identity, "erase", &system)?;
        if request.reason == Reason::Asked {
            require_known_warehouses(&settings, &session.state())?;
        }
        let source = source_settings.map(|source| session.source(source, stop.clone())).transpose()?;
        let archive = session.archive()?;
        pipeline::clear_leftovers(&settings)?;
        let destinations = session.warehouses(&stop, None)?;
        let mut list = SuppressionList::read(&settings.erasures_folder())?;
        let key = list.key()?;
        let journals = Journals::new(&settings.erasures_folder(), key.clone(), system.failpoints);
        Ok(Erase { request, archive, destinations, list, key, journals, journal: None, source, session })
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
            plan::count(&mut plan, &self.archive, &mut self.destinations)?;
            let (people, matcher) = (plan.people(), plan.matcher());
            plan.results = pipeline::search_results(&self.session.settings, &RecordsOf::new(&people, &matcher))?;
            plan.recordings = recordings::count(&self.recordings()?, &people)?;
        }
        for destination in &mut self.destinations {
            let name = destination.name();
            if !plan.identifiers.named.is_empty() {
                // Fails here, before `Erase::apply` asks the service to purge and changes the archive.
                destination.require_erasable().map_err(EraseError::load(name))?;
            }
            // Releases the warehouse, so that other programs can read it while a person reads the plan.
            destination.publish().map_err(EraseError::load(name))?;
        }
        plan.hard_linked = verify::hard_linked(&self.session.settings)?;
        Ok(plan)
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
        let people = plan.people();
        let (earlier, begun_ms) = (self.journal.take(), self.session.started_ms);
        let mut journal = self.journals.begin(earlier, &plan.erasure_id, begun_ms, &self.request.people, &people)?;
        journal.hard_linked = journal.hard_linked.max(plan.hard_linked.len());
        journal.begin_attempt(plan.counts());
        self.journals.write(&journal)?;
        if self.request.reason == Reason::Asked {
            self.suppress(&plan, &mut journal)?;
        }
        let purged = match &self.source {
            None => Purged::default(),
            Some(source) => {
                let failpoints = &self.session.system.failpoints;
                let delay_seconds = self.request.delay_seconds;
                let (journals, key) = (&self.journals, &self.key);
                let purged =
                    purge(source, journals, key, failpoints, &mut journal, &plan.identifiers, delay_seconds).await;
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
    fn suppress(&mut self, plan: &Plan, journal: &mut Journal) -> Result<(), EraseError> {
        let stored_ms = pipeline::service_time_ms(&self.session.state(), self.session.now_ms())?;
        let now_ms = self.source.as_ref().and_then(Source::service_now_ms).unwrap_or(stored_ms);
        let from_ms = *journal.suppressed_from_ms.get_or_insert(now_ms);
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
        let hash =
            |identifiers: &std::collections::BTreeSet<_>| identifiers.iter().map(|one| self.key.hash(one)).collect();
        let is_user = |one: &&Identifier| one.kind == IdentifierKind::UserId;
        let user_ids: Vec<&str> = plan.identifiers.named.iter().filter(is_user).map(|one| one.value.as_str()).collect();
        // Without a purge request, the service keeps the people. The entry gets no user ids, so that no later run
        // checks whether the service has purged them.
        let user_ids = if self.source.is_some() { &user_ids[..] } else { &[] };
        let unsealed = || std::io::Error::other("the system has no random bytes");
        let users = SuppressionEntry::sealed_users(&self.key, &plan.erasure_id, user_ids).ok_or_else(unsealed);
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
        self.journals.write(journal)
    }

    /// Carries out steps 4 to 6 of [`Erase::apply`]. Writes the journal after each removal, so that the receipt of a
    /// resumed erasure counts this removal. What the plan counts is counted also if a kill comes before the journal.
    fn remove_and_verify(mut self, plan: &Plan, mut journal: Journal) -> Result<(Receipt, PathBuf), EraseError> {
        let people = plan.people();
        let matcher = plan.matcher();
        let failpoints = self.session.system.failpoints.clone();
        let records = RecordsOf::new(&people, &matcher);
        let removed = archive::remove(&plan.archive.found_in, &records, &failpoints)?;
        self.note(&mut journal, ARCHIVE_RECORDS.to_owned(), removed)?;
        self.clean_inbox(&records, &matcher, &mut journal)?;
        let cleaned = pipeline::clean_results(&self.session.settings, &records)?;
        self.note(&mut journal, PUSH_RESULTS.to_owned(), cleaned.rows)?;
        let files = recordings::remove(&self.recordings()?, &people)?;
        self.note(&mut journal, RECORDINGS.to_owned(), files)?;
        self.remove_leftovers(&matcher, &mut journal)?;
        for index in 0..self.destinations.len() {
            let Some(destination) = self.destinations.get_mut(index) else { continue };
            let name = destination.name();
            let found = destination.erase_people(&people).map_err(EraseError::load(name))?;
            for (table, rows) in found.rows {
                self.note(&mut journal, format!("{name} {table}"), rows)?;
            }
        }
        let user_ids = people.iter().filter(|identifier| identifier.kind == IdentifierKind::UserId);
        let forms: Vec<String> =
            user_ids.flat_map(|identifier| identifier.all_forms(&plan.identifiers.spellings)).collect();
        let forgotten = self.session.state().forget_people(forms.iter().map(String::as_str))?;
        self.note(&mut journal, "state people".to_owned(), forgotten)?;
        let reports = self.session.state().edit_reports(|report| matcher.redacted(report))?;
        self.note(&mut journal, STATE_REPORTS.to_owned(), reports)?;
        self.session.state().rewrite_without_deleted()?;
        let mut search = self.search(&people, &matcher)?;
        if self.redact(&search, &matcher, &mut journal)? {
            search = self.search(&people, &matcher)?;
        }
        let receipt = self.receipt(plan, &journal, search);
        self.write_receipt(receipt, &journal)
    }

    /// Adds `count` to the journal's number of removed items at a location, and writes the journal. Does nothing for 0.
    fn note(&self, journal: &mut Journal, location: String, count: u64) -> Result<(), EraseError> {
        if count > 0 {
            journal.add_removed(location, count);
            self.journals.write(journal)?;
        }
        Ok(())
    }

    /// Searches all stored data, recordings included, for data and mentions of the people.
    fn search(&mut self, people: &[Identifier], matcher: &IdentifierMatcher) -> Result<Search, EraseError> {
        let recordings = recordings::search(&self.recordings()?, people)?;
        let settings = &self.session.settings;
        let mut search = verify::search(settings, &self.archive, &mut self.destinations, people, matcher)?;
        search.verified.places.extend(recordings.map(|result| ("recordings".to_owned(), result)));
        Ok(search)
    }

    fn recordings(&self) -> Result<Vec<Recordings>, EraseError> {
        recordings::folders(&self.session.settings, &self.session.state(), &self.session.system.failpoints)
    }

    /// Deletes the bodies of waiting webhook deliveries about the people, and redacts the drift that the next run
    /// reports. The hashes of the bodies stay, so that repeated deliveries are recognized. Does nothing if there is no
    /// inbox.
    fn clean_inbox(
        &self,
        records: &RecordsOf<'_>,
        matcher: &IdentifierMatcher,
        journal: &mut Journal,
    ) -> Result<(), EraseError> {
        if !Inbox::exists(&self.session.settings.state_path)? {
            return Ok(());
        }
        let identity = &self.session.identity;
        let inbox = Inbox::open(&self.session.settings.state_path, &identity.base_url, &identity.environment)?;
        let fields = table("webhook_events").map(identifying_fields_of_table).unwrap_or_default();
        let discarded = inbox.discard(|body| records.is_theirs_by(&fields, &text_of_bytes(body)))?;
        let is_edited = inbox.edit_drift(|drift| matcher.redacted(drift))?;
        inbox.empty_log()?;
        self.note(journal, "waiting deliveries".to_owned(), discarded)?;
        self.note(journal, STATE_REPORTS.to_owned(), u64::from(is_edited))
    }

    /// Deletes files that killed runs left unfinished, and damaged state files that contain an identifier.
    fn remove_leftovers(&self, matcher: &IdentifierMatcher, journal: &mut Journal) -> Result<(), EraseError> {
        for path in self.archive.unfinished()? {
            self.archive.remove_unfinished(&path)?;
        }
        let owners: Vec<_> =
            self.session.state().unfinished_scans()?.into_iter().map(|unfinished| unfinished.scan.id).collect();
        self.archive.discard_orphans(&owners)?;
        let under_way = self.archive.under_way_folder();
        for entry in fs::read_dir(&under_way).map_err(EraseError::io("list", &under_way))? {
            let path = entry.map_err(EraseError::io("list", &under_way))?.path();
            if path.is_dir() {
                // The folder has spill files of a killed read of the warehouses.
                fs::remove_dir_all(&path).map_err(EraseError::io("remove", &path))?;
            }
        }
        let files = state::state_files(&self.session.settings.state_path);
        for path in files.map_err(EraseError::io("list the files of", &self.session.settings.state_path))? {
            if pipeline::is_carried_events(&path) {
                // The file has webhook events that a killed replay exported.
                fs::remove_file(&path).map_err(EraseError::io("remove", &path))?;
            }
            if !state::is_damaged_copy(&path) {
                continue;
            }
            let file = fs::File::open(&path).map_err(EraseError::io("open", &path))?;
            let (hits, _) = matcher.count_in_raw(file).map_err(EraseError::io("read", &path))?;
            if hits > 0 {
                fs::remove_file(&path).map_err(EraseError::io("remove", &path))?;
                self.note(journal, "damaged state files".to_owned(), 1)?;
            }
        }
        Ok(())
    }

    /// Replaces mentions of the people in the stored reports of runs. If `redact_mentions` is set in the request, also
    /// replaces mentions in all other texts and pages. Counts the changed rows and pages in the journal. Returns true
    /// if there are any.
    fn redact(
        &mut self,
        search: &Search,
        matcher: &IdentifierMatcher,
        journal: &mut Journal,
    ) -> Result<bool, EraseError> {
        let before = journal.redacted;
        for destination in &mut self.destinations {
            let name = destination.name();
            let mentions = search.by_warehouse.get(name).map_or(&[][..], Vec::as_slice);
            let only_own = !self.request.redact_mentions;
            let rows = destination.redact(matcher, mentions, only_own).map_err(EraseError::load(name))?;
            if rows > 0 {
                journal.redacted += rows;
                // The rewrite of a large file takes long, so the count is durable before.
                self.journals.write(journal)?;
                destination.remove_old_bytes().map_err(EraseError::load(name))?;
            }
        }
        for path in search.mentioned_in.iter().filter(|_| self.request.redact_mentions) {
            journal.redacted += archive::redact(path, matcher, &self.session.system.failpoints)?;
            self.journals.write(journal)?;
        }
        Ok(journal.redacted > before)
    }

    /// Creates the receipt of an erasure. `search` is the result of the last search for data of the people.
    fn receipt(&self, plan: &Plan, journal: &Journal, search: Search) -> Receipt {
        let finished_ms = self.session.now_ms();
        let verified = search.verified;
        // Data of the people was removed here, so the service once knew them. If the service calls all names unknown,
        // it has probably refused for another reason.
        let is_refused = journal.purge_requests.is_empty() && journal.unknown_there > 0 && !journal.removed.is_empty();
        let kept_under_other_names = if plan.is_resumed {
            // The interrupted attempt may have rewritten any hard-linked file, so all of them are counted.
            journal.hard_linked
        } else {
            plan.hard_linked.iter().filter(|file| file.was_replaced()).count()
        };
        let needs_review = is_refused
            || kept_under_other_names > 0
            || verified.mentions() > 0
            || verified.left() > 0
            || verified.in_tables_of_others() > 0
            || !plan.identifiers.is_complete
            || !plan.identifiers.not_followed.is_empty();
        let (outcome, exit_code) = if needs_review { ("needs_a_look", 3) } else { ("done", 0) };
        Receipt {
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
            verified,
            redacted: journal.redacted,
            outcome,
            exit_code,
            requested_ms: journal.requested_ms,
            finished_ms,
            suppressed_from_ms: journal.suppressed_from_ms,
        }
    }

    /// Writes the receipt to its file and to the warehouses, ends the run and removes the journal.
    fn write_receipt(mut self, receipt: Receipt, journal: &Journal) -> Result<(Receipt, PathBuf), EraseError> {
        let folder = self.session.settings.erasures_folder();
        self.session.system.failpoints.hit(DurableStep::ReceiptWritten).map_err(EraseError::io("write", &folder))?;
        let path = receipt.write(&folder)?;
        for destination in &mut self.destinations {
            let name = destination.name();
            let recorded = destination.record_erasures(&[receipt.record()]);
            recorded.and_then(|()| destination.publish()).map_err(EraseError::load(name))?;
            destination.export_reader_copy().map_err(EraseError::load(name))?;
        }
        let report = serde_json::to_string(&receipt).unwrap_or_default();
        self.session.finish_run(receipt.outcome, receipt.exit_code, &report)?;
        self.journals.remove(journal)?;
        Ok((receipt, path))
    }
}

/// Fails if the path of a warehouse or of the state file does not exist, because data of the people may be elsewhere.
pub(super) fn require_paths(settings: &Settings) -> Result<(), EraseError> {
    let mut paths = settings.warehouse.paths.values().chain([&settings.state_path]);
    match paths.find(|path| !path.try_exists().unwrap_or(true)) {
        Some(missing) => Err(EraseError::Names(format!(
            "{} is not there: an erasure goes by everything that a sync keeps, so name the same places",
            missing.display()
        ))),
        None => Ok(()),
    }
}

/// Fails if the settings lack a warehouse that earlier runs filled and that still exists, because the people's data
/// would stay in that warehouse.
pub(super) fn require_known_warehouses(settings: &Settings, state: &State) -> Result<(), EraseError> {
    for kind in WarehouseKind::ALL.into_iter().filter(|kind| !settings.warehouse.paths.contains_key(kind)) {
        let name = kind.name();
        let Some(known) = state.destination(name)? else { continue };
        if std::path::Path::new(&known.location).try_exists().unwrap_or(true) {
            return Err(EraseError::Names(format!(
                "the {name} warehouse {} was filled as well, and would keep them: name it with --{name}, or remove it",
                known.location
            )));
        }
    }
    Ok(())
}
