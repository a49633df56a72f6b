//! Finds out if the key is valid and which lists exist. One request is not enough, because a single 403 or 404 may have
//! another reason.

use tokio::time::Instant;

use super::{
    address,
    error::{Failure, SourceError, Trouble, millis},
    service::Source,
    wire::Received,
};
use crate::model::{FlagSet, MINUTE_MS, PageRequest, Scope, Stream, Window};

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

impl Source {
    /// Requests one row from one list after the other until one answers with a page, which proves that base URL and key
    /// are right.
    ///
    /// # Errors
    /// `KeyRefused` or `Blocked` if every list refuses, otherwise the error of a list.
    pub async fn probe(&self) -> Result<Probe, SourceError> {
        let mut errors = Vec::new();
        // A single list may be forbidden, missing or broken.
        for list in Stream::LISTS {
            let call = address::of_probe(&self.inner.base_url, list);
            // True means fewer retries: only the request to the first list is retried in full.
            let can_shrink = list != Stream::LISTS[0];
            let error = match self.fetch(&call, can_shrink).await {
                Ok(Received { latency_ms, service_now_ms, .. }) => {
                    return Ok(Probe { latency_ms, service_now_ms, list });
                }
                Err(trouble) => trouble.into_error(call.shown),
            };
            let is_same_everywhere = match &error {
                SourceError::Unreachable { last, .. } => !matches!(last, Failure::Status { .. }),
                SourceError::BadAnswer { .. } => true,
                error => error.ends_the_run(),
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
            let is_failure = refused == Refusal::Failed && self.inner.known_lists.with_rows.is_empty();
            if refused == Refusal::Refused || is_failure {
                self.inner.wire.lists_seen.note_existing(list);
                let latency_ms = millis(started.elapsed());
                return Ok(Some(Probe { latency_ms, service_now_ms: self.service_now_ms(), list }));
            }
        }
        Ok(None)
    }

    /// Sends an invalid request to a list. A refusal proves that the list exists, and so does a page.
    async fn ask_nonsense(&self, list: Stream) -> Result<Refusal, SourceError> {
        let call = address::of_nonsense(&self.inner.base_url, list);
        Ok(match self.fetch(&call, true).await {
            Ok(_) => Refusal::Refused,
            Err(Trouble::Rejected(rejection)) if rejection.is_invalid() => Refusal::Refused,
            Err(Trouble::Failed { last: Failure::Status { status: 500, .. }, .. }) => Refusal::Failed,
            Err(Trouble::Rejected(_) | Trouble::Failed { .. }) => Refusal::None,
            Err(trouble) => return Err(trouble.into_error(call.shown)),
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
            Some(SourceError::Forbidden { status, url, message, .. }) => {
                self.inner.wire.key_refused(status, url, message)
            }
            Some(error) => error,
            // `errors` has one entry per list.
            None => SourceError::NotFound { url: self.inner.base_url.to_string() },
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
        let seen = &self.inner.wire.lists_seen;
        let _asking = seen.asking.lock().await;
        if seen.is_settled(list) {
            return Ok(());
        }
        let whole = address::of_probe(&self.inner.base_url, list);
        let is_missing = match self.fetch(&whole, false).await {
            Ok(_) => return Ok(()),
            Err(Trouble::Rejected(rejection)) if rejection.is_missing() => true,
            Err(Trouble::Rejected(rejection)) if rejection.is_invalid() => false,
            Err(trouble) => return Err(trouble.into_error(whole.shown)),
        };
        let url = whole.shown;
        if is_missing && seen.has_answered(list) {
            return Err(SourceError::ListGone { url });
        }
        let was_empty = self.inner.known_lists.empty.contains(&list);
        let exists = !is_missing || (!was_empty && self.ask_nonsense(list).await? == Refusal::Refused);
        if seen.is_empty() {
            self.probe().await?;
        }
        if exists {
            seen.note_existing(list);
        } else if self.inner.known_lists.with_rows.contains(&list) && !was_empty {
            return Err(SourceError::ListGone { url });
        } else {
            seen.note_empty(list);
        }
        Ok(())
    }

    /// Requests the rows of the last minute from a list, to prove that a run can read the list.
    ///
    /// # Errors
    /// The error with which a run would fail to read the list.
    pub async fn try_list(&self, list: Stream) -> Result<(), SourceError> {
        let now_ms = self.now_ms();
        let window = Window::new(now_ms - MINUTE_MS, now_ms);
        let (scope, flags) = (Scope::all(list), FlagSet::EMPTY);
        let request = PageRequest { scope, window, flags, page_rows: 1, token: None };
        let rows = list.page_rows_max().map(|_| request.page_rows);
        let call = address::of_page(&self.inner.base_url, &request, rows);
        match self.fetch_checked(&call, true).await {
            Ok(_) => Ok(()),
            // A 404 is a success if it is an empty result.
            Err(Trouble::Rejected(rejection)) if rejection.is_missing() => self.require_list(list).await,
            Err(trouble) => Err(trouble.into_error(call.shown)),
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
            let call = address::of_page(&self.inner.base_url, &minimal, rows);
            match self.fetch(&call, true).await {
                Ok(_) | Err(Trouble::Rejected(_)) => return Ok(true),
                Err(Trouble::Failed { .. }) => {}
                Err(trouble) => return Err(trouble.into_error(call.shown)),
            }
        }
        Ok(false)
    }
}
