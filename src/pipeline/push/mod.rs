//! `users push`: sends rows of a file or a query to the service, one request each, and records the outcome of each row.
//!
//! Each row goes through these steps:
//! 1. `upsert` reads and checks the row.
//! 2. The row goes to a lane, chosen by the user id. Rows of one user keep their order and are never in flight
//!    together.
//! 3. The lane looks the row up in the ledger. A row that the service has answered is not sent again.
//! 4. The ledger stores an intent, durably.
//! 5. The lane sends the request, within the rate limit.
//! 6. The ledger stores the outcome, durably.
//!
//! A kill leaves at most one open intent per lane. The next push sends the rows of open intents again without their
//! events, because the service counts events twice that it receives twice. With `--resend-events`, it sends the events,
//! too.

mod context;
mod dry_run;
mod input;
mod lane;
mod ledger;
mod past_results;
mod report;
mod results;

pub use input::{InputFormat, PushFormat, PushInput};
pub use past_results::{ErasedPeople, ResultsFound, clean_results, export_results, search_results};
pub use report::{PushReport, PushRequest, PushRows};

use std::sync::{Arc, Mutex};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    config::Settings,
    model::Outcome,
    source::{Source, Stop},
    upsert::{Row, UnsendableRow},
};

use super::{
    assemble::{System, identity, source_settings, suppression},
    error::PipelineError,
    kept_state::merge_erasures_of_bucket,
    limits::storing_retry_after,
    memory::Reservation,
    session::Session,
    threads::blocking,
};
use context::PushContext;
use context::{SUPPRESSED, is_suppressed};
use input::{InputEvent, start_reading};
use lane::{Lane, QueuedRow};
use ledger::Ledger;
use report::COMMAND;
use results::{Ending, ResultsFile, RowResult};

/// The maximum number of rows that are queued for one lane.
const LANE_ROWS: usize = 32;

/// A push that holds the lease.
pub struct Push {
    context: Arc<PushContext>,
    stop: CancellationToken,
    session: Session,
}

/// Reports what a push would do. Sends nothing, and takes no lease.
pub fn push_dry(settings: &Settings, request: &PushRequest) -> Result<PushReport, PipelineError> {
    dry_run::run(settings, request)
}

impl Push {
    /// Takes the lease and opens the ledger. Sends nothing.
    pub fn open(settings: Settings, request: PushRequest, stop: CancellationToken) -> Result<Push, PipelineError> {
        let source_settings = source_settings(&settings)?;
        let identity = identity(&settings)?;
        // A damaged state file is an error here. A new state file has no ledger, so every row would be sent again.
        let session = Session::open(&settings, &identity, COMMAND, &System::default())?;
        let source = session.source(source_settings, stop.clone())?;
        session.begin_run()?;
        past_results::remember_path(&settings, &request.results)?;
        merge_erasures_of_bucket(&settings)?;
        let context = PushContext {
            results: Mutex::new(ResultsFile::begin(&request.results)?),
            ledger: Ledger::start(session.shared_state(), session.account.clone()),
            suppression: suppression(&settings)?,
            request,
            source,
            progress: Mutex::default(),
            ending: CancellationToken::new(),
        };
        Ok(Push { context: Arc::new(context), stop, session })
    }

    /// Returns the client, for the progress line.
    pub fn source(&self) -> &Source {
        &self.context.source
    }

    /// Returns a function that reads the number of rows by outcome, for the progress line.
    pub fn watch(&self) -> impl Fn() -> PushRows + Send + 'static {
        let context = Arc::clone(&self.context);
        move || context.progress().rows
    }

    /// Sends rows until the input ends or the push is stopped. Returns a report also after an error.
    pub async fn execute(self) -> (PushReport, Result<(), PipelineError>) {
        let (source, keeper) = (self.context.source.clone(), self.session.keeper());
        storing_retry_after(self.send_all(), source, keeper, self.session.system.clock.clone()).await;
        let finished = self.context.ledger.finish().await;
        let ending = {
            let progress = self.context.progress();
            let is_complete = progress.error.is_none() && progress.stop.is_none() && finished.is_ok();
            if is_complete { Ending::Complete } else { Ending::Early }
        };
        let written = self.context.results().finish(ending);
        let has_results = written.as_ref().is_ok_and(|is_written| *is_written);
        let outcome = match self.context.progress().error.take() {
            Some(error) => Err(error),
            None => finished.and(written.map(drop)),
        };
        let report = self.report(outcome.as_ref().err(), has_results);
        let remembered = self.remember(&report);
        (report, outcome.and(remembered))
    }

    /// Starts the lanes, passes each row of the input to the lane of its user, and waits for the lanes. Errors and
    /// stops are recorded in the progress.
    async fn send_all(&self) {
        let context = &self.context;
        let mut lanes = Vec::new();
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..self.session.settings.throttle.in_flight_max {
            let (sender, receiver) = mpsc::channel(LANE_ROWS);
            lanes.push(sender);
            tasks.spawn(Lane::new(Arc::clone(context)).run(receiver));
        }
        let mut input = start_reading(&context.request.input, &self.session.settings);
        loop {
            let next = tokio::select! {
                biased;
                () = self.stop.cancelled() => {
                    context.stop(Stop::Cancelled);
                    break;
                }
                () = context.ending.cancelled() => break,
                next = input.recv() => next,
            };
            match next {
                Some(InputEvent::Row(row, memory)) => self.dispatch(&lanes, row, memory).await,
                Some(InputEvent::Ended(Ok(()))) => break,
                Some(InputEvent::Ended(Err(error))) => {
                    // Rows before the error are still sent, and the ledger stores their outcomes for the next push.
                    context.progress().error.get_or_insert(error);
                    break;
                }
                None => {
                    context.fail(PipelineError::WorkerPanicked("the reader of the input".to_owned()));
                    break;
                }
            }
        }
        drop(lanes);
        while let Some(ended) = tasks.join_next().await {
            if let Err(error) = ended {
                context.fail(PipelineError::WorkerPanicked(error.to_string()));
            }
        }
    }

    /// Passes a row to the lane of its user. An invalid or suppressed row gets its result here.
    async fn dispatch(&self, lanes: &[mpsc::Sender<QueuedRow>], row: Row, memory: Reservation) {
        self.context.progress().rows.read += 1;
        match row.read {
            Err(UnsendableRow { user_id, reason }) => {
                self.context.record_result(&RowResult::set_aside(row.number, user_id.as_deref(), &reason));
            }
            Ok(upsert) if is_suppressed(&self.context.suppression, &upsert) => {
                self.context.record_result(&RowResult::set_aside(row.number, Some(&upsert.user_id), SUPPRESSED));
            }
            Ok(upsert) => {
                let index = xxh3_64(upsert.user_id.as_bytes()) % lanes.len().max(1) as u64;
                let lane = usize::try_from(index).ok().and_then(|index| lanes.get(index));
                let sent = match lane {
                    Some(lane) => lane.send(QueuedRow { number: row.number, upsert, _memory: memory }).await.is_ok(),
                    None => false,
                };
                if !sent {
                    self.context.fail(PipelineError::WorkerPanicked("a lane of the push".to_owned()));
                }
            }
        }
    }

    /// Creates the report. With an error, the outcome in its header is `failed`. `has_results` is false if no results
    /// file of this push was written.
    fn report(&self, error: Option<&PipelineError>, has_results: bool) -> PushReport {
        let results = &self.context.request.results;
        let progress = self.context.progress();
        let outcome = match progress.stop {
            Some(Stop::Cancelled) => Outcome::Interrupted,
            Some(_) => Outcome::StoppedEarly,
            None => progress.rows.outcome(),
        };
        PushReport {
            run_id: Some(self.session.run_id.clone()),
            header: self.session.report_header(outcome, error),
            dry_run: false,
            rows: progress.rows,
            results: if has_results { results.display().to_string() } else { String::new() },
            requests: self.context.source.request_stats(),
            stopped_because: progress.stop.map(|stop| stop.to_string()),
        }
    }

    /// Stores what the push learned about the rate limit, and the end of the push in the history of runs.
    fn remember(&self, report: &PushReport) -> Result<(), PipelineError> {
        let text = serde_json::to_string(report).unwrap_or_default();
        self.session.remember(&self.context.source)?;
        self.session.finish_run(report.header.outcome.name(), report.header.exit_code, &text)
    }
}
