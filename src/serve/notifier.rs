//! Notifies about the runs of `serve`. Separate tasks do so, so that the daemon never waits for a receiver of
//! notifications.

use std::sync::Arc;

use tokio::{sync::Mutex, task::JoinSet};

use crate::{
    config::Settings,
    model::MINUTE_MS,
    notify::{EndedRun, after_run, between_runs},
    otlp,
    sync_status::HealthRules,
};

/// Interval at which the textfile is rewritten and pending messages are sent between runs.
const REFRESH_EVERY_MS: i64 = MINUTE_MS;

/// Writes the textfile and sends notifications, one task after the other.
#[derive(Debug)]
pub(super) struct Notifier {
    settings: Arc<Settings>,
    /// True if notifications, a textfile or an OpenTelemetry collector are configured.
    is_on: bool,
    rules: HealthRules,
    /// Locked while a task runs.
    busy: Arc<Mutex<()>>,
    refreshed_ms: Option<i64>,
    tasks: JoinSet<()>,
}

impl Notifier {
    pub fn new(settings: &Settings, rules: HealthRules) -> Notifier {
        let is_on = settings.metrics.textfile.is_some() || settings.notify.is_enabled() || otlp::is_on();
        Notifier {
            settings: Arc::new(settings.clone()),
            is_on,
            rules,
            busy: Arc::default(),
            refreshed_ms: None,
            tasks: JoinSet::new(),
        }
    }

    /// Notifies about a scheduled run that has ended.
    pub fn after_run(&mut self, run: EndedRun) {
        if !self.is_on {
            return;
        }
        let (settings, rules, busy) = (Arc::clone(&self.settings), self.rules, Arc::clone(&self.busy));
        self.tasks.spawn(async move {
            let _turn = busy.lock().await;
            after_run(&settings, &run, rules).await;
        });
    }

    /// Rewrites the textfile and sends pending messages, if a minute has passed and no task runs.
    pub fn refresh(&mut self, now_ms: i64) {
        let is_fresh = |refreshed_ms: i64| (0..REFRESH_EVERY_MS).contains(&now_ms.saturating_sub(refreshed_ms));
        if !self.is_on || self.refreshed_ms.is_some_and(is_fresh) {
            return;
        }
        let Ok(turn) = Arc::clone(&self.busy).try_lock_owned() else { return };
        self.refreshed_ms = Some(now_ms);
        let (settings, rules) = (Arc::clone(&self.settings), self.rules);
        while self.tasks.try_join_next().is_some() {}
        self.tasks.spawn(async move {
            let _turn = turn;
            between_runs(&settings, now_ms, rules).await;
        });
    }

    /// Ends the tasks and a running notification command. The next start of `serve` sends the messages that were not
    /// delivered.
    pub async fn stop(&mut self) {
        self.tasks.shutdown().await;
    }
}
