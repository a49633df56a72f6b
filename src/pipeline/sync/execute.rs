//! The steps of a run: scan what is due, then publish, record and report.

use futures::future::join_all;
use tracing::Instrument as _;

use crate::{load::RunRecord, model::Stream, source::SourceError};

use crate::pipeline::{
    error::{PipelineError, chain},
    limits::storing_retry_after,
    report::RunReport,
    scan::commit::first_error,
    service_profile::clocks::{CLOCK_SKEW, is_clock_in_doubt},
    session::run_span,
    threads::blocking,
};

use super::{
    backlog::{ScopeBacklog, ValidCoverage, backlog},
    reconcile::{Resumed, resume},
    run::{OPEN_END_MS, PeopleSelection, Run},
    window_queue::WindowQueue,
};

/// Name of the behaviour that stores which snapshots the catalog of the warehouse keeps.
pub const SNAPSHOTS: &str = "catalog_snapshots";

impl Run {
    /// Runs until nothing is due or the run is stopped. Returns a report also for a failed run, whose committed scans
    /// stay in the warehouses.
    ///
    /// The steps, in order: apply webhook deliveries, resume unfinished scans, scan the due windows of the lists, fetch
    /// recordings, pull users. Afterwards, also after an error or a stop, the run publishes and records the committed
    /// scans.
    pub async fn execute(mut self) -> (RunReport, Result<(), PipelineError>) {
        let span = run_span(&self.session);
        let (source, keeper) = (self.context.source.clone(), self.session.keeper());
        let (clock, workers) = (self.session.system.clock.clone(), self.workers.take());
        let run = async move {
            let work = async {
                self.apply_deliveries().await?;
                self.set_status_filter()?;
                let resumed = self.unfinished_scans().await?;
                if !resumed.is_empty() {
                    tracing::info!(count = resumed.len(), "resuming unfinished windows");
                    self.scan_windows(WindowQueue::default(), resumed).await?;
                }
                if let Some(backlog) = self.plan_lists().await? {
                    let windows = WindowQueue::new(backlog, &self.context.progress);
                    self.findings.begin_streams(self.lists());
                    self.scan_windows(windows, Vec::new()).await?;
                }
                if self.reads_responses() {
                    self.fetch_recordings().await?;
                }
                self.pull_people().await
            };
            let work = async {
                match &workers {
                    Some(workers) => workers.sharing(work).await,
                    None => work.await,
                }
            };
            let worked = storing_retry_after(work, source, keeper, clock).await;
            self.finish(worked).await
        };
        run.instrument(span).await
    }

    /// Confirms purges, records the run, publishes the committed scans and the record, and exports the reader copies,
    /// also after an error. If the publish fails, records the run again with this error. Returns the report and the
    /// first error. `worked` is the outcome of the steps of [`Run::execute`].
    async fn finish(mut self, worked: Result<(), PipelineError>) -> (RunReport, Result<(), PipelineError>) {
        if worked.is_err() || self.findings.stop.is_some() {
            self.findings.leave_unfinished([Stream::Users]);
        }
        self.note_boundaries();
        let worked = worked.and(self.note_lists());
        self.confirm_purges(worked.is_ok() && self.findings.stop.is_none()).await;
        let noted = self.note_untrusted();
        let outcome = worked.and(noted);
        self.context.progress.enter("publishing");
        let mut recorded = self.record_run(outcome.as_ref().err()).await;
        // A run that was asked to stop ends soon.
        if self.findings.stop.is_none() {
            self.maintain().await;
        }
        let published = self.publish_all().await;
        if published.is_err() && outcome.is_ok() {
            recorded = self.record_run(published.as_ref().err()).await;
        }
        let outcome = outcome.and(published);
        if !self.session.settings.warehouse.publish.paths.is_empty() {
            self.context.progress.enter("writing the copy for readers");
        }
        let exported = self.export_reader_copies().await;
        let outcome = outcome.and(recorded).and(exported);
        let report = self.report(outcome.as_ref().err());
        match self.remember(&report) {
            // The report must not claim a success that the exit code denies.
            Err(error) if outcome.is_ok() => (self.report(Some(&error)), Err(error)),
            remembered => (report, outcome.and(remembered)),
        }
    }

    /// Repairs what earlier runs left unfinished ([`resume`]). Returns their unfinished scans, for the streams that
    /// this run reads. Scans of other streams stay for a run that reads those.
    pub(super) async fn unfinished_scans(&self) -> Result<Vec<Resumed>, PipelineError> {
        let (context, destinations) = (self.context.clone(), self.destinations.clone());
        let mut resumed = blocking(move || resume(&context, &destinations)).await??;
        let named = &self.session.settings.named_streams;
        resumed.retain(|scan| named.is_empty() || named.contains(&scan.stream()));
        Ok(resumed)
    }

    /// Returns true if this run scans the list of responses.
    fn reads_responses(&self) -> bool {
        self.request.people == PeopleSelection::AfterLists && self.lists().contains(&Stream::Responses)
    }

    /// Returns the streams with a list (all but users) that the settings select.
    pub(super) fn lists(&self) -> Vec<Stream> {
        self.session.settings.streams.iter().map(|stream| stream.stream).collect()
    }

    /// Returns the backlog of the lists. Returns `None` if the run reads no list, was stopped, or knows without a
    /// request that nothing is due.
    async fn plan_lists(&mut self) -> Result<Option<Vec<ScopeBacklog>>, PipelineError> {
        let reads_no_list = self.request.people != PeopleSelection::AfterLists || self.lists().is_empty();
        if reads_no_list || self.findings.stop.is_some() {
            return Ok(None);
        }
        self.check_surveys().await?;
        if self.findings.stop.is_some() {
            return Ok(None);
        }
        if self.is_backfill_covered()? {
            self.findings.begin_streams(self.lists());
            return Ok(None);
        }
        let now_ms = match self.context.source.probe().await {
            Ok(probe) => self.remember_clock(probe.service_now_ms)?,
            Err(SourceError::Stopped(stop)) => {
                self.findings.stop = Some(stop);
                return Ok(None);
            }
            Err(error) => return Err(PipelineError::Source(error)),
        };
        self.check_clock(now_ms).await?;
        if self.findings.stop.is_none() {
            self.ask_empty_lists().await?;
        }
        if self.findings.stop.is_some() {
            return Ok(None);
        }
        let due = self.due(now_ms)?;
        if due.iter().any(|work| work.scope.stream == Stream::Surveys && !work.due.is_empty()) {
            self.findings.stop = self.prepare_survey_lists().await?;
        }
        Ok(self.findings.stop.is_none().then_some(due))
    }

    /// Returns the backlog of every scope at the service's time `now_ms`, without frozen streams.
    fn due(&self, now_ms: i64) -> Result<Vec<ScopeBacklog>, PipelineError> {
        let (settings, backfill) = (&self.session.settings, self.request.backfill);
        let mut due = backlog(settings, Some(&self.context.state()), backfill, now_ms, ValidCoverage::Stored)?;
        // A stream with a frozen scan is not read further.
        due.retain(|backlog| !self.findings.is_frozen(backlog.scope.stream));
        Ok(due)
    }

    /// Returns true if the whole range of a backfill is covered, so that the run needs no request, not even for the
    /// service's time. Returns false for a `sync`.
    ///
    /// An end that the user named counts as past, because only a request could tell the service's time. A range with an
    /// open end ends now: the time of this machine's clock plus the stored difference to the service's clock. For such
    /// a range, returns false if this machine's clock was set back since the difference was stored, or if the
    /// difference shows that the service's clock may be wrong.
    fn is_backfill_covered(&self) -> Result<bool, PipelineError> {
        let Some(window) = self.request.backfill else { return Ok(false) };
        let is_open = window.end_ms == OPEN_END_MS;
        let skew = self.context.state().behaviour::<i64>(CLOCK_SKEW)?;
        let (skew_ms, compared_ms) = skew.unwrap_or_default();
        let here_ms = self.session.now_ms();
        if is_open && (here_ms < compared_ms || is_clock_in_doubt(&self.context.state(), -skew_ms)?) {
            return Ok(false);
        }
        let now_ms = if is_open { here_ms + skew_ms } else { OPEN_END_MS };
        Ok(self.due(now_ms)?.iter().all(|work| work.due.is_empty()))
    }

    /// Publishes every warehouse, also when another one fails. Removes expired pages from the archive if the service's
    /// time is known; a failure of the removal only adds a note.
    async fn publish_all(&mut self) -> Result<(), PipelineError> {
        // In parallel, because each warehouse has its own thread.
        let published = join_all(self.destinations.iter().map(|destination| self.publish(destination))).await;
        let outcome = first_error(published.into_iter());
        // A page is removed once it is old by both clocks, because a clock that is ahead would remove every page.
        let here_ms = self.session.now_ms();
        let expired =
            self.context.source.service_now_ms().map(|now_ms| self.context.archive.expire(now_ms.min(here_ms)));
        if let Some(Err(error)) = expired {
            let note = format!("old pages could not be removed from the archive: {error}");
            tracing::warn!("{note}");
            self.findings.notes.push(note);
        }
        outcome
    }

    /// Writes a row about the run into the warehouses, if the run changed any, or if what is known against the data
    /// changed: the view `untrusted` reads it from the last row.
    async fn record_run(&self, error: Option<&PipelineError>) -> Result<(), PipelineError> {
        if !self.findings.wrote && !self.is_untrusted_news()? {
            return Ok(());
        }
        let record = self.record(error);
        for destination in &self.destinations {
            let record = record.clone();
            self.with(destination, move |destination| destination.record_runs(std::slice::from_ref(&record))).await?;
        }
        self.remember_untrusted()
    }

    /// Runs the maintenance of a catalog that is due, and stores what the status says about it. Errors are only logged.
    async fn maintain(&self) {
        let here_ms = self.session.now_ms();
        // A clock that is ahead would expire every snapshot.
        let now_ms = self.context.source.service_now_ms().map_or(here_ms, |now_ms| now_ms.min(here_ms));
        for destination in &self.destinations {
            let noted = destination.work(move |destination| destination.maintain(now_ms)).await.and_then(|kept| {
                let Some(kept) = kept else { return Ok(()) };
                Ok(self.context.state().remember_behaviour(SNAPSHOTS, &kept, here_ms)?)
            });
            if let Err(error) = noted {
                tracing::warn!(why = chain(&error), "the maintenance of the catalog waits for the next run");
            }
        }
    }

    /// Adds the notes about ties to the findings: windows that may lack rows at page boundaries, and changes of the
    /// service's behaviour.
    fn note_boundaries(&mut self) {
        let notes = self.context.ties.notes();
        for note in notes {
            tracing::warn!("{note}");
            self.findings.add_attention_note(note);
        }
    }

    /// Stores what the run observed of the service, and how the run ended.
    fn remember(&self, report: &RunReport) -> Result<(), PipelineError> {
        let source = &self.context.source;
        let observed = self.context.observed.remember(&self.session.state(), source, self.session.now_ms());
        let limits = self.session.remember(source);
        // The end of the run is stored last, also after errors: a run without a stored end counts as killed.
        let text = serde_json::to_string(report).unwrap_or_default();
        let finished = self.session.finish_run(report.header.outcome.name(), report.header.exit_code, &text);
        observed.and(limits).and(finished)
    }

    /// Creates the row about this run for the warehouses. `error` is the error that ended the run, if any.
    fn record(&self, error: Option<&PipelineError>) -> RunRecord {
        let report = self.report(error);
        RunRecord {
            run_id: self.session.run_id.clone(),
            command: self.request.command.to_owned(),
            outcome: report.header.outcome.name().to_owned(),
            exit_code: i64::from(report.header.exit_code),
            started_ms: self.session.started_ms,
            finished_ms: self.session.now_ms(),
            base_url: self.session.identity.base_url.clone(),
            environment: self.session.identity.environment.clone(),
            program_version: env!("CARGO_PKG_VERSION").to_owned(),
            report: serde_json::to_string(&report).unwrap_or_default(),
        }
    }

    /// Creates the report of this run. `error` is the error that ended the run, if any.
    fn report(&self, error: Option<&PipelineError>) -> RunReport {
        let mut streams = self.findings.streams();
        let lists = self.lists().into_iter().filter(|_| self.request.people == PeopleSelection::AfterLists);
        let is_for_people =
            self.session.settings.users.is_enabled || self.request.people != PeopleSelection::AfterLists;
        for stream in lists.chain(is_for_people.then_some(Stream::Users)) {
            streams.entry(stream.name()).or_default();
        }
        // Other streams are in the report if the run committed scans that an earlier run had begun.
        for stream in Stream::ALL {
            if let Some(report) = streams.get_mut(stream.name()) {
                report.reached = self.findings.reached(stream);
            }
        }
        let (drift, drift_unlisted) = self.findings.drift();
        let header = self.session.report_header(self.findings.outcome(), error);
        RunReport {
            narrowed_to: self.session.settings.narrowed_to(),
            streams,
            drift,
            drift_unlisted,
            untrusted: self.findings.untrusted.clone(),
            webhook_events: self.findings.webhook_events,
            recordings: self.session.settings.recordings.is_enabled.then_some(self.recordings.report),
            requests: self.context.source.request_stats(),
            stopped_because: self.findings.stop.map(|stop| stop.to_string()),
            resume_after_ms: self.findings.resume_after_ms(self.session.now_ms()),
            limited_until_ms: self.findings.limited_until_ms(),
            looks: self.findings.attention_notes(),
            failures: self.findings.failures.clone(),
            notes: self.findings.notes().into_iter().chain(self.recordings.note()).collect(),
            ..RunReport::new(self.session.run_id.clone(), header)
        }
        .with_reason(error, self.findings.stop)
    }
}
