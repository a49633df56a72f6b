//! Pulls the stream of users: one request per user, committed batch by batch.
//!
//! A batch is a scan: the pages are written to the spool, committed with a ledger row in one transaction, archived, and
//! checkpointed. Unlike the scan of a list, a batch has no page token and no end of results. A batch that was stopped
//! early is valid with the answers it has, and this run or the next one commits it.

mod batch;

pub use batch::{PeopleDue, people_due};

use std::collections::BTreeSet;

use tokio::task::JoinHandle;

use crate::{
    load::{CommitOptions, VanishPolicy},
    model::{
        FlagSet, IdentifierKind, Scan, Scope, Stream, USER_ID_BYTES_MAX, Window, WrittenIdentifier, can_request_user,
    },
    person::Suppression,
    pipeline::{
        error::{Failure, PipelineError},
        scan::{
            commit::{Committed, apply_and_commit},
            states::CompletedScan,
        },
        service_profile::clocks::service_time_ms,
        threads::blocking,
    },
    source::SourceError,
    state::RefreshIntervals,
    wording::counted,
};

use super::run::{PeopleSelection, Run};
use batch::{BatchResult, request_batch};

/// The maximum number of users in a batch, which is one commit.
const BATCH_USERS: usize = 500;

/// A commit in progress. It returns the scan, its number of pages, and the result.
type CommitTask = JoinHandle<(Scan, u64, Result<Committed, PipelineError>)>;

/// The progress of a pull of users.
#[derive(Default)]
struct PullProgress {
    /// The commit of the last batch. `None` if no commit is in progress.
    commit: Option<CommitTask>,
    /// Number of users with an answer.
    answered: usize,
    /// Number of users for whom the service refused the request.
    refused: u64,
    /// Number of users whom the service does not know.
    absent: u64,
}

/// Returns true if the user was erased. An erased user is not requested until the service has purged them.
fn is_suppressed(suppression: &Suppression, user_id: &str) -> bool {
    suppression.matches_identifiers(&WrittenIdentifier::read(IdentifierKind::UserId, user_id))
}

impl Run {
    /// Requests the users that the run's request names, or all due users. Ends when no user is due, the run is stopped,
    /// the stream of users is frozen, or the service answers no request. A run that also reads lists does nothing here
    /// if the settings switch users off.
    pub(super) async fn pull_people(&mut self) -> Result<(), PipelineError> {
        let is_wanted = self.request.people != PeopleSelection::AfterLists || self.session.settings.users.is_enabled;
        if !is_wanted || self.is_pull_over() {
            return Ok(());
        }
        self.findings.begin_streams([Stream::Users]);
        if let PeopleSelection::These(user_ids) = self.request.people.clone() {
            return self.pull_named(user_ids).await;
        }
        loop {
            let due = self.people_due_now().await?;
            self.note_unaskable(due.unaskable);
            self.log_request_count(due.due);
            let is_last = due.people.len() as u64 == due.due;
            let answered = self.pull_users(due.people).await?;
            // Without any answer, the same users would be due in the next round.
            if is_last || answered == 0 || self.is_pull_over() {
                return Ok(());
            }
        }
    }

    /// Returns true if no further user may be requested in this run: after a stop, or if the stream of users is frozen.
    fn is_pull_over(&self) -> bool {
        self.findings.stop.is_some() || self.findings.is_frozen(Stream::Users)
    }

    /// Requests these users, due or not. Leaves out erased users, and ids that an address cannot contain.
    async fn pull_named(&mut self, user_ids: Vec<String>) -> Result<(), PipelineError> {
        let (suppressed, allowed): (Vec<String>, Vec<String>) =
            user_ids.into_iter().partition(|user_id| is_suppressed(&self.context.suppression, user_id));
        if !suppressed.is_empty() {
            self.findings.notes.push(format!(
                "not requesting {} until the service has purged them. For users who signed up again, run `studysync erase \
                 --end ID`",
                counted(suppressed.len() as u64, "erased user")
            ));
        }
        let user_ids: BTreeSet<String> = allowed.into_iter().filter(|user_id| can_request_user(user_id)).collect();
        self.log_request_count(user_ids.len() as u64);
        self.pull_users(user_ids.into_iter().collect()).await.map(drop)
    }

    /// Requests users batch by batch. A batch is committed while the next one is requested. Returns the number of users
    /// with an answer.
    async fn pull_users(&mut self, user_ids: Vec<String>) -> Result<usize, PipelineError> {
        if user_ids.is_empty() || !self.is_clock_known().await? {
            return Ok(0);
        }
        let mut progress = PullProgress::default();
        let mut outcome = Ok(());
        for batch in user_ids.chunks(BATCH_USERS) {
            let in_flight_max = self.session.settings.throttle.in_flight_max;
            let result = request_batch(&self.context, self.new_batch(), batch, in_flight_max).await?;
            outcome = self.add_batch(&mut progress, result).await;
            if outcome.is_err() || self.is_pull_over() {
                break;
            }
        }
        let committed = self.finish_commit(&mut progress).await;
        if progress.refused > 0 {
            self.findings.notes.push(format!(
                "the service refused the requests for {}; a later run requests them again",
                counted(progress.refused, "user")
            ));
        }
        if progress.absent > 0 && matches!(self.request.people, PeopleSelection::These(_)) {
            let named = user_ids.len();
            self.findings
                .notes
                .push(format!("the service does not know {} of the {named} people named", progress.absent));
        }
        outcome.and(committed).map(|()| progress.answered)
    }

    /// Logs how many requests follow and how long they will take. The line is a warning if the command line selects the
    /// stream of users, because the requests may take hours.
    fn log_request_count(&self, requests: u64) {
        if requests == 0 {
            return;
        }
        let is_explicit = self.request.people != PeopleSelection::AfterLists
            || self.session.settings.named_streams.contains(&Stream::Users);
        let rate = self.context.source.learned_rate().requests_per_sec;
        let minutes =
            rate.map(|rate| format!(", about {:.1} minutes at the learned rate", requests as f64 / rate / 60.0));
        let text = format!("requesting {}, one request each{}", counted(requests, "user"), minutes.unwrap_or_default());
        match is_explicit {
            true => tracing::warn!("{text}"),
            false => tracing::info!("{text}"),
        }
    }

    /// Sends a probe if the service's time is unknown or no list has been read yet. Without a list, a 404 for a user
    /// proves nothing. Returns false if the run was stopped.
    async fn is_clock_known(&mut self) -> Result<bool, PipelineError> {
        if self.context.source.service_now_ms().is_some() && self.context.source.has_read_a_list() {
            return Ok(true);
        }
        match self.context.source.probe().await {
            Ok(probe) => self.remember_clock(probe.service_now_ms).map(|_| true),
            Err(SourceError::Stopped(stop)) => {
                self.findings.stop = Some(stop);
                Ok(false)
            }
            Err(error) => Err(PipelineError::Source(error)),
        }
    }

    /// Finds the users in the warehouse who are due by the checkpoints, without erased users.
    async fn people_due_now(&self) -> Result<PeopleDue, PipelineError> {
        for destination in &self.destinations {
            // Publishing releases the files, and makes the rows of this run visible to the reader below.
            self.publish(destination).await?;
        }
        let now_ms = match self.context.source.service_now_ms() {
            Some(now_ms) => now_ms,
            None => service_time_ms(&self.context.state(), self.session.now_ms())?,
        };
        let intervals = refresh_intervals(&self.session.settings.users, now_ms);
        let (warehouse, state) = (self.session.settings.warehouse.clone(), self.context.state.clone());
        let (account, suppression) = (self.context.account.clone(), self.context.suppression.clone());
        blocking(move || {
            let _busy = account.enter(crate::model::Activity::Write);
            let is_due = |user_id: &str| {
                if is_suppressed(&suppression, user_id) {
                    return Ok(false);
                }
                let state = state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                state.is_person_due(user_id, &intervals)
            };
            people_due(&warehouse, is_due)
        })
        .await?
    }

    /// Adds a note about users whose id an address cannot contain. Adds the same note only once.
    fn note_unaskable(&mut self, unaskable: u64) {
        let note = format!(
            "cannot request {}: an address cannot contain their id ('.', '..', or more than {USER_ID_BYTES_MAX} bytes)",
            counted(unaskable, "user")
        );
        if unaskable > 0 && !self.findings.notes.contains(&note) {
            self.findings.notes.push(note);
        }
    }

    /// Creates the scan of a batch. Users have no time range, so the window is empty, at the start of the scan.
    fn new_batch(&self) -> Scan {
        let scope = Scope::all(Stream::Users);
        let scan = self.session.new_scan(&self.context.source, scope, Window::new(0, 0), FlagSet::EMPTY);
        Scan { window: Window::new(scan.started_ms, scan.started_ms), ..scan }
    }

    /// Records the result of a batch, waits for the commit of the batch before, and starts the commit of this batch.
    /// Returns the first error that ends the run.
    async fn add_batch(&mut self, progress: &mut PullProgress, result: BatchResult) -> Result<(), PipelineError> {
        let BatchResult { scan, answered, refused, absent, stop, failure, fatal, .. } = result;
        let earlier_commit = self.finish_commit(progress).await;
        progress.answered += answered;
        progress.refused += refused;
        progress.absent += absent;
        if let Some(stop) = stop {
            self.findings.stop.get_or_insert(stop);
        }
        if let Some((scan, error)) = failure {
            tracing::error!(%error, "users could not be requested");
            self.findings.failures.push(Failure::new(scan.scope, scan.window, &error));
            self.findings.leave_unfinished([Stream::Users]);
        }
        earlier_commit?;
        if let Some(scan) = scan {
            progress.commit = Some(self.begin_commit(scan));
        }
        fatal.map_or(Ok(()), |error| Err(PipelineError::Source(error)))
    }

    /// Starts the commit of a batch as a task of its own, so that the next batch can be requested meanwhile.
    fn begin_commit(&self, scan: CompletedScan) -> CommitTask {
        let vanish = if self.request.accept_vanished { VanishPolicy::Accept } else { VanishPolicy::default() };
        let options = CommitOptions { vanish, ..CommitOptions::default() };
        let (context, destinations) = (self.context.clone(), self.destinations.clone());
        tokio::spawn(async move {
            let (identity, pages) = (scan.scan.clone(), scan.proof.pages);
            let mut committed = apply_and_commit(&context, &destinations, scan, options).await;
            // Other processes may use the warehouses while the run requests the next batch.
            for destination in destinations {
                let released = destination.work(|destination| destination.release_lock()).await;
                committed = committed.and_then(|done| released.map(|()| done));
            }
            (identity, pages, committed)
        })
    }

    /// Waits for the commit in progress, and records its result. Does nothing without a commit. If the drift policy
    /// froze the stream, records the batch as failed, and does not end the run.
    async fn finish_commit(&mut self, progress: &mut PullProgress) -> Result<(), PipelineError> {
        let Some(commit) = progress.commit.take() else { return Ok(()) };
        let (scan, pages, committed) =
            commit.await.map_err(|error| PipelineError::WorkerPanicked(error.to_string()))?;
        match committed {
            Err(PipelineError::Frozen(frozen)) => {
                tracing::error!(error = %frozen, "users are not applied");
                self.findings.failures.push(Failure::new(scan.scope, scan.window, &*frozen));
                self.findings.freeze(&frozen);
                Ok(())
            }
            Err(error) => Err(error),
            Ok(done) => {
                let mut counts = done.counts;
                self.findings.add_drift(Stream::Users, &done.drift);
                self.findings.set_withheld(scan.scope, scan.window, std::mem::take(&mut counts.withheld));
                self.findings.wrote |= done.wrote;
                self.findings.add_scan(Stream::Users, pages, &counts);
                Ok(())
            }
        }
    }
}

/// Returns the refresh intervals of the settings.
pub fn refresh_intervals(users: &crate::config::UsersSettings, now_ms: i64) -> RefreshIntervals {
    let ms = |length: std::time::Duration| i64::try_from(length.as_millis()).unwrap_or(i64::MAX);
    RefreshIntervals {
        now_ms,
        refresh_after_ms: ms(users.refresh_after),
        ask_again_after_ms: ms(users.ask_again_after),
    }
}
