//! What the two kinds of replay work with.

use tokio_util::sync::CancellationToken;

use crate::{config::Settings, load::Identity, model::TimeAccount, person::Suppression, state::State};

use super::{inventory::Archived, progress::ReplayProgress};

/// What a replay works with.
pub(super) struct Task<'a> {
    pub settings: &'a Settings,
    pub identity: &'a Identity,
    pub state: &'a mut State,
    pub account: &'a TimeAccount,
    pub stop: &'a CancellationToken,
    pub progress: &'a ReplayProgress,
    pub scans: Vec<Archived>,
    pub suppression: &'a Suppression,
}
