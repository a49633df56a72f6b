//! Notifies about the runs of `serve`, on a thread of its own: neither the daemon nor a stop waits for a receiver of
//! notifications, or for a file that does not answer.

use std::{path::PathBuf, time::Duration};

use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::{
    config::Settings,
    model::MINUTE_MS,
    notify::{EndedRun, after_report, after_run, between_runs},
    otlp,
    sync_status::HealthRules,
};

/// Maximum notifications that wait. Runs end far less often than notifications.
const QUEUED_MAX: usize = 64;
/// How long the thread may take to end.
const STOP_WAIT: Duration = Duration::from_secs(5);
/// Interval at which the textfile is rewritten and pending messages are sent between runs.
const REFRESH_EVERY_MS: i64 = MINUTE_MS;

/// A task of the thread.
#[derive(Debug)]
enum Task {
    AfterRun(Box<EndedRun>),
    /// A report was written to this path, or could not be written for this reason, at this time.
    AfterReport(Result<PathBuf, String>, i64),
    /// Rewrite the textfile and send pending messages, at this time.
    Refresh(i64),
}

/// Writes the textfile and sends notifications, one after the other.
#[derive(Debug)]
pub(super) struct Notifier {
    /// `None` if no notifications, textfile or OpenTelemetry collector are configured.
    thread: Option<NotifierThread>,
    refreshed_ms: Option<i64>,
}

#[derive(Debug)]
struct NotifierThread {
    tasks: mpsc::Sender<Task>,
    stop: CancellationToken,
    /// Receives when the thread has ended.
    ended: oneshot::Receiver<()>,
}

impl Notifier {
    /// Starts the thread if something is configured that it has to do.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(settings: &Settings, rules: HealthRules) -> std::io::Result<Notifier> {
        let is_on = settings.metrics.textfile.is_some() || settings.notify.is_enabled() || otlp::is_on();
        let thread = is_on.then(|| NotifierThread::start(settings.clone(), rules)).transpose()?;
        Ok(Notifier { thread, refreshed_ms: None })
    }

    /// Notifies about a scheduled run that has ended.
    pub fn after_run(&mut self, run: EndedRun) {
        self.send(Task::AfterRun(Box::new(run)));
    }

    /// Notifies that a report was written to this path, or that it cannot be written.
    pub fn after_report(&self, written: Result<PathBuf, String>, now_ms: i64) {
        self.send(Task::AfterReport(written, now_ms));
    }

    /// Rewrites the textfile and sends pending messages, if a minute has passed and the thread has nothing to do.
    pub fn refresh(&mut self, now_ms: i64) {
        let is_fresh = |refreshed_ms: i64| (0..REFRESH_EVERY_MS).contains(&now_ms.saturating_sub(refreshed_ms));
        let is_idle = self.thread.as_ref().is_some_and(|thread| thread.tasks.capacity() == QUEUED_MAX);
        if is_idle && !self.refreshed_ms.is_some_and(is_fresh) {
            self.refreshed_ms = Some(now_ms);
            self.send(Task::Refresh(now_ms));
        }
    }

    fn send(&self, task: Task) {
        let Some(thread) = &self.thread else { return };
        if thread.tasks.try_send(task).is_err() {
            tracing::warn!("a notification is left out: earlier ones do not end");
        }
    }

    /// Ends the thread and a running notification command. The next start of `serve` sends the messages that were not
    /// delivered.
    pub async fn stop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        thread.stop.cancel();
        // A file that does not answer is left behind.
        let _ = timeout(STOP_WAIT, thread.ended).await;
    }
}

impl NotifierThread {
    fn start(settings: Settings, rules: HealthRules) -> std::io::Result<NotifierThread> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (tasks, mut queue) = mpsc::channel(QUEUED_MAX);
        let (done, ended) = oneshot::channel();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let work = async move {
            while let Some(task) = queue.recv().await {
                match task {
                    Task::AfterRun(run) => after_run(&settings, &run, rules).await,
                    Task::AfterReport(written, now_ms) => after_report(&settings, &written, now_ms).await,
                    Task::Refresh(now_ms) => between_runs(&settings, now_ms, rules).await,
                }
            }
        };
        std::thread::Builder::new().name("notifier".to_owned()).spawn(move || {
            runtime.block_on(stopped.run_until_cancelled(work));
            runtime.shutdown_background();
            // The send fails if nobody waits.
            let _ = done.send(());
        })?;
        Ok(NotifierThread { tasks, stop, ended })
    }
}
