//! The status of synchronisation: the last runs, why they failed, how far each stream is behind, what the next run
//! scans, and the health that follows from these facts. The command `status`, the status page of `serve`, metrics and
//! notifications show the same [`Status`].
//!
//! The status is read from the checkpoints alone: reading it opens no warehouse, sends no request and takes no lease.

mod health;
mod lag;
mod proofs;
mod runs;
mod status;

pub use health::{BEHIND, Health, HealthReason, HealthRules, HealthSummary, MAX_LAG, is_retried, reason_codes};
pub use lag::{LagCheck, PresentTime, ScopeStatus, StreamLag, TimeRange, is_selected, lag_secs, stream_lags};
pub use proofs::{IntervalState, ProofStatus, proofs};
pub use runs::{FailedRun, Run, RunStatus, RunSummary};
pub use status::{
    CopyStatus, MaintenanceStatus, RECENT_RUNS_MAX, ScanStatus, ServeStatus, Status, UsersStatus, WaitingErasure,
};

#[cfg(test)]
mod tests;
