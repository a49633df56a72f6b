//! How it stands, as the pages of `serve` show it: what the checkpoints know of the runs, read again now and then, and
//! what the process itself knows.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::Mutex;

use crate::{
    clock::Clock,
    config::Settings,
    metrics::{MetricValues, add_sync_status},
    pipeline::chain,
    sync_status::{Health, HealthRules, MAX_LAG, SyncStatus},
};

use super::{Board, Count, Queue, Schedule, ServeError};

/// The checkpoints are read again after this time, however often somebody asks.
const FRESH: Duration = Duration::from_secs(1);
/// Whether deliveries can be stored is tried out after this time, if nobody posted one.
const PROBED: Duration = Duration::from_secs(30);
/// The same while they cannot be.
const PROBED_AGAIN: Duration = Duration::from_secs(2);
/// A run may begin and take so much later than its moment, before a stream counts as behind.
const LATE_MS: i64 = 2 * crate::model::HOUR_MS;
/// While a failed run is tried again, the first failure is only named.
const FAILURES_TOLERATED: u32 = 1;

/// How it stands.
#[derive(Debug)]
pub struct Watch {
    settings: Settings,
    rules: HealthRules,
    clock: Clock,
    board: Arc<Board>,
    queue: Queue,
    known: Mutex<Option<(Instant, Arc<Known>)>>,
    probed: Mutex<Option<Instant>>,
}

/// What the checkpoints know; an error if they cannot be read.
type Known = Result<SyncStatus, String>;

impl Watch {
    /// Nothing is read yet.
    ///
    /// # Errors
    /// `Schedule` or `Zone`.
    pub(super) fn new(settings: &Settings, clock: Clock, board: Arc<Board>, queue: Queue) -> Result<Watch, ServeError> {
        let rules = health_rules(settings, clock.now_ms())?;
        let (known, probed) = (Mutex::new(None), Mutex::new(None));
        Ok(Watch { settings: settings.clone(), rules, clock, board, queue, known, probed })
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// This machine's time.
    pub(super) fn now_ms(&self) -> i64 {
        self.clock.now_ms()
    }

    /// How far a stream may be behind.
    pub(super) fn max_lag(&self) -> Option<Duration> {
        self.rules.max_lag
    }

    pub(super) fn board(&self) -> &Board {
        &self.board
    }

    /// What the checkpoints know of the runs, a second old at most; an error text if they cannot be read.
    pub async fn sync_status(&self) -> Arc<Result<SyncStatus, String>> {
        let mut known = self.known.lock().await;
        if let Some((_, known)) = known.as_ref().filter(|(read, _)| read.elapsed() < FRESH) {
            return Arc::clone(known);
        }
        let (settings, now_ms) = (self.settings.clone(), self.clock.now_ms());
        let read =
            tokio::task::spawn_blocking(move || SyncStatus::read(&settings, now_ms).map_err(|error| chain(&error)));
        let fresh = Arc::new(read.await.unwrap_or_else(|error| Err(error.to_string())));
        *known = Some((Instant::now(), Arc::clone(&fresh)));
        fresh
    }

    /// Whether somebody has to be woken, by what the checkpoints and this process know.
    pub fn health(&self, sync_status: &Result<SyncStatus, String>) -> Health {
        let mut health = match sync_status {
            Ok(sync_status) => Health::new(sync_status, &self.settings, self.rules),
            Err(why) => Health::unknown(format!("the checkpoints cannot be read: {why}")),
        };
        if let Some(why) = self.board.shown().flush_trouble {
            health.add_deliveries_waiting(why);
        }
        if !self.board.is_storing() {
            health.add_deliveries_not_stored();
        }
        health
    }

    /// Whether deliveries can be stored. It is tried out now and then, so that it shows also where nobody posts any:
    /// least of all a proxy that was told that nothing can be stored.
    pub async fn can_store(&self) -> bool {
        let mut probed = self.probed.lock().await;
        let fresh = if self.board.is_storing() { PROBED } else { PROBED_AGAIN };
        if probed.is_none_or(|probed| probed.elapsed() >= fresh) {
            self.queue.probe().await;
            *probed = Some(Instant::now());
        }
        self.board.is_storing()
    }

    /// All metrics.
    pub async fn metrics(&self) -> MetricValues {
        let mut metrics = MetricValues::default();
        let sync_status = self.sync_status().await;
        let health = self.health(&sync_status);
        let unknown = SyncStatus::default();
        add_sync_status(&mut metrics, sync_status.as_ref().as_ref().unwrap_or(&unknown), &health);
        add_board(&mut metrics, &self.board);
        metrics
    }
}

/// What is taken for healthy, by the configuration and the schedule.
pub(super) fn health_rules(settings: &Settings, now_ms: i64) -> Result<HealthRules, ServeError> {
    let serve = &settings.serve;
    let schedule = serve.schedule.as_deref().map(|text| Schedule::parse(text, &serve.timezone)).transpose()?;
    let by_schedule = schedule.as_ref().map_or(MAX_LAG, |schedule| {
        let lag_ms = schedule.longest_gap_ms(now_ms).saturating_add(LATE_MS);
        Duration::from_millis(lag_ms.unsigned_abs())
    });
    let failures_tolerated = if schedule.is_some() { FAILURES_TOLERATED } else { 0 };
    Ok(HealthRules { max_lag: serve.max_lag(by_schedule), failures_tolerated })
}

/// What the process itself counts.
fn add_board(values: &mut MetricValues, board: &Board) {
    for (kind, count) in board.stored() {
        values.set_count("deliveries_stored_total", &[kind.name()], count);
    }
    for (count, name) in Count::ALL {
        values.set_count(name, &[], board.counted(count));
    }
    let shown = board.shown();
    values.set_count("pending_deliveries", &[], shown.waiting.deliveries);
    values.set_count("inbox_deliveries", &[], shown.waiting.deliveries);
    values.set_count("inbox_bytes", &[], shown.waiting.bytes);
    values.set_count("running", &[], u64::from(shown.running.is_some()));
    values.set("next_run_ms", &[], shown.schedule.next_ms.unwrap_or(0) as f64);
    values.set("last_run_ms", &[], shown.schedule.last_finished_ms.unwrap_or(0) as f64);
    values.set_count("storing", &[], u64::from(board.is_storing()));
    values.set("rate_limited_until_ms", &[], shown.limited_until_ms.unwrap_or(0) as f64);
}
