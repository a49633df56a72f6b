//! The status of the syncs: the last runs, why they failed, how far each stream is behind, and the health that follows
//! from these facts. `serve`, metrics, notifications and the command line read the same status.
//!
//! The status is read from the checkpoints alone: reading it opens no warehouse, sends no request and takes no lease.

mod health;
mod lag;
mod present_time;
mod run_summary;
mod status;

pub use health::{Health, HealthReason, HealthRules, MAX_LAG, reason_codes};
pub use lag::{LagCheck, LateScope, ScopeLag, StreamLag, is_selected, scope_lags, stream_lags};
pub use present_time::PresentTime;
pub use run_summary::{FailedRun, RunSummary};
pub use status::SyncStatus;

#[cfg(test)]
mod tests;
