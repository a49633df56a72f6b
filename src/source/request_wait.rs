//! The waits before requests, and their reasons.

use tokio::time::Instant;

/// A wait before requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestWait {
    /// The end of the wait.
    pub until: Instant,
    /// The reason of the wait.
    pub reason: WaitReason,
}

/// Why a request must wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// The service sent `Retry-After`.
    RateLimited,
    /// Backoff after a 429 without `Retry-After`, or before a retry.
    Backoff,
    /// The request keeps to the learned request rate, or to the configured maximum.
    Pacing,
}
