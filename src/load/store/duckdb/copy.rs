//! Makes the read-only copy of the file for analysts. The copy is written under another name and renamed, so a new
//! session opens either the old copy or the new one.
//!
//! A session that has a copy open keeps reading this copy, and does not block a run.

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

/// Suffix of an unfinished copy. The next copy replaces an unfinished file that a killed run left.
pub(super) const UNFINISHED: &str = ".unfinished";
/// File mode of the first copy: its owner may only read it. Later copies get the mode of the copy that they replace.
const READ_ONLY: u32 = 0o400;

/// Returns true if the copy has the content of the original. A copy gets the modification time of its original. So the
/// content is the same if size and modification time are equal and the original has no commit log.
pub(super) fn is_current(original: &Path, copy: &Path) -> bool {
    let stamp = |metadata: Metadata| Some((metadata.len(), metadata.modified().ok()?));
    let stamp_of = |path: &Path| fs::metadata(path).ok().and_then(stamp);
    stamp_of(original).is_some_and(|stamp| stamp_of(copy) == Some(stamp)) && !file::has_commit_log(original)
}

/// Returns an error if the file at `copy` may not be replaced: it is neither empty nor a copy of this warehouse. A copy
/// that names another service, but has no rows of a service, may be replaced: a first run with a wrong address leaves
/// such a copy. The warehouse's file must not be attached.
pub(super) fn check_target(engine: &Engine, copy: &Path, identity: &Identity) -> Result<(), LoadError> {
    let found = files::metadata(copy).map_err(LoadError::io("look at", copy))?;
    // An empty file is what an erasure leaves in place of the copy.
    if found.is_none_or(|found| found.len() == 0) {
        return Ok(());
    }
    let _claim = Claim::for_reading(copy)?;
    file::attach_read_only(engine, copy)?;
    let checked = match catalog::check(engine, copy, identity) {
        Err(refused @ LoadError::OtherIdentity { .. }) => match catalog::has_service_rows(engine) {
            Ok(true) => Err(refused),
            has_rows => has_rows.map(drop),
        },
        checked => checked.map(drop),
    };
    file::detach(engine, copy).and(checked)
}

/// Makes the copy and replaces the earlier one. The original must be attached, so that nobody else writes to it. A
/// checkpoint must have folded its commit log into the file, because only the file is copied.
pub(super) fn make(engine: &Engine, original: &Path, copy: &Path) -> Result<(), LoadError> {
    let folder = files::folder_of(copy);
    files::create_folders(folder).map_err(LoadError::io("create the folder", folder))?;
    let unfinished = files::with_suffix(copy, UNFINISHED);
    let made = write(original, &unfinished);
    if made.is_err() {
        // The first error is returned. An unfinished copy would take space.
        fs::remove_file(&unfinished).ok();
    }
    made.map_err(LoadError::io("write", &unfinished))?;
    put_in_place(engine, &unfinished, copy)
}

/// Replaces the copy by a complete and durable file.
pub(super) fn put_in_place(engine: &Engine, unfinished: &Path, copy: &Path) -> Result<(), LoadError> {
    engine.hit(DurableStep::DuckDbCopied, copy)?;
    // A session may have written to the earlier copy. The commit log of that copy does not fit the new copy.
    file::remove(&file::commit_log(copy))?;
    file::replace(unfinished, copy)
}

/// Makes a file read-only and durable. The next copy would lose everything that somebody writes to this copy.
pub(super) fn make_read_only(file: &File) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(READ_ONLY))?;
    file.sync_all()
}

/// Copies the bytes of the original to `unfinished`. Gives the copy the original's modification time, and makes it
/// read-only and durable.
fn write(original: &Path, unfinished: &Path) -> io::Result<()> {
    // A leftover of a killed run may be read-only, so it is removed and not overwritten.
    files::remove(unfinished)?;
    let metadata = fs::metadata(original)?;
    // On a file system that can, the copy shares the blocks of the original.
    fs::copy(original, unfinished)?;
    let file = File::options().write(true).open(unfinished)?;
    file.set_times(FileTimes::new().set_modified(metadata.modified()?))?;
    make_read_only(&file)
}
