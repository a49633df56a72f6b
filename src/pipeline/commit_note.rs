//! The commit note: the options of a scan's commit, stored with its pages.

use crate::load::VanishPolicy;

use super::PipelineError;

/// The options of a scan's commit, stored in the scan's spool and archive file. A resumed commit and a `replay` use the
/// same options. A file of an earlier version of the program has no note.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub(super) struct CommitNote {
    /// The ordinal of the commit, by which `replay` sorts the scans.
    pub ordinal: i64,
    /// What happens to stored rows that the scan did not return.
    pub vanish: VanishPolicy,
    /// True if every ledger records the scan, even if no row changed.
    pub record_unchanged: bool,
}

impl CommitNote {
    /// Reads the note of an archive file.
    pub fn read(text: &[u8]) -> Result<Self, PipelineError> {
        serde_json::from_slice(text).map_err(|error| PipelineError::Note(error.to_string()))
    }
}
