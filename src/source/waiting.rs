//! What requests wait for.

use tokio::time::Instant;

/// A wait, for the progress bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// When it will be over.
    pub until: Instant,
    /// Who said so.
    pub why: WaitReason,
}

/// Why a request is not sent at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// The service sent `Retry-After`.
    RateLimited,
    /// Backoff after a 429 without `Retry-After`, or before a retry.
    Backoff,
    /// The request rate, or its configured ceiling.
    Pacing,
}
