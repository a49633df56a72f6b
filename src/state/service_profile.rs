//! The service profile: stores measured behaviours of the service, as JSON by name.

use serde::{Serialize, de::DeserializeOwned};

use crate::model::DurableStep;

use super::{State, StateError};

impl State {
    /// Returns a behaviour and when it was measured, in epoch milliseconds. Returns `None` if the behaviour was never
    /// measured, or if its JSON has another type than `T`.
    pub fn behaviour<T: DeserializeOwned>(&self, name: &str) -> Result<Option<(T, i64)>, StateError> {
        let sql = "SELECT value, measured_ms FROM traits WHERE name = ?1";
        let found = self.database.query_optional(sql, [name], |row| Ok((row.get::<_, String>(0)?, row.get(1)?)))?;
        Ok(found.and_then(|(value, measured_ms)| Some((serde_json::from_str(&value).ok()?, measured_ms))))
    }

    /// Returns every behaviour: name, JSON, when it was measured.
    pub fn behaviours(&self) -> Result<Vec<(String, String, i64)>, StateError> {
        let sql = "SELECT name, value, measured_ms FROM traits ORDER BY name";
        self.database.query_all(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
    }

    /// Returns the evidence of a behaviour: how it was measured, in words. Returns `None` if no evidence is stored.
    pub fn behaviour_evidence(&self, name: &str) -> Result<Option<String>, StateError> {
        let sql = "SELECT evidence FROM traits WHERE name = ?1";
        self.database.query_optional(sql, [name], |row| row.get(0)).map(Option::flatten)
    }

    /// Stores a behaviour without evidence.
    pub fn remember_behaviour<T: Serialize>(&self, name: &str, value: &T, measured_ms: i64) -> Result<(), StateError> {
        self.store_behaviour(name, value, None, measured_ms)
    }

    /// Stores a behaviour with its evidence. The evidence says how it was measured, with counts and times, and names no
    /// person.
    pub fn remember_measured<T: Serialize>(
        &self,
        name: &str,
        value: &T,
        evidence: &str,
        measured_ms: i64,
    ) -> Result<(), StateError> {
        self.store_behaviour(name, value, Some(evidence), measured_ms)
    }

    /// Stores a behaviour, and replaces an earlier value and its evidence.
    fn store_behaviour<T: Serialize>(
        &self,
        name: &str,
        value: &T,
        evidence: Option<&str>,
        measured_ms: i64,
    ) -> Result<(), StateError> {
        let value = serde_json::to_string(value)
            .map_err(|error| StateError::InvalidValue { path: self.path().to_owned(), what: error.to_string() })?;
        self.hit(DurableStep::BehaviourRemembered)?;
        let sql = "INSERT OR REPLACE INTO traits (name, value, measured_ms, evidence) VALUES (?1, ?2, ?3, ?4)";
        self.database.execute(sql, (name, value, measured_ms, evidence)).map(drop)
    }
}
