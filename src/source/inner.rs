//! What all clones of a source share. `ask`, `fetch`, `probe`, `purge`, `users` and `walk` work with it.

use std::sync::{Mutex, PoisonError};

use reqwest::Url;

use super::{
    address::{self, Address},
    backoff::Backoff,
    ends::TokenLives,
    learned_rate::LearnedRate,
    wire::Wire,
};
use crate::{
    clock::Clock,
    model::{StatusFilter, Stream},
    redact::ApiKey,
};

/// The connections, the gate and what is known of the service.
#[derive(Debug)]
pub(super) struct Inner {
    pub base_url: Url,
    pub key: ApiKey,
    pub backoff: Backoff,
    pub clock: Clock,
    /// What was learned before this run.
    pub learned: LearnedRate,
    pub token_lives: TokenLives,
    /// Which surveys are asked for; `None`: those that the service lists by itself.
    pub statuses: Mutex<Option<StatusFilter>>,
    pub wire: Wire,
}

impl Inner {
    /// The address of a list call with what else is asked for.
    pub fn listed_at(&self, stream: Stream, at: Address) -> Address {
        let statuses = self.statuses.lock().unwrap_or_else(PoisonError::into_inner);
        match statuses.as_ref().filter(|_| stream == Stream::Surveys) {
            Some(filter) => address::with_statuses(at, filter),
            None => at,
        }
    }
}
