//! What a process remembers of a warehouse between scans.

/// What a process knows of the rows of a warehouse. A rollback resets it.
#[derive(Debug, Default)]
pub(in crate::load) struct ScanMemory {
    /// True if every stored reject has the hash of this version of the program.
    pub are_rejects_current: bool,
}
