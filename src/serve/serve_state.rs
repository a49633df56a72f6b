//! The state that the receiver, the daemon and the pages of `serve` share: counters, the daemon's status, and hints. A
//! hint is a stream that a delivery mentioned; hints wake the daemon. The state is only in memory: a restart loses the
//! counters, and a lost hint only delays a record.

use std::{
    collections::BTreeSet,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use tokio::sync::Notify;

use crate::{
    flatten::BodySummary,
    model::{EventKind, Stream},
    pipeline::{Meter, Reading},
    state::{PendingDeliveries, ScheduleEntry},
};

/// The counters of `serve`. [`Counter::ALL`] has their metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counter {
    Repeats,
    WrongSecret,
    TooLarge,
    TooSlow,
    Overloaded,
    NotStored,
    Connections,
    Evicted,
    Flushed,
    Runs,
    RunsFailed,
}

impl Counter {
    /// Every counter with the name of its metric.
    pub(super) const ALL: [(Counter, &'static str); 11] = [
        (Counter::Repeats, "deliveries_repeated_total"),
        (Counter::WrongSecret, "deliveries_unauthorised_total"),
        (Counter::TooLarge, "deliveries_too_large_total"),
        (Counter::TooSlow, "deliveries_too_slow_total"),
        (Counter::Overloaded, "deliveries_overloaded_total"),
        (Counter::NotStored, "deliveries_not_stored_total"),
        (Counter::Connections, "connections_total"),
        (Counter::Evicted, "connections_evicted_total"),
        (Counter::Flushed, "events_flushed_total"),
        (Counter::Runs, "runs_total"),
        (Counter::RunsFailed, "runs_failed_total"),
    ];
}

/// The current job.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunningJob {
    /// `sync`, `wake`, `flush` or `report`.
    pub command: &'static str,
    pub since_ms: i64,
}

/// The daemon's current job, its last errors and its schedule.
#[derive(Clone, Debug, Default)]
pub(super) struct DaemonStatus {
    pub schedule: ScheduleEntry,
    /// The deliveries that are not in the warehouses yet.
    pub pending: PendingDeliveries,
    pub running: Option<RunningJob>,
    /// The error of the last job or of the inbox; `None` if the last job succeeded.
    pub last_error: Option<String>,
    /// The error of the last flush; `None` if it succeeded, or if another run held the lease.
    pub flush_error: Option<String>,
    /// Why the report cannot be written; `None` if it was written, or if its first retry is still to come.
    pub report_error: Option<String>,
    /// Why the service refused the key when `serve` started, and what to do; `None` after the first run.
    pub key_refused: Option<(String, Option<String>)>,
    /// The end of a `Retry-After` that is longer than a run waits; `None` if there is none.
    pub rate_limited_until_ms: Option<i64>,
}

/// The state that the receiver, the daemon and the pages share.
#[derive(Debug)]
pub struct ServeState {
    pub(super) started_ms: i64,
    counters: [AtomicU64; Counter::ALL.len()],
    stored: [AtomicU64; EventKind::ALL.len()],
    can_store: AtomicBool,
    has_read_earlier_deliveries: AtomicBool,
    /// The environment whose deliveries are accepted. If none is configured, the environment of the first delivery that
    /// names one; `None` before it.
    environment_id: Mutex<Option<String>>,
    hints: Mutex<BTreeSet<Stream>>,
    has_deliveries: AtomicBool,
    wake: Notify,
    status: Mutex<DaemonStatus>,
    /// Measures the current run.
    meter: Mutex<Option<Meter>>,
}

impl ServeState {
    /// Returns the state of a `serve` that has just started.
    pub fn new(started_ms: i64) -> ServeState {
        ServeState {
            started_ms,
            counters: Default::default(),
            stored: Default::default(),
            can_store: AtomicBool::new(true),
            has_read_earlier_deliveries: AtomicBool::new(false),
            environment_id: Mutex::default(),
            hints: Mutex::default(),
            has_deliveries: AtomicBool::new(false),
            wake: Notify::new(),
            status: Mutex::default(),
            meter: Mutex::default(),
        }
    }

    /// Adds to a counter.
    pub fn count(&self, counter: Counter, by: u64) {
        if let Some(count) = self.counters.get(counter as usize) {
            count.fetch_add(by, Ordering::Relaxed);
        }
    }

    pub(super) fn counted(&self, counter: Counter) -> u64 {
        self.counters.get(counter as usize).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// Returns the number of stored deliveries of each kind.
    pub(super) fn stored(&self) -> impl Iterator<Item = (EventKind, u64)> {
        EventKind::ALL.into_iter().zip(&self.stored).map(|(kind, count)| (kind, count.load(Ordering::Relaxed)))
    }

    pub(super) fn set_environment_id(&self, id: Option<String>) {
        *lock(&self.environment_id) = id;
    }

    /// Returns the kind of a delivery. Deliveries of another environment have the kind `OtherEnvironment`. If no
    /// environment is known, the delivery may set it.
    pub(super) fn kind_of(&self, summary: &BodySummary) -> EventKind {
        let mut environment_id = lock(&self.environment_id);
        if environment_id.is_none() && summary.kind.identifies_environment() {
            environment_id.clone_from(&summary.environment_id);
        }
        summary.kind_for(environment_id.as_deref())
    }

    /// Counts a stored delivery and wakes the daemon.
    pub fn add_delivery(&self, kind: EventKind, bytes: u64) {
        self.update_status(|status| {
            status.pending.deliveries += 1;
            status.pending.bytes += bytes;
        });
        let index = EventKind::ALL.iter().position(|known| *known == kind);
        if let Some(count) = index.and_then(|index| self.stored.get(index)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(stream) = kind.changed_stream() {
            lock(&self.hints).insert(stream);
        }
        self.has_deliveries.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    /// Returns the streams that deliveries mentioned since the last call, and true if a delivery was stored since the
    /// last call.
    pub(super) fn take_hints(&self) -> (BTreeSet<Stream>, bool) {
        (std::mem::take(&mut *lock(&self.hints)), self.has_deliveries.swap(false, Ordering::AcqRel))
    }

    /// Waits for the next delivery.
    pub(super) async fn wait_for_delivery(&self) {
        self.wake.notified().await;
    }

    /// Sets the meter of the current run; `None` when it has ended.
    pub(super) fn set_meter(&self, meter: Option<Meter>) {
        *lock(&self.meter) = meter;
    }

    /// Measures the progress of the current run; `None` if there is no run.
    pub(super) fn progress(&self) -> Option<Reading> {
        lock(&self.meter).as_mut().map(Meter::read)
    }

    /// Records whether the last attempt to store a delivery succeeded.
    pub(super) fn set_can_store(&self, can_store: bool) {
        self.can_store.store(can_store, Ordering::Relaxed);
    }

    pub(super) fn can_store(&self) -> bool {
        self.can_store.load(Ordering::Relaxed)
    }

    /// Records that the daemon has read the deliveries of earlier processes.
    pub(super) fn set_has_read_earlier_deliveries(&self) {
        self.has_read_earlier_deliveries.store(true, Ordering::Relaxed);
    }

    pub(super) fn has_read_earlier_deliveries(&self) -> bool {
        self.has_read_earlier_deliveries.load(Ordering::Relaxed)
    }

    /// Returns the bytes of the pending deliveries: as last counted, plus the deliveries stored since.
    pub(super) fn pending_bytes(&self) -> u64 {
        lock(&self.status).pending.bytes
    }

    pub(super) fn update_status(&self, update: impl FnOnce(&mut DaemonStatus)) {
        update(&mut lock(&self.status));
    }

    pub(super) fn status(&self) -> DaemonStatus {
        lock(&self.status).clone()
    }
}

/// Locks a mutex, even if another thread panicked while it had the lock: every statement leaves these values
/// consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
