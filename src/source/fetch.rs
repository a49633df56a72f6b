//! Sends one request, with retries that depend on the kind of failure. This module knows nothing of windows.

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_128;

use super::{
    address::Address,
    backoff::Backoff,
    error::{Failure, SourceError, Stop},
    settings::ATTEMPTS_MAX,
    wire::{ReceivedPage, Rejection, RequestOutcome, Wire},
};
use crate::page::PageError;

/// Maximum attempts if the size of the page or one of its records may be the cause, and a smaller page or window can be
/// requested.
pub const SIZE_ATTEMPTS_MAX: u32 = 2;
/// Maximum attempts for a 4xx that may be transient, such as 421 or 499.
pub const PASSING_ATTEMPTS_MAX: u32 = 3;

/// The result of a request with all its retries.
#[derive(Debug)]
pub(super) enum FetchOutcome<T = ReceivedPage> {
    /// Success.
    Page(T),
    /// A 4xx about this request.
    Rejected(Rejection),
    /// All attempts failed.
    Failed { last: Failure, attempts: u32 },
}

/// The answer to a POST.
#[derive(Debug)]
pub(super) struct PostReply {
    pub body: Bytes,
    pub service_now_ms: Option<i64>,
}

/// Requests a page, with retries. If the list of surveys is answered with 404, the other path of the list is tried too.
/// `can_shrink`: the caller can request a smaller page or window, so fewer retries are useful.
pub(super) async fn fetch(
    wire: &Wire,
    backoff: Backoff,
    address: &Address,
    can_shrink: bool,
) -> Result<FetchOutcome, SourceError> {
    let in_use = wire.surveys_path.in_use(address);
    let address = in_use.as_ref().unwrap_or(address);
    let fetched = fetch_at(wire, backoff, address, can_shrink).await?;
    if !is_missing(&fetched) {
        return Ok(note_surveys_path(wire, address, fetched));
    }
    let Some(other) = wire.surveys_path.other(address) else { return Ok(fetched) };
    let second = fetch_at(wire, backoff, &other, can_shrink).await?;
    if is_missing(&second) {
        wire.surveys_path.neither_answered();
        return Ok(fetched);
    }
    Ok(note_surveys_path(wire, &other, second))
}

/// Returns true if the request was answered with 404.
fn is_missing(fetched: &FetchOutcome) -> bool {
    matches!(fetched, FetchOutcome::Rejected(rejection) if rejection.status == 404)
}

/// Records the path of surveys if a page was read. Returns `fetched` unchanged.
fn note_surveys_path(wire: &Wire, address: &Address, fetched: FetchOutcome) -> FetchOutcome {
    if matches!(fetched, FetchOutcome::Page(_)) {
        wire.surveys_path.answered(address);
    }
    fetched
}

/// Requests a page from exactly this address, with retries.
async fn fetch_at(
    wire: &Wire,
    backoff: Backoff,
    address: &Address,
    can_shrink: bool,
) -> Result<FetchOutcome, SourceError> {
    send_with_retries(wire, backoff, address, can_shrink, |outcome| match outcome {
        RequestOutcome::Page(page) => Ok(*page),
        other => Err(other),
    })
    .await
}

/// Sends the POST of an address, with retries.
pub(super) async fn post(
    wire: &Wire,
    backoff: Backoff,
    address: &Address,
) -> Result<FetchOutcome<PostReply>, SourceError> {
    send_with_retries(wire, backoff, address, false, |outcome| match outcome {
        RequestOutcome::Posted { body, service_now_ms } => Ok(PostReply { body, service_now_ms }),
        other => Err(other),
    })
    .await
}

/// Sends a request until `wanted` accepts the outcome, the service rejects the request, or the attempts are used up.
/// Rate limiting does not count as an attempt. A page with broken records is a failure, unless the previous page with
/// broken records had the same records: `wanted` then receives the second page as a good one.
async fn send_with_retries<T>(
    wire: &Wire,
    backoff: Backoff,
    address: &Address,
    can_shrink: bool,
    wanted: impl Fn(RequestOutcome) -> Result<T, RequestOutcome>,
) -> Result<FetchOutcome<T>, SourceError> {
    let mut waits = backoff.series();
    let mut attempts = 0;
    // Hash of the records of the latest page with broken records.
    let mut last_broken = None;
    loop {
        let outcome = match wire.ask(address).await? {
            RequestOutcome::Broken { page, failure } => {
                let before = last_broken.replace(records_hash(&page));
                if before == last_broken { RequestOutcome::Page(page) } else { RequestOutcome::Failed(failure) }
            }
            outcome => outcome,
        };
        let failure = match wanted(outcome) {
            Ok(value) => return Ok(FetchOutcome::Page(value)),
            Err(RequestOutcome::Rejected(rejection)) => {
                attempts += 1;
                if !is_passing(rejection.status) || attempts >= PASSING_ATTEMPTS_MAX {
                    return Ok(FetchOutcome::Rejected(rejection));
                }
                wire.gate.retry_delay(waits.next_wait(wire.gate.rng().fraction())).await?;
                continue;
            }
            Err(RequestOutcome::Redirected { status, location }) => {
                return Err(SourceError::Redirected { status, location, url: address.shown.clone() });
            }
            Err(RequestOutcome::RateLimited) => continue,
            Err(RequestOutcome::Failed(failure)) => failure,
            // `wire` returns pages for GET and `Posted` for POST only.
            Err(RequestOutcome::Page(_) | RequestOutcome::Broken { .. } | RequestOutcome::Posted { .. }) => {
                Failure::NoPage { problem: PageError::NoData, came: "the answer to another request".to_owned() }
            }
        };
        attempts += 1;
        if attempts >= attempts_max(&failure, can_shrink).min(wire.attempts_max) {
            return Ok(FetchOutcome::Failed { last: failure, attempts });
        }
        match wire.gate.retry_delay(waits.next_wait(wire.gate.rng().fraction())).await {
            // If no request of the run was answered, report the failure instead of the deadline: the service cannot be
            // reached.
            Err(Stop::Deadline { .. }) if !wire.counters.has_answers() => {
                return Ok(FetchOutcome::Failed { last: failure, attempts });
            }
            waited => waited?,
        }
    }
}

/// Returns true if a 4xx may be transient, so that the same request is worth a retry.
fn is_passing(status: u16) -> bool {
    !matches!(status, 400 | 401 | 403..=407 | 409..=411 | 413..=417 | 422 | 426 | 428 | 431 | 451)
}

/// Returns how many attempts a request gets in all, if its latest attempt failed with `failure`. `can_shrink`: the
/// caller can request a smaller page or window.
fn attempts_max(failure: &Failure, can_shrink: bool) -> u32 {
    match failure {
        failure if failure.is_permanent() => 1,
        // A retry would receive an equally large page.
        Failure::BodyTooLarge { .. } | Failure::Status { status: 413, .. } => 1,
        other if can_shrink && (other.may_be_size() || other.may_be_a_record()) => SIZE_ATTEMPTS_MAX,
        _ => ATTEMPTS_MAX,
    }
}

/// Hashes the list of records of a page, without the page token, which may differ between attempts.
fn records_hash(page: &ReceivedPage) -> u128 {
    let list = page.body.get(page.envelope.list.clone());
    xxh3_128(list.unwrap_or(&page.body))
}
