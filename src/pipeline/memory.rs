//! Splits `memory_limit_mb`, which covers the complete process. Every limit of bytes in memory is a share of it.

use crate::{config::WarehouseSettings, load::Place};

const MIB: u64 = 1 << 20;
/// Memory for everything that has no share: the program itself and its connections.
const PROGRAM_BYTES: u64 = 80 * MIB;
/// The minimum share of bodies in flight, which get a thirty-second of the limit.
const BODIES_BYTES_MIN: u64 = 16 * MIB;
/// The maximum share of bodies in flight.
const BODIES_BYTES_MAX: u64 = 64 * MIB;
/// While a page is flattened, its body, its rows under construction and their copy take this multiple of the body.
const BODY_MULTIPLE: u64 = 4;
/// The maximum share of flattened pages. More pages in memory save no time.
const PAGES_BYTES_MAX: u64 = 96 * MIB;
/// Memory reserved for a store before pages get a share.
const STORE_FIRST_BYTES: u64 = 64 * MIB;
/// The maximum share of buffered rows. More buffered rows save no time.
const WAITING_BYTES_MAX: u64 = 32 * MIB;
/// Memory of the program itself while it only reads.
const READER_PROGRAM_BYTES: u64 = 64 * MIB;
/// The long texts of a window take at most this part of a store's memory, because DuckDB keeps them in memory until a
/// checkpoint.
const LONG_TEXTS_DIVISOR: u64 = 2;

/// The shares of the memory limit, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Bodies of pages, from their requests until they are flattened; of a replay, from the archive. Also one batch of
    /// webhook deliveries.
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
    /// The engine of a command that only reads.
    pub reader: u64,
}

impl Memory {
    /// Computes the shares from the settings.
    pub fn of(settings: &WarehouseSettings) -> Self {
        let store_min = settings.paths.keys().map(|kind| Place::memory_bytes_min(*kind)).max();
        Self::for_stores(settings.memory_limit_bytes, settings.paths.len().max(1) as u64, store_min.unwrap_or(0))
    }

    /// Splits `limit` bytes for this many stores. Each store gets at least `store_min` bytes, even above the limit.
    fn for_stores(limit: u64, stores: u64, store_min: u64) -> Self {
        let bodies = (limit / 32).clamp(BODIES_BYTES_MIN, BODIES_BYTES_MAX);
        let shared = limit.saturating_sub(PROGRAM_BYTES + bodies * BODY_MULTIPLE);
        // With little memory the store has priority: a page without memory is read again, but a commit would fail.
        let pages = (shared.saturating_sub(STORE_FIRST_BYTES) / 3).min(PAGES_BYTES_MAX);
        let waiting = (shared / 16 / stores).min(WAITING_BYTES_MAX);
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
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::WarehouseKind;

    #[test]
    fn p8_the_shares_fit_into_the_limit() {
        for (limit_mib, stores) in [(256, 1), (512, 1), (512, 2), (576, 2), (1024, 1), (100_000, 2)] {
            let shares = Memory::for_stores(limit_mib * MIB, stores, Place::memory_bytes_min(WarehouseKind::DuckDb));
            let bodies = shares.bodies as u64 * BODY_MULTIPLE;
            let parts = PROGRAM_BYTES + bodies + shares.pages as u64 + stores * (shares.waiting as u64 + shares.store);
            // The smallest engine exceeds the smallest limit a little.
            let over = if limit_mib == 256 { 7 * MIB } else { 0 };
            assert!(parts <= limit_mib * MIB + over, "{limit_mib} {stores}: {shares:?}");
            assert!(shares.store >= 96 * MIB && shares.pages >= 16 << 20 && shares.waiting >= 4 << 20, "{shares:?}");
        }
    }
}
