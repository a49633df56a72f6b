//! Who is told of the runs of `serve`: beside the scheduler, which never waits for it.

use std::sync::Arc;

use tokio::{sync::Mutex, task::JoinSet};

use crate::{
    config::Settings,
    model::MINUTE_MS,
    notify::{EndedRun, after_run, between_runs},
    otlp,
    sync_status::HealthRules,
};

/// How often the textfile is written anew between runs, and how often what could not be delivered is tried again.
const REFRESH_EVERY_MS: i64 = MINUTE_MS;

/// Writes the textfile and tells people, one thing after the other, on a task of its own.
#[derive(Debug)]
pub(super) struct Told {
    settings: Arc<Settings>,
    /// Whether anybody is told, a textfile is written or a collector is named.
    is_on: bool,
    rules: HealthRules,
    /// Held while something goes out.
    busy: Arc<Mutex<()>>,
    refreshed_ms: Option<i64>,
    tasks: JoinSet<()>,
}

impl Told {
    pub fn new(settings: &Settings, rules: HealthRules) -> Told {
        let is_on = settings.metrics.textfile.is_some() || settings.notify.is_on() || otlp::is_on();
        Told {
            settings: Arc::new(settings.clone()),
            is_on,
            rules,
            busy: Arc::default(),
            refreshed_ms: None,
            tasks: JoinSet::new(),
        }
    }

    /// A scheduled run has ended.
    pub fn conclude(&mut self, run: EndedRun) {
        if !self.is_on {
            return;
        }
        let (settings, rules, busy) = (Arc::clone(&self.settings), self.rules, Arc::clone(&self.busy));
        self.tasks.spawn(async move {
            let _turn = busy.lock().await;
            after_run(&settings, &run, rules).await;
        });
    }

    /// Ends what goes out, and the command that runs: what is not delivered is left to the next start.
    pub async fn stop(&mut self) {
        self.tasks.shutdown().await;
    }

    /// Time has passed.
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
}
