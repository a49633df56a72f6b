//! Asks for one page until it comes or there is no use in asking. Retries by the class of the failure; knows nothing of
//! windows.

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_128;

use super::{
    address::Address,
    backoff::Backoff,
    error::{Failure, SourceError, Stop},
    settings::ATTEMPTS_MAX,
    wire::{Outcome, Received, Rejection, Wire},
};
use crate::page::PageError;

/// The most attempts where the page's size may be to blame and a smaller one can be asked for.
pub const SIZE_ATTEMPTS_MAX: u32 = 2;
/// The most attempts where a 4xx says nothing about the request, such as 421 or 499.
pub const PASSING_ATTEMPTS_MAX: u32 = 3;

/// What became of asking for one page, or of posting something.
#[derive(Debug)]
pub(super) enum Fetched<T = Received> {
    /// It came.
    Page(T),
    /// A 4xx that says something about the request.
    Rejected(Rejection),
    /// It did not come.
    Failed { last: Failure, attempts: u32 },
}

/// The answer to something posted.
#[derive(Debug)]
pub(super) struct Posted {
    pub body: Bytes,
    pub service_now_ms: Option<i64>,
}

/// Asks for a page. `can_shrink`: a smaller page or window could be asked for instead, so that it is not worth insisting on this one.
pub(super) async fn fetch(
    wire: &Wire,
    backoff: Backoff,
    address: &Address,
    can_shrink: bool,
) -> Result<Fetched, SourceError> {
    let in_use = wire.surveys_path.in_use(address);
    let address = in_use.as_ref().unwrap_or(address);
    let fetched = fetch_at(wire, backoff, address, can_shrink).await?;
    if !is_missing(&fetched) {
        return Ok(answered(wire, address, fetched));
    }
    let Some(other) = wire.surveys_path.other(address) else { return Ok(fetched) };
    let second = fetch_at(wire, backoff, &other, can_shrink).await?;
    if is_missing(&second) {
        wire.surveys_path.neither_answered();
        return Ok(fetched);
    }
    Ok(answered(wire, &other, second))
}

fn is_missing(fetched: &Fetched) -> bool {
    matches!(fetched, Fetched::Rejected(rejection) if rejection.status == 404)
}

fn answered(wire: &Wire, address: &Address, fetched: Fetched) -> Fetched {
    if matches!(fetched, Fetched::Page(_)) {
        wire.surveys_path.answered(address);
    }
    fetched
}

async fn fetch_at(wire: &Wire, backoff: Backoff, address: &Address, can_shrink: bool) -> Result<Fetched, SourceError> {
    insist(wire, backoff, address, can_shrink, |outcome| match outcome {
        Outcome::Page(page) => Ok(*page),
        other => Err(other),
    })
    .await
}

/// Posts what stands in the address.
pub(super) async fn post(wire: &Wire, backoff: Backoff, address: &Address) -> Result<Fetched<Posted>, SourceError> {
    insist(wire, backoff, address, false, |outcome| match outcome {
        Outcome::Posted { body, service_now_ms } => Ok(Posted { body, service_now_ms }),
        other => Err(other),
    })
    .await
}

/// Asks until what is wanted comes, or there is no use in asking.
async fn insist<T>(
    wire: &Wire,
    backoff: Backoff,
    address: &Address,
    can_shrink: bool,
    wanted: impl Fn(Outcome) -> Result<T, Outcome>,
) -> Result<Fetched<T>, SourceError> {
    let mut waits = backoff.series();
    let mut attempts = 0;
    // The records of a page with broken ones, as they came last.
    let mut broken = None;
    loop {
        let outcome = match wire.ask(address).await? {
            Outcome::Broken { page, failure } => {
                let before = broken.replace(records_hash(&page));
                if before == broken { Outcome::Page(page) } else { Outcome::Failed(failure) }
            }
            outcome => outcome,
        };
        let failure = match wanted(outcome) {
            Ok(came) => return Ok(Fetched::Page(came)),
            Err(Outcome::Rejected(rejection)) => {
                attempts += 1;
                if !is_passing(rejection.status) || attempts >= PASSING_ATTEMPTS_MAX {
                    return Ok(Fetched::Rejected(rejection));
                }
                wire.gate.retry_delay(waits.next_wait(wire.gate.rng().share())).await?;
                continue;
            }
            Err(Outcome::Redirected { status, location }) => {
                return Err(SourceError::Redirected { status, location, url: address.shown.clone() });
            }
            Err(Outcome::Later) => continue,
            Err(Outcome::Failed(failure)) => failure,
            // `wire` answers each kind of request with its own kind.
            Err(Outcome::Page(_) | Outcome::Broken { .. } | Outcome::Posted { .. }) => {
                Failure::NoPage { problem: PageError::NoData, came: "the answer to another request".to_owned() }
            }
        };
        attempts += 1;
        if attempts >= attempts_max(&failure, can_shrink).min(wire.attempts_max) {
            return Ok(Fetched::Failed { last: failure, attempts });
        }
        match wire.gate.retry_delay(waits.next_wait(wire.gate.rng().share())).await {
            // A service that nobody has reached is what there is to tell, and not the deadline.
            Err(Stop::Deadline { .. }) if !wire.counters.has_answers() => {
                return Ok(Fetched::Failed { last: failure, attempts });
            }
            napped => napped?,
        }
    }
}

/// Whether a 4xx may be about the connection or the moment, so that the same request is worth another attempt.
fn is_passing(status: u16) -> bool {
    !matches!(status, 400 | 401 | 403..=407 | 409..=411 | 413..=417 | 422 | 426 | 428 | 431 | 451)
}

fn attempts_max(failure: &Failure, can_shrink: bool) -> u32 {
    match failure {
        failure if failure.is_permanent() => 1,
        // The same page will be as large the next time.
        Failure::BodyTooLarge { .. } | Failure::Status { status: 413, .. } => 1,
        other if can_shrink && (other.may_be_size() || other.may_be_a_record()) => SIZE_ATTEMPTS_MAX,
        _ => ATTEMPTS_MAX,
    }
}

/// What a page's records are known by: the token beside them is another one each time.
fn records_hash(page: &Received) -> u128 {
    let list = page.body.get(page.envelope.list.clone());
    xxh3_128(list.unwrap_or(&page.body))
}
