//! One writer at a time. The lock is the system's, on a file beside the database, so it goes with its process whatever kills it;
//! the row in `lease` only tells who holds it.

use std::{
    ffi::OsString,
    fmt,
    fs::{File, OpenOptions},
    path::PathBuf,
};

use rusqlite::OptionalExtension;
use rustix::fs::{FlockOperation, flock};

use crate::model::{DurableStep, RunId, format_ms};

use super::{State, StateError};

/// Who holds the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pub run_id: String,
    pub pid: u32,
    pub host: String,
    pub command: String,
    /// Epoch milliseconds by the holder's machine.
    pub started_ms: i64,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Holder { pid, host, command, started_ms, .. } = self;
        write!(f, "`studysync {command}`, process {pid} on {host}, since {}", format_ms(*started_ms))
    }
}

/// The lease; dropping it lets the next run in.
#[derive(Debug)]
#[must_use = "dropping the lease lets the next run in"]
pub struct Lease {
    _lock: File,
}

impl State {
    /// Takes the lease, or says who holds it.
    pub fn take_lease(&self, run_id: &RunId, command: &str, started_ms: i64) -> Result<Lease, StateError> {
        let path = self.lock_path();
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(|source| StateError::Lock { path: path.clone(), source })?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(StateError::Leased { path: self.path.clone(), holder: self.holder()? });
            }
            Err(errno) => return Err(StateError::Lock { path, source: errno.into() }),
        }
        self.reach(DurableStep::LeaseTaken)?;
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
        let path = self.lock_path();
        let Ok(lock) = File::open(&path) else { return Ok(None) };
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

    fn lock_path(&self) -> PathBuf {
        let mut name = OsString::from(self.path.as_os_str());
        name.push(".lock");
        PathBuf::from(name)
    }
}
