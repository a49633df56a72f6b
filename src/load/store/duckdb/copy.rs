//! The read-only copy for analysts, made byte by byte under the lock and replaced atomically.
//!
//! A session keeps the copy that it opened. A new session opens the old copy or the new one, never a part of one. No
//! session on a copy blocks a run.

use std::{
    fs::{self, File, FileTimes, Metadata, Permissions},
    io,
    os::unix::fs::PermissionsExt,
    path::Path,
};

use super::{catalog, claims::Claim, file};
use crate::{
    files,
    load::{Identity, LoadError, engine::Engine},
    model::DurableStep,
};

/// Suffix of an unfinished copy. The next run overwrites one that a killed run left.
pub(super) const UNFINISHED: &str = ".unfinished";
/// Mode of the first copy; later copies keep the mode of the copy before.
const READ_ONLY: u32 = 0o400;

/// Returns true if the copy has the content of the file. A copy has the time and the size of its original.
pub(super) fn is_current(original: &Path, copy: &Path) -> bool {
    let stamp = |metadata: Metadata| Some((metadata.len(), metadata.modified().ok()?));
    let stamp_of = |path: &Path| fs::metadata(path).ok().and_then(stamp);
    stamp_of(original).is_some_and(|stamp| stamp_of(copy) == Some(stamp)) && !file::has_commit_log(original)
}

/// Returns an error if the path holds something else than an earlier copy. No file may be attached.
pub(super) fn check_target(engine: &Engine, copy: &Path, identity: &Identity) -> Result<(), LoadError> {
    let found = files::metadata(copy).map_err(LoadError::io("look at", copy))?;
    // An erasure leaves an empty copy.
    if found.is_none_or(|found| found.len() == 0) {
        return Ok(());
    }
    let _claim = Claim::for_reading(copy)?;
    file::attach_read_only(engine, copy)?;
    let checked = catalog::check(engine, copy, identity);
    file::detach(engine, copy)?;
    checked.map(drop)
}

/// Makes the copy. The original is attached, so nobody writes to it, and its commit log is empty.
pub(super) fn make(engine: &Engine, original: &Path, copy: &Path) -> Result<(), LoadError> {
    let folder = files::folder_of(copy);
    files::create_folders(folder).map_err(LoadError::io("create the folder", folder))?;
    let unfinished = files::beside(copy, UNFINISHED);
    let made = write(original, &unfinished);
    if made.is_err() {
        // The first error is returned. An unfinished copy would take space.
        fs::remove_file(&unfinished).ok();
    }
    made.map_err(LoadError::io("write", &unfinished))?;
    engine.hit(DurableStep::DuckDbCopied, copy)?;
    // The log of a session that wrote to the last copy fits no other file.
    file::remove(&file::commit_log(copy))?;
    file::replace(&unfinished, copy)
}

fn write(original: &Path, unfinished: &Path) -> io::Result<()> {
    // An earlier copy may be read-only.
    files::remove(unfinished)?;
    let metadata = fs::metadata(original)?;
    // Shares the blocks of the original where the file system can.
    fs::copy(original, unfinished)?;
    let file = File::options().write(true).open(unfinished)?;
    file.set_times(FileTimes::new().set_modified(metadata.modified()?))?;
    // The next copy would lose what somebody writes to this one.
    file.set_permissions(Permissions::from_mode(READ_ONLY))?;
    file.sync_all()
}
