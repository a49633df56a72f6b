//! Replaces the file by a new one with the same content. After rows are deleted, DuckDB neither zeroes the unused
//! blocks of the file nor truncates all of them. So the bytes of deleted rows stay in the file until the file is
//! rewritten.
//!
//! The objects of this program and of users are copied ([`super::objects`]). One rename replaces the file. A reader
//! that has the old file open keeps reading it.

use std::{fs::File, io, path::Path};

use super::{
    copy::UNFINISHED,
    file,
    names::CATALOG,
    objects::{NEW_CATALOG, clone_schema, copy_rows, require_copyable, tables, with_new_file, with_search_path},
};
use crate::{
    files,
    load::{LoadError, engine::Engine},
    model::DurableStep,
};

/// Suffix of the new file. The next rewrite removes a new file that a killed run left.
const NEW_SUFFIX: &str = ".rewrite";

/// Writes the new file next to the attached one, and checks that every table has the same number of rows in both files.
/// The new file is durable, but does not replace the old one yet. After an error the new file is removed.
pub(super) fn write(engine: &Engine, path: &Path) -> Result<(), LoadError> {
    let new_file = files::with_suffix(path, NEW_SUFFIX);
    let action = "write the warehouse anew";
    with_new_file(engine, &new_file, || {
        let copy = || {
            clone_schema(engine, path)?;
            let mut tables = tables(engine, CATALOG)?.into_iter();
            tables.try_for_each(|table| copy_rows(engine, path, &table, [CATALOG, NEW_CATALOG]))
        };
        engine.with_all_threads(|| {
            with_search_path(engine, copy)?;
            engine.execute(action, &format!("CHECKPOINT {NEW_CATALOG}"))
        })?;
        check(engine, path)
    })?;
    let synced = File::open(&new_file).and_then(|file| file.sync_all());
    if synced.is_err() {
        // The first error is returned. The unfinished file would take space.
        file::remove_database(&new_file).ok();
    }
    synced.map_err(LoadError::io("sync", &new_file))
}

/// Returns an error if the attached file has an object that cannot be copied, so that [`write()`] would fail. Leaves no
/// file behind.
pub(super) fn require_possible(engine: &Engine, path: &Path) -> Result<(), LoadError> {
    require_copyable(engine, path, &files::with_suffix(path, NEW_SUFFIX))
}

/// Returns an error if a table has not as many rows in the new file as in the old one. Both files must be attached.
fn check(engine: &Engine, path: &Path) -> Result<(), LoadError> {
    for table in tables(engine, CATALOG)? {
        let (old, new) = (table.sql(CATALOG), table.sql(NEW_CATALOG));
        let sql = format!("SELECT (SELECT count(*) FROM {old}), (SELECT count(*) FROM {new})");
        let [old, new] = engine.integers("check the new file", &sql)?;
        if old != new {
            let why = format!("{} has {old} rows, and {new} in the new file", table.for_people());
            return Err(LoadError::io("write anew", path)(io::Error::other(why)));
        }
    }
    Ok(())
}

/// Replaces the old file by the new one. The old file must not be attached. Fails, and removes the new file, if the old
/// file has a commit log: its changes would be lost.
pub(super) fn replace_old_file(engine: &Engine, path: &Path) -> Result<(), LoadError> {
    let new_file = files::with_suffix(path, NEW_SUFFIX);
    engine.hit(DurableStep::DuckDbRewritten, path)?;
    if file::has_commit_log(path) {
        file::remove_database(&new_file)?;
        // The engine would apply the old file's commit log to the new file. The log does not fit that file.
        let source = io::Error::other("its commit log is not folded in");
        return Err(LoadError::io("replace", path)(source));
    }
    file::replace(&new_file, path)
}

/// Replaces the copy for readers by an empty file, if a copy exists. Used when the copy has rows of erased people or
/// names another identity. The empty file keeps the copy's access rights for the next copy. An unfinished copy and the
/// commit log (WAL) of the copy are removed even if no copy exists.
pub(super) fn empty_copy(copy: &Path) -> Result<(), LoadError> {
    let empty = files::with_suffix(copy, UNFINISHED);
    file::remove(&empty)?;
    file::remove(&file::commit_log(copy))?;
    if files::metadata(copy).map_err(LoadError::io("look at", copy))?.is_none() {
        return Ok(());
    }
    File::create(&empty).map_err(LoadError::io("write", &empty))?;
    file::replace(&empty, copy)
}
