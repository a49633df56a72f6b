//! `verify`: windows are pulled once more and held against each warehouse. Changes nothing in any warehouse, ledger or coverage.
//!
//! What is compared is what the coverage calls complete; the rest of the range is told as never read. Pages go through a spool of
//! their own that nothing remembers: a verify that is killed leaves nothing to go on with, and the next run removes the file.

mod look;
mod report;
mod task;
mod windows;

pub use report::{NeverRead, Verified, VerifyReport, VerifyTotals};
pub use task::VerifyRequest;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    config::Settings,
    model::{Stream, Window},
    source::{Source, SourceError, Stop},
};

use super::{
    Failure, Outcome, PipelineError, Progress, Session, System,
    assemble::{identity, source_settings},
    drive::{FAILURES_IN_A_ROW_MAX, given_up},
    limits::noting_told_waits,
    pull::PullError,
    service_profile::KnownStatuses,
    shared_destination::SharedDestination,
    sync_context::SyncContext,
};

use look::{Looked, compare, look};
use task::Task;
use windows::{halves_of, tasks};

/// A verify, assembled and holding the lease.
pub struct Verify {
    request: VerifyRequest,
    context: SyncContext,
    destinations: Vec<SharedDestination>,
    found: Found,
    session: Session,
}

/// What was found so far.
#[derive(Default)]
struct Found {
    range: Option<Window>,
    windows: Vec<Verified>,
    never_read: Vec<NeverRead>,
    /// Windows that were not looked at, because the run ended.
    left: Vec<Task>,
    failures: Vec<Failure>,
    stop: Option<Stop>,
    notes: Vec<String>,
}

impl Verify {
    /// Takes the lease and opens everything for reading. Sends nothing.
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
        Ok(Verify { request, context, destinations, found: Found::default(), session })
    }

    /// The client, for the progress bar.
    pub fn source(&self) -> &Source {
        &self.context.source
    }

    /// Looks at every window, until all are looked at or something stops it.
    pub async fn execute(mut self) -> (VerifyReport, Result<(), PipelineError>) {
        let (source, state) = (self.context.source.clone(), self.session.shared_state());
        let clock = self.session.system.clock.clone();
        let outcome = noting_told_waits(self.work_off(), source, state, clock).await;
        let report = self.report(outcome.as_ref().err());
        let text = serde_json::to_string(&report.totals).unwrap_or_default();
        let remembered = self.session.remember(&self.context.source);
        let remembered =
            remembered.and_then(|()| self.session.finish_run(report.outcome.name(), report.exit_code, &text));
        (report, outcome.and(remembered))
    }

    async fn work_off(&mut self) -> Result<(), PipelineError> {
        // The service's time says what is settled.
        let now_ms = match self.context.source.probe().await {
            Ok(probe) => probe.service_now_ms.unwrap_or_else(|| self.session.now_ms()),
            Err(SourceError::Stopped(stop)) => {
                self.found.stop = Some(stop);
                return Ok(());
            }
            Err(error) => return Err(PipelineError::Source(error)),
        };
        let planned = tasks(&self.session.settings, &self.context.state(), self.request, now_ms)?;
        self.found.range = Some(planned.range);
        self.found.never_read = planned.never_read;
        self.found.notes = planned.notes;
        for task in &planned.tasks {
            self.context.progress.due(task.scope, &task.due());
        }
        self.drive(planned.tasks.into()).await
    }

    /// Windows are pulled side by side and compared one after the other, oldest first.
    async fn drive(&mut self, mut queue: VecDeque<Task>) -> Result<(), PipelineError> {
        let mut pulls: JoinSet<(Task, Result<Looked, PullError>)> = JoinSet::new();
        let (mut outcome, mut failures_in_a_row) = (Ok(()), BTreeMap::new());
        loop {
            while outcome.is_ok()
                && self.found.stop.is_none()
                && pulls.len() < self.session.settings.throttle.in_flight_max
            {
                let Some(task) = queue.pop_front() else { break };
                let (context, run_id) = (self.context.clone(), self.session.run_id.clone());
                self.context.progress.begun();
                pulls.spawn(async move {
                    let looked = look(&context, &task, run_id).await;
                    (task, looked)
                });
            }
            let Some(ended) = pulls.join_next().await else { break };
            let (task, looked) = ended.map_err(|error| PipelineError::WorkerPanicked(error.to_string()))?;
            self.context.progress.ended();
            match looked {
                Ok(looked) if outcome.is_ok() => {
                    failures_in_a_row.remove(&task.scope.stream);
                    outcome = self.compare(task, looked).await;
                }
                Ok(_) => self.found.left.push(task),
                Err(error) => {
                    if let Err(error) = self.pull_failed(task, error, &mut queue, &mut failures_in_a_row) {
                        outcome = outcome.and(Err(error));
                    }
                }
            }
        }
        self.found.left.extend(queue);
        outcome
    }

    /// What becomes of a window that could not be pulled; an error ends the run.
    fn pull_failed(
        &mut self,
        task: Task,
        error: PullError,
        queue: &mut VecDeque<Task>,
        failures_in_a_row: &mut BTreeMap<Stream, u32>,
    ) -> Result<(), PipelineError> {
        let error = match error {
            PullError::Run(error) => return Err(error),
            PullError::Stopped(stop) => {
                self.found.stop.get_or_insert(stop);
                self.found.left.push(task);
                return Ok(());
            }
            PullError::TooMuch(error) => {
                if let Some([first, second]) = halves_of(&task) {
                    queue.push_front(second);
                    queue.push_front(first);
                    return Ok(());
                }
                error
            }
            PullError::Window(error) => error,
        };
        tracing::error!(window = %task.window, scope = %task.scope, %error, "the window failed");
        self.found.failures.push(Failure::new(task.scope, task.window, &error));
        let stream = task.scope.stream;
        let in_a_row = failures_in_a_row.entry(stream).or_default();
        *in_a_row += 1;
        if *in_a_row < FAILURES_IN_A_ROW_MAX {
            return Ok(());
        }
        if error.is_no_connection() {
            return Err(PipelineError::Source(error));
        }
        if *in_a_row == FAILURES_IN_A_ROW_MAX {
            self.found.notes.push(given_up(stream));
        }
        let (left, others) = std::mem::take(queue).into_iter().partition(|task| task.scope.stream == stream);
        *queue = others;
        self.found.left.extend::<VecDeque<Task>>(left);
        Ok(())
    }

    async fn compare(&mut self, task: Task, looked: Looked) -> Result<(), PipelineError> {
        let (window, scope) = (task.window, task.scope);
        if looked.needs_recheck {
            let note =
                format!("{scope} {window}: the service may have lost rows at the boundaries of its pages in this look");
            self.found.notes.push(note);
        }
        let differences: BTreeMap<_, _> =
            compare(&self.context, &self.destinations, looked, self.request.keys_max).await?;
        let verified = Verified::new(&task, differences);
        self.context.progress.committed(scope, window, verified.service_rows);
        self.found.windows.push(verified);
        Ok(())
    }

    fn report(&mut self, error: Option<&PipelineError>) -> VerifyReport {
        let mut windows = std::mem::take(&mut self.found.windows);
        windows.sort_by(|left, right| (left.stream, left.start_ms).cmp(&(right.stream, right.start_ms)));
        let totals = VerifyTotals::of(&windows, &self.found.never_read);
        let outcome = match (&error, self.found.stop) {
            (Some(_), _) => Outcome::Failed,
            (None, Some(Stop::Cancelled)) => Outcome::Interrupted,
            (None, _) if !self.found.failures.is_empty() => Outcome::Failed,
            (None, Some(_)) => Outcome::StoppedEarly,
            (None, None) if totals.is_clean() => Outcome::Done,
            (None, None) => Outcome::NeedsALook,
        };
        let left = self.found.left.iter().filter(|task| task.scope.stream.is_windowed());
        let resume_from = left.map(|task| task.window.start_ms).min();
        VerifyReport {
            run_id: self.session.run_id.clone(),
            command: "verify",
            outcome,
            exit_code: error.map_or(outcome.exit_code(), PipelineError::exit_code),
            started_at: super::report::rfc3339(self.session.started_ms),
            finished_at: super::report::rfc3339(self.session.now_ms()),
            range: self.found.range.map(Into::into),
            windows,
            never_read: std::mem::take(&mut self.found.never_read),
            totals,
            requests: self.context.source.request_stats(),
            time_ms: self.context.account.parts(),
            peak_rss_bytes: super::report::peak_rss_bytes(),
            resume_from: resume_from.map(crate::model::format_ms),
            stopped_because: self.found.stop.map(|stop| stop.to_string()),
            error: error.map(|error| super::chain(error)),
            failures: std::mem::take(&mut self.found.failures),
            notes: std::mem::take(&mut self.found.notes),
        }
    }
}
