//! Stores since when each interval of creation time is proven complete. The first complete scan of an interval writes
//! the interval's proof; later scans do not change the proof.
//!
//! The service profile: stores measured behaviours of the service, as JSON by name.

use rusqlite::{Connection, Transaction};
use serde::{Serialize, de::DeserializeOwned};

use crate::model::{DAY_MS, DurableStep, IntervalSet, Scan, Scope, Window};

use super::{State, StateError, stored_survey};

/// An interval of creation time, and since when it is proven complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProvenInterval {
    pub window: Window,
    /// Start of the first scan that completed the interval, by the service's clock; epoch milliseconds.
    pub proven_ms: i64,
}

impl State {
    /// Returns the proofs of a scope, in order of time.
    pub fn proofs(&self, scope: Scope) -> Result<Vec<ProvenInterval>, StateError> {
        load_proofs(&self.database.connection, scope, Window::new(i64::MIN, i64::MAX))
            .map_err(self.database.failed("read"))
    }
}

/// Stores a proof for each time range of the scan's window that has none.
pub(super) fn record_proof(transaction: &Transaction<'_>, scan: &Scan) -> rusqlite::Result<()> {
    let Window { start_ms, end_ms } = scan.window;
    let touched = Window::new(start_ms.saturating_sub(1), end_ms.saturating_add(1));
    let stored = load_proofs(transaction, scan.scope, touched)?;
    let proofs = add_proof(&stored, scan.window, scan.started_ms, scan.scope.stream.is_windowed());
    if proofs == stored {
        return Ok(());
    }
    let (stream, survey) = (scan.scope.stream.name(), stored_survey(scan.scope.survey_id));
    for proof in &stored {
        let sql = "DELETE FROM proofs WHERE stream = ?1 AND survey_id = ?2 AND start_ms = ?3";
        transaction.prepare_cached(sql)?.execute((stream, survey, proof.window.start_ms))?;
    }
    for ProvenInterval { window, proven_ms } in proofs {
        let sql = "INSERT INTO proofs (stream, survey_id, start_ms, end_ms, proven_ms) VALUES (?1, ?2, ?3, ?4, ?5)";
        transaction.prepare_cached(sql)?.execute((stream, survey, window.start_ms, window.end_ms, proven_ms))?;
    }
    Ok(())
}

/// Returns `stored`, and a proof of `proven_ms` for each gap inside `window`. `stored` are the proofs that overlap or
/// touch `window`. Adjacent proofs whose times are on the same day (UTC) become one proof with the later time. Pure.
///
/// `is_windowed` is false for a stream that each scan reads completely. Such a stream has one proof: it grows to
/// include `window`, and keeps the time of the first scan.
fn add_proof(stored: &[ProvenInterval], window: Window, proven_ms: i64, is_windowed: bool) -> Vec<ProvenInterval> {
    let covered: IntervalSet = stored.iter().map(|proof| proof.window).collect();
    let gaps = covered.gaps_in(window);
    if let ([first], false) = (stored, is_windowed) {
        let window = gaps.iter().fold(first.window, |window, gap| {
            Window::new(window.start_ms.min(gap.start_ms), window.end_ms.max(gap.end_ms))
        });
        return vec![ProvenInterval { window, ..*first }];
    }
    let mut proofs: Vec<ProvenInterval> = stored.to_vec();
    proofs.extend(gaps.into_iter().map(|window| ProvenInterval { window, proven_ms }));
    proofs.sort_by_key(|proof| proof.window.start_ms);
    let mut merged: Vec<ProvenInterval> = Vec::with_capacity(proofs.len());
    for proof in proofs {
        match merged.last_mut() {
            Some(last)
                if last.window.end_ms == proof.window.start_ms && is_same_day(last.proven_ms, proof.proven_ms) =>
            {
                last.window.end_ms = proof.window.end_ms;
                last.proven_ms = last.proven_ms.max(proof.proven_ms);
            }
            _ => merged.push(proof),
        }
    }
    merged
}

/// Returns true if two times are on the same day (UTC).
fn is_same_day(left_ms: i64, right_ms: i64) -> bool {
    left_ms.div_euclid(DAY_MS) == right_ms.div_euclid(DAY_MS)
}

/// Returns the proofs that overlap a window, in order of time.
fn load_proofs(connection: &Connection, scope: Scope, window: Window) -> rusqlite::Result<Vec<ProvenInterval>> {
    let sql = "SELECT start_ms, end_ms, proven_ms FROM proofs \
               WHERE stream = ?1 AND survey_id = ?2 AND end_ms > ?3 AND start_ms < ?4 ORDER BY start_ms";
    let mut statement = connection.prepare_cached(sql)?;
    let (stream, survey) = (scope.stream.name(), stored_survey(scope.survey_id));
    let rows = statement.query_map((stream, survey, window.start_ms, window.end_ms), |row| {
        Ok(ProvenInterval { window: Window::new(row.get(0)?, row.get(1)?), proven_ms: row.get(2)? })
    })?;
    rows.collect()
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn proof(start_ms: i64, end_ms: i64, night: i64) -> ProvenInterval {
        ProvenInterval { window: Window::new(start_ms, end_ms), proven_ms: night * DAY_MS + 5 }
    }

    #[test]
    fn p3_a_later_scan_does_not_move_the_first_proof() {
        let stored = [proof(0, 10, 1), proof(20, 30, 2)];
        assert_eq!(
            add_proof(&stored, Window::new(0, 30), 9 * DAY_MS + 5, true),
            [proof(0, 10, 1), proof(10, 20, 9), proof(20, 30, 2)]
        );
        assert_eq!(add_proof(&stored, Window::new(5, 10), 9 * DAY_MS, true), stored);
        // Adjacent windows of one night become one interval with the later time.
        let merged = add_proof(&stored, Window::new(10, 20), 2 * DAY_MS + 9, true);
        assert_eq!(
            merged,
            [proof(0, 10, 1), ProvenInterval { window: Window::new(10, 30), proven_ms: 2 * DAY_MS + 9 }]
        );
    }

    #[test]
    fn a_stream_without_windows_is_complete_since_its_first_scan() {
        assert_eq!(add_proof(&[proof(0, 10, 1)], Window::new(0, 40), 9 * DAY_MS, false), [proof(0, 40, 1)]);
    }
}
