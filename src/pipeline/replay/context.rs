//! The state that the full replay and the replay of a range use.

use tokio_util::sync::CancellationToken;

use crate::{config::Settings, load::Identity, model::TimeAccount, person::Suppression, state::State};

use super::{inventory::ArchivedScan, read::PageFilter, report::ReplayProgress};

/// The settings, the archived scans and the shared state of a replay.
pub(super) struct ReplayContext<'a> {
    pub settings: &'a Settings,
    pub identity: &'a Identity,
    pub state: &'a mut State,
    pub account: &'a TimeAccount,
    pub stop: &'a CancellationToken,
    pub progress: &'a ReplayProgress,
    pub scans: Vec<ArchivedScan>,
    pub suppression: &'a Suppression,
}

impl<'a> ReplayContext<'a> {
    /// Returns the filter for archived pages: drift rules and suppression.
    pub fn filter(&self) -> PageFilter<'a> {
        PageFilter { drift: self.settings.drift, suppression: self.suppression }
    }
}
