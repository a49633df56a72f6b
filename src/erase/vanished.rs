//! Erases sessions that the service no longer returns: `[erase] on_vanish = "erase"`.

use std::path::{Path, PathBuf};

use tokio_util::sync::CancellationToken;

use super::{Erase, EraseError, EraseRequest, Receipt};
use crate::{
    config::Settings,
    model::{DAY_MS, Fault, RunReason},
    pipeline::{System, chain, service_time_ms, until_stopped},
    state::State,
};

/// Erases sessions that vanished more than `erase_vanished_after_days` ago, and returns the receipt and its path.
/// Returns `None` if there are no such sessions, or if the setting is unset.
pub async fn erase_vanished(settings: Settings, stop: CancellationToken, system: System) -> ErasedVanished {
    let Some(days) = settings.erase_vanished_after_days else { return Ok(None) };
    let token = stop.clone();
    let planned = until_stopped(&token, move || {
        // `_vanished_at` is a time of the service's clock, so the difference of the clocks is added.
        let state = State::open_read_only(&settings.state_path)?;
        let here_ms = system.clock.now_ms();
        let now_ms = state.map_or(Ok(here_ms), |state| service_time_ms(&state, here_ms))?;
        let request = EraseRequest::vanished(now_ms.saturating_sub(i64::from(days) * DAY_MS));
        let mut erase = Erase::open_in(settings, request, stop, system)?;
        let plan = erase.plan()?;
        Ok::<_, EraseError>((erase, plan))
    });
    let (erase, plan) = planned.await??;
    if plan.identifiers.named.is_empty() {
        return Ok(None);
    }
    erase.apply(plan).await.map(Some)
}

/// The result of [`erase_vanished`].
pub type ErasedVanished = Result<Option<(Receipt, PathBuf)>, EraseError>;

/// Returns why somebody should look at the erasure, in a sentence; `None` if nobody has to. An interrupted erasure goes
/// on after the next run.
pub fn attention_for(erased: &ErasedVanished) -> Option<String> {
    match erased {
        Ok(Some((receipt, path))) if receipt.exit_code != 0 => {
            Some(format!("the erasure of vanished sessions needs attention: see {}", path.display()))
        }
        Ok(_) => None,
        Err(error) if error.reason() == RunReason::Interrupted => None,
        Err(error) => Some(format!("the vanished sessions were not erased: {}", chain(error))),
    }
}

/// Logs an erasure of vanished sessions. `path` is the path of its receipt.
pub fn log_erased(receipt: &Receipt, path: &Path) {
    let (sessions, path) = (receipt.people, path.display());
    tracing::info!("{sessions} sessions that the service no longer returns were erased: {path}");
}
