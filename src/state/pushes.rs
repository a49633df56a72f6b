//! The ledger of what is sent: an intent before a request, its outcome after. Whoever finds an intent without an
//! outcome knows that the row may be at the service. Nobody is named: rows and people are hashes.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension, Transaction, params};

use crate::model::DurableStep;

use super::{State, StateError, people::person_key};

/// Names the content of a row.
pub type ContentKey = [u8; 16];

/// What is known of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pushed {
    pub fate: PushFate,
    /// Of the answer.
    pub status: Option<u16>,
    /// How often it was sent without knowing what became of it.
    pub unknown_sends: u64,
    /// Whether events were among that, and were not sent again since.
    pub unknown_events: bool,
    /// Whether other content of the same person was sent later.
    pub is_overtaken: bool,
}

/// The service's answer to a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PushFate {
    /// None is known.
    #[default]
    Unknown,
    Accepted,
    Refused,
}

/// A row that is about to be sent.
#[derive(Clone, Copy, Debug)]
pub struct PushIntent<'a> {
    pub content: ContentKey,
    pub user_id: &'a str,
    /// Whether its events go with it.
    pub with_events: bool,
    /// This machine's time, epoch milliseconds.
    pub now_ms: i64,
}

/// What came of an intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushOutcome {
    /// `unclear`: how often it was sent before without knowing what became of it, within the same intent.
    Answered { fate: PushFate, status: u16, unclear: u64 },
    /// It was not sent, or surely not taken.
    NotSent,
}

/// Changes of the ledger that become durable together.
pub struct PushLedger<'a> {
    transaction: Transaction<'a>,
    path: &'a Path,
}

impl State {
    /// What is known of a row; `None` if it was never about to be sent.
    pub fn pushed(&self, content: &ContentKey) -> Result<Option<Pushed>, StateError> {
        read(&self.connection, content).map_err(self.failed("read"))
    }

    /// Makes changes in one transaction.
    pub fn change_pushes<T>(
        &mut self,
        change: impl FnOnce(&PushLedger<'_>) -> Result<T, StateError>,
    ) -> Result<T, StateError> {
        self.hit(DurableStep::PushesRecorded)?;
        let (began, ended) = (self.failed("write"), self.failed("write"));
        let ledger = PushLedger { transaction: self.connection.transaction().map_err(began)?, path: &self.path };
        let changed = change(&ledger)?;
        ledger.transaction.commit().map_err(ended)?;
        Ok(changed)
    }
}

impl PushLedger<'_> {
    /// What is known of a row.
    pub fn pushed(&self, content: &ContentKey) -> Result<Option<Pushed>, StateError> {
        read(&self.transaction, content).map_err(|source| StateError::sqlite("read", self.path, source))
    }

    /// A row is about to be sent. An intent that is still there came to no known end.
    pub fn intend(&self, intent: &PushIntent<'_>) -> Result<(), StateError> {
        self.note(intent).map_err(|source| StateError::sqlite("write", self.path, source))
    }

    /// An intent came to its end.
    pub fn finish(&self, content: &ContentKey, outcome: &PushOutcome) -> Result<(), StateError> {
        self.close(content, outcome).map_err(|source| StateError::sqlite("write", self.path, source))
    }

    fn note(&self, intent: &PushIntent<'_>) -> rusqlite::Result<()> {
        let sql = "INSERT INTO pushes (content, person, fate, in_flight, in_flight_events, unknown_sends, unknown_events, ordinal, \
                   sent_ms) VALUES (?1, ?2, 0, 1, ?3, 0, 0, (SELECT coalesce(max(ordinal), 0) + 1 FROM pushes WHERE person = ?2), ?4) \
                   ON CONFLICT (content) DO UPDATE SET \
                   unknown_sends = unknown_sends + in_flight, \
                   unknown_events = max(unknown_events, in_flight AND in_flight_events), \
                   in_flight = 1, in_flight_events = excluded.in_flight_events, ordinal = excluded.ordinal, \
                   sent_ms = excluded.sent_ms";
        let PushIntent { content, user_id, with_events, now_ms } = intent;
        let mut statement = self.transaction.prepare_cached(sql)?;
        statement.execute(params![content, person_key(user_id), with_events, now_ms]).map(drop)
    }

    fn close(&self, content: &ContentKey, outcome: &PushOutcome) -> rusqlite::Result<()> {
        match outcome {
            PushOutcome::Answered { fate, status, unclear } => {
                let fate = match fate {
                    PushFate::Unknown => 0,
                    PushFate::Accepted => 1,
                    PushFate::Refused => 2,
                };
                // Events that were sent once more, and taken, are unknown no longer.
                let sql = "UPDATE pushes SET fate = ?2, status = ?3, unknown_sends = unknown_sends + ?4, in_flight = 0, \
                           unknown_events = unknown_events AND NOT (in_flight_events AND ?2 = 1) WHERE content = ?1";
                let unclear = i64::try_from(*unclear).unwrap_or(i64::MAX);
                self.transaction.prepare_cached(sql)?.execute(params![content, fate, status, unclear])?;
            }
            PushOutcome::NotSent => {
                let sql = "DELETE FROM pushes WHERE content = ?1 AND fate = 0 AND unknown_sends = 0";
                self.transaction.prepare_cached(sql)?.execute([content])?;
                let sql = "UPDATE pushes SET in_flight = 0 WHERE content = ?1";
                self.transaction.prepare_cached(sql)?.execute([content])?;
            }
        }
        Ok(())
    }
}

fn read(connection: &Connection, content: &ContentKey) -> rusqlite::Result<Option<Pushed>> {
    let sql = "SELECT fate, status, unknown_sends + in_flight, unknown_events OR (in_flight AND in_flight_events), \
               EXISTS (SELECT 1 FROM pushes later WHERE later.person = pushes.person AND later.ordinal > pushes.ordinal) \
               FROM pushes WHERE content = ?1";
    connection
        .prepare_cached(sql)?
        .query_row([content], |row| {
            Ok(Pushed {
                fate: match row.get(0)? {
                    1 => PushFate::Accepted,
                    2 => PushFate::Refused,
                    _ => PushFate::Unknown,
                },
                status: row.get(1)?,
                unknown_sends: row.get::<_, i64>(2)?.unsigned_abs(),
                unknown_events: row.get(3)?,
                is_overtaken: row.get(4)?,
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
        let intend = |state: &mut State, with_events| {
            let intent = PushIntent { content, user_id: "u", with_events, now_ms: 5 };
            state.change_pushes(|ledger| ledger.intend(&intent)).unwrap();
        };
        let finish = |state: &mut State, outcome| {
            state.change_pushes(|ledger| ledger.finish(&content, &outcome)).unwrap();
            state.pushed(&content).unwrap()
        };
        let accepted = PushOutcome::Answered { fate: PushFate::Accepted, status: 202, unclear: 0 };
        intend(&mut state, true);
        assert_eq!(finish(&mut state, PushOutcome::NotSent), None, "it was never sent");
        intend(&mut state, true);
        let left = Pushed { unknown_sends: 1, unknown_events: true, ..Pushed::default() };
        assert_eq!(state.pushed(&content).unwrap(), Some(left), "as a kill leaves it");
        intend(&mut state, false);
        assert_eq!(state.pushed(&content).unwrap().unwrap().unknown_sends, 2);
        assert_eq!(finish(&mut state, PushOutcome::NotSent), Some(left));
        intend(&mut state, false);
        let sent = finish(&mut state, accepted).unwrap();
        assert_eq!(sent, Pushed { fate: PushFate::Accepted, status: Some(202), ..left });
        intend(&mut state, true);
        let sent = finish(&mut state, accepted).unwrap();
        assert!(!sent.unknown_events && sent.unknown_sends == 1, "its events were sent again");
        let later = PushIntent { content: [8; 16], user_id: "u", with_events: false, now_ms: 6 };
        assert!(!sent.is_overtaken);
        state.change_pushes(|ledger| ledger.intend(&later)).unwrap();
        assert!(state.pushed(&content).unwrap().unwrap().is_overtaken);
        state.forget_people(["u"].into_iter()).unwrap();
        assert_eq!(state.pushed(&content).unwrap(), None);
    }
}
