//! The state of `serve`, read from its inbox file, also while `serve` runs.

use std::path::Path;

use serde::Serialize;

use crate::state::{Inbox, StateError};

use super::super::printer::{format_second, outcome_words};

#[derive(Serialize)]
pub(super) struct ServeStatus {
    /// True if a `serve` process runs now.
    is_running: bool,
    /// The cron expression and its time zone, or "off".
    schedule: String,
    next_run: Option<String>,
    last_run: Option<String>,
    last_run_ended: Option<String>,
    last_outcome: Option<String>,
    /// Number of deliveries that are not in the warehouses yet.
    waiting_deliveries: u64,
    waiting_since: Option<String>,
}

/// Returns the state of `serve`; `None` if it never ran with this state file.
pub(super) fn serving(state: &Path) -> Result<Option<ServeStatus>, StateError> {
    let Some(inbox) = Inbox::open_read_only(state)? else { return Ok(None) };
    let (schedule, waiting) = (inbox.schedule()?.unwrap_or_default(), inbox.count_pending()?);
    let is_running = Inbox::lock(state)?.is_none();
    Ok(Some(ServeStatus {
        is_running,
        schedule: schedule.expression,
        // A stopped `serve` starts no run.
        next_run: schedule.next_ms.filter(|_| is_running).map(format_second),
        last_run: schedule.last_started_ms.map(format_second),
        last_run_ended: schedule.last_finished_ms.map(format_second),
        last_outcome: schedule.last_outcome,
        waiting_deliveries: waiting.deliveries,
        waiting_since: waiting.oldest_ms.map(format_second),
    }))
}

impl ServeStatus {
    /// Returns the state of `serve` as text.
    pub fn describe(&self) -> String {
        let state = if self.is_running { "running" } else { "NOT RUNNING" };
        let mut text = format!("\nserve: {state}, schedule {}\n", self.schedule);
        if let Some(next) = &self.next_run {
            text.push_str(&format!("  next run  {next}\n"));
        }
        if let (Some(last), Some(outcome)) = (&self.last_run, &self.last_outcome) {
            text.push_str(&format!("  last run  {last}, {}\n", outcome_words(outcome)));
        }
        if let Some(since) = &self.waiting_since {
            text.push_str(&format!(
                "  {} deliveries wait since {since} to be written to the warehouses\n",
                self.waiting_deliveries
            ));
        }
        text
    }
}
