//! The warehouses that were filled, and the last scan that each acknowledged.

use rusqlite::OptionalExtension;

use crate::model::ScanId;

use super::{State, StateError};

/// A warehouse as remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownDestination {
    /// Where it was, for people.
    pub location: String,
    /// The last scan that it acknowledged, if any did.
    pub last_scan_id: Option<ScanId>,
}

impl State {
    /// What is remembered of a warehouse.
    pub fn destination(&self, name: &str) -> Result<Option<KnownDestination>, StateError> {
        let sql = "SELECT location, last_scan_id FROM destinations WHERE name = ?1";
        self.connection
            .query_row(sql, [name], |row| {
                let last_scan_id: Option<String> = row.get(1)?;
                Ok(KnownDestination { location: row.get(0)?, last_scan_id: last_scan_id.map(ScanId) })
            })
            .optional()
            .map_err(self.failed("read"))
    }

    /// Remembers a warehouse, with the last scan of its ledger.
    pub fn remember_destination(&self, name: &str, location: &str, last: Option<&ScanId>) -> Result<(), StateError> {
        let sql = "INSERT OR REPLACE INTO destinations (name, location, last_scan_id) VALUES (?1, ?2, ?3)";
        self.connection.execute(sql, (name, location, last.map(|scan| &scan.0))).map_err(self.failed("write"))?;
        Ok(())
    }
}
