//! The state that all clones of a source share. `list_call`, `fetch`, `probe`, `purge`, `users` and `walk` use it.

use std::sync::{Mutex, PoisonError};

use reqwest::Url;
use tokio::time::Instant;

use super::{
    address::{self, Address},
    backoff::Backoff,
    error::{Failure, SourceError},
    fetch::FetchOutcome,
    learned_rate::LearnedRate,
    list_ends::ListEnds,
    page_memory::{PageMemory, PageReservation, PageShape},
    settings::KnownLists,
    token_lifetimes::TokenLifetimes,
    wire::Wire,
};
use crate::{
    clock::Clock,
    model::{StatusFilter, Stream},
};

/// The connections, the gate and what the run has learned about the service.
#[derive(Debug)]
pub(super) struct Inner {
    pub base_url: Url,
    pub backoff: Backoff,
    pub clock: Clock,
    /// The request rate that earlier runs learned.
    pub learned: LearnedRate,
    pub token_lifetimes: TokenLifetimes,
    pub list_ends: ListEnds,
    pub known_lists: KnownLists,
    pub page_memory: PageMemory,
    /// The survey statuses to request; `None` leaves the choice to the service.
    pub statuses: Mutex<Option<StatusFilter>>,
    pub wire: Wire,
}

impl Inner {
    /// Returns the service's time in epoch milliseconds, or this machine's if the service has sent none.
    pub fn now_ms(&self) -> i64 {
        self.wire.clock.now_ms(Instant::now()).unwrap_or_else(|| self.clock.now_ms())
    }

    /// Requests a page of a list, with memory for it, and returns the memory too. A page that is longer than its memory
    /// is requested again with more, unless it should have fewer rows. `can_shrink` and `has_token`: see
    /// [`Inner::fetch_page`].
    pub async fn fetch_list(
        &self,
        mut at: Address,
        page: PageShape,
        can_shrink: bool,
        has_token: bool,
    ) -> Result<(FetchOutcome, PageReservation), SourceError> {
        loop {
            let reserved = self.wire.gate.unless_stopped(self.page_memory.reserve(page)).await?;
            at.body_bytes_max = Some(reserved.body_bytes_max);
            let fetched = self.fetch_page(&at, can_shrink, has_token).await?;
            let is_too_large = matches!(fetched, FetchOutcome::Failed { last: Failure::BodyTooLarge { .. }, .. });
            let needs_more = is_too_large && self.page_memory.record_too_large(page, &reserved);
            if !needs_more || self.page_memory.should_have_fewer_rows(page) {
                return Ok((fetched, reserved));
            }
        }
    }

    /// Adds the requested survey statuses to the address of a list call, if the list is that of surveys.
    pub fn listed_at(&self, stream: Stream, at: Address) -> Address {
        let statuses = self.statuses.lock().unwrap_or_else(PoisonError::into_inner);
        match statuses.as_ref().filter(|_| stream == Stream::Surveys) {
            Some(filter) => address::with_statuses(at, filter),
            None => at,
        }
    }
}
