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
    /// The service named a time (`Retry-After`).
    Told,
    /// Our own backoff after a refusal or a failure.
    Backoff,
    /// The learned rate, or the ceiling of the settings.
    Pace,
}
