//! One writer at a time. The lock is the system's, on a file beside the database, so it goes with its process whatever
//! kills it; the row in `lease` only tells who holds it.

use std::fs::File;

use rusqlite::OptionalExtension;
use rustix::fs::{FlockOperation, flock};

use crate::model::{DurableStep, RunId};

use super::{
    State, StateError,
    holder::Holder,
    lock::{lock_path, try_lock},
};

/// The lease; dropping it lets the next run in.
#[derive(Debug)]
#[must_use = "dropping the lease lets the next run in"]
pub struct Lease {
    _lock: File,
}

impl State {
    /// Takes the lease, or says who holds it.
    pub fn take_lease(&self, run_id: &RunId, command: &str, started_ms: i64) -> Result<Lease, StateError> {
        let Some(lock) = try_lock(&self.path)? else {
            return Err(StateError::Leased { path: self.path.clone(), holder: self.holder()? });
        };
        self.hit(DurableStep::LeaseTaken)?;
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let sql =
            "INSERT OR REPLACE INTO lease (id, run_id, pid, host, command, started_ms) VALUES (1, ?1, ?2, ?3, ?4, ?5)";
        self.connection
            .execute(sql, (&run_id.0, std::process::id(), host, command, started_ms))
            .map_err(self.failed("write"))?;
        Ok(Lease { _lock: lock })
    }

    /// Who holds the lease now; `None` when nobody does.
    pub fn current_holder(&self) -> Result<Option<Holder>, StateError> {
        let Ok(lock) = File::open(lock_path(&self.path)) else { return Ok(None) };
        match flock(&lock, FlockOperation::NonBlockingLockShared) {
            Err(rustix::io::Errno::WOULDBLOCK) => self.holder(),
            _ => Ok(None),
        }
    }

    fn holder(&self) -> Result<Option<Holder>, StateError> {
        let sql = "SELECT run_id, pid, host, command, started_ms FROM lease WHERE id = 1";
        self.connection
            .query_row(sql, [], |row| {
                Ok(Holder {
                    run_id: row.get(0)?,
                    pid: row.get(1)?,
                    host: row.get(2)?,
                    command: row.get(3)?,
                    started_ms: row.get(4)?,
                })
            })
            .optional()
            .map_err(self.failed("read"))
    }
}
