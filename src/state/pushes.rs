//! The ledger of pushes: stores an intent before each row is sent, and the outcome after the answer. An intent without
//! an outcome means that the service may have the row. Rows and users are stored as hashes, so the ledger names nobody.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension, Params, Transaction, params};

use crate::model::DurableStep;

use super::{State, StateError, people::person_hash, stored_count};

/// Hash of the content of a row, and the key of the ledger.
pub type ContentHash = [u8; 16];

/// What the ledger has stored about a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PushRecord {
    pub answer: PushAnswer,
    /// HTTP status of the answer. `None` if no answer is known.
    pub status: Option<u16>,
    /// Number of requests with this row that have no known outcome.
    pub unknown_sends: u64,
    /// True if events were in a request without a known outcome, and no later request with events was accepted.
    pub unknown_events: bool,
    /// True if other content of the same user was sent later.
    pub is_superseded: bool,
}

/// The service's last answer to a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PushAnswer {
    /// No answer is known.
    #[default]
    Unknown,
    Accepted,
    Refused,
}

/// A row that is about to be sent.
#[derive(Clone, Copy, Debug)]
pub struct PushIntent<'a> {
    pub content: ContentHash,
    pub user_id: &'a str,
    /// True if the request contains the events of the row.
    pub with_events: bool,
    /// This machine's time, epoch milliseconds.
    pub now_ms: i64,
}

/// The outcome of an intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushOutcome {
    /// The service answered. `unknown_sends` is the number of earlier requests of the intent without a known outcome.
    Answered { answer: PushAnswer, status: u16, unknown_sends: u64 },
    /// No answer says whether the service has the row. `unknown_sends` is the number of requests of the intent.
    Unknown { unknown_sends: u64 },
    /// No request was sent, or the service surely did not take it.
    NotSent,
}

/// Changes of the ledger in one transaction.
pub struct PushLedger<'a> {
    transaction: Transaction<'a>,
    path: &'a Path,
}

impl State {
    /// Returns what the ledger has stored about a row. Returns `None` for a row that is not in the ledger.
    pub fn push_record(&self, content: &ContentHash) -> Result<Option<PushRecord>, StateError> {
        read_record(&self.database.connection, content).map_err(self.database.failed("read"))
    }

    /// Runs `change` on the ledger in one transaction, which is durable when this function returns. An error rolls
    /// everything back.
    pub fn change_pushes<T>(
        &mut self,
        change: impl FnOnce(&PushLedger<'_>) -> Result<T, StateError>,
    ) -> Result<T, StateError> {
        self.hit(DurableStep::PushesRecorded)?;
        let path = self.database.path.clone();
        let failed = |source| StateError::sqlite("write", &path, source);
        let ledger = PushLedger { transaction: self.database.connection.transaction().map_err(failed)?, path: &path };
        let changed = change(&ledger)?;
        ledger.transaction.commit().map_err(failed)?;
        Ok(changed)
    }
}

impl PushLedger<'_> {
    /// Returns what the ledger has stored about a row. Returns `None` for a row that is not in the ledger.
    pub fn record(&self, content: &ContentHash) -> Result<Option<PushRecord>, StateError> {
        read_record(&self.transaction, content).map_err(|source| StateError::sqlite("read", self.path, source))
    }

    /// Stores the intent to send a row. If the ledger has an earlier intent for the same content without an outcome,
    /// that intent is added to `unknown_sends`. An earlier acceptance stays the answer (`fate`). An earlier refusal
    /// does not, because the service may accept the row now.
    pub fn begin(&self, intent: &PushIntent<'_>) -> Result<(), StateError> {
        let sql = "INSERT INTO pushes (content, person, fate, in_flight, in_flight_events, unknown_sends, unknown_events, ordinal, \
                   sent_ms) VALUES (?1, ?2, 0, 1, ?3, 0, 0, (SELECT coalesce(max(ordinal), 0) + 1 FROM pushes WHERE person = ?2), ?4) \
                   ON CONFLICT (content) DO UPDATE SET \
                   unknown_sends = unknown_sends + in_flight, \
                   unknown_events = max(unknown_events, in_flight AND in_flight_events), \
                   fate = CASE fate WHEN 2 THEN 0 ELSE fate END, status = CASE fate WHEN 2 THEN NULL ELSE status END, \
                   in_flight = 1, in_flight_events = excluded.in_flight_events, ordinal = excluded.ordinal, \
                   sent_ms = excluded.sent_ms";
        let PushIntent { content, user_id, with_events, now_ms } = intent;
        self.execute(sql, params![content, person_hash(user_id), with_events, now_ms])
    }

    /// Stores the outcome of an intent. If the row was never sent, deletes it from the ledger.
    pub fn finish(&self, content: &ContentHash, outcome: PushOutcome) -> Result<(), StateError> {
        match outcome {
            PushOutcome::Answered { answer, status, unknown_sends } => {
                let answer = match answer {
                    PushAnswer::Unknown => 0,
                    PushAnswer::Accepted => 1,
                    PushAnswer::Refused => 2,
                };
                // An accepted request with events clears `unknown_events`. If such a request was refused, an earlier
                // request of the same intent, without a known outcome, may have been accepted with its events.
                let sql = "UPDATE pushes SET fate = ?2, status = ?3, unknown_sends = unknown_sends + ?4, in_flight = 0, \
                           unknown_events = (unknown_events OR (in_flight_events AND ?4 > 0)) \
                           AND NOT (in_flight_events AND ?2 = 1) WHERE content = ?1";
                self.execute(sql, params![content, answer, status, stored_count(unknown_sends)])
            }
            PushOutcome::Unknown { unknown_sends } => {
                let sql = "UPDATE pushes SET unknown_sends = unknown_sends + ?2, \
                           unknown_events = (unknown_events OR in_flight_events), in_flight = 0 WHERE content = ?1";
                self.execute(sql, params![content, stored_count(unknown_sends)])
            }
            PushOutcome::NotSent => {
                let sql = "DELETE FROM pushes WHERE content = ?1 AND fate = 0 AND unknown_sends = 0";
                self.execute(sql, [content])?;
                self.execute("UPDATE pushes SET in_flight = 0 WHERE content = ?1", [content])
            }
        }
    }

    fn execute(&self, sql: &str, values: impl Params) -> Result<(), StateError> {
        let write = || self.transaction.prepare_cached(sql)?.execute(values).map(drop);
        write().map_err(|source| StateError::sqlite("write", self.path, source))
    }
}

/// Reads what the ledger has stored about a row. An open intent counts as a request without a known outcome.
fn read_record(connection: &Connection, content: &ContentHash) -> rusqlite::Result<Option<PushRecord>> {
    let sql = "SELECT fate, status, unknown_sends + in_flight, unknown_events OR (in_flight AND in_flight_events), \
               EXISTS (SELECT 1 FROM pushes later WHERE later.person = pushes.person AND later.ordinal > pushes.ordinal) \
               FROM pushes WHERE content = ?1";
    connection
        .prepare_cached(sql)?
        .query_row([content], |row| {
            Ok(PushRecord {
                answer: match row.get(0)? {
                    1 => PushAnswer::Accepted,
                    2 => PushAnswer::Refused,
                    _ => PushAnswer::Unknown,
                },
                status: row.get(1)?,
                unknown_sends: row.get::<_, i64>(2)?.unsigned_abs(),
                unknown_events: row.get(3)?,
                is_superseded: row.get(4)?,
            })
        })
        .optional()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p2_an_intent_without_outcome_is_unknown_until_sent_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut state = State::open(&folder.path().join("state.sqlite"), "http://127.0.0.1:1", "test").unwrap();
        let content = [7; 16];
        let begin = |state: &mut State, with_events| {
            let intent = PushIntent { content, user_id: "u", with_events, now_ms: 5 };
            state.change_pushes(|ledger| ledger.begin(&intent)).unwrap();
        };
        let finish = |state: &mut State, outcome| {
            state.change_pushes(|ledger| ledger.finish(&content, outcome)).unwrap();
            state.push_record(&content).unwrap()
        };
        let accepted = PushOutcome::Answered { answer: PushAnswer::Accepted, status: 202, unknown_sends: 0 };
        begin(&mut state, true);
        assert_eq!(finish(&mut state, PushOutcome::NotSent), None, "it was never sent");
        begin(&mut state, true);
        let in_flight = PushRecord { unknown_sends: 1, unknown_events: true, ..PushRecord::default() };
        assert_eq!(state.push_record(&content).unwrap(), Some(in_flight), "the state after a kill");
        begin(&mut state, false);
        assert_eq!(state.push_record(&content).unwrap().unwrap().unknown_sends, 2);
        assert_eq!(finish(&mut state, PushOutcome::NotSent), Some(in_flight));
        begin(&mut state, false);
        let sent = finish(&mut state, accepted).unwrap();
        assert_eq!(sent, PushRecord { answer: PushAnswer::Accepted, status: Some(202), ..in_flight });
        begin(&mut state, true);
        let sent = finish(&mut state, accepted).unwrap();
        assert!(!sent.unknown_events && sent.unknown_sends == 1, "its events were sent again");
        // A row that was refused is sent again: the refusal says nothing about that request.
        let refused = PushOutcome::Answered { answer: PushAnswer::Refused, status: 422, unknown_sends: 0 };
        assert_eq!(finish(&mut state, refused).unwrap().answer, PushAnswer::Refused);
        begin(&mut state, true);
        let lost = finish(&mut state, PushOutcome::Unknown { unknown_sends: 3 }).unwrap();
        assert_eq!(lost, PushRecord { unknown_sends: 4, unknown_events: true, ..PushRecord::default() });
        // An acceptance stays, whatever happens to later requests.
        begin(&mut state, true);
        finish(&mut state, accepted);
        begin(&mut state, true);
        let sent = finish(&mut state, PushOutcome::Unknown { unknown_sends: 1 }).unwrap();
        assert!(sent.answer == PushAnswer::Accepted && sent.unknown_sends == 5 && sent.unknown_events);
        let later = PushIntent { content: [8; 16], user_id: "u", with_events: false, now_ms: 6 };
        assert!(!sent.is_superseded);
        state.change_pushes(|ledger| ledger.begin(&later)).unwrap();
        assert!(state.push_record(&content).unwrap().unwrap().is_superseded);
        state.forget_people(["u"].into_iter()).unwrap();
        assert_eq!(state.push_record(&content).unwrap(), None);
    }
}
