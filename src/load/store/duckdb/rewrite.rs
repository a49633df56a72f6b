//! A fresh file in the place of the old one. DuckDB neither zeroes blocks that it no longer uses nor gives all of them
//! back, so what was deleted can be read out of a file until all of it is written anew.
//!
//! Everything comes along: tables, views, macros and comments, of whoever made them ([`super::objects`]). The old file
//! goes by one rename; a reader that has it open keeps what it sees.

use std::{fs::File, io, path::Path};

use super::{
    copy::UNFINISHED,
    file,
    names::CATALOG,
    objects::{FRESH_CATALOG, clone_schema, copy_rows, in_its_schemas, require_copyable, tables, with_fresh},
};
use crate::{
    files,
    load::{LoadError, engine::Engine},
    model::DurableStep,
    schema::quote_identifier,
};

/// Ends the name of a file that is being written anew. What a killed run leaves of it is removed by the next rewrite.
const FRESH: &str = ".rewrite";

/// Writes the fresh file beside the old one, which is attached, and checks that it has every row.
pub(super) fn write(engine: &Engine, path: &Path) -> Result<(), LoadError> {
    let fresh = files::beside(path, FRESH);
    let action = "write the warehouse anew";
    let written = with_fresh(engine, &fresh, || {
        let copy = || {
            clone_schema(engine, path)?;
            let mut tables = tables(engine, CATALOG)?.into_iter();
            tables.try_for_each(|table| copy_rows(engine, path, &table, [CATALOG, FRESH_CATALOG]))
        };
        engine.with_all_threads(|| {
            in_its_schemas(engine, copy)?;
            engine.execute(action, &format!("CHECKPOINT {FRESH_CATALOG}"))
        })?;
        check(engine, path)
    });
    let written = written.and_then(|()| {
        File::open(&fresh).and_then(|file| file.sync_all()).map_err(|source| LoadError::io("sync", &fresh, source))
    });
    if written.is_err() {
        // The first error is the one to tell; what is left would take space.
        file::clear(&fresh).ok();
    }
    written
}

/// An error if the attached file holds what could not come along. Leaves nothing behind.
pub(super) fn require_possible(engine: &Engine, path: &Path) -> Result<(), LoadError> {
    require_copyable(engine, path, &files::beside(path, FRESH))
}

/// Every table has as many rows in the fresh file as in the old one.
fn check(engine: &Engine, path: &Path) -> Result<(), LoadError> {
    let failed = |source| LoadError::engine("check the fresh file", source);
    let sql = format!(
        "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = '{CATALOG}' AND NOT internal AND NOT temporary"
    );
    let mut statement = engine.connection().prepare(&sql).map_err(failed)?;
    let names = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).map_err(failed)?;
    for name in names.collect::<Result<Vec<(String, String)>, _>>().map_err(failed)? {
        let table = format!("{}.{}", quote_identifier(&name.0), quote_identifier(&name.1));
        let sql =
            format!("SELECT (SELECT count(*) FROM {CATALOG}.{table}), (SELECT count(*) FROM {FRESH_CATALOG}.{table})");
        let [old, new] = engine.integers("check the fresh file", &sql)?;
        if old != new {
            let source = io::Error::other(format!("{table} has {old} rows, and {new} in the fresh file"));
            return Err(LoadError::io("write anew", path, source));
        }
    }
    Ok(())
}

/// Puts the fresh file in the place of the old one, which nobody in this process has open.
pub(super) fn put_in_place(engine: &Engine, path: &Path) -> Result<(), LoadError> {
    let fresh = files::beside(path, FRESH);
    engine.reach(DurableStep::DuckDbRewritten, path)?;
    if file::has_commit_log(path) {
        file::clear(&fresh)?;
        // It would be taken for the log of the fresh file.
        let source = io::Error::other("its commit log is not folded in");
        return Err(LoadError::io("replace", path, source));
    }
    file::put_in_place(&fresh, path)
}

/// Puts an empty file in the place of the copy for readers: the next copy gets its access.
/// Removes what is left of one that was being made.
pub(super) fn empty_copy(copy: &Path) -> Result<(), LoadError> {
    let empty = files::beside(copy, UNFINISHED);
    file::remove(&empty)?;
    file::remove(&file::commit_log(copy))?;
    if files::metadata(copy).map_err(|source| LoadError::io("look at", copy, source))?.is_none() {
        return Ok(());
    }
    File::create(&empty).map_err(|source| LoadError::io("write", &empty, source))?;
    file::put_in_place(&empty, copy)
}
