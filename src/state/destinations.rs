//! The warehouses that were filled, and the last scan that each acknowledged.

use rusqlite::OptionalExtension;

use crate::model::{DurableStep, ScanId};

use super::{State, StateError};

/// A warehouse as remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownDestination {
    /// Where it was, for people.
    pub location: String,
    /// The last scan that it acknowledged, if any did.
    pub last_scan_id: Option<ScanId>,
    /// Whether it took part in every checkpoint so far; one that was left out of a run lags behind.
    pub is_up_to_date: bool,
}

impl State {
    /// What is remembered of a warehouse.
    pub fn destination(&self, name: &str) -> Result<Option<KnownDestination>, StateError> {
        let sql = "SELECT location, last_scan_id, last_checkpoint = \
                   coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'last_checkpoint'), 0) \
                   FROM destinations WHERE name = ?1";
        self.connection
            .query_row(sql, [name], |row| {
                let last_scan_id: Option<String> = row.get(1)?;
                let (location, is_up_to_date) = (row.get(0)?, row.get(2)?);
                Ok(KnownDestination { location, last_scan_id: last_scan_id.map(ScanId), is_up_to_date })
            })
            .optional()
            .map_err(self.failed("read"))
    }

    /// Remembers a warehouse, with the last scan of its ledger. A new one is up to date with the checkpoints so far.
    pub fn remember_destination(&self, name: &str, location: &str, last: Option<&ScanId>) -> Result<(), StateError> {
        self.hit(DurableStep::DestinationRemembered)?;
        let sql = "INSERT INTO destinations (name, location, last_scan_id, last_checkpoint) VALUES (?1, ?2, ?3, \
                   coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'last_checkpoint'), 0)) \
                   ON CONFLICT (name) DO UPDATE SET location = excluded.location, last_scan_id = excluded.last_scan_id";
        self.connection.execute(sql, (name, location, last.map(|scan| &scan.0))).map_err(self.failed("write"))?;
        Ok(())
    }

    /// The warehouses hold everything that the checkpoints count, whatever they were left out of before.
    pub fn caught_up(&self, names: &[&str]) -> Result<(), StateError> {
        let sql = "UPDATE destinations SET last_checkpoint = \
                   coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'last_checkpoint'), 0) WHERE name = ?1";
        for name in names {
            self.connection.execute(sql, [name]).map_err(self.failed("write"))?;
        }
        Ok(())
    }

    /// The place of the next commit among all: later than any before it, also where the clock was set back.
    pub fn next_commit_ordinal(&self, now_ms: i64) -> Result<i64, StateError> {
        let sql = "INSERT INTO meta (key, value) VALUES ('last_commit', CAST(?1 AS TEXT)) ON CONFLICT (key) DO UPDATE \
                   SET value = CAST(max(CAST(value AS INTEGER) + 1, ?1) AS TEXT) RETURNING CAST(value AS INTEGER)";
        self.connection.query_row(sql, [now_ms], |row| row.get(0)).map_err(self.failed("write"))
    }
}
