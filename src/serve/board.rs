//! What `serve` knows of itself: counters, what is due and what ran last, and the hints that wake the scheduler. In
//! memory, and nothing depends on it but pages for people and the time that a lost hint costs.

use std::{
    collections::BTreeSet,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use tokio::sync::Notify;

use crate::{
    flatten::Told,
    model::{EventKind, Stream},
    pipeline::{Meter, Reading},
    state::{ScheduleEntry, Waiting},
};

/// What happened to requests and connections; the names of the metrics follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Count {
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

impl Count {
    /// Each with the name of its metric.
    pub(super) const ALL: [(Count, &'static str); 11] = [
        (Count::Repeats, "deliveries_repeated_total"),
        (Count::WrongSecret, "deliveries_unauthorised_total"),
        (Count::TooLarge, "deliveries_too_large_total"),
        (Count::TooSlow, "deliveries_too_slow_total"),
        (Count::Overloaded, "deliveries_overloaded_total"),
        (Count::NotStored, "deliveries_not_stored_total"),
        (Count::Connections, "connections_total"),
        (Count::Evicted, "connections_evicted_total"),
        (Count::Flushed, "events_flushed_total"),
        (Count::Runs, "runs_total"),
        (Count::RunsFailed, "runs_failed_total"),
    ];
}

/// What is shown.
#[derive(Clone, Debug, Default)]
pub(super) struct Shown {
    pub schedule: ScheduleEntry,
    pub waiting: Waiting,
    /// What is under way.
    pub running: Option<&'static str>,
    /// Since when it is.
    pub running_since_ms: Option<i64>,
    /// The last thing that went wrong, until something went right.
    pub trouble: Option<String>,
    /// Why the warehouses could not take deliveries, until they could.
    pub flush_trouble: Option<String>,
    /// Until when the service must be left alone, where that is longer than a run waits.
    pub limited_until_ms: Option<i64>,
}

/// Shared by the receiver, the scheduler and the pages.
#[derive(Debug)]
pub struct Board {
    pub(super) started_ms: i64,
    counts: [AtomicU64; Count::ALL.len()],
    stored: [AtomicU64; EventKind::ALL.len()],
    is_storing: AtomicBool,
    is_started: AtomicBool,
    /// The environment whose webhooks count; that of the first that tells one.
    environment_id: Mutex<Option<String>>,
    hints: Mutex<BTreeSet<Stream>>,
    has_deliveries: AtomicBool,
    wake: Notify,
    shown: Mutex<Shown>,
    /// Measures the run under way.
    meter: Mutex<Option<Meter>>,
}

impl Board {
    /// An empty one.
    pub fn new(started_ms: i64) -> Board {
        Board {
            started_ms,
            counts: Default::default(),
            stored: Default::default(),
            is_storing: AtomicBool::new(true),
            is_started: AtomicBool::new(false),
            environment_id: Mutex::default(),
            hints: Mutex::default(),
            has_deliveries: AtomicBool::new(false),
            wake: Notify::new(),
            shown: Mutex::default(),
            meter: Mutex::default(),
        }
    }

    /// Counts something.
    pub fn count(&self, what: Count, by: u64) {
        if let Some(count) = self.counts.get(what as usize) {
            count.fetch_add(by, Ordering::Relaxed);
        }
    }

    pub(super) fn counted(&self, what: Count) -> u64 {
        self.counts.get(what as usize).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// Deliveries that were stored, by kind.
    pub(super) fn stored(&self) -> impl Iterator<Item = (EventKind, u64)> {
        EventKind::ALL.into_iter().zip(&self.stored).map(|(kind, count)| (kind, count.load(Ordering::Relaxed)))
    }

    /// Says whose webhooks count.
    pub(super) fn set_environment_id(&self, id: Option<String>) {
        *lock(&self.environment_id) = id;
    }

    /// What a delivery is for the warehouse of this environment.
    pub(super) fn kind_of(&self, told: &Told) -> EventKind {
        let mut ours = lock(&self.environment_id);
        if ours.is_none() && told.kind.identifies_environment() {
            ours.clone_from(&told.environment_id);
        }
        told.kind_in(ours.as_deref())
    }

    /// A delivery of so many bytes was stored: the scheduler hears what it hints at.
    pub fn told(&self, kind: EventKind, bytes: u64) {
        self.show(|shown| {
            shown.waiting.deliveries += 1;
            shown.waiting.bytes += bytes;
        });
        let place = EventKind::ALL.iter().position(|known| *known == kind);
        if let Some(count) = place.and_then(|place| self.stored.get(place)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(stream) = kind.changed_stream() {
            lock(&self.hints).insert(stream);
        }
        self.has_deliveries.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    /// The hints since the last call, and whether anything was stored.
    pub(super) fn take_hints(&self) -> (BTreeSet<Stream>, bool) {
        (std::mem::take(&mut *lock(&self.hints)), self.has_deliveries.swap(false, Ordering::AcqRel))
    }

    /// Shows how far a run is; `None`: none is under way.
    pub(super) fn set_meter(&self, meter: Option<Meter>) {
        *lock(&self.meter) = meter;
    }

    /// How far the run under way is.
    pub(super) fn progress(&self) -> Option<Reading> {
        lock(&self.meter).as_mut().map(Meter::read)
    }

    /// Waits for the next delivery.
    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// Whether the last attempt to store something worked.
    pub(super) fn set_storing(&self, is_storing: bool) {
        self.is_storing.store(is_storing, Ordering::Relaxed);
    }

    pub(super) fn is_storing(&self) -> bool {
        self.is_storing.load(Ordering::Relaxed)
    }

    /// What an earlier process left is taken up.
    pub(super) fn set_started(&self) {
        self.is_started.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_started(&self) -> bool {
        self.is_started.load(Ordering::Relaxed)
    }

    /// Bytes of deliveries that wait for the warehouses, as far as was counted.
    pub(super) fn waiting_bytes(&self) -> u64 {
        lock(&self.shown).waiting.bytes
    }

    pub(super) fn show(&self, change: impl FnOnce(&mut Shown)) {
        change(&mut lock(&self.shown));
    }

    pub(super) fn shown(&self) -> Shown {
        lock(&self.shown).clone()
    }
}

/// What is behind these locks is whole after every statement.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
