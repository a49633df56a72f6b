//! `[recordings]`: whether recordings are fetched, where they are, and how much of them.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::error::{ConfigError, value};

const RUN_LIMIT_MB: u64 = 10_000;
const FILE_LIMIT_MB: u64 = 1_000;
/// The folder of recordings where nothing else is said: in the Parquet folder, or beside the state file.
pub(super) const FOLDER: &str = "recordings";
const MB: u64 = 1_000_000;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RecordingsTable {
    pub enabled: Option<bool>,
    pub path: Option<PathBuf>,
    pub run_limit_mb: Option<u64>,
    pub file_limit_mb: Option<u64>,
}

/// `[recordings]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingsSettings {
    /// Off unless asked for: recordings are large, and the voices and faces of people.
    pub is_enabled: bool,
    /// Where they are; an erasure looks there also while they are not fetched.
    pub path: PathBuf,
    /// What a run may fetch, in bytes.
    pub run_limit_bytes: u64,
    /// A larger recording is not fetched.
    pub file_limit_bytes: u64,
}

/// `path`: the folder, links followed.
pub(super) fn resolve(table: &RecordingsTable, path: PathBuf) -> Result<RecordingsSettings, ConfigError> {
    let limit = |place: &str, written: Option<u64>, default: u64| match written {
        Some(0) => Err(value(place, "0 leaves no room for a recording; `enabled = false` fetches none".to_owned())),
        written => Ok(written.unwrap_or(default).saturating_mul(MB)),
    };
    let run_limit_bytes = limit("[recordings] run_limit_mb", table.run_limit_mb, RUN_LIMIT_MB)?;
    let file_limit_bytes =
        limit("[recordings] file_limit_mb", table.file_limit_mb, FILE_LIMIT_MB.min(run_limit_bytes / MB))?;
    if file_limit_bytes > run_limit_bytes {
        let problem = format!("{} is more than run_limit_mb: such a recording would never come", file_limit_bytes / MB);
        return Err(value("[recordings] file_limit_mb", problem));
    }
    Ok(RecordingsSettings { is_enabled: table.enabled.unwrap_or(false), path, run_limit_bytes, file_limit_bytes })
}

/// Recordings have a folder of their own: what is in the others is removed and replaced by rules of theirs.
pub(super) fn check_place(
    path: &Path,
    state: &Path,
    archive: &Path,
    parquet: Option<&Path>,
) -> Result<(), ConfigError> {
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let path = absolute(path);
    let refused = |what: &str, other: &Path| {
        let problem =
            format!("{} is {what} {}: recordings need a folder of their own", path.display(), other.display());
        Err(value("[recordings] path", problem))
    };
    let (state, archive) = (absolute(state), absolute(archive));
    if state.starts_with(&path) {
        return refused("above the state file", &state);
    }
    if path.starts_with(&archive) || archive.starts_with(&path) {
        return refused("in or above the archive", &archive);
    }
    let Some(parquet) = parquet.map(absolute) else { return Ok(()) };
    if parquet.starts_with(&path) {
        return refused("the Parquet folder, or above it:", &parquet);
    }
    // Beside the tables: what is in the folder of one goes with it.
    match path.strip_prefix(&parquet).map(|below| below.components().count()) {
        Ok(1) if path.file_name().is_some_and(|name| name == FOLDER) => Ok(()),
        Ok(_) => refused("in the Parquet folder, where only 'recordings' may be:", &parquet),
        Err(_) => Ok(()),
    }
}

/// The passage of the file that `init` writes.
pub(super) fn template() -> String {
    format!(
        r#"[recordings]
# The files of recorded answers (VIDEOVOICE), fetched by their links after the answers: named after their content, with status, hash, size and
# media type in response_media. Erasing a person removes them. Off: they are large, and show faces and voices.
# enabled = false
# Where Parquet is written, the default is {FOLDER} in its folder.
# path = "studysync-state/{FOLDER}"
# What one run may fetch, in millions of bytes; the next run goes on.
# run_limit_mb = {RUN_LIMIT_MB}
# A larger recording is not fetched.
# file_limit_mb = {FILE_LIMIT_MB}
"#
    )
}
