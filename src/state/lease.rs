//! The lease lets one run work at a time. The lease is a file lock of the operating system, which releases the lock
//! when the process ends in any way. The row in the table `lease` only names the holder.

use std::fs::File;

use rustix::fs::{FlockOperation, flock};

use crate::model::{DurableStep, RunId};

use super::{
    State, StateError,
    lease_holder::LeaseHolder,
    lock::{lock_path, try_lock},
};

/// The lease. Dropping it releases the lock.
#[derive(Debug)]
#[must_use = "dropping the lease releases the lock"]
pub struct Lease {
    _lock: File,
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
        Ok(Lease { _lock: lock })
    }

    /// Returns the run that holds the lease now, or `None` if the lease is free.
    pub fn current_holder(&self) -> Result<Option<LeaseHolder>, StateError> {
        let Ok(lock) = File::open(lock_path(self.path())) else { return Ok(None) };
        match flock(&lock, FlockOperation::NonBlockingLockShared) {
            Err(rustix::io::Errno::WOULDBLOCK) => self.last_holder(),
            _ => Ok(None),
        }
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
