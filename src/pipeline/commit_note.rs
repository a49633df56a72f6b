//! The commit note: the options of a scan's commit, stored with its pages.

use crate::load::VanishPolicy;

use super::PipelineError;

/// The options of a scan's commit, stored in its archive file, so that `replay` commits the scan in the same way. A
/// file of an earlier version of the program has no note.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub(super) struct CommitNote {
    /// The ordinal of the commit.
    pub ordinal: i64,
    pub vanish: VanishPolicy,
    pub record_unchanged: bool,
}

impl CommitNote {
    /// Reads the note of an archive file.
    pub fn read(text: &[u8]) -> Result<Self, PipelineError> {
        serde_json::from_slice(text).map_err(|error| PipelineError::Note(error.to_string()))
    }
}
