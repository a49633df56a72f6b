//! How a scan was committed, as the archive keeps it.

use crate::load::VanishPolicy;

use super::PipelineError;

/// What the archive keeps of how a scan was committed, so that `replay` does it the same way.
/// A file without one is of an earlier version.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub(super) struct CommitNote {
    /// The commit's place among all.
    pub ordinal: i64,
    pub vanish: VanishPolicy,
    pub record_unchanged: bool,
}

impl CommitNote {
    /// Reads what stands in a file of the archive.
    pub fn read(text: &[u8]) -> Result<Self, PipelineError> {
        serde_json::from_slice(text).map_err(|error| PipelineError::Note(error.to_string()))
    }
}
