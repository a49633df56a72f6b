//! The health of `serve`, derived from the checkpoints, which are read at intervals, and from the state in memory.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::Mutex;

use crate::{
    clock::Clock,
    config::Settings,
    metrics::{MetricValues, add_sync_status},
    model::HOUR_MS,
    pipeline::chain,
    sync_status::{Health, HealthRules, MAX_LAG, SyncStatus},
};

use super::{Counter, DeliveryQueue, Schedule, ServeError, ServeState};

/// The checkpoints are read again after this time, however many requests come.
const STATUS_MAX_AGE: Duration = Duration::from_secs(1);
/// Interval between two tests whether deliveries can be stored.
const PROBE_EVERY: Duration = Duration::from_secs(30);
/// Interval between two tests while deliveries cannot be stored.
const PROBE_EVERY_FAILING: Duration = Duration::from_secs(2);
/// How much later than its tick a scheduled run may end before a stream counts as behind.
const LATE_MS: i64 = 2 * HOUR_MS;
/// Consecutive failed runs that are tolerated, because a failed run is retried.
const FAILURES_TOLERATED: u32 = 1;

/// The status that is derived from the checkpoints, or the error text if the checkpoints cannot be read.
pub(super) type StatusResult = Result<SyncStatus, String>;

/// Derives the health of `serve` and its metrics.
#[derive(Debug)]
pub struct HealthMonitor {
    pub(super) settings: Settings,
    pub(super) rules: HealthRules,
    pub(super) clock: Clock,
    pub(super) state: Arc<ServeState>,
    queue: DeliveryQueue,
    cached_status: Mutex<Option<(Instant, Arc<StatusResult>)>>,
    last_probe: Mutex<Option<Instant>>,
}

impl HealthMonitor {
    pub(super) fn new(
        settings: &Settings,
        clock: Clock,
        state: Arc<ServeState>,
        queue: DeliveryQueue,
    ) -> Result<HealthMonitor, ServeError> {
        let rules = health_rules(settings, clock.now_ms())?;
        let (cached_status, last_probe) = (Mutex::default(), Mutex::default());
        Ok(HealthMonitor { settings: settings.clone(), rules, clock, state, queue, cached_status, last_probe })
    }

    /// Returns the status that is derived from the checkpoints, at most a second old.
    pub(super) async fn sync_status(&self) -> Arc<StatusResult> {
        let mut cached = self.cached_status.lock().await;
        if let Some((_, status)) = cached.as_ref().filter(|(read, _)| read.elapsed() < STATUS_MAX_AGE) {
            return Arc::clone(status);
        }
        let (settings, now_ms) = (self.settings.clone(), self.clock.now_ms());
        let read =
            tokio::task::spawn_blocking(move || SyncStatus::read(&settings, now_ms).map_err(|error| chain(&error)));
        let status = Arc::new(read.await.unwrap_or_else(|error| Err(error.to_string())));
        *cached = Some((Instant::now(), Arc::clone(&status)));
        status
    }

    /// Derives the health from the status and from the state in memory.
    pub(super) fn health(&self, sync_status: &StatusResult) -> Health {
        let mut health = match sync_status {
            Ok(sync_status) => Health::new(sync_status, &self.settings, self.rules),
            Err(why) => Health::unknown(format!("the checkpoints cannot be read: {why}")),
        };
        if let Some(why) = self.state.status().flush_error {
            health.add_deliveries_waiting(why);
        }
        if !self.state.can_store() {
            health.add_deliveries_not_stored();
        }
        health
    }

    /// Returns true if deliveries can be stored. The storage is tested at intervals. After a failure, a proxy may send
    /// no more deliveries, and then only a test shows that storing works again.
    pub(super) async fn can_store(&self) -> bool {
        let mut last_probe = self.last_probe.lock().await;
        let interval = if self.state.can_store() { PROBE_EVERY } else { PROBE_EVERY_FAILING };
        if last_probe.is_none_or(|last_probe| last_probe.elapsed() >= interval) {
            self.queue.probe().await;
            *last_probe = Some(Instant::now());
        }
        self.state.can_store()
    }

    /// Returns the values of all metrics.
    pub(super) async fn metrics(&self) -> MetricValues {
        let service = &self.settings.service;
        let mut values = MetricValues::new(&service.environment, &service.host());
        let sync_status = self.sync_status().await;
        let health = self.health(&sync_status);
        let unknown = SyncStatus::default();
        add_sync_status(&mut values, sync_status.as_ref().as_ref().unwrap_or(&unknown), &health);
        add_serve_state(&mut values, &self.state);
        values
    }
}

/// Returns the limits of good health. The allowed lag is the configured one, or else the longest gap of the schedule
/// plus [`LATE_MS`], or [`MAX_LAG`] without a schedule. One failed run is tolerated only with a schedule.
pub(super) fn health_rules(settings: &Settings, now_ms: i64) -> Result<HealthRules, ServeError> {
    let schedule = Schedule::configured(&settings.serve)?;
    let max_lag = schedule.as_ref().map_or(MAX_LAG, |schedule| {
        let lag_ms = schedule.longest_gap_ms(now_ms).saturating_add(LATE_MS);
        Duration::from_millis(lag_ms.unsigned_abs())
    });
    let failures_tolerated = if schedule.is_some() { FAILURES_TOLERATED } else { 0 };
    Ok(HealthRules { max_lag: settings.serve.max_lag(max_lag), failures_tolerated })
}

/// Adds the counters and the daemon's status.
fn add_serve_state(values: &mut MetricValues, state: &ServeState) {
    for (kind, count) in state.stored() {
        values.set_count("deliveries_stored_total", &[kind.name()], count);
    }
    for (counter, name) in Counter::ALL {
        values.set_count(name, &[], state.counted(counter));
    }
    let status = state.status();
    values.set_count("pending_deliveries", &[], status.pending.deliveries);
    values.set_count("inbox_deliveries", &[], status.pending.deliveries);
    values.set_count("inbox_bytes", &[], status.pending.bytes);
    values.set_count("running", &[], u64::from(status.running.is_some()));
    values.set("next_run_ms", &[], status.schedule.next_ms.unwrap_or(0) as f64);
    values.set("last_run_ms", &[], status.schedule.last_finished_ms.unwrap_or(0) as f64);
    values.set_count("storing", &[], u64::from(state.can_store()));
    values.set("rate_limited_until_ms", &[], status.rate_limited_until_ms.unwrap_or(0) as f64);
}
