//! Stores which warehouses runs have filled, and the last scan in each warehouse's ledger.

use crate::model::{DurableStep, ScanId};

use super::{State, StateError};

/// SQL for the number of the last checkpoint, which is 0 before the first checkpoint.
const LAST_CHECKPOINT: &str = "coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'last_checkpoint'), 0)";

/// Number of ordinals of commits that are reserved together, so that not each commit needs a durable write.
const ORDINALS: i64 = 64;

/// A warehouse that a run has filled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownDestination {
    /// Path of the warehouse, for messages.
    pub location: String,
    /// The last scan in the warehouse's ledger. `None` for an empty ledger.
    pub last_scan_id: Option<ScanId>,
    /// True if the warehouse was part of the last checkpoint. A warehouse that a later run left out lacks scans.
    pub is_up_to_date: bool,
}

impl State {
    /// Returns a warehouse by name. Returns `None` if no run has filled it.
    pub fn destination(&self, name: &str) -> Result<Option<KnownDestination>, StateError> {
        let sql = format!(
            "SELECT location, last_scan_id, last_checkpoint = {LAST_CHECKPOINT} FROM destinations WHERE name = ?1"
        );
        self.database.query_optional(&sql, [name], |row| {
            Ok(KnownDestination {
                location: row.get(0)?,
                last_scan_id: row.get::<_, Option<String>>(1)?.map(ScanId),
                is_up_to_date: row.get(2)?,
            })
        })
    }

    /// Stores the location of a warehouse, for messages, and the last scan in its ledger. A new warehouse gets the
    /// number of the last checkpoint, so it counts as up to date; a known warehouse keeps its number.
    pub fn remember_destination(&self, name: &str, location: &str, last: Option<&ScanId>) -> Result<(), StateError> {
        self.hit(DurableStep::DestinationRemembered)?;
        let sql = format!(
            "INSERT INTO destinations (name, location, last_scan_id, last_checkpoint) VALUES (?1, ?2, ?3, {LAST_CHECKPOINT}) \
             ON CONFLICT (name) DO UPDATE SET location = excluded.location, last_scan_id = excluded.last_scan_id"
        );
        self.database.execute(&sql, (name, location, last.map(|scan| &scan.0))).map(drop)
    }

    /// Records that these warehouses have everything that the checkpoints cover.
    pub fn mark_up_to_date(&self, names: &[&str]) -> Result<(), StateError> {
        let sql = format!("UPDATE destinations SET last_checkpoint = {LAST_CHECKPOINT} WHERE name = ?1");
        names.iter().try_for_each(|name| self.database.execute(&sql, [name]).map(drop))
    }

    /// Returns the ordinal of the next commit, which is higher than those of all earlier commits, even if the clock was
    /// set back. Stores the highest of a block of ordinals, which begins at `now_ms` or higher.
    pub fn next_commit_ordinal(&mut self, now_ms: i64) -> Result<i64, StateError> {
        if self.ordinals.is_empty() {
            let sql = "INSERT INTO meta (key, value) VALUES ('last_commit', CAST(?1 + ?2 - 1 AS TEXT)) ON CONFLICT (key) \
                       DO UPDATE SET value = CAST(max(CAST(value AS INTEGER) + 1, ?1) + ?2 - 1 AS TEXT) \
                       RETURNING CAST(value AS INTEGER)";
            let last: i64 = self.database.query_row(sql, [now_ms, ORDINALS], |row| row.get(0))?;
            self.ordinals = last + 1 - ORDINALS..last + 1;
        }
        let ordinal = self.ordinals.start;
        self.ordinals.start += 1;
        Ok(ordinal)
    }
}
