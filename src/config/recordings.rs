//! `[recordings]`: whether recordings are downloaded, to which folder, and the size limits.

use std::path::{Path, PathBuf};

use super::{
    declare::{default, table},
    error::{ConfigError, invalid},
};

const FILE_LIMIT_MB: u64 = 1_000;
/// The default folder of recordings: in the Parquet folder, else next to the state file.
pub(super) const FOLDER: &str = "recordings";
const MB: u64 = 1_000_000;

table! {
    RecordingsTable {
        "Download the files of recorded answers (VIDEOVOICE) after the answers. A file is named after its content; response_media has its status,"
        "hash, size and media type. Erasing a person removes the files. Off by default: recordings are large, and contain faces and voices."
        enabled: bool = false;
        "The folder of the recordings. With a Parquet warehouse the default is recordings in the Parquet folder."
        path: Option<PathBuf> => default("studysync-state/recordings");
        "Limit of one run, in millions of bytes; the next run downloads the rest."
        run_limit_mb: u64 = 10_000;
        "Size above which a recording is not downloaded, in millions of bytes."
        file_limit_mb: Option<u64> => default(FILE_LIMIT_MB);
    }
}

/// `[recordings]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingsSettings {
    /// Off by default: recordings are large, and contain voices and faces.
    pub is_enabled: bool,
    /// The folder of the recordings. An erasure searches it even if downloads are off.
    pub path: PathBuf,
    /// Bytes that one run may download.
    pub run_limit_bytes: u64,
    /// Size above which a recording is not downloaded.
    pub file_limit_bytes: u64,
}

/// Returns the settings of recordings. `path` is the folder, with its links resolved. Fails if a limit is 0, or if the
/// limit of a file is above that of a run.
pub(super) fn resolve(table: &RecordingsTable, path: PathBuf) -> Result<RecordingsSettings, ConfigError> {
    let limit = |setting: &str, limit_mb: u64| match limit_mb {
        0 => Err(invalid(setting, "0 would download nothing: set `enabled = false` instead")),
        limit_mb => Ok(limit_mb.saturating_mul(MB)),
    };
    let run_limit_bytes = limit("[recordings] run_limit_mb", table.run_limit_mb)?;
    let file_limit_mb = table.file_limit_mb.unwrap_or(FILE_LIMIT_MB.min(run_limit_bytes / MB));
    let file_limit_bytes = limit("[recordings] file_limit_mb", file_limit_mb)?;
    if file_limit_bytes > run_limit_bytes {
        let problem =
            format!("{} is more than run_limit_mb: no run could download such a recording", file_limit_bytes / MB);
        return Err(invalid("[recordings] file_limit_mb", problem));
    }
    Ok(RecordingsSettings { is_enabled: table.enabled, path, run_limit_bytes, file_limit_bytes })
}

/// Checks that recordings have a separate folder. In the folders of the state, the archive and the tables, other rules
/// remove and replace files.
pub(super) fn check_folder(
    path: &Path,
    state: &Path,
    archive: &Path,
    parquet: Option<&PathBuf>,
) -> Result<(), ConfigError> {
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let path = absolute(path);
    let refused = |relation: &str, other: &Path| {
        let problem =
            format!("{} is {relation} {}: recordings need a folder of their own", path.display(), other.display());
        Err(invalid("[recordings] path", problem))
    };
    let (state, archive) = (absolute(state), absolute(archive));
    if state.starts_with(&path) {
        return refused("above the state file", &state);
    }
    if path.starts_with(&archive) || archive.starts_with(&path) {
        return refused("in or above the archive", &archive);
    }
    let Some(parquet) = parquet.map(|parquet| absolute(parquet)) else { return Ok(()) };
    if parquet.starts_with(&path) {
        return refused("the Parquet folder, or above it:", &parquet);
    }
    // The folder of recordings is safe next to the folders of the tables, but not inside one of these folders.
    match path.strip_prefix(&parquet).map(|below| below.components().count()) {
        Ok(1) if path.file_name().is_some_and(|name| name == FOLDER) => Ok(()),
        Ok(_) => refused("in the Parquet folder, where only 'recordings' is allowed:", &parquet),
        Err(_) => Ok(()),
    }
}
