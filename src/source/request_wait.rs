//! The wait that delays requests.

use tokio::time::Instant;

/// A wait of the gate, as the progress bar shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestWait {
    /// When the wait ends.
    pub until: Instant,
    pub reason: WaitReason,
}

/// Why a request must wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// The service sent `Retry-After`.
    RateLimited,
    /// Backoff after a 429 without `Retry-After`, or before a retry.
    Backoff,
    /// The request rate, or its configured ceiling.
    Pacing,
}
