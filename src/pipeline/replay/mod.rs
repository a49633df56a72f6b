//! `replay`: every table, or a range of some, built again from the archive. Sends nothing.
//!
//! A full replay builds each warehouse beside the old one and lets it take the old one's place ([`swap`]); the replay
//! of a range builds the range and puts it into the warehouse in one transaction ([`window`]). Scans are applied as
//! they were applied the first time: [`inventory`] says which and in what order, [`read`] and [`flatteners`] make steps
//! of them, some way [`ahead`] of the warehouses that take them in [`build`].

mod ahead;
mod build;
mod flatteners;
mod full;
mod inventory;
mod progress;
mod read;
mod report;
mod step;
mod swap;
mod task;
mod window;

pub use progress::{ReplayProgress, ReplaySnapshot};
pub use report::{Rebuilt, Replaced, ReplayReport, Replayed};

pub use full::is_carried_events;
pub use swap::clear_leftovers;

use tokio_util::sync::CancellationToken;

use crate::{
    config::{ArchiveChoice, Settings},
    model::Window,
};

use super::{
    Outcome, PipelineError, Session, System,
    assemble::{identity, suppression},
};

use inventory::committed;
use task::Task;

/// What a replay is asked to do.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplayRequest {
    /// The creation time whose windows are replayed; `None` rebuilds every table.
    pub window: Option<Window>,
}

/// A replay, holding the lease.
#[derive(Debug)]
pub struct Replay {
    request: ReplayRequest,
    session: Session,
}

impl Replay {
    /// Takes the lease and removes what a killed replay left. The key is not needed.
    pub fn open(settings: Settings, request: ReplayRequest) -> Result<Replay, PipelineError> {
        let identity = identity(&settings)?;
        settings.require_warehouse()?;
        if settings.archive == ArchiveChoice::Nothing {
            let why = "no pages are kept (`--archive none`), so nothing can be built from them";
            return Err(PipelineError::NotReplayable(why.to_owned()));
        }
        let session = Session::open(&settings, &identity, "replay", &System::default())?;
        clear_leftovers(&settings)?;
        session.begin_run()?;
        Ok(Replay { request, session })
    }

    /// Replays. Until the last step the warehouses are as they were, whatever happens.
    pub fn execute(
        self,
        stop: &CancellationToken,
        progress: &ReplayProgress,
    ) -> (ReplayReport, Result<(), PipelineError>) {
        let replayed = self.replay(stop, progress);
        if replayed.is_err() {
            // The first error is the one to tell; what stays is removed by the next run.
            clear_leftovers(&self.session.settings).ok();
        }
        let report = self.report(&replayed);
        let text = serde_json::to_string(&report).unwrap_or_default();
        let finished = self.session.finish_run(report.header.outcome.name(), report.header.exit_code, &text);
        (report, replayed.map(drop).and(finished))
    }

    fn replay(&self, stop: &CancellationToken, progress: &ReplayProgress) -> Result<Replayed, PipelineError> {
        let Session { settings, identity, account, .. } = &self.session;
        let archive = self.session.archive()?;
        let scans = committed(&archive, identity)?;
        let suppression = suppression(settings)?;
        let task = Task {
            settings,
            identity,
            state: &mut self.session.state(),
            account,
            stop,
            progress,
            scans,
            suppression: &suppression,
        };
        let mut replayed = match self.request.window {
            None => full::replay(task, &archive)?,
            Some(window) => window::replay(task, window)?,
        };
        let counted = progress.snapshot();
        (replayed.pages, replayed.records) = (counted.pages_done, counted.records_done);
        if replayed.is_stopped {
            clear_leftovers(settings)?;
        }
        Ok(replayed)
    }

    fn report(&self, replayed: &Result<Replayed, PipelineError>) -> ReplayReport {
        let outcome = replayed.as_ref().map_or(Outcome::Failed, Replayed::outcome);
        ReplayReport {
            run_id: self.session.run_id.clone(),
            header: self.session.report_header(outcome, replayed.as_ref().err()),
            replayed: replayed.as_ref().cloned().unwrap_or_default(),
        }
    }
}
