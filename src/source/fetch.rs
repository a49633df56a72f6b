//! Asks for one page until it comes or there is no use in asking. Retries by the class of the failure; knows nothing of
//! windows.

use super::{
    address::Address,
    backoff::Backoff,
    error::{Failure, SourceError},
    wire::{Outcome, Received, Rejection, Wire},
};

/// The most attempts for one page at one size, refusals not counted (a 429 is no attempt, promise P5).
pub const ATTEMPTS_MAX: u32 = 6;
/// The most attempts where the page's size may be to blame and a smaller one can be asked for.
pub const SIZE_ATTEMPTS_MAX: u32 = 2;

/// What became of asking for one page.
#[derive(Debug)]
pub(super) enum Fetched {
    /// It came.
    Page(Received),
    /// A 4xx that says something about the request.
    Rejected(Rejection),
    /// It did not come.
    Failed { last: Failure, attempts: u32 },
}

/// Asks for a page. `can_shrink`: a smaller page could be asked for instead, so that it is not worth insisting on this one.
pub(super) async fn fetch(
    wire: &Wire,
    backoff: Backoff,
    address: &Address,
    can_shrink: bool,
) -> Result<Fetched, SourceError> {
    let mut waits = backoff.series();
    let mut attempts = 0;
    loop {
        let failure = match wire.ask(address).await? {
            Outcome::Page(page) => return Ok(Fetched::Page(page)),
            Outcome::Rejected(rejection) => return Ok(Fetched::Rejected(rejection)),
            Outcome::Redirected { status, location } => {
                return Err(SourceError::Redirected { status, location, url: address.shown.clone() });
            }
            Outcome::Later => continue,
            Outcome::Failed(failure) => failure,
        };
        attempts += 1;
        if attempts >= attempts_max(&failure, can_shrink) {
            return Ok(Fetched::Failed { last: failure, attempts });
        }
        wire.gate.nap(waits.next_wait(wire.gate.chance().share())).await?;
    }
}

fn attempts_max(failure: &Failure, can_shrink: bool) -> u32 {
    match failure {
        // The same page will be as large the next time.
        Failure::BodyTooLarge { .. } => 1,
        other if can_shrink && other.may_be_size() => SIZE_ATTEMPTS_MAX,
        _ => ATTEMPTS_MAX,
    }
}
