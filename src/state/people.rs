//! Who was asked for at the service, when, and with what outcome. Nobody is named: a person is the hash of their id.

use rusqlite::OptionalExtension;
use xxhash_rust::xxh3::xxh3_128;

use crate::model::{DurableStep, PersonLookup};

use super::{State, StateError};

/// How far the clocks of a service's machines may lie apart. What was asked for later than that from now was asked for
/// by a clock that was wrong, and counts as never.
const CLOCKS_DIFFER_MS_MAX: i64 = crate::model::HOUR_MS;
/// The status of an answer that holds a person.
const FOUND: u16 = 200;

/// When a person is due again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeopleRules {
    /// The service's time, epoch milliseconds.
    pub now_ms: i64,
    /// Who was found is due after this time.
    pub refresh_after_ms: i64,
    /// Who was not is due after this time.
    pub ask_again_after_ms: i64,
}

impl PeopleRules {
    fn is_due(&self, asked_ms: i64, status: u16) -> bool {
        let after_ms = if status == FOUND { self.refresh_after_ms } else { self.ask_again_after_ms };
        asked_ms.saturating_add(after_ms) <= self.now_ms || asked_ms > self.now_ms.saturating_add(CLOCKS_DIFFER_MS_MAX)
    }
}

/// How many people were asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeopleCounts {
    pub found: u64,
    /// The service did not know them, or refused to be asked for them.
    pub absent: u64,
}

impl State {
    /// Remembers answers. One transaction.
    pub fn remember_people(&mut self, people: &[PersonLookup]) -> Result<(), StateError> {
        if people.is_empty() {
            return Ok(());
        }
        self.hit(DurableStep::PersonLookupsRecorded)?;
        let failed = self.failed("write");
        let mut apply = || -> rusqlite::Result<()> {
            let transaction = self.connection.transaction()?;
            {
                let sql = "INSERT INTO people (person, asked_ms, status) VALUES (?1, ?2, ?3) \
                           ON CONFLICT (person) DO UPDATE SET asked_ms = excluded.asked_ms, status = excluded.status";
                let mut statement = transaction.prepare_cached(sql)?;
                for PersonLookup { user_id, asked_ms, status } in people {
                    statement.execute((person_key(user_id), asked_ms, status))?;
                }
            }
            transaction.commit()
        };
        apply().map_err(failed)
    }

    /// Whether a person is due: never asked for, or too long ago.
    pub fn is_person_due(&self, user_id: &str, rules: &PeopleRules) -> Result<bool, StateError> {
        let sql = "SELECT asked_ms, status FROM people WHERE person = ?1";
        let mut statement = self.connection.prepare_cached(sql).map_err(self.failed("read"))?;
        let asked: Option<(i64, u16)> = statement
            .query_row([person_key(user_id)], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()
            .map_err(self.failed("read"))?;
        Ok(asked.is_none_or(|(asked_ms, status)| rules.is_due(asked_ms, status)))
    }

    /// How many people were asked for so far.
    pub fn people_counts(&self) -> Result<PeopleCounts, StateError> {
        let sql = "SELECT count(*) FILTER (WHERE status = ?1), count(*) FILTER (WHERE status <> ?1) FROM people";
        self.connection
            .query_row(sql, [FOUND], |row| {
                let count = |at| row.get::<_, i64>(at).map(i64::unsigned_abs);
                Ok(PeopleCounts { found: count(0)?, absent: count(1)? })
            })
            .map_err(self.failed("read"))
    }

    /// Forgets that people were ever asked for, or sent, and what any page comes to: some hashes there may be of
    /// theirs. Returns how many entries of people there were.
    pub fn forget_people<'a>(&mut self, user_ids: impl Iterator<Item = &'a str>) -> Result<u64, StateError> {
        self.hit(DurableStep::PersonLookupsRecorded)?;
        let failed = self.failed("write");
        let forget = || -> rusqlite::Result<usize> {
            let transaction = self.connection.transaction()?;
            let mut forgotten = 0;
            for person in user_ids.map(person_key) {
                forgotten += transaction.execute("DELETE FROM people WHERE person = ?1", [person])?;
                forgotten += transaction.execute("DELETE FROM pushes WHERE person = ?1", [person])?;
            }
            transaction.commit()?;
            Ok(forgotten)
        };
        forget().map(|forgotten| forgotten as u64).map_err(failed)
    }
}

/// What stands for a person.
pub(super) fn person_key(user_id: &str) -> [u8; 16] {
    xxh3_128(user_id.as_bytes()).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{DAY_MS, HOUR_MS};

    #[test]
    fn p6_a_person_is_due_when_new_and_after_an_interval() {
        let folder = tempfile::tempdir().unwrap();
        let mut state = State::open(&folder.path().join("state.sqlite"), "http://127.0.0.1:1", "test").unwrap();
        let asked = |user_id: &str, status| PersonLookup { user_id: user_id.into(), asked_ms: 100 * DAY_MS, status };
        state.remember_people(&[asked("found", 200), asked("absent", 404), asked("found", 200)]).unwrap();
        let due = |state: &State, user_id: &str, day: i64, more_ms: i64| {
            let (refresh_after_ms, ask_again_after_ms) = (30 * DAY_MS, 7 * DAY_MS);
            let rules = PeopleRules { now_ms: day * DAY_MS + more_ms, refresh_after_ms, ask_again_after_ms };
            state.is_person_due(user_id, &rules).unwrap()
        };
        assert!(due(&state, "new", 100, 0));
        for (user_id, after_days) in [("found", 30), ("absent", 7)] {
            assert!(!due(&state, user_id, 100 + after_days, -1), "{user_id}");
            assert!(due(&state, user_id, 100 + after_days, 0), "{user_id}");
            assert!(!due(&state, user_id, 100, -HOUR_MS), "{user_id}: clocks differ");
            assert!(due(&state, user_id, 99, 0), "{user_id}: asked for by a clock that was wrong");
        }
        assert_eq!(state.people_counts().unwrap(), PeopleCounts { found: 1, absent: 1 });
        assert_eq!(state.forget_people(["found", "new"].into_iter()).unwrap(), 1);
        assert!(due(&state, "found", 100, 0));
        let bytes = std::fs::read(folder.path().join("state.sqlite-wal")).unwrap();
        let named = |name: &[u8]| bytes.windows(name.len()).any(|found| found == name);
        assert!(!named(b"absent") && named(b"people"), "nobody is named");
    }
}
