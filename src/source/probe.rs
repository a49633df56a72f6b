//! Finds out if the key is valid and which lists exist. One request is not enough, because a single 403 or 404 may have
//! another reason.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    address::{self, Address},
    error::{Failure, SourceError, Stop},
    fetch::{FetchOutcome, PostReply, fetch, post},
    inner::Inner,
    wire::Rejection,
};
use crate::model::{FlagSet, MINUTE_MS, PageRequest, Scope, Stream, Window};

/// Maximum attempts of a request about a person that is answered with 401 or 403 although the key is valid.
pub(super) const REFUSALS_MAX: u32 = 2;

/// The result of [`super::Source::probe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Milliseconds from sending the request to the last byte of the answer, without waits at the gate.
    pub latency_ms: u64,
    /// The service's time in epoch milliseconds, if the answer had a `Date`.
    pub service_now_ms: Option<i64>,
    /// The list that answered.
    pub list: Stream,
}

/// The answer of a list to an invalid request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// The list refused the request, or answered it.
    Refused,
    /// Status 500.
    Failed,
    /// Any other answer.
    None,
}

impl Probe {
    fn new(latency: Duration, service_now_ms: Option<i64>, list: Stream) -> Self {
        let latency_ms = u64::try_from(latency.as_millis()).unwrap_or(u64::MAX);
        Self { latency_ms, service_now_ms, list }
    }
}

impl Inner {
    /// Requests one row from one list after the other until a list answers with a page. A single list may be forbidden,
    /// missing or broken. Fails at once with an error that every list would have, such as no connection.
    pub(super) async fn probe(&self) -> Result<Probe, SourceError> {
        let mut errors = Vec::new();
        for list in Stream::LISTS {
            let address = address::of_probe(&self.base_url, list);
            // True means fewer retries: only the request to the first list is retried in full.
            let can_shrink = list != Stream::LISTS[0];
            let error = match fetch(&self.wire, self.backoff, &address, can_shrink).await {
                Ok(FetchOutcome::Page(page)) => return Ok(Probe::new(page.latency, page.service_now_ms, list)),
                Ok(FetchOutcome::Rejected(rejection)) => self.rejection_error(rejection, address.shown),
                Ok(FetchOutcome::Failed { last, attempts }) => last.give_up(address.shown, attempts),
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
        let error = self.error_of_all_lists(errors);
        let is_missing = matches!(error, SourceError::NotFound { .. });
        match if is_missing { self.probe_empty_service().await? } else { None } {
            Some(probe) => Ok(probe),
            None => Err(error),
        }
    }

    /// Looks for a list that refuses an invalid request, after every list was answered with 404. In a new environment
    /// all lists may be empty, and some services answer 404 for an empty list. `None` if no list refuses the request:
    /// the address may be wrong.
    ///
    /// Status 500 is a refusal too if the warehouses have no row: the list did something else with the request than
    /// with the valid one.
    async fn probe_empty_service(&self) -> Result<Option<Probe>, SourceError> {
        for list in Stream::LISTS {
            let started = Instant::now();
            let refused = self.ask_nonsense(list).await?;
            let is_failure = refused == Refusal::Failed && self.known_lists.with_rows.is_empty();
            if refused == Refusal::Refused || is_failure {
                self.wire.lists_seen.note_existing(list);
                return Ok(Some(Probe::new(started.elapsed(), self.wire.clock.now_ms(Instant::now()), list)));
            }
        }
        Ok(None)
    }

    /// Sends an invalid request to a list. A refusal proves that the list exists, and so does a page.
    async fn ask_nonsense(&self, list: Stream) -> Result<Refusal, SourceError> {
        let address = address::of_nonsense(&self.base_url, list);
        Ok(match fetch(&self.wire, self.backoff, &address, true).await? {
            FetchOutcome::Page(_) => Refusal::Refused,
            FetchOutcome::Rejected(rejection) if is_refusal_of_a_list(&rejection) => Refusal::Refused,
            FetchOutcome::Failed { last: Failure::Status { status: 500, .. }, .. } => Refusal::Failed,
            FetchOutcome::Rejected(_) | FetchOutcome::Failed { .. } => Refusal::None,
        })
    }

    /// Chooses the error to report if no list answered with a page. If every list that exists refused the request with
    /// 401 or 403, the error is `KeyRefused`, or `Blocked` for web pages. Otherwise it is the first error that is
    /// neither 401, 403 nor 404, or else the first 404.
    fn error_of_all_lists(&self, errors: Vec<SourceError>) -> SourceError {
        let is_not_found = |error: &SourceError| matches!(error, SourceError::NotFound { .. });
        let is_forbidden = |error: &SourceError| matches!(error, SourceError::Forbidden { .. });
        let is_web_page = |error: &SourceError| matches!(error, SourceError::Forbidden { is_html: true, .. });
        let (missing, answered): (Vec<_>, Vec<_>) = errors.into_iter().partition(is_not_found);
        let (are_forbidden, are_web_pages) = (answered.iter().all(is_forbidden), answered.iter().all(is_web_page));
        let error_to_report = answered.into_iter().find(|error| are_forbidden || !is_forbidden(error));
        match error_to_report.or_else(|| missing.into_iter().next()) {
            Some(SourceError::Forbidden { status, url, message, .. }) if are_web_pages => {
                SourceError::Blocked { status, url, message }
            }
            Some(SourceError::Forbidden { status, url, message, .. }) => SourceError::KeyRefused {
                status,
                origin: self.wire.credentials.current().key.origin().to_owned(),
                url,
                message,
            },
            Some(error) => error,
            // `errors` has one entry per list.
            None => SourceError::NotFound { url: self.base_url.to_string() },
        }
    }

    /// Builds the error of a request that was rejected with a 4xx.
    pub(super) fn rejection_error(&self, rejection: Rejection, url: String) -> SourceError {
        let Rejection { status, message, is_html, .. } = rejection;
        match status {
            401 | 403 => SourceError::Forbidden { status, url, message, is_html },
            404 if !is_html => SourceError::NotFound { url },
            status => SourceError::Refused { status, message, url },
        }
    }

    /// Checks the key after a 401 or 403 on one request. Fails if every list refuses the key, or if the service cannot
    /// be reached. Succeeds if a list answers, or if the lists fail for a reason that says nothing about the key.
    pub(super) async fn check_key(&self) -> Result<(), SourceError> {
        match self.probe().await {
            Ok(_) | Err(SourceError::Refused { .. } | SourceError::NotFound { .. } | SourceError::Forbidden { .. }) => {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Requests a page. Repeats the request once if the service refuses it with 401 or 403 although the key is valid. A
    /// request with a page token (`has_token`) is not repeated, because the token may be the reason. `can_shrink`: see
    /// [`fetch`].
    pub(super) async fn fetch_page(
        &self,
        at: &Address,
        can_shrink: bool,
        has_token: bool,
    ) -> Result<FetchOutcome, SourceError> {
        let fetched = fetch(&self.wire, self.backoff, at, can_shrink).await?;
        match fetched {
            FetchOutcome::Rejected(no) if no.is_about_key() => {
                self.check_key().await?;
                if has_token {
                    return Ok(FetchOutcome::Rejected(no));
                }
                self.retry_delay().await?;
                fetch(&self.wire, self.backoff, at, can_shrink).await
            }
            other => Ok(other),
        }
    }

    /// Sends a POST. Repeats the request once if the service refuses it with 401 or 403 although the key is valid.
    pub(super) async fn post_checked(&self, at: &Address) -> Result<FetchOutcome<PostReply>, SourceError> {
        match post(&self.wire, self.backoff, at).await? {
            FetchOutcome::Rejected(no) if no.is_about_key() => {
                self.check_key().await?;
                self.retry_delay().await?;
                post(&self.wire, self.backoff, at).await
            }
            other => Ok(other),
        }
    }

    /// Waits for the first interval of the backoff.
    async fn retry_delay(&self) -> Result<(), Stop> {
        let wait = self.backoff.series().next_wait(self.wire.gate.rng().fraction());
        self.wire.gate.retry_delay(wait).await
    }

    /// Succeeds if a 404 of this list is an empty result, because the list exists. The proof is a page of the list
    /// a short time ago. Without one, the list is requested without a range, and each answer decides:
    ///
    /// - A page, or a refusal of the request as invalid: the list exists.
    /// - 404, although the list has answered in this run: [`SourceError::ListGone`].
    /// - 404, and an invalid request is refused: the list exists, and is empty.
    /// - 404 also for the invalid request: the list is taken as empty if another list answers, which proves address and
    ///   key. But not if the warehouses have rows of the list ([`SourceError::ListGone`]). A list that is taken as
    ///   empty and answers with a page later is read again from its first window.
    ///
    /// If no list has answered so far, all lists are probed, and an error of this probe is returned.
    pub(super) async fn require_list(&self, list: Stream) -> Result<(), SourceError> {
        let seen = &self.wire.lists_seen;
        let _asking = seen.asking.lock().await;
        if seen.is_settled(list) {
            return Ok(());
        }
        let whole = address::of_probe(&self.base_url, list);
        let url = whole.shown.clone();
        let is_missing = match fetch(&self.wire, self.backoff, &whole, false).await? {
            FetchOutcome::Page(_) => return Ok(()),
            FetchOutcome::Failed { last, attempts } => return Err(last.give_up(url, attempts)),
            FetchOutcome::Rejected(rejection) if rejection.status == 404 && !rejection.is_html => true,
            FetchOutcome::Rejected(rejection) if is_refusal_of_a_list(&rejection) => false,
            FetchOutcome::Rejected(rejection) => return Err(self.rejection_error(rejection, url)),
        };
        if is_missing && seen.has_answered(list) {
            return Err(SourceError::ListGone { url });
        }
        let was_empty = self.known_lists.empty.contains(&list);
        let exists = !is_missing || (!was_empty && self.ask_nonsense(list).await? == Refusal::Refused);
        if seen.is_empty() {
            self.probe().await?;
        }
        if exists {
            seen.note_existing(list);
        } else if self.known_lists.with_rows.contains(&list) && !was_empty {
            return Err(SourceError::ListGone { url });
        } else {
            seen.note_empty(list);
        }
        Ok(())
    }

    /// Requests the rows of the last minute from a list, as a run requests a window. A 404 is a success if it is an
    /// empty result. Fails as a run would.
    pub(super) async fn try_list(&self, list: Stream) -> Result<(), SourceError> {
        let now_ms = self.now_ms();
        let window = Window::new(now_ms - MINUTE_MS, now_ms);
        let (scope, flags) = (Scope::all(list), FlagSet::EMPTY);
        let request = PageRequest { scope, window, flags, page_rows: 1, token: None };
        let address = address::of_page(&self.base_url, &request, list.page_rows_max().map(|_| request.page_rows));
        match self.fetch_page(&address, true, false).await? {
            FetchOutcome::Page(_) => Ok(()),
            FetchOutcome::Rejected(rejection) => {
                let may_be_empty = rejection.status == 404 && !rejection.is_html;
                match may_be_empty {
                    true => self.require_list(list).await,
                    false => Err(self.rejection_error(rejection, address.shown)),
                }
            }
            FetchOutcome::Failed { last, attempts } => Err(last.give_up(address.shown, attempts)),
        }
    }

    /// Returns true if the list answers a request for one row of the minute before the window, or of the minute after
    /// the window. A page or a 4xx counts as an answer; a server error does not. If the list answers, the service is
    /// not down, and a failing page may be too large.
    pub(super) async fn answers_minimal_request(&self, request: &PageRequest) -> Result<bool, SourceError> {
        let Window { start_ms, end_ms } = request.window;
        let neighbours = [(start_ms.saturating_sub(MINUTE_MS), start_ms), (end_ms, end_ms.saturating_add(MINUTE_MS))];
        for (start_ms, end_ms) in neighbours {
            let window = Window::new(start_ms, end_ms);
            let minimal = PageRequest { window, page_rows: 1, token: None, ..request.clone() };
            let rows = minimal.scope.stream.page_rows_max().map(|_| minimal.page_rows);
            match fetch(&self.wire, self.backoff, &address::of_page(&self.base_url, &minimal, rows), true).await? {
                FetchOutcome::Page(_) | FetchOutcome::Rejected(_) => return Ok(true),
                FetchOutcome::Failed { .. } => {}
            }
        }
        Ok(false)
    }
}

/// Returns true if the list itself refused the request as invalid: status 400 or 422, and no web page from a proxy.
fn is_refusal_of_a_list(rejection: &Rejection) -> bool {
    matches!(rejection.status, 400 | 422) && !rejection.is_html
}
