//! Stores which users were requested by id, when, and with what status. Rows have only the hash of a user's id.

use xxhash_rust::xxh3::xxh3_128;

use crate::model::{DurableStep, PersonLookup, is_in_future};

use super::{State, StateError};

/// The status of an answer with a user.
const FOUND: u16 = 200;

/// The intervals after which a user is due for another request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefreshIntervals {
    /// The service's time, epoch milliseconds.
    pub now_ms: i64,
    /// Milliseconds after which a user that the service returned is due.
    pub refresh_after_ms: i64,
    /// Milliseconds after which a user that the service did not return is due.
    pub ask_again_after_ms: i64,
}

impl RefreshIntervals {
    /// Returns true if a user that was requested at `asked_ms` with this status is due.
    fn is_due(&self, asked_ms: i64, status: u16) -> bool {
        let after_ms = if status == FOUND { self.refresh_after_ms } else { self.ask_again_after_ms };
        // A request of the future was recorded with a wrong clock, and counts as never made.
        asked_ms.saturating_add(after_ms) <= self.now_ms || is_in_future(asked_ms, self.now_ms)
    }
}

/// The numbers of users that were requested so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeopleCounts {
    /// Users that the service returned.
    pub found: u64,
    /// Users that the service did not know, or for whom it refused the request.
    pub absent: u64,
}

impl State {
    /// Records the answers of the service in one transaction.
    pub fn remember_people(&mut self, people: &[PersonLookup]) -> Result<(), StateError> {
        if people.is_empty() {
            return Ok(());
        }
        self.hit(DurableStep::PersonLookupsRecorded)?;
        self.database.transact(|transaction| {
            let sql = "INSERT INTO people (person, asked_ms, status) VALUES (?1, ?2, ?3) \
                       ON CONFLICT (person) DO UPDATE SET asked_ms = excluded.asked_ms, status = excluded.status";
            let mut statement = transaction.prepare_cached(sql)?;
            for PersonLookup { user_id, asked_ms, status } in people {
                statement.execute((person_hash(user_id), asked_ms, status))?;
            }
            Ok(())
        })
    }

    /// Returns true if a user was never requested, or too long ago.
    pub fn is_person_due(&self, user_id: &str, intervals: &RefreshIntervals) -> Result<bool, StateError> {
        let sql = "SELECT asked_ms, status FROM people WHERE person = ?1";
        let asked = self
            .database
            .query_optional(sql, [person_hash(user_id)], |row| Ok(intervals.is_due(row.get(0)?, row.get(1)?)));
        Ok(asked?.unwrap_or(true))
    }

    /// Returns how many users were requested so far.
    pub fn people_counts(&self) -> Result<PeopleCounts, StateError> {
        let sql = "SELECT count(*) FILTER (WHERE status = ?1), count(*) FILTER (WHERE status <> ?1) FROM people";
        self.database.query_row(sql, [FOUND], |row| {
            let count = |index| row.get::<_, i64>(index).map(i64::unsigned_abs);
            Ok(PeopleCounts { found: count(0)?, absent: count(1)? })
        })
    }

    /// Deletes all rows about these users: requests for them, and rows of pushes. Returns the number of deleted rows.
    pub fn forget_people<'a>(&mut self, user_ids: impl Iterator<Item = &'a str>) -> Result<u64, StateError> {
        self.hit(DurableStep::PersonLookupsRecorded)?;
        self.database.transact(|transaction| {
            let mut deleted = 0;
            for person in user_ids.map(person_hash) {
                deleted += transaction.execute("DELETE FROM people WHERE person = ?1", [person])?;
                deleted += transaction.execute("DELETE FROM pushes WHERE person = ?1", [person])?;
            }
            Ok(deleted as u64)
        })
    }
}

/// Returns the hash that stands for a user in the state file.
pub(super) fn person_hash(user_id: &str) -> [u8; 16] {
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
            let intervals = RefreshIntervals { now_ms: day * DAY_MS + more_ms, refresh_after_ms, ask_again_after_ms };
            state.is_person_due(user_id, &intervals).unwrap()
        };
        assert!(due(&state, "new", 100, 0));
        for (user_id, after_days) in [("found", 30), ("absent", 7)] {
            assert!(!due(&state, user_id, 100 + after_days, -1), "{user_id}");
            assert!(due(&state, user_id, 100 + after_days, 0), "{user_id}");
            assert!(!due(&state, user_id, 100, -HOUR_MS), "{user_id}: within the clock skew");
            assert!(due(&state, user_id, 99, 0), "{user_id}: recorded with a wrong clock");
        }
        assert_eq!(state.people_counts().unwrap(), PeopleCounts { found: 1, absent: 1 });
        assert_eq!(state.forget_people(["found", "new"].into_iter()).unwrap(), 1);
        assert!(due(&state, "found", 100, 0));
        let bytes = std::fs::read(folder.path().join("state.sqlite-wal")).unwrap();
        let contains = |name: &[u8]| bytes.windows(name.len()).any(|found| found == name);
        assert!(!contains(b"absent") && contains(b"people"), "the file names a user");
    }
}
