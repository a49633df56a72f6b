//! The copy that analysts read: made byte for byte while the warehouse is held, and put in the place of the last one in one step.
//!
//! Whoever has the last copy open keeps what he sees; whoever opens the path sees one copy or the other, whole. Nobody's session
//! on a copy keeps a run waiting.

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

/// Ends the name of a copy that is being made. A run that was killed leaves it behind; the next one overwrites it.
pub(super) const UNFINISHED: &str = ".unfinished";
/// The mode of a first copy; the next ones keep the mode of the copy before.
const READ_ONLY: u32 = 0o400;

/// Whether the copy is of the file as it is now. A copy gets the time and the size of its original.
pub(super) fn is_current(original: &Path, copy: &Path) -> bool {
    let stamp = |metadata: Metadata| Some((metadata.len(), metadata.modified().ok()?));
    let stamp_of = |path: &Path| fs::metadata(path).ok().and_then(stamp);
    stamp_of(original).is_some_and(|stamp| stamp_of(copy) == Some(stamp)) && !file::has_commit_log(original)
}

/// An error if something else than an earlier copy is in the place. Nothing of ours may be attached.
pub(super) fn check_place(engine: &Engine, copy: &Path, identity: &Identity) -> Result<(), LoadError> {
    let found = files::metadata(copy).map_err(LoadError::io("look at", copy))?;
    // An erasure leaves an empty one until there is a new one.
    if found.is_none_or(|found| found.len() == 0) {
        return Ok(());
    }
    let _claim = Claim::for_reading(copy)?;
    file::attach_read_only(engine, copy)?;
    let checked = catalog::check(engine, copy, identity);
    file::detach(engine, copy)?;
    checked.map(drop)
}

/// Makes the copy. The original is attached, so that nobody else writes to it, and nothing waits in its log.
pub(super) fn make(engine: &Engine, original: &Path, copy: &Path) -> Result<(), LoadError> {
    let folder = files::folder_of(copy);
    files::create_folders(folder).map_err(LoadError::io("create the folder", folder))?;
    let unfinished = files::beside(copy, UNFINISHED);
    let made = write(original, &unfinished);
    if made.is_err() {
        // The first error is the one to tell; what is left would take space that others need.
        fs::remove_file(&unfinished).ok();
    }
    made.map_err(LoadError::io("write", &unfinished))?;
    engine.hit(DurableStep::DuckDbCopied, copy)?;
    // Of a session that wrote to the last copy: it fits no other.
    file::remove(&file::commit_log(copy))?;
    file::put_in_place(&unfinished, copy)
}

fn write(original: &Path, unfinished: &Path) -> io::Result<()> {
    // An earlier one may be read-only, and so not to be written over.
    files::remove(unfinished)?;
    let metadata = fs::metadata(original)?;
    // Shares the blocks of the original where the file system can.
    fs::copy(original, unfinished)?;
    let file = File::options().write(true).open(unfinished)?;
    file.set_times(FileTimes::new().set_modified(metadata.modified()?))?;
    // What is written to a copy is lost with the next one: better refused.
    file.set_permissions(Permissions::from_mode(READ_ONLY))?;
    file.sync_all()
}
