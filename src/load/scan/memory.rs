//! What a process remembers of a warehouse between scans.

use super::unique_keys::NewKeys;
use crate::load::store::KeySet;

/// What a process knows of the rows of a warehouse. A rollback resets it.
#[derive(Debug, Default)]
pub(in crate::load) struct ScanMemory {
    /// True if every stored reject has the hash of this version of the program.
    pub are_rejects_current: bool,
    /// True if the keys of all rows that earlier versions of the program added were compared with each other.
    pub are_keys_checked: bool,
    /// The keys of rows that were added since the last commit.
    pub new_keys: NewKeys,
    /// The keys of responses that vanished since the last commit; `None` if none did.
    pub vanished: Option<KeySet>,
}
