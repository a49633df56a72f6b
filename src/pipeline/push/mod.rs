//! `users push`: rows of a file or a query are sent to the service, one request each, and each row's fate is known or named.
//!
//! A row's way: read and checked (`upsert`), handed to a lane by its user, so that two rows of one user keep their order and are
//! never under way at once; looked up in the ledger, where a row whose answer is known ends; an intent, durable; the request, under
//! the gate; the outcome, durable. A kill leaves at most one intent a lane: those rows may be at the service. What may be repeated
//! of them (an upsert of attributes) is sent again, and what the service would count twice (events) only if the user says so.

mod dry;
mod input;
mod lane;
mod ledger;
mod past;
mod report;
mod results;

pub use input::{PushFormat, PushInput, Written};
pub use past::{Erased, ResultsFound, clean_results, search_results};
pub use report::{PushReport, PushRows};

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    clock,
    config::Settings,
    model::{IdentifierKind, RunId, Spelled, TimeAccount, names_an_email},
    person::Suppression,
    source::{Source, Stop},
    state::{Lease, State},
    upsert::{AttributeValue, Row, SetAside, Upsert},
};

use super::{
    Outcome, PipelineError,
    assemble::{identity, source_settings, suppression},
    error::chain,
    limits::{note_told_waits, recall, remember},
    pull::blocking,
    report::peak_rss_bytes,
    run::rfc3339,
};
use input::{Fed, feed};
use lane::Lane;
use ledger::Ledger;
use results::{Ending, Results, RowResult};

/// The command, as the lease and the history of runs name it.
pub(super) const COMMAND: &str = "users push";
/// Rows that wait for one lane.
const LANE_ROWS: usize = 32;

/// What a push is asked to do.
#[derive(Clone, Debug)]
pub struct PushRequest {
    pub input: PushInput,
    /// Where each row's fate is written.
    pub results: PathBuf,
    /// Say what would be sent, and send nothing.
    pub is_dry_run: bool,
    /// Send events once more whose fate is unknown.
    pub resends_events: bool,
    /// Send rows once more whose answer is known; without their events, unless those are to be sent again too.
    pub sends_again: bool,
}

/// What the lanes share.
struct Shared {
    request: PushRequest,
    source: Source,
    ledger: Ledger,
    suppression: Suppression,
    results: Mutex<Results>,
    found: Mutex<Found>,
    /// Cancelled when nothing more is to be sent.
    ending: CancellationToken,
}

/// What a push has found so far.
#[derive(Debug, Default)]
struct Found {
    rows: PushRows,
    stop: Option<Stop>,
    error: Option<PipelineError>,
    failures_in_a_row: u32,
}

impl Shared {
    fn found(&self) -> MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Books a row's fate. What cannot be written down ends the push: nobody would know of it.
    fn tell(&self, result: &RowResult<'_>) {
        self.found().rows.count(result);
        let written = self.results.lock().unwrap_or_else(PoisonError::into_inner).write(result);
        if let Err(error) = written {
            self.fail(error);
        }
    }

    fn stop(&self, stop: Stop) {
        self.found().stop.get_or_insert(stop);
        self.ending.cancel();
    }

    fn fail(&self, error: PipelineError) {
        self.found().error.get_or_insert(error);
        self.ending.cancel();
    }
}

/// A push, assembled and holding the lease.
pub struct Push {
    shared: Arc<Shared>,
    settings: Settings,
    state: Arc<Mutex<State>>,
    account: TimeAccount,
    run_id: RunId,
    started_ms: i64,
    stop: CancellationToken,
    _lease: Lease,
}

/// Why nothing is sent of somebody who was erased.
const KEPT_OUT: &str = "this person was erased, and is kept out until the service has purged them";

fn is_kept_out(suppression: &Suppression, upsert: &Upsert) -> bool {
    let user_id = Spelled::read(IdentifierKind::UserId, &upsert.user_id);
    let named_so = upsert.attributes.iter().filter(|(name, _)| names_an_email(name));
    let attributes = named_so.filter_map(|(_, value)| match value {
        AttributeValue::Text(text) => Some(text.as_str()),
        _ => None,
    });
    let emails = upsert.email.as_deref().into_iter().chain(attributes);
    let emails = emails.filter_map(|email| Spelled::read(IdentifierKind::Email, email));
    let all: Vec<Spelled> = user_id.into_iter().chain(emails).collect();
    suppression.matches_identifiers(&all)
}

/// Says what a push would do. Sends nothing, and needs no lease.
pub fn push_dry(settings: &Settings, request: &PushRequest) -> Result<PushReport, PipelineError> {
    dry::run(settings, request)
}

impl Push {
    /// Takes the lease and opens the ledger. Sends nothing.
    pub fn open(settings: Settings, request: PushRequest, stop: CancellationToken) -> Result<Push, PipelineError> {
        let account = TimeAccount::default();
        let mut source_settings = source_settings(&settings)?;
        let identity = identity(&settings)?;
        let started_ms = clock::now_ms();
        let run_id = RunId::new(started_ms);
        let (base_url, environment) = (&identity.base_url, &identity.environment);
        // Not begun anew if it is damaged: without the ledger every row would be sent again.
        let state = State::open(&settings.state_path, base_url, environment).map_err(PipelineError::State)?;
        let lease = state.take_lease(&run_id, COMMAND, started_ms).map_err(PipelineError::State)?;
        let ignores_told_wait = settings.throttle.ignores_told_wait;
        let learned = recall(&state, &mut source_settings, ignores_told_wait).map_err(PipelineError::State)?;
        let source =
            Source::new(source_settings, learned, account.clone(), stop.clone()).map_err(PipelineError::Source)?;
        state.begin_run(&run_id, COMMAND, started_ms).map_err(PipelineError::State)?;
        past::note(&settings, &request.results)?;
        let state = Arc::new(Mutex::new(state));
        let shared = Shared {
            results: Mutex::new(Results::begin(&request.results)?),
            ledger: Ledger::begin(Arc::clone(&state), account.clone()),
            suppression: suppression(&settings)?,
            request,
            source,
            found: Mutex::default(),
            ending: CancellationToken::new(),
        };
        let shared = Arc::new(shared);
        Ok(Push { shared, settings, state, account, run_id, started_ms, stop, _lease: lease })
    }

    /// The client, for whoever shows the progress.
    pub fn source(&self) -> &Source {
        &self.shared.source
    }

    /// For whoever shows the progress: how many rows have which fate.
    pub fn watch(&self) -> impl Fn() -> PushRows + Send + 'static {
        let shared = Arc::clone(&self.shared);
        move || shared.found().rows
    }

    /// Sends until the input ends or something stops it. There is a report, and a file of results, however it ends.
    pub async fn execute(self) -> (PushReport, Result<(), PipelineError>) {
        tokio::select! {
            biased;
            () = self.send_all() => {}
            never = note_told_waits(self.shared.source.clone(), &self.state, clock::Clock::default()) => match never {},
        }
        let finished = self.shared.ledger.finish().await;
        let ending = {
            let found = self.shared.found();
            let is_complete = found.error.is_none() && found.stop.is_none() && finished.is_ok();
            if is_complete { Ending::Complete } else { Ending::Early }
        };
        let placed = self.shared.results.lock().unwrap_or_else(PoisonError::into_inner).finish(ending);
        let has_results = placed.as_ref().is_ok_and(|is_placed| *is_placed);
        let outcome = match self.shared.found().error.take() {
            Some(error) => Err(error),
            None => finished.and(placed.map(drop)),
        };
        let report = self.report(outcome.as_ref().err(), has_results);
        let remembered = self.remember(&report);
        (report, outcome.and(remembered))
    }

    async fn send_all(&self) {
        let shared = &self.shared;
        let mut lanes = Vec::new();
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..self.settings.throttle.in_flight_max {
            let (sender, receiver) = mpsc::channel(LANE_ROWS);
            lanes.push(sender);
            tasks.spawn(Lane::new(Arc::clone(shared)).run(receiver));
        }
        let mut fed = feed(&shared.request.input, &self.settings);
        loop {
            let next = tokio::select! {
                biased;
                () = self.stop.cancelled() => {
                    shared.stop(Stop::Cancelled);
                    break;
                }
                () = shared.ending.cancelled() => break,
                next = fed.recv() => next,
            };
            match next {
                Some(Fed::Row(row)) => self.hand_over(&lanes, row).await,
                Some(Fed::Ended(Ok(()))) => break,
                Some(Fed::Ended(Err(error))) => {
                    // What was read before is sent all the same, and is known to the next push.
                    shared.found().error.get_or_insert(error);
                    break;
                }
                None => {
                    shared.fail(PipelineError::Died("the reader of the input".to_owned()));
                    break;
                }
            }
        }
        drop(lanes);
        while let Some(ended) = tasks.join_next().await {
            if let Err(error) = ended {
                shared.fail(PipelineError::Died(error.to_string()));
            }
        }
    }

    /// Rows of one user go to one lane, in their order.
    async fn hand_over(&self, lanes: &[mpsc::Sender<(u64, Upsert)>], row: Row) {
        self.shared.found().rows.read += 1;
        match row.read {
            Err(SetAside { user_id, reason }) => {
                self.shared.tell(&RowResult::set_aside(row.number, user_id.as_deref(), &reason));
            }
            Ok(upsert) if is_kept_out(&self.shared.suppression, &upsert) => {
                self.shared.tell(&RowResult::set_aside(row.number, Some(&upsert.user_id), KEPT_OUT));
            }
            Ok(upsert) => {
                let place = xxh3_64(upsert.user_id.as_bytes()) % lanes.len().max(1) as u64;
                let lane = usize::try_from(place).ok().and_then(|at| lanes.get(at));
                let sent = match lane {
                    Some(lane) => lane.send((row.number, upsert)).await.is_ok(),
                    None => false,
                };
                if !sent {
                    self.shared.fail(PipelineError::Died("a lane of the push".to_owned()));
                }
            }
        }
    }

    fn report(&self, error: Option<&PipelineError>, has_results: bool) -> PushReport {
        let results = &self.shared.request.results;
        let found = self.shared.found();
        let outcome = match (error, found.stop) {
            (Some(_), _) => Outcome::Failed,
            (None, Some(Stop::Cancelled)) => Outcome::Interrupted,
            (None, Some(_)) => Outcome::StoppedEarly,
            (None, None) => found.rows.outcome(),
        };
        PushReport {
            run_id: Some(self.run_id.clone()),
            command: COMMAND,
            outcome,
            exit_code: error.map_or(outcome.exit_code(), PipelineError::exit_code),
            started_at: rfc3339(self.started_ms),
            finished_at: rfc3339(clock::now_ms()),
            dry_run: false,
            rows: found.rows,
            results: if has_results { results.display().to_string() } else { String::new() },
            requests: self.shared.source.request_stats(),
            time_ms: self.account.parts(),
            peak_rss_bytes: peak_rss_bytes(),
            stopped_because: found.stop.map(|stop| stop.to_string()),
            error: error.map(|error| chain(error)),
        }
    }

    fn remember(&self, report: &PushReport) -> Result<(), PipelineError> {
        let text = serde_json::to_string(report).unwrap_or_default();
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now_ms = clock::now_ms();
        remember(&state, &self.shared.source, now_ms)
            .and_then(|()| {
                let exit_code = i64::from(report.exit_code);
                state.finish_run(&self.run_id, now_ms, report.outcome.name(), exit_code, &text)
            })
            .map_err(PipelineError::State)
    }
}
