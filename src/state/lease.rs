//! The lease lets one run work at a time. The lease is a file lock of the operating system, which releases the lock
//! when the process ends in any way. The row in the table `lease` only names the holder.

use std::fs::File;

use crate::model::{DurableStep, RunId};

use super::{
    State, StateError,
    lease_holder::LeaseHolder,
    lock::{is_locked, lock_path, try_lock},
    runs::{self, RunEnd},
};

/// The lease. Dropping it releases the lock.
#[derive(Debug)]
#[must_use = "dropping the lease releases the lock"]
pub struct Lease {
    lock: File,
}

impl Lease {
    /// Keeps the end of the run in the lock file, for a state file that cannot be written. The history of runs shows
    /// it, and the next run stores it in the state file.
    pub fn keep_end(&self, end: &RunEnd) -> std::io::Result<()> {
        end.write(&self.lock)
    }
}

impl State {
    /// Takes the lease for a run.
    ///
    /// # Errors
    /// `Leased`, with the holder, if another run has it.
    pub fn take_lease(&self, run_id: &RunId, command: &str, started_ms: i64) -> Result<Lease, StateError> {
        let Some(lock) = try_lock(self.path())? else {
            return Err(StateError::Leased { path: self.path().to_owned(), holder: self.last_holder()? });
        };
        self.hit(DurableStep::LeaseTaken)?;
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let sql =
            "INSERT OR REPLACE INTO lease (id, run_id, pid, host, command, started_ms) VALUES (1, ?1, ?2, ?3, ?4, ?5)";
        self.database.execute(sql, (&run_id.0, std::process::id(), host, command, started_ms))?;
        if let Some(end) = RunEnd::read(self.path()) {
            self.store_end(&end)?;
        }
        runs::reserve(&lock);
        Ok(Lease { lock })
    }

    /// Returns the run that holds the lease now, or `None` if the lease is free.
    pub fn current_holder(&self) -> Result<Option<LeaseHolder>, StateError> {
        let Ok(lock) = File::open(lock_path(self.path())) else { return Ok(None) };
        if is_locked(&lock) { self.last_holder() } else { Ok(None) }
    }

    /// Returns the run that took the lease last, which may have ended. Returns `None` if no run has taken it.
    fn last_holder(&self) -> Result<Option<LeaseHolder>, StateError> {
        let sql = "SELECT run_id, pid, host, command, started_ms FROM lease WHERE id = 1";
        self.database.query_optional(sql, [], |row| {
            Ok(LeaseHolder {
                run_id: row.get(0)?,
                pid: row.get(1)?,
                host: row.get(2)?,
                command: row.get(3)?,
                started_ms: row.get(4)?,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::fs::{FlockOperation, flock};

    use super::*;

    #[test]
    fn a_reader_of_the_status_never_keeps_the_lease_from_a_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.sqlite");
        let state = State::open(&path, "http://127.0.0.1:1", "test").unwrap();
        let run = RunId("run".to_owned());
        drop(state.take_lease(&run, "sync", 0).unwrap());
        // A reader that the scheduler of the operating system stops while it asks who has the lease.
        let reader = File::open(lock_path(&path)).unwrap();
        flock(&reader, FlockOperation::LockShared).unwrap();
        let lease = std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(30));
                drop(reader);
            });
            state.take_lease(&run, "sync", 0).unwrap()
        });
        assert_eq!(state.current_holder().unwrap().map(|holder| holder.run_id), Some("run".to_owned()));
        let refused = state.take_lease(&run, "sync", 0).unwrap_err();
        assert!(matches!(refused, StateError::Leased { holder: Some(_), .. }), "{refused:?}");
        drop(lease);
        assert_eq!(state.current_holder().unwrap(), None);
    }
}
