//! Splits `memory_limit_mb`, which covers the complete process. Every limit of bytes of data in memory is a share of
//! it.
//!
//! What a command has in memory at a time, besides the program itself:
//!
//! | command | shares | sum |
//! |---|---|---|
//! | `sync`, a flush of deliveries | 4 × `bodies`, `pages`, and for each warehouse `waiting` and `store` | the limit |
//! | `replay` | the same, but half of `pages` queued, and half for each warehouse | within the quarter |
//! | `query`, `diff`, `status` | `reader` | the limit |
//! | `report` | `reader`, `results` | within the quarter |
//! | `users push` | 4 × `bodies` for rows, and with `--query` also `reader` | within the quarter |
//! | `serve` | the shares of the job that it does, and `received` | within the quarter |
//!
//! The quarter is what the real use may exceed the limit by. A limit that is a fact of a format or a protocol, such as
//! the longest row of a file or the longest delivery of a webhook, is a constant where that format is read.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::{
    config::WarehouseSettings,
    load::{Place, ReaderLimits},
};

const MIB: u64 = 1 << 20;

/// A share: a part of some memory, within bounds.
struct Share {
    divisor: u64,
    bytes_min: u64,
    bytes_max: u64,
}

impl Share {
    fn of(&self, bytes: u64) -> u64 {
        (bytes / self.divisor).clamp(self.bytes_min, self.bytes_max)
    }
}

/// Of the limit. The minimum is one usual page of 1 MiB for each of four requests, four times.
const BODIES: Share = Share { divisor: 32, bytes_min: 16 * MIB, bytes_max: 64 * MIB };
/// Of what [`STORE_FIRST_BYTES`] leaves. More pages in memory save no time.
const PAGES: Share = Share { divisor: 3, bytes_min: 0, bytes_max: 96 * MIB };
/// Of what bodies and the program leave, divided by the number of warehouses. More buffered rows save no time.
const WAITING: Share = Share { divisor: 16, bytes_min: 0, bytes_max: 32 * MIB };
/// Of the limit. The maximum is 64 of the longest deliveries, which arrive at the same time.
const RECEIVED: Share = Share { divisor: 8, bytes_min: 16 * MIB, bytes_max: 64 * MIB };
/// Of the limit. The maximum is for the million windows of a ledger of many years.
const RESULTS: Share = Share { divisor: 4, bytes_min: 32 * MIB, bytes_max: 128 * MIB };

/// Memory for everything that has no share: the program itself and its connections.
const PROGRAM_BYTES: u64 = 80 * MIB;
/// Memory of the program itself while it only reads.
const READER_PROGRAM_BYTES: u64 = 64 * MIB;
/// While a page is flattened, its body, its rows under construction and their copy take this multiple of the body. A
/// row of a push, its request and the copies of both take no more.
const BODY_MULTIPLE: u64 = 4;
/// Memory reserved for a store before pages get a share. With little memory the store has priority: a page without
/// memory is read again, but a commit would fail.
const STORE_FIRST_BYTES: u64 = 64 * MIB;
/// The long texts of a window take at most this part of a store's memory, because DuckDB keeps them in memory until a
/// checkpoint.
const LONG_TEXTS_DIVISOR: u64 = 2;
/// A page of users is written when its bodies take this part of the share of bodies.
const DRAFT_DIVISOR: usize = 4;
/// Bodies of at least this part of the share of bodies are flattened one at a time.
const LARGE_BODY_DIVISOR: usize = 2;

/// The shares of the memory limit, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Bodies of pages, from their requests until they are flattened; of a replay, from the archive. One batch of
    /// webhook deliveries. Rows of a push, from its input until they are answered.
    pub bodies: usize,
    /// Flattened pages, over all scans. A replay queues one half, and each warehouse buffers as much until a scan is
    /// complete.
    pub pages: usize,
    /// The long texts of one window, which a store writes in one transaction.
    pub long_texts: usize,
    /// Rows that wait to be written, for each warehouse.
    pub waiting: usize,
    /// The store of each warehouse: DuckDB's engine, or the merges of a Parquet folder.
    pub store: u64,
    /// The engine of a command that only reads, and of a run while its stores are closed.
    pub reader: u64,
    /// Rows of a query that a command collects before it writes them.
    pub results: usize,
    /// Deliveries of webhooks that are being received or stored. Also those of earlier processes, which `serve` reads
    /// before its first job.
    pub received: usize,
}

impl Memory {
    /// Computes the shares from the settings.
    pub fn of(settings: &WarehouseSettings) -> Self {
        let store_min = settings.locations.keys().map(|kind| Place::memory_bytes_min(*kind)).max();
        Self::for_stores(settings.memory_limit_bytes, settings.locations.len().max(1) as u64, store_min.unwrap_or(0))
    }

    /// Splits `limit` bytes for this many stores. Each store gets at least `store_min` bytes, even above the limit.
    fn for_stores(limit: u64, stores: u64, store_min: u64) -> Self {
        let bodies = BODIES.of(limit);
        let shared = limit.saturating_sub(PROGRAM_BYTES + bodies * BODY_MULTIPLE);
        let pages = PAGES.of(shared.saturating_sub(STORE_FIRST_BYTES));
        let waiting = WAITING.of(shared / stores);
        // DuckDB uses more memory than it accounts for.
        let store = ((shared - pages - waiting * stores) / stores * 4 / 5).max(store_min);
        let usize_of = |bytes| usize::try_from(bytes).unwrap_or(usize::MAX);
        Self {
            bodies: usize_of(bodies),
            pages: usize_of(pages),
            long_texts: usize_of(store / LONG_TEXTS_DIVISOR),
            waiting: usize_of(waiting),
            store,
            reader: limit.saturating_sub(READER_PROGRAM_BYTES),
            results: usize_of(RESULTS.of(limit)),
            received: usize_of(RECEIVED.of(limit)),
        }
    }

    /// Returns the size of the bodies at which a page of users is written.
    pub fn draft(&self) -> usize {
        self.bodies / DRAFT_DIVISOR
    }

    /// Returns the size from which bodies that are read back from disk are flattened one at a time. The rows of a body
    /// take several times its size, so several large bodies together would exceed the memory limit.
    pub fn large_body(&self) -> usize {
        self.bodies / LARGE_BODY_DIVISOR
    }

    /// Returns the limits of a reader.
    pub fn reader_limits(&self) -> ReaderLimits {
        ReaderLimits { results_bytes: self.results, ..ReaderLimits::new(self.reader) }
    }
}

/// A share that several threads use up together. Clones share the count.
#[derive(Clone, Debug)]
pub struct ByteBudget {
    bytes_max: usize,
    reserved: Arc<(Mutex<usize>, Condvar)>,
}

/// Bytes of a [`ByteBudget`]. Dropping the reservation returns them.
#[derive(Debug)]
pub struct Reservation {
    pub(super) bytes: usize,
    budget: ByteBudget,
}

impl ByteBudget {
    /// Creates a budget of this many bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes_max, reserved: Arc::default() }
    }

    /// Blocks this thread until the bytes are free, and reserves them. More bytes than the budget has are reserved
    /// alone.
    pub fn reserve(&self, bytes: usize) -> Reservation {
        let reserved = self.reserved.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = |reserved: &mut usize| *reserved > 0 && reserved.saturating_add(bytes) > self.bytes_max;
        *self.reserved.1.wait_while(reserved, is_full).unwrap_or_else(PoisonError::into_inner) += bytes;
        Reservation { bytes, budget: self.clone() }
    }

    /// Reserves the bytes if they are free.
    pub fn try_reserve(&self, bytes: usize) -> Option<Reservation> {
        let mut reserved = self.reserved.0.lock().unwrap_or_else(PoisonError::into_inner);
        *reserved = reserved.checked_add(bytes).filter(|sum| *sum <= self.bytes_max)?;
        Some(Reservation { bytes, budget: self.clone() })
    }

    /// Returns true if at least `1 / divisor` of the bytes are reserved.
    pub fn is_used_to(&self, divisor: usize) -> bool {
        self.reserved() >= self.bytes_max / divisor
    }

    /// Returns the number of reserved bytes.
    pub fn reserved(&self) -> usize {
        *self.reserved.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reservation {
    /// Adds the bytes to the reservation if they are free. Returns false, and changes nothing, if they are not.
    pub fn try_grow(&mut self, bytes: usize) -> bool {
        let Some(mut more) = self.budget.try_reserve(bytes) else { return false };
        self.bytes += std::mem::take(&mut more.bytes);
        true
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        *self.budget.reserved.0.lock().unwrap_or_else(PoisonError::into_inner) -= self.bytes;
        self.budget.reserved.1.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc::channel, thread, time::Duration};

    use proptest::prelude::*;

    use super::*;
    use crate::model::WarehouseKind;

    /// What a job has in memory. DuckDB's engine takes a quarter more than it accounts for.
    fn job(shares: &Memory, stores: u64) -> u64 {
        let per_store = shares.waiting as u64 + shares.store + shares.store / 4;
        PROGRAM_BYTES + shares.bodies as u64 * BODY_MULTIPLE + shares.pages as u64 + stores * per_store
    }

    fn query(shares: &Memory) -> u64 {
        READER_PROGRAM_BYTES + shares.reader
    }

    /// The table at the top of this file: bytes in memory at a time.
    type Command = (&'static str, fn(&Memory, u64) -> u64);
    const WITHIN_LIMIT: [Command; 2] = [("sync", job), ("query", |shares, _| query(shares))];
    const WITHIN_QUARTER: [Command; 4] = [
        ("replay", |shares, stores| job(shares, stores) + (stores - 1) * shares.pages as u64 / 2),
        ("report", |shares, _| query(shares) + shares.results as u64),
        ("users push", |shares, _| query(shares) + shares.bodies as u64 * BODY_MULTIPLE),
        ("serve", |shares, stores| job(shares, stores) + shares.received as u64),
    ];

    fn check(limit: u64, stores: u64, kind: WarehouseKind) {
        let store_min = Place::memory_bytes_min(kind);
        let shares = Memory::for_stores(limit, stores, store_min);
        let quarter = limit + limit / 4;
        // The smallest engine exceeds the smallest limit a little.
        let promised = if shares.store > store_min { limit } else { quarter };
        let commands = WITHIN_LIMIT.map(|command| (command, promised));
        for ((name, bytes), promised) in commands.into_iter().chain(WITHIN_QUARTER.map(|command| (command, quarter))) {
            let bytes = bytes(&shares, stores);
            assert!(bytes <= promised, "{name} takes {bytes} of {promised}: {limit} {stores} {shares:?}");
        }
        let Memory { bodies, pages, long_texts, waiting, store, reader, results, received } = shares;
        let bytes = [bodies, pages, long_texts, waiting, results, received, shares.draft(), shares.large_body()];
        assert!(bytes.iter().all(|bytes| *bytes >= 4 << 20) && store >= 32 * MIB && reader >= 192 * MIB, "{shares:?}");
    }

    proptest! {
        #[test]
        fn p8_the_shares_of_each_command_fit_into_the_limit(
            stores in 1_u64..=2,
            of_minimum in prop_oneof![1.0..4.0, 1.0..256.0],
            is_duckdb in any::<bool>(),
        ) {
            let limit = (256.0 * MIB as f64 * of_minimum) as u64 * stores;
            check(limit.min(64 << 30), stores, if is_duckdb { WarehouseKind::DuckDb } else { WarehouseKind::Parquet });
        }
    }

    #[test]
    fn p8_the_shares_fit_into_the_smallest_and_the_largest_limit() {
        for (limit_mib, stores) in [(256, 1), (512, 1), (512, 2), (64 << 10, 1), (64 << 10, 2)] {
            check(limit_mib * MIB, stores, WarehouseKind::DuckDb);
            check(limit_mib * MIB, stores, WarehouseKind::Parquet);
        }
    }

    #[test]
    fn the_shares_of_the_default_limit() {
        let shares = Memory::for_stores(512 * MIB, 1, Place::memory_bytes_min(WarehouseKind::DuckDb));
        let mib = |bytes: usize| bytes >> 20;
        assert_eq!((mib(shares.bodies), mib(shares.pages), mib(shares.waiting)), (16, 96, 23));
        assert_eq!((shares.store / MIB, shares.reader / MIB), (199, 448));
        assert_eq!((mib(shares.results), mib(shares.received)), (128, 64));
        assert_eq!((mib(shares.draft()), mib(shares.large_body())), (4, 8));
    }

    #[test]
    fn p8_a_reservation_grows_within_the_budget() {
        let budget = ByteBudget::new(1000);
        let (other, mut grown) = (budget.reserve(300), budget.reserve(0));
        let added = (0..800).filter(|_| grown.try_grow(1)).count();
        assert_eq!((added, grown.bytes, budget.reserved()), (700, 700, 1000));
        drop(grown);
        assert_eq!(budget.reserved(), 300);
        drop(other);
        assert_eq!(budget.reserved(), 0);
    }

    #[test]
    fn p8_a_thread_waits_until_bytes_are_free() {
        let budget = ByteBudget::new(1000);
        let (first, rest) = (budget.reserve(400), budget.reserve(600));
        assert!(budget.try_reserve(1).is_none());
        let (reservations, received) = channel();
        thread::scope(|scope| {
            scope.spawn(|| reservations.send(budget.reserve(300)).unwrap());
            received.recv_timeout(Duration::from_millis(50)).unwrap_err();
            drop(first);
            assert_eq!(received.recv_timeout(Duration::from_secs(60)).unwrap().bytes, 300);
        });
        assert_eq!(budget.reserved(), 600);
        assert!(budget.is_used_to(2) && budget.try_reserve(401).is_none());
        drop(rest);
        assert!(!budget.is_used_to(2) && budget.try_reserve(1001).is_none());
        assert_eq!(budget.reserve(5000).bytes, 5000, "more than all bytes are reserved alone");
        assert_eq!(budget.reserved(), 0);
    }
}
