//! Writes the report of `[serve] report` by its schedule, between the runs.

use std::{path::PathBuf, sync::Arc};

use crate::{config::ServeSettings, model::MINUTE_MS};

use super::{Schedule, ServeError};

/// Delay before a report that could not be written is tried again.
const RETRY_MS: i64 = 5 * MINUTE_MS;
/// Failed attempts that are tolerated, because the next one may succeed: a run may have locked the warehouse.
const FAILURES_TOLERATED: u32 = 1;

/// Writes the report to its file. `Err` is the error text.
pub type WriteReport = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// The report that is written by a schedule.
pub(super) struct ReportJob {
    path: PathBuf,
    schedule: Schedule,
    write: WriteReport,
    due_ms: Option<i64>,
    /// The number of failed attempts since the last report that was written.
    failures: u32,
}

/// How an attempt to write the report ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// Written to this path.
    Written(PathBuf),
    /// Failed with this error text, and tried again soon.
    Retried(String),
    /// A retry failed too, with this error text.
    Failing(String),
}

impl ReportJob {
    /// Plans the first report; `None` if no report is configured. Times before `now_ms` are left out, unless
    /// `is_failing`: then an earlier process could not write the report, and it is due at once.
    ///
    /// # Errors
    /// `ReportSchedule` or `Zone`.
    pub fn new(
        settings: &ServeSettings,
        write: WriteReport,
        now_ms: i64,
        is_failing: bool,
    ) -> Result<Option<ReportJob>, ServeError> {
        let Some(report) = &settings.report else { return Ok(None) };
        let schedule = Schedule::of_report(settings, &report.schedule)?;
        let due_ms = if is_failing { Some(now_ms) } else { schedule.next(now_ms) };
        let failures = if is_failing { FAILURES_TOLERATED } else { 0 };
        Ok(Some(ReportJob { path: report.path.clone(), schedule, write, due_ms, failures }))
    }

    /// Returns when the next report is due, epoch milliseconds.
    pub fn due_ms(&self) -> Option<i64> {
        self.due_ms
    }

    /// Writes the report on a thread for blocking work, and plans the next one.
    pub async fn write(&mut self, now_ms: i64) -> Attempt {
        let write = Arc::clone(&self.write);
        let written = tokio::task::spawn_blocking(move || write()).await.unwrap_or_else(|error| Err(error.to_string()));
        let next_ms = self.schedule.next(now_ms);
        let Err(why) = written else {
            (self.due_ms, self.failures) = (next_ms, 0);
            return Attempt::Written(self.path.clone());
        };
        let retry_ms = now_ms.saturating_add(RETRY_MS);
        self.due_ms = Some(next_ms.map_or(retry_ms, |next_ms| next_ms.min(retry_ms)));
        self.failures = self.failures.saturating_add(1);
        if self.failures > FAILURES_TOLERATED { Attempt::Failing(why) } else { Attempt::Retried(why) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::{
        config::{self, Overrides},
        model::{HOUR_MS, parse_moment},
    };

    fn settings(folder: &std::path::Path) -> ServeSettings {
        let file = folder.join("studysync.toml");
        let text = "[warehouse]\nreport_time_zone = \"Europe/Berlin\"\n[serve]\nreport = \"page.html\"\n";
        std::fs::write(&file, text).unwrap();
        config::resolve(Overrides { config: Some(file), ..Overrides::default() }).unwrap().serve
    }

    fn at(text: &str) -> i64 {
        parse_moment(text, 0).unwrap()
    }

    #[tokio::test]
    async fn a_report_is_retried_and_missed_times_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let serve = settings(folder.path());
        let answers = Arc::new(Mutex::new(vec![Ok(()), Err("c".to_owned()), Err("b".to_owned()), Err("a".to_owned())]));
        let asked = Arc::clone(&answers);
        let write: WriteReport = Arc::new(move || asked.lock().unwrap().pop().unwrap());
        // `serve` starts after the time of the day, which is 06:00 in Berlin.
        let start_ms = at("2026-03-28T05:00:01Z");
        let mut job = ReportJob::new(&serve, Arc::clone(&write), start_ms, false).unwrap().unwrap();
        // The clock is put forward in the night.
        let due_ms = at("2026-03-29T04:00:00Z");
        assert_eq!(job.due_ms(), Some(due_ms), "the time that passed is left out");
        assert_eq!(job.write(due_ms).await, Attempt::Retried("a".to_owned()));
        assert_eq!(job.due_ms(), Some(due_ms + RETRY_MS));
        assert_eq!(job.write(due_ms + RETRY_MS).await, Attempt::Failing("b".to_owned()));
        // A restart tries at once, and the failure goes on.
        let mut job = ReportJob::new(&serve, write, due_ms + HOUR_MS, true).unwrap().unwrap();
        assert_eq!(job.due_ms(), Some(due_ms + HOUR_MS));
        assert_eq!(job.write(due_ms + HOUR_MS).await, Attempt::Failing("c".to_owned()));
        let written = job.write(due_ms + 2 * HOUR_MS).await;
        assert!(matches!(&written, Attempt::Written(path) if path.ends_with("page.html")), "{written:?}");
        assert_eq!(job.due_ms(), Some(at("2026-03-30T04:00:00Z")));
    }

    #[tokio::test]
    async fn a_retry_does_not_pass_the_next_time() {
        let folder = tempfile::tempdir().unwrap();
        let mut serve = settings(folder.path());
        serve.report.as_mut().unwrap().schedule = "* * * * *".to_owned();
        let write: WriteReport = Arc::new(|| Err("a".to_owned()));
        let mut job = ReportJob::new(&serve, write, 0, false).unwrap().unwrap();
        job.write(MINUTE_MS).await;
        assert_eq!(job.due_ms(), Some(2 * MINUTE_MS));
    }
}
