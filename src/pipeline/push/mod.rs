//! `users push`: rows of a file or a query are sent to the service, one request each,
//! and each row's fate is known or named.
//!
//! A row's way: read and checked (`upsert`), handed to a lane by its user, so that two rows of one user keep their
//! order and are never under way at once; looked up in the ledger, where a row whose answer is known ends; an intent,
//! durable; the request, under the gate; the outcome, durable. A kill leaves at most one intent a lane: those rows may
//! be at the service. What may be repeated of them (an upsert of attributes) is sent again, and what the service would
//! count twice (events) only if the user says so.

mod context;
mod dry;
mod input;
mod kept_out;
mod lane;
mod ledger;
mod past;
mod report;
mod request;
mod results;

pub use input::{PushFormat, PushInput, Written};
pub use past::{Erased, ResultsFound, clean_results, search_results};
pub use report::{PushReport, PushRows};
pub use request::PushRequest;

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    config::Settings,
    source::{Source, Stop},
    upsert::{Row, UnsendableRow, Upsert},
};

use super::{
    Outcome, PipelineError, Session, System,
    assemble::{identity, source_settings, suppression},
    limits::noting_told_waits,
    threads::blocking,
};
use context::PushContext;
use input::{Fed, feed};
use kept_out::{KEPT_OUT, is_kept_out};
use lane::Lane;
use ledger::Ledger;
use request::COMMAND;
use results::{Ending, Results, RowResult};

/// Rows that wait for one lane.
const LANE_ROWS: usize = 32;

/// A push, assembled and holding the lease.
pub struct Push {
    context: Arc<PushContext>,
    stop: CancellationToken,
    session: Session,
}

/// Says what a push would do. Sends nothing, and needs no lease.
pub fn push_dry(settings: &Settings, request: &PushRequest) -> Result<PushReport, PipelineError> {
    dry::run(settings, request)
}

impl Push {
    /// Takes the lease and opens the ledger. Sends nothing.
    pub fn open(settings: Settings, request: PushRequest, stop: CancellationToken) -> Result<Push, PipelineError> {
        let source_settings = source_settings(&settings)?;
        let identity = identity(&settings)?;
        // Not begun anew if it is damaged: without the ledger every row would be sent again.
        let session = Session::open(&settings, &identity, COMMAND, &System::default())?;
        let source = session.source(source_settings, stop.clone())?;
        session.begin_run()?;
        past::note(&settings, &request.results)?;
        let context = PushContext {
            results: Mutex::new(Results::begin(&request.results)?),
            ledger: Ledger::begin(session.shared_state(), session.account.clone()),
            suppression: suppression(&settings)?,
            request,
            source,
            found: Mutex::default(),
            ending: CancellationToken::new(),
        };
        Ok(Push { context: Arc::new(context), stop, session })
    }

    /// The client, for whoever shows the progress.
    pub fn source(&self) -> &Source {
        &self.context.source
    }

    /// For whoever shows the progress: how many rows have which fate.
    pub fn watch(&self) -> impl Fn() -> PushRows + Send + 'static {
        let context = Arc::clone(&self.context);
        move || context.found().rows
    }

    /// Sends until the input ends or something stops it. There is a report, and a file of results, however it ends.
    pub async fn execute(self) -> (PushReport, Result<(), PipelineError>) {
        let (source, state) = (self.context.source.clone(), self.session.shared_state());
        noting_told_waits(self.send_all(), source, state, self.session.system.clock.clone()).await;
        let finished = self.context.ledger.finish().await;
        let ending = {
            let found = self.context.found();
            let is_complete = found.error.is_none() && found.stop.is_none() && finished.is_ok();
            if is_complete { Ending::Complete } else { Ending::Early }
        };
        let placed = self.context.results.lock().unwrap_or_else(PoisonError::into_inner).finish(ending);
        let has_results = placed.as_ref().is_ok_and(|is_placed| *is_placed);
        let outcome = match self.context.found().error.take() {
            Some(error) => Err(error),
            None => finished.and(placed.map(drop)),
        };
        let report = self.report(outcome.as_ref().err(), has_results);
        let remembered = self.remember(&report);
        (report, outcome.and(remembered))
    }

    async fn send_all(&self) {
        let context = &self.context;
        let mut lanes = Vec::new();
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..self.session.settings.throttle.in_flight_max {
            let (sender, receiver) = mpsc::channel(LANE_ROWS);
            lanes.push(sender);
            tasks.spawn(Lane::new(Arc::clone(context)).run(receiver));
        }
        let mut fed = feed(&context.request.input, &self.session.settings);
        loop {
            let next = tokio::select! {
                biased;
                () = self.stop.cancelled() => {
                    context.stop(Stop::Cancelled);
                    break;
                }
                () = context.ending.cancelled() => break,
                next = fed.recv() => next,
            };
            match next {
                Some(Fed::Row(row)) => self.hand_over(&lanes, row).await,
                Some(Fed::Ended(Ok(()))) => break,
                Some(Fed::Ended(Err(error))) => {
                    // What was read before is sent all the same, and is known to the next push.
                    context.found().error.get_or_insert(error);
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

    /// Rows of one user go to one lane, in their order.
    async fn hand_over(&self, lanes: &[mpsc::Sender<(u64, Upsert)>], row: Row) {
        self.context.found().rows.read += 1;
        match row.read {
            Err(UnsendableRow { user_id, reason }) => {
                self.context.tell(&RowResult::set_aside(row.number, user_id.as_deref(), &reason));
            }
            Ok(upsert) if is_kept_out(&self.context.suppression, &upsert) => {
                self.context.tell(&RowResult::set_aside(row.number, Some(&upsert.user_id), KEPT_OUT));
            }
            Ok(upsert) => {
                let place = xxh3_64(upsert.user_id.as_bytes()) % lanes.len().max(1) as u64;
                let lane = usize::try_from(place).ok().and_then(|at| lanes.get(at));
                let sent = match lane {
                    Some(lane) => lane.send((row.number, upsert)).await.is_ok(),
                    None => false,
                };
                if !sent {
                    self.context.fail(PipelineError::WorkerPanicked("a lane of the push".to_owned()));
                }
            }
        }
    }

    fn report(&self, error: Option<&PipelineError>, has_results: bool) -> PushReport {
        let results = &self.context.request.results;
        let found = self.context.found();
        let outcome = match found.stop {
            Some(Stop::Cancelled) => Outcome::Interrupted,
            Some(_) => Outcome::StoppedEarly,
            None => found.rows.outcome(),
        };
        PushReport {
            run_id: Some(self.session.run_id.clone()),
            header: self.session.report_header(outcome, error),
            dry_run: false,
            rows: found.rows,
            results: if has_results { results.display().to_string() } else { String::new() },
            requests: self.context.source.request_stats(),
            stopped_because: found.stop.map(|stop| stop.to_string()),
        }
    }

    fn remember(&self, report: &PushReport) -> Result<(), PipelineError> {
        let text = serde_json::to_string(report).unwrap_or_default();
        self.session.remember(&self.context.source)?;
        self.session.finish_run(report.header.outcome.name(), report.header.exit_code, &text)
    }
}
