//! What the answers of a run show of the service: whether the key is good, and which lists exist. A 403 or a 404 alone says
//! neither.

use std::time::Duration;

use super::{
    address::{self, Address},
    error::{Failure, SourceError, Stop},
    fetch::{Fetched, Posted, fetch, post},
    inner::Inner,
    wire::Rejection,
};
use crate::model::{FlagSet, MINUTE_MS, PageRequest, Scope, Stream, Window};

/// How often a request about a person is sent that alone is answered with 401 or 403.
pub(super) const REFUSALS_MAX: u32 = 2;

/// What [`super::Source::probe`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// From sending the request to the last byte of the answer, without waits before it.
    pub latency_ms: u64,
    /// The service's time, if its answer said so.
    pub service_now_ms: Option<i64>,
    /// The list that answered.
    pub list: Stream,
}

impl Probe {
    fn new(latency: Duration, service_now_ms: Option<i64>, list: Stream) -> Self {
        let latency_ms = u64::try_from(latency.as_millis()).unwrap_or(u64::MAX);
        Self { latency_ms, service_now_ms, list }
    }
}

impl Inner {
    /// One list may be forbidden, missing or broken while the others are not: each is asked until one answers.
    pub(super) async fn probe(&self) -> Result<Probe, SourceError> {
        let mut errors = Vec::new();
        for list in Stream::LISTS {
            let at = address::of_probe(&self.base_url, list);
            // A service that comes back in a while is waited for once.
            let is_hasty = list != Stream::LISTS[0];
            let error = match fetch(&self.wire, self.backoff, &at, is_hasty).await {
                Ok(Fetched::Page(page)) => return Ok(Probe::new(page.latency, page.service_now_ms, list)),
                Ok(Fetched::Rejected(no)) => self.refused(no, at.shown),
                Ok(Fetched::Failed { last, attempts }) => last.give_up(at.shown, attempts),
                Err(error) if error.ends_the_run() => return Err(error),
                Err(error) => error,
            };
            let is_same_everywhere = match &error {
                SourceError::Unreachable { last, .. } => !matches!(last, Failure::Status { .. }),
                SourceError::BadAnswer { .. } => true,
                _ => false,
            };
            if is_same_everywhere {
                return Err(error);
            }
            errors.push(error);
        }
        Err(self.verdict(errors))
    }

    /// Why no list answered. The key is to blame if lists refused it and none got past the check of the key.
    fn verdict(&self, errors: Vec<SourceError>) -> SourceError {
        let is_not_found = |error: &SourceError| matches!(error, SourceError::NotFound { .. });
        let is_forbidden = |error: &SourceError| matches!(error, SourceError::Forbidden { .. });
        let is_web_page = |error: &SourceError| matches!(error, SourceError::Forbidden { is_html: true, .. });
        let (missing, told): (Vec<_>, Vec<_>) = errors.into_iter().partition(is_not_found);
        let (are_forbidden, are_web_pages) = (told.iter().all(is_forbidden), told.iter().all(is_web_page));
        let worst = told.into_iter().find(|error| are_forbidden || !is_forbidden(error));
        match worst.or_else(|| missing.into_iter().next()) {
            Some(SourceError::Forbidden { status, url, message, .. }) if are_web_pages => {
                SourceError::Blocked { status, url, message }
            }
            Some(SourceError::Forbidden { status, url, message, .. }) => {
                SourceError::KeyRefused { status, origin: self.key.origin().to_owned(), url, message }
            }
            Some(error) => error,
            // Each list gave an error.
            None => SourceError::NotFound { url: self.base_url.to_string() },
        }
    }

    /// The error of a request that was answered with a 4xx.
    pub(super) fn refused(&self, no: Rejection, url: String) -> SourceError {
        let Rejection { status, message, is_html, .. } = no;
        match status {
            401 | 403 => SourceError::Forbidden { status, url, message, is_html },
            404 if !is_html => SourceError::NotFound { url },
            status => SourceError::Refused { status, message, url },
        }
    }

    /// Whether the key is good, after a refusal that could have meant something else. An error: it is not, or nothing answers.
    pub(super) async fn check_key(&self) -> Result<(), SourceError> {
        match self.probe().await {
            Ok(_) | Err(SourceError::Refused { .. } | SourceError::NotFound { .. } | SourceError::Forbidden { .. }) => {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Asks for a page, and once more if it is refused with 401 or 403 although the key is good. With a page token it is asked for
    /// once: the token may be what was refused.
    pub(super) async fn fetch_page(
        &self,
        at: &Address,
        can_shrink: bool,
        has_token: bool,
    ) -> Result<Fetched, SourceError> {
        let fetched = fetch(&self.wire, self.backoff, at, can_shrink).await?;
        match fetched {
            Fetched::Rejected(no) if no.is_about_key() => {
                self.check_key().await?;
                if has_token {
                    return Ok(Fetched::Rejected(no));
                }
                self.nap().await?;
                fetch(&self.wire, self.backoff, at, can_shrink).await
            }
            other => Ok(other),
        }
    }

    /// The same for something that is posted.
    pub(super) async fn post_checked(&self, at: &Address) -> Result<Fetched<Posted>, SourceError> {
        match post(&self.wire, self.backoff, at).await? {
            Fetched::Rejected(no) if no.is_about_key() => {
                self.check_key().await?;
                self.nap().await?;
                post(&self.wire, self.backoff, at).await
            }
            other => Ok(other),
        }
    }

    async fn nap(&self) -> Result<(), Stop> {
        let wait = self.backoff.series().next_wait(self.wire.gate.rng().share());
        self.wire.gate.retry_delay(wait).await
    }

    /// Whether a 404 may mean an empty result: something in this run must have shown that the list exists. That is a page; or, of a
    /// list that may be empty, that it refuses a question which is nonsense, while another list answers.
    pub(super) async fn is_list_there(&self, list: Stream) -> Result<bool, SourceError> {
        let seen = &self.wire.lists_seen;
        let _asking = seen.asking.lock().await;
        if seen.has(list) {
            return Ok(true);
        }
        let is_alive = match fetch(&self.wire, self.backoff, &address::of_probe(&self.base_url, list), true).await? {
            Fetched::Page(_) => return Ok(true),
            Fetched::Rejected(no) => is_refusal_of_a_list(&no),
            Fetched::Failed { .. } => false,
        };
        let nonsense = address::of_nonsense(&self.base_url, list);
        let is_alive = is_alive
            || match fetch(&self.wire, self.backoff, &nonsense, true).await? {
                Fetched::Page(_) => true,
                Fetched::Rejected(no) => is_refusal_of_a_list(&no),
                Fetched::Failed { .. } => false,
            };
        if is_alive && seen.is_empty() {
            self.probe().await?;
        }
        if is_alive {
            seen.note(Some(list));
        }
        Ok(is_alive)
    }

    /// Asks a list for the rows of the last minute, as a run asks for a window.
    pub(super) async fn try_list(&self, list: Stream) -> Result<(), SourceError> {
        let now_ms = self.wire.clock.now_ms(tokio::time::Instant::now()).unwrap_or_else(|| self.clock.now_ms());
        let window = Window::new(now_ms - MINUTE_MS, now_ms);
        let (scope, flags) = (Scope::all(list), FlagSet::EMPTY);
        let request = PageRequest { scope, window, flags, page_rows: 1, token: None };
        let at = address::of_page(&self.base_url, &request, list.page_rows_max().map(|_| request.page_rows));
        match self.fetch_page(&at, true, false).await? {
            Fetched::Page(_) => Ok(()),
            Fetched::Rejected(no) => {
                let may_be_empty = no.status == 404 && !no.is_html;
                if may_be_empty && self.is_list_there(list).await? { Ok(()) } else { Err(self.refused(no, at.shown)) }
            }
            Fetched::Failed { last, attempts } => Err(last.give_up(at.shown, attempts)),
        }
    }

    /// Whether the service answers the least that can be asked of the same list: one row of the minute before the window, or of the
    /// one behind it. A list that is down is not too large, and cutting its windows would only ask it more often.
    pub(super) async fn answers_a_small_question(&self, request: &PageRequest) -> Result<bool, SourceError> {
        let Window { start_ms, end_ms } = request.window;
        let beside = [(start_ms.saturating_sub(MINUTE_MS), start_ms), (end_ms, end_ms.saturating_add(MINUTE_MS))];
        for (start_ms, end_ms) in beside {
            let window = Window::new(start_ms, end_ms);
            let least = PageRequest { window, page_rows: 1, token: None, ..request.clone() };
            let rows = least.scope.stream.page_rows_max().map(|_| least.page_rows);
            match fetch(&self.wire, self.backoff, &address::of_page(&self.base_url, &least, rows), true).await? {
                Fetched::Page(_) | Fetched::Rejected(_) => return Ok(true),
                Fetched::Failed { .. } => {}
            }
        }
        Ok(false)
    }
}

/// Whether only the list itself can have given this answer: it understood the question, and did not like it.
fn is_refusal_of_a_list(no: &Rejection) -> bool {
    matches!(no.status, 400 | 422) && !no.is_html
}
