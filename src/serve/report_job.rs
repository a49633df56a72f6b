//! Writes the report of `[serve] report` by its schedule, between the runs.

use std::{path::PathBuf, sync::Arc};

use crate::{config::ServeSettings, model::MINUTE_MS};

use super::{Schedule, ServeError};

/// Delay before a report that could not be written is tried again.
const RETRY_MS: i64 = 5 * MINUTE_MS;

/// Writes the report to its file. `Err` is the error text.
pub type WriteReport = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// The report that is written by a schedule.
pub(super) struct ReportJob {
    path: PathBuf,
    schedule: Schedule,
    write: WriteReport,
    due_ms: Option<i64>,
}

impl ReportJob {
    /// Plans the first report; `None` if no report is configured.
    ///
    /// # Errors
    /// `ReportSchedule` or `Zone`.
    pub fn new(settings: &ServeSettings, write: WriteReport, now_ms: i64) -> Result<Option<ReportJob>, ServeError> {
        let Some(report) = &settings.report else { return Ok(None) };
        let schedule = Schedule::of_report(settings, &report.schedule)?;
        let due_ms = schedule.next(now_ms);
        Ok(Some(ReportJob { path: report.path.clone(), schedule, write, due_ms }))
    }

    /// Returns when the next report is due, epoch milliseconds.
    pub fn due_ms(&self) -> Option<i64> {
        self.due_ms
    }

    /// Writes the report on a thread for blocking work, and plans the next one. Returns the path, or the error text.
    pub async fn write(&mut self, now_ms: i64) -> Result<PathBuf, String> {
        let write = Arc::clone(&self.write);
        let written = tokio::task::spawn_blocking(move || write()).await.unwrap_or_else(|error| Err(error.to_string()));
        let next_ms = self.schedule.next(now_ms);
        self.due_ms = match &written {
            Ok(()) => next_ms,
            Err(_) => next_ms.map(|next_ms| next_ms.min(now_ms.saturating_add(RETRY_MS))),
        };
        written.map(|()| self.path.clone())
    }
}
