//! Replaces the file by a new one with the same content. DuckDB neither zeroes unused blocks nor returns all of them,
//! so deleted rows stay readable until the whole file is rewritten.
//!
//! All objects are copied, whoever made them ([`super::objects`]). One rename replaces the file; a reader that has the
//! old file open keeps it.

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

/// Suffix of the new file. The next rewrite removes one that a killed run left.
const FRESH: &str = ".rewrite";

/// Writes the new file next to the attached one, and checks that it has every row.
pub(super) fn write(engine: &Engine, path: &Path) -> Result<(), LoadError> {
    let fresh = files::beside(path, FRESH);
    let action = "write the warehouse anew";
    with_new_file(engine, &fresh, || {
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
    let synced = File::open(&fresh).and_then(|file| file.sync_all());
    if synced.is_err() {
        // The first error is returned. An unfinished file would take space.
        file::clear(&fresh).ok();
    }
    synced.map_err(LoadError::io("sync", &fresh))
}

/// Returns an error if the attached file holds an object that cannot be copied. Leaves no file behind.
pub(super) fn require_possible(engine: &Engine, path: &Path) -> Result<(), LoadError> {
    require_copyable(engine, path, &files::beside(path, FRESH))
}

/// Checks that every table has as many rows in the new file as in the old one.
fn check(engine: &Engine, path: &Path) -> Result<(), LoadError> {
    for table in tables(engine, CATALOG)? {
        let (old, new) = (table.sql(CATALOG), table.sql(NEW_CATALOG));
        let sql = format!("SELECT (SELECT count(*) FROM {old}), (SELECT count(*) FROM {new})");
        let [old, new] = engine.integers("check the fresh file", &sql)?;
        if old != new {
            let why = format!("{} has {old} rows, and {new} in the fresh file", table.shown());
            return Err(LoadError::io("write anew", path)(io::Error::other(why)));
        }
    }
    Ok(())
}

/// Replaces the old file by the new one. This process must not have the old file open.
pub(super) fn replace_old_file(engine: &Engine, path: &Path) -> Result<(), LoadError> {
    let fresh = files::beside(path, FRESH);
    engine.hit(DurableStep::DuckDbRewritten, path)?;
    if file::has_commit_log(path) {
        file::clear(&fresh)?;
        // The engine would take it for the log of the new file.
        let source = io::Error::other("its commit log is not folded in");
        return Err(LoadError::io("replace", path)(source));
    }
    file::replace(&fresh, path)
}

/// Replaces the copy for readers by an empty file, which keeps its access rights for the next copy. Removes an
/// unfinished copy.
pub(super) fn empty_copy(copy: &Path) -> Result<(), LoadError> {
    let empty = files::beside(copy, UNFINISHED);
    file::remove(&empty)?;
    file::remove(&file::commit_log(copy))?;
    if files::metadata(copy).map_err(LoadError::io("look at", copy))?.is_none() {
        return Ok(());
    }
    File::create(&empty).map_err(LoadError::io("write", &empty))?;
    file::replace(&empty, copy)
}
