//! Who holds the lease.

use std::fmt;

use crate::model::format_ms;

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
