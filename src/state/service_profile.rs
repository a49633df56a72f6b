//! Measured properties of the service, as JSON under a name.

use rusqlite::OptionalExtension;
use serde::{Serialize, de::DeserializeOwned};

use crate::model::DurableStep;

use super::{State, StateError};

impl State {
    /// A behaviour and when it was measured. One that can no longer be read counts as never measured.
    pub fn behaviour<T: DeserializeOwned>(&self, name: &str) -> Result<Option<(T, i64)>, StateError> {
        let sql = "SELECT value, measured_ms FROM traits WHERE name = ?1";
        let found: Option<(String, i64)> = self
            .connection
            .query_row(sql, [name], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()
            .map_err(self.failed("read"))?;
        Ok(found.and_then(|(value, measured_ms)| Some((serde_json::from_str(&value).ok()?, measured_ms))))
    }

    /// Every behaviour: name, JSON, when it was measured.
    pub fn service_traits(&self) -> Result<Vec<(String, String, i64)>, StateError> {
        let mut statement = self
            .connection
            .prepare("SELECT name, value, measured_ms FROM traits ORDER BY name")
            .map_err(self.failed("read"))?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
        rows.and_then(|rows| rows.collect()).map_err(self.failed("read"))
    }

    /// How a behaviour was measured, in words; `None` if that is not known.
    pub fn behaviour_evidence(&self, name: &str) -> Result<Option<String>, StateError> {
        let sql = "SELECT evidence FROM traits WHERE name = ?1";
        let found = self.connection.query_row(sql, [name], |row| row.get(0)).optional();
        found.map(Option::flatten).map_err(self.failed("read"))
    }

    /// Remembers a behaviour that nobody is told about.
    pub fn remember_behaviour<T: Serialize>(&self, name: &str, value: &T, measured_ms: i64) -> Result<(), StateError> {
        self.remember(name, value, None, measured_ms)
    }

    /// Remembers a behaviour and how it was measured. The evidence holds counts and moments, and names no person.
    pub fn remember_measured<T: Serialize>(
        &self,
        name: &str,
        value: &T,
        evidence: &str,
        measured_ms: i64,
    ) -> Result<(), StateError> {
        self.remember(name, value, Some(evidence), measured_ms)
    }

    fn remember<T: Serialize>(
        &self,
        name: &str,
        value: &T,
        evidence: Option<&str>,
        measured_ms: i64,
    ) -> Result<(), StateError> {
        let value = serde_json::to_string(value)
            .map_err(|error| StateError::Unreadable { path: self.path.clone(), what: error.to_string() })?;
        self.hit(DurableStep::BehaviourRemembered)?;
        let sql = "INSERT OR REPLACE INTO traits (name, value, measured_ms, evidence) VALUES (?1, ?2, ?3, ?4)";
        self.connection.execute(sql, (name, value, measured_ms, evidence)).map_err(self.failed("write"))?;
        Ok(())
    }
}
