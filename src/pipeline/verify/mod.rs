//! `verify`: scans windows once more and compares them with each warehouse. Changes nothing in any warehouse, ledger
//! or coverage.
//!
//! A verify compares the windows inside the coverage, and reports the rest of the range as never read. No checkpoint
//! names the spools of a verify, so no run resumes a killed verify, and the next run removes its spools.

mod plan;
mod report;

pub use plan::{StreamRange, VerifyRequest};
pub use report::{VerifiedWindow, VerifyReport, VerifyTotals};

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::{
    config::Settings,
    model::{Outcome, Stream, Window},
    pipeline::{
        scan::{context::SyncContext, shared_destination::SharedDestination},
        service_profile::statuses::KnownStatuses,
        sync::{
            findings::Findings,
            scan_pool::{ScanEnd, ScanPool},
        },
    },
    source::{Source, SourceError},
};

use super::{
    assemble::{System, identity, source_settings},
    error::PipelineError,
    limits::storing_retry_after,
    meter::Progress,
    session::Session,
};

use plan::{CompareQueue, CompareTask, plan};
use report::{ServiceWindow, compare, scan_window};

/// A verify that has taken the lease.
pub struct Verify {
    request: VerifyRequest,
    context: SyncContext,
    destinations: Vec<SharedDestination>,
    findings: Findings,
    /// The range to verify. `None` until the plan is made.
    range: Option<Window>,
    /// The windows that were compared.
    windows: Vec<VerifiedWindow>,
    /// The time ranges that no complete scan has covered.
    never_read: Vec<StreamRange>,
    /// Windows that were not reached.
    not_reached: Vec<CompareTask>,
    /// Windows that failed.
    failed: Vec<CompareTask>,
    session: Session,
}

impl Verify {
    /// Takes the lease, and opens the archive, the state and the warehouses. Sends nothing.
    pub fn open(
        settings: Settings,
        request: VerifyRequest,
        stop: CancellationToken,
        progress: Arc<Progress>,
    ) -> Result<Verify, PipelineError> {
        let source_settings = source_settings(&settings)?;
        let identity = identity(&settings)?;
        settings.require_warehouse()?;
        let session = Session::open(&settings, &identity, "verify", &System::default())?;
        let source = session.source(source_settings, stop)?;
        let archive = session.archive()?;
        let destinations = SharedDestination::all(session.warehouses_to_compare()?);
        session.begin_run()?;
        let statuses = settings.streams.iter().find(|stream| stream.stream == Stream::Surveys);
        let statuses = statuses.map(|surveys| surveys.statuses.as_slice()).unwrap_or_default();
        source.list_surveys_with(KnownStatuses::load(&session.state(), session.started_ms)?.filter(statuses));
        let context = SyncContext::new(&session, source, archive, progress)?;
        Ok(Verify {
            request,
            context,
            destinations,
            findings: Findings::default(),
            range: None,
            windows: Vec::new(),
            never_read: Vec::new(),
            not_reached: Vec::new(),
            failed: Vec::new(),
            session,
        })
    }

    /// Returns the client, for the progress bar.
    pub fn source(&self) -> &Source {
        &self.context.source
    }

    /// Compares windows until none remains, or a stop or an error ends the verify. Returns the report in any case.
    pub async fn execute(mut self) -> (VerifyReport, Result<(), PipelineError>) {
        let (source, keeper) = (self.context.source.clone(), self.session.keeper());
        let clock = self.session.system.clock.clone();
        let outcome = storing_retry_after(self.compare_windows(), source, keeper, clock).await;
        let report = self.report(outcome.as_ref().err());
        let text = serde_json::to_string(&report.totals).unwrap_or_default();
        let remembered = self.session.remember(&self.context.source);
        let remembered = remembered
            .and_then(|()| self.session.finish_run(report.header.outcome.name(), report.header.exit_code, &text));
        (report, outcome.and(remembered))
    }

    /// Plans the verify at the service's time, or at this machine's time if the service tells none. Returns the windows
    /// to compare, and stores the rest of the plan for the report. Returns `None` if a stop came first.
    async fn windows_to_compare(&mut self) -> Result<Option<CompareQueue>, PipelineError> {
        let now_ms = match self.context.source.probe().await {
            Ok(probe) => probe.service_now_ms.unwrap_or_else(|| self.session.now_ms()),
            Err(SourceError::Stopped(stop)) => {
                self.findings.stop = Some(stop);
                return Ok(None);
            }
            Err(error) => return Err(PipelineError::Source(error)),
        };
        let plan = plan(&self.session.settings, &self.context.state(), self.request, now_ms)?;
        self.range = Some(plan.range);
        self.never_read = plan.never_read;
        self.findings.notes = plan.notes;
        for task in &plan.tasks {
            self.context.progress.due(task.scope, task.window);
        }
        Ok(Some(CompareQueue::new(plan.tasks)))
    }

    /// Scans windows concurrently, and compares each scanned window with the warehouses, one window after the other.
    /// Records the windows that were not compared: those that failed, and those that were not reached.
    async fn compare_windows(&mut self) -> Result<(), PipelineError> {
        let Some(windows) = self.windows_to_compare().await? else { return Ok(()) };
        let in_flight_max = self.session.settings.throttle.in_flight_max;
        let mut pool = ScanPool::new(windows, in_flight_max);
        loop {
            while self.findings.stop.is_none() && pool.has_room() {
                let Some(task) = pool.windows.next_task() else { break };
                let scan = self.session.new_scan(&self.context.source, task.scope, task.window, task.flags);
                let scan = scan_window(self.context.clone(), scan, task.page_rows, task.is_half);
                pool.start(task, scan);
            }
            match pool.next_ended(&mut self.findings).await {
                None => break,
                Some(ScanEnd::Complete(task, window)) if !pool.has_failed() => {
                    if let Err(error) = self.compare(&task, window).await {
                        pool.fail(error);
                        self.not_reached.push(task);
                    }
                }
                Some(ScanEnd::Complete(task, _) | ScanEnd::Stopped(task)) => self.not_reached.push(task),
                Some(ScanEnd::Failed(task)) => self.failed.push(task),
                Some(ScanEnd::Halved(_)) => {}
            }
        }
        let (windows, outcome) = pool.into_outcome();
        self.not_reached.extend(windows.into_remaining());
        outcome
    }

    /// Compares a scanned window with the warehouses, and adds the result to the report.
    async fn compare(&mut self, task: &CompareTask, window: ServiceWindow) -> Result<(), PipelineError> {
        let scope = task.scope;
        if self.context.ties.needs_recheck(&window.scan.scan, &window.scan.boundaries) {
            self.findings.notes.push(format!(
                "{scope} {}: the service may have lost rows at the boundaries of its pages in this scan",
                task.window
            ));
        }
        let is_filtered = task.purpose.is_filtered || self.context.theme_times.may_lack_rows(scope.stream);
        let keys_max = self.request.keys_max;
        let differences = compare(&self.context, &self.destinations, window, is_filtered, keys_max).await?;
        let verified = VerifiedWindow::new(task, differences);
        self.context.progress.committed(scope, task.window);
        self.windows.push(verified);
        Ok(())
    }

    /// Creates the report of the windows that were compared. `error` is the error that ended the verify, if any.
    fn report(&mut self, error: Option<&PipelineError>) -> VerifyReport {
        let mut windows = std::mem::take(&mut self.windows);
        windows.sort_by(|left, right| (left.stream, left.start_ms).cmp(&(right.stream, right.start_ms)));
        let totals = VerifyTotals::of(&windows, &self.never_read);
        let outcome = match self.findings.outcome() {
            Outcome::Done if !totals.is_clean() => Outcome::NeedsALook,
            outcome => outcome,
        };
        // A failed window before a compared one is an exception. Other failed windows are the begin of what is left.
        let (exceptions, left): (Vec<_>, Vec<_>) = std::mem::take(&mut self.failed)
            .into_iter()
            .partition(|task| windows.iter().any(|done| done.follows(task)));
        let not_reached = self.not_reached.iter().chain(&left).filter(|task| task.scope.stream.is_windowed());
        let resume_from = not_reached.map(|task| task.window.start_ms).min();
        VerifyReport {
            run_id: self.session.run_id.clone(),
            header: self.session.report_header(outcome, error),
            range: self.range.map(Into::into),
            windows,
            never_read: std::mem::take(&mut self.never_read),
            not_compared: exceptions.iter().map(|task| StreamRange::new(task.scope, task.window)).collect(),
            totals,
            requests: self.context.source.request_stats(),
            resume_from: resume_from.map(crate::model::format_ms),
            stopped_because: self.findings.stop.map(|stop| stop.to_string()),
            failures: std::mem::take(&mut self.findings.failures),
            notes: std::mem::take(&mut self.findings.notes),
        }
    }
}
