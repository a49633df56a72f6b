//! `replay`: builds every table, or a range of creation time, again from the archive. Sends no request.
//!
//! A full replay ([`full`]) builds each warehouse next to the old one, and replaces the old one. The replay
//! of a range ([`range`]) builds the range, and replaces the range in each warehouse in one transaction. Scans are
//! applied in the order of their first commits. [`inventory`] lists the scans, [`read`] and [`flatteners`] turn them
//! into steps within a [`page_budget`], and [`build`] applies the steps.

mod build;
mod flatteners;
mod full;
mod inventory;
mod page_budget;
mod range;
mod read;
mod report;

pub use report::{RebuiltWarehouse, ReplacedRange, ReplayProgress, ReplayReport, ReplayResult, ReplaySnapshot};

pub use full::is_carried_events;

use tokio_util::sync::CancellationToken;

use crate::{
    config::{ArchiveChoice, Settings},
    model::{Outcome, Window},
};

use super::{
    assemble::{System, clear_leftovers, identity, suppression},
    error::PipelineError,
    kept_state::merge_erasures_of_bucket,
    session::Session,
};

use build::ReplayContext;
use inventory::archived_scans;

/// What a replay should build.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplayRequest {
    /// The range of creation time to replay. `None` rebuilds every table.
    pub window: Option<Window>,
}

/// A replay that holds the lease.
#[derive(Debug)]
pub struct Replay {
    request: ReplayRequest,
    session: Session,
}

impl Replay {
    /// Takes the lease, and removes files that a killed replay left. Needs no key of the service. Fails if the settings
    /// keep no pages.
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

    /// Replays the archive, and returns a report also after an error. An error before the first replacement changes no
    /// warehouse. Later errors leave each warehouse complete: replaced, or as before.
    pub fn execute(
        self,
        stop: &CancellationToken,
        progress: &ReplayProgress,
    ) -> (ReplayReport, Result<(), PipelineError>) {
        let replayed = self.replay(stop, progress);
        if replayed.is_err() {
            // An error here is ignored: the first error is reported, and the next run removes the files.
            clear_leftovers(&self.session.settings).ok();
        }
        let report = self.report(&replayed);
        let text = serde_json::to_string(&report).unwrap_or_default();
        let finished = self.session.finish_run(report.header.outcome.name(), report.header.exit_code, &text);
        (report, replayed.map(drop).and(finished))
    }

    /// Runs the full replay or the replay of the requested range. Removes the new files if the replay was stopped.
    fn replay(&self, stop: &CancellationToken, progress: &ReplayProgress) -> Result<ReplayResult, PipelineError> {
        let Session { settings, identity, .. } = &self.session;
        let archive = self.session.archive()?;
        let scans = archived_scans(&archive, identity)?;
        if self.request.window.is_none() && scans.is_empty() {
            let root = &settings.archive_location;
            let why = format!(
                "the archive {root} contains no scan, so nothing can be built from it: check `[archive] path` and the path of the \
                 state file"
            );
            return Err(PipelineError::NotReplayable(why));
        }
        merge_erasures_of_bucket(settings)?;
        let suppression = suppression(settings)?;
        let context = ReplayContext { session: &self.session, stop, progress, scans, suppression };
        let mut replayed = match self.request.window {
            None => full::replay(context, &archive)?,
            Some(window) => range::replay(context, window)?,
        };
        let counts = progress.snapshot();
        (replayed.pages, replayed.records) = (counts.pages_done, counts.records_done);
        if replayed.is_stopped {
            clear_leftovers(settings)?;
        }
        Ok(replayed)
    }

    fn report(&self, replayed: &Result<ReplayResult, PipelineError>) -> ReplayReport {
        let outcome = replayed.as_ref().map_or(Outcome::Failed, ReplayResult::outcome);
        ReplayReport {
            run_id: self.session.run_id.clone(),
            header: self.session.report_header(outcome, replayed.as_ref().err()),
            replayed: replayed.as_ref().cloned().unwrap_or_default(),
        }
    }
}
