//! Finds and loads DuckDB's extensions: `fts`, which makes the search index, and those of catalogs. The program
//! downloads none: the user must have installed them.

use std::path::{Path, PathBuf};

use duckdb::{Config, Connection};

use super::{
    LoadError,
    engine::{Engine, common_config},
    error::FULL_TEXT,
};
use crate::schema::quote_text;

/// Settings of the search index that `search_answers` reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FullTextSearch {
    /// True if runs make the index.
    pub is_on: bool,
    /// Folder of DuckDB's extensions; `None` for DuckDB's default.
    pub extension_directory: Option<PathBuf>,
}

impl FullTextSearch {
    /// Loads the extension into a new engine, to check that it can be loaded. Returns the path of the extension's file.
    ///
    /// # Errors
    /// `NoExtension` if it is not installed, or if its file cannot be loaded.
    pub fn check(&self) -> Result<PathBuf, LoadError> {
        check_extension(&new_engine()?, FULL_TEXT, self.extension_directory.as_deref())
    }

    /// Checks that the extension is installed. Does not load it, because loading takes much longer.
    ///
    /// # Errors
    /// `NoExtension` if it is not installed.
    pub(super) fn require_installed(&self, engine: &Engine) -> Result<(), LoadError> {
        let connection = engine.connection();
        set_directory(connection, self.extension_directory.as_deref())?;
        match installed_path(connection, FULL_TEXT)? {
            Some(_) => Ok(()),
            // The extension is not installed, so loading fails, with an error that names the missing file.
            None => load(connection, None),
        }
    }

    /// Loads the extension into an engine.
    ///
    /// # Errors
    /// `NoExtension` if it is not installed, or if its file cannot be loaded.
    pub(super) fn load_into(&self, engine: &Engine) -> Result<(), LoadError> {
        load(engine.connection(), self.extension_directory.as_deref())
    }
}

/// Sets the folder of the engine's extensions; `None` leaves DuckDB's default.
fn set_directory(connection: &Connection, directory: Option<&Path>) -> Result<(), LoadError> {
    let Some(directory) = directory else { return Ok(()) };
    let sql = format!("SET extension_directory = {}", quote_text(&directory.to_string_lossy()));
    connection.execute_batch(&sql).map_err(LoadError::engine("set the folder of extensions"))
}

/// Loads the extension from the folder of extensions; `None` for the folder that the engine has.
fn load(connection: &Connection, directory: Option<&Path>) -> Result<(), LoadError> {
    load_extension(connection, FULL_TEXT, directory)
}

/// Loads an extension from the folder of extensions; `None` for the folder that the engine has.
pub(super) fn load_extension(
    connection: &Connection,
    name: &'static str,
    directory: Option<&Path>,
) -> Result<(), LoadError> {
    set_directory(connection, directory)?;
    connection.execute_batch(&format!("LOAD {name}")).map_err(|error| no_extension(name, &error.to_string()))
}

/// Opens an engine without a file, for a check.
pub(super) fn new_engine() -> Result<Connection, LoadError> {
    let failed = LoadError::engine("open");
    let config = common_config(Config::default()).map_err(failed)?;
    Connection::open_in_memory_with_flags(config).map_err(failed)
}

/// Loads an extension, and returns the path of its file.
///
/// # Errors
/// `NoExtension` if it is not installed, or if its file cannot be loaded.
pub(super) fn check_extension(
    connection: &Connection,
    name: &'static str,
    directory: Option<&Path>,
) -> Result<PathBuf, LoadError> {
    load_extension(connection, name, directory)?;
    installed_path(connection, name).map(Option::unwrap_or_default)
}

/// Returns the path of the extension's file; `None` if it is not installed.
fn installed_path(connection: &Connection, name: &str) -> Result<Option<PathBuf>, LoadError> {
    let name = quote_text(name);
    let sql = format!(
        "SELECT install_path FROM duckdb_extensions() WHERE (extension_name = {name} OR list_contains(aliases, {name})) AND installed"
    );
    let failed = LoadError::engine("list its extensions");
    let mut statement = connection.prepare(&sql).map_err(failed)?;
    let mut paths = statement.query_map([], |row| row.get::<_, Option<String>>(0)).map_err(failed)?;
    let path = paths.next().transpose().map_err(failed)?;
    Ok(path.map(|path| PathBuf::from(path.unwrap_or_default())))
}

/// Returns the error for an extension that cannot be loaded. Shortens the engine's message to the missing file, or to
/// the message's first line.
fn no_extension(name: &'static str, message: &str) -> LoadError {
    let why = match message.split_once("not found.") {
        Some((before, _)) => format!("there is no {}", before.split('"').nth(1).unwrap_or("file of it")),
        None => message.lines().next().unwrap_or_default().to_owned(),
    };
    LoadError::NoExtension { name, why }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(directory: &Path) -> String {
        let search = FullTextSearch { is_on: true, extension_directory: Some(directory.to_owned()) };
        search.check().unwrap_err().to_string()
    }

    #[expect(clippy::disallowed_methods, reason = "the script names the folder of extensions")]
    fn installed() -> PathBuf {
        std::env::var_os("STUDYSYNC_TEST_EXTENSIONS").expect("run by scripts/lakes.sh, which installs them").into()
    }

    /// Also for an engine that is compiled into the program, for which the script has extensions of another version:
    /// these can be loaded, but not used.
    #[test]
    #[ignore = "slow: run by `make lakes`, also with DUCKDB=bundled"]
    fn the_engine_loads_the_extensions_of_catalogs() {
        let folder = tempfile::tempdir().unwrap();
        // The engine accepts another version only if it accepts unsigned extensions.
        let config = common_config(Config::default()).unwrap().allow_unsigned_extensions().unwrap();
        let connection = Connection::open_in_memory_with_flags(config).unwrap();
        connection.execute_batch("SET allow_extensions_metadata_mismatch = true").unwrap();
        let text = |sql: &str| connection.query_row::<String, _, _>(sql, [], |row| row.get(0)).unwrap();
        let version = text("SELECT library_version FROM pragma_version()");
        let copies = folder.path().join(&version).join(text("PRAGMA platform"));
        std::fs::create_dir_all(&copies).unwrap();
        let files = crate::files::files_below(&installed()).unwrap();
        for name in ["ducklake", "postgres_scanner", "httpfs", "avro", "iceberg"] {
            let file = format!("{name}.duckdb_extension");
            let found = files.iter().find(|path| path.ends_with(&file)).unwrap();
            std::fs::copy(found, copies.join(&file)).unwrap();
            load_extension(&connection, name, Some(folder.path())).unwrap();
        }
        let loaded =
            "SELECT count(*)::VARCHAR FROM duckdb_extensions() WHERE loaded AND install_mode <> 'STATICALLY_LINKED'";
        assert_eq!(text(loaded), "5");
        if !files.iter().any(|path| path.iter().any(|part| *part == *version)) {
            println!("the extensions have another version than the engine, {version}: they are loaded and not used");
            return;
        }
        let lake = quote_text(&format!("ducklake:{}", folder.path().join("lake").display()));
        let made = format!("ATTACH {lake} AS lake; CREATE TABLE lake.numbers AS SELECT 7 AS number");
        connection.execute_batch(&made).unwrap();
        assert_eq!(text("SELECT number::VARCHAR FROM lake.numbers"), "7");
    }

    #[test]
    fn a_missing_and_a_broken_extension_differ() {
        let folder = tempfile::tempdir().unwrap();
        let missing = why(folder.path());
        assert!(missing.contains("there is no ") && missing.contains("fts.duckdb_extension"), "{missing}");
        let path = PathBuf::from(missing.split("there is no ").nth(1).unwrap());
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, [7u8; 2048]).unwrap();
        let broken = why(folder.path());
        assert!(!broken.contains("there is no ") && broken.contains("fts"), "{broken}");
        assert!(broken.contains("cannot be loaded") && !broken.contains('\n'), "{broken}");
    }
}
