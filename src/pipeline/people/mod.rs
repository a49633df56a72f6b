//! The stream of users: people are asked for one by one, and what came is committed batch by batch.
//!
//! A batch is a scan like any other: its pages are in the spool before anything else sees them, it is committed with a
//! ledger row in one transaction, archived, and then checkpointed. What it lacks of a list: there is no page token and
//! no end of results. Any part of a batch is whole, so a batch that was cut short is committed as far as it came,
//! now or by the next run.

mod ask;
mod due;
mod page;

pub use due::{PeopleDue, people_due};
pub(super) use page::{is_without_pages, remember};

use std::collections::BTreeSet;

use tokio::task::JoinHandle;

use crate::{
    load::{CommitOptions, VanishPolicy},
    model::{FlagSet, IdentifierKind, Scan, Scope, Stream, Window, WrittenIdentifier, can_request_user},
    person::Suppression,
    source::SourceError,
    state::PeopleRules,
};

use super::{
    Failure, PeopleAsk, PipelineError, Run,
    commit::{Committed, apply_and_commit},
    scan::CompletedScan,
    threads::blocking,
};
use ask::{Answered, ask};

/// People in a batch: what one commit takes.
const BATCH_PEOPLE: usize = 500;

/// A batch on its way into the warehouses.
type Committing = JoinHandle<(Scan, u64, Result<Committed, PipelineError>)>;

/// What a run is at with people.
#[derive(Default)]
struct Pace {
    committing: Option<Committing>,
    answered: usize,
    refused: u64,
    absent: u64,
}

/// Whether a person was erased: they are not asked for while the service still has them.
fn is_kept_out(suppression: &Suppression, user_id: &str) -> bool {
    suppression.matches_identifiers(&WrittenIdentifier::read(IdentifierKind::UserId, user_id))
}

impl Run {
    /// Asks for people, if this run is to, until nobody is due or something stops it.
    pub(super) async fn pull_people(&mut self) -> Result<(), PipelineError> {
        let is_wanted = self.request.people != PeopleAsk::AfterLists || self.session.settings.users.is_enabled;
        if !is_wanted || self.findings.stop.is_some() || self.findings.is_frozen(Stream::Users) {
            return Ok(());
        }
        self.findings.begin_with([Stream::Users]);
        if let PeopleAsk::These(user_ids) = self.request.people.clone() {
            let (kept_out, asked): (Vec<String>, Vec<String>) =
                user_ids.into_iter().partition(|user_id| is_kept_out(&self.context.suppression, user_id));
            if !kept_out.is_empty() {
                let note = format!(
                    "{} people were erased, and are not asked for until the service has purged them",
                    kept_out.len()
                );
                self.findings.notes.push(note);
            }
            let once: BTreeSet<String> = asked.into_iter().filter(|user_id| can_request_user(user_id)).collect();
            self.tell_requests(once.len() as u64);
            return self.pull_these(once.into_iter().collect()).await.map(drop);
        }
        loop {
            let due = self.people_due_now().await?;
            self.tell_unaskable(due.unaskable);
            self.tell_requests(due.due);
            let is_last = due.people.len() as u64 == due.due;
            let answered = self.pull_these(due.people).await?;
            // Nobody came although some were asked for: asking for the same once more is no way out.
            if is_last || answered == 0 || self.findings.stop.is_some() || self.findings.is_frozen(Stream::Users) {
                return Ok(());
            }
        }
    }

    /// Returns how many people there are answers for.
    async fn pull_these(&mut self, people: Vec<String>) -> Result<usize, PipelineError> {
        if people.is_empty() || !self.is_clock_known().await? {
            return Ok(0);
        }
        let mut pace = Pace::default();
        let mut outcome = Ok(());
        for batch in people.chunks(BATCH_PEOPLE) {
            let answered =
                ask(&self.context, self.new_batch(), batch, self.session.settings.throttle.in_flight_max).await?;
            outcome = self.batch_came(&mut pace, answered).await;
            if outcome.is_err() || self.findings.stop.is_some() || self.findings.is_frozen(Stream::Users) {
                break;
            }
        }
        let committed = self.commit_ended_of(&mut pace).await;
        if pace.refused > 0 {
            self.findings.notes.push(format!(
                "the service refused to be asked for {} people; they are asked for again later",
                pace.refused
            ));
        }
        if pace.absent > 0 && matches!(self.request.people, PeopleAsk::These(_)) {
            let named = people.len();
            self.findings.notes.push(format!("the service does not know {} of the {named} people named", pace.absent));
        }
        outcome.and(committed).map(|()| pace.answered)
    }

    /// Says how many requests are coming, before the first of them:
    /// loud if somebody asked for people by name of the stream.
    fn tell_requests(&self, requests: u64) {
        if requests == 0 {
            return;
        }
        let is_by_hand = self.request.people != PeopleAsk::AfterLists
            || self.session.settings.named_streams.contains(&Stream::Users);
        let rate = self.context.source.learned_rate().requests_per_sec;
        let minutes =
            rate.map(|rate| format!(", about {:.1} minutes at the learned rate", requests as f64 / rate / 60.0));
        let text = format!("{requests} people are asked for, one request each{}", minutes.unwrap_or_default());
        match is_by_hand {
            true => tracing::warn!("{text}"),
            false => tracing::info!("{text}"),
        }
    }

    /// The service's time is what answers are remembered by; asking for it proves address and key as well.
    async fn is_clock_known(&mut self) -> Result<bool, PipelineError> {
        // Before a list has answered, that nobody is known proves nothing.
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

    async fn people_due_now(&self) -> Result<PeopleDue, PipelineError> {
        for destination in &self.destinations {
            // What others are to see, and this too; and the files are free to be read.
            self.publish(destination).await?;
        }
        let here_ms = self.session.now_ms();
        let now_ms = match self.context.source.service_now_ms() {
            Some(now_ms) => now_ms,
            None => here_ms + self.clock_skew_ms()?,
        };
        let rules = people_rules(&self.session.settings.users, now_ms);
        let (warehouse, state) = (self.session.settings.warehouse.clone(), self.context.state.clone());
        let (account, suppression) = (self.context.account.clone(), self.context.suppression.clone());
        blocking(move || {
            let _busy = account.enter(crate::model::Activity::Write);
            let is_due = |user_id: &str| {
                if is_kept_out(&suppression, user_id) {
                    return Ok(false);
                }
                let state = state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                state.is_person_due(user_id, &rules)
            };
            people_due(&warehouse, is_due)
        })
        .await?
    }

    fn tell_unaskable(&mut self, unaskable: u64) {
        let note = format!(
            "{unaskable} people cannot be asked for: an address cannot carry their id ('.', '..', or more than {} bytes)",
            crate::model::USER_ID_BYTES_MAX
        );
        if unaskable > 0 && !self.findings.notes.contains(&note) {
            self.findings.notes.push(note);
        }
    }

    fn new_batch(&self) -> Scan {
        let scope = Scope::all(Stream::Users);
        let scan = self.session.new_scan(&self.context.source, scope, Window::new(0, 0), FlagSet::EMPTY);
        Scan { window: Window::new(scan.started_ms, scan.started_ms), ..scan }
    }

    /// A batch was asked for: its commit begins as soon as the one before it is done.
    async fn batch_came(&mut self, pace: &mut Pace, answered: Answered) -> Result<(), PipelineError> {
        let Answered { pulled, people, refused, absent, stop, failure, fatal, .. } = answered;
        let before = self.commit_ended_of(pace).await;
        (pace.answered, pace.refused) = (pace.answered + people, pace.refused + refused);
        pace.absent += absent;
        if let Some(stop) = stop {
            self.findings.stop.get_or_insert(stop);
        }
        if let Some((scan, error)) = failure {
            tracing::error!(%error, "people could not be asked for");
            self.findings.failures.push(Failure::new(scan.scope, scan.window, &error));
            self.findings.leave([Stream::Users]);
        }
        before?;
        if let Some(pulled) = pulled {
            pace.committing = Some(self.begin_commit(pulled));
        }
        fatal.map_or(Ok(()), |error| Err(PipelineError::Source(error)))
    }

    fn begin_commit(&self, pulled: CompletedScan) -> Committing {
        let vanish = if self.request.accept_vanished { VanishPolicy::Accept } else { VanishPolicy::default() };
        let options = CommitOptions { vanish, ..CommitOptions::default() };
        let (context, destinations) = (self.context.clone(), self.destinations.clone());
        tokio::spawn(async move {
            let (scan, pages) = (pulled.scan.clone(), pulled.proof.pages);
            let mut committed = apply_and_commit(&context, &destinations, pulled, options).await;
            // The next batch takes its time: others may have the files meanwhile.
            for destination in destinations {
                let rested = destination.work(|destination| {
                    destination.release_lock().map_err(super::assemble::failed(destination.name()))
                });
                let rested = rested.await.and_then(|rested| rested);
                committed = committed.and_then(|done| rested.map(|()| done));
            }
            (scan, pages, committed)
        })
    }

    /// Waits for the commit under way, if there is one, and books it.
    async fn commit_ended_of(&mut self, pace: &mut Pace) -> Result<(), PipelineError> {
        let Some(committing) = pace.committing.take() else { return Ok(()) };
        let (scan, pages, committed) =
            committing.await.map_err(|error| PipelineError::WorkerPanicked(error.to_string()))?;
        match committed {
            Err(PipelineError::Frozen(frozen)) => {
                tracing::error!(error = %frozen, "people are not applied");
                self.findings.failures.push(Failure::new(scan.scope, scan.window, &*frozen));
                self.findings.freeze(&frozen);
                Ok(())
            }
            Err(error) => Err(error),
            Ok(done) => {
                let mut counts = done.counts;
                self.findings.drifted(Stream::Users, &done.drift);
                self.findings.looked(scan.scope, scan.window, std::mem::take(&mut counts.withheld));
                self.findings.wrote |= done.wrote;
                self.findings.add(Stream::Users, pages, &counts);
                Ok(())
            }
        }
    }
}

/// When people are due by the settings.
pub fn people_rules(users: &crate::config::UsersSettings, now_ms: i64) -> PeopleRules {
    let ms = |length: std::time::Duration| i64::try_from(length.as_millis()).unwrap_or(i64::MAX);
    PeopleRules { now_ms, refresh_after_ms: ms(users.refresh_after), ask_again_after_ms: ms(users.ask_again_after) }
}
