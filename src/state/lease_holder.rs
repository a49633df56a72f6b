//! The holder of the lease.

use std::fmt;

use crate::model::format_ms;

/// The run that holds the lease, as messages name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseHolder {
    pub run_id: String,
    pub pid: u32,
    pub host: String,
    pub command: String,
    /// When the run started, in epoch milliseconds by the holder's machine.
    pub started_ms: i64,
}

impl fmt::Display for LeaseHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LeaseHolder { pid, host, command, started_ms, .. } = self;
        write!(f, "`studysync {command}`, process {pid} on {host}, since {}", format_ms(*started_ms))
    }
}
