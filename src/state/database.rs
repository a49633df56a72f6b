//! An SQLite file: opening, migrations, queries and transactions. Every error names the file and the failed action.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, Params, Row, Transaction, TransactionBehavior};
use rusqlite_migration::{M, Migrations};

use super::StateError;

/// How long a reader (`status`) and the writer wait for each other.
const BUSY_WAIT: Duration = Duration::from_secs(10);
/// The pause between two attempts where SQLite itself does not wait.
const BUSY_PAUSE: Duration = Duration::from_millis(5);
/// Flags to open a file for reading only.
pub(super) const READ_ONLY: OpenFlags = OpenFlags::SQLITE_OPEN_READ_ONLY.union(OpenFlags::SQLITE_OPEN_NO_MUTEX);

/// A connection to an SQLite file.
#[derive(Debug)]
pub(super) struct Database {
    pub connection: Connection,
    pub path: PathBuf,
}

impl Database {
    pub fn connect(path: &Path, flags: OpenFlags) -> Result<Database, StateError> {
        let connection =
            Connection::open_with_flags(path, flags).map_err(|source| StateError::sqlite("open", path, source))?;
        let database = Database { connection, path: path.to_owned() };
        database.connection.busy_timeout(BUSY_WAIT).map_err(database.failed("set up"))?;
        Ok(database)
    }

    /// Opens a file that no process writes, for reading only. SQLite creates no files next to it.
    pub fn connect_immutable(path: &Path) -> Result<Database, StateError> {
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let escaped = absolute.to_string_lossy().replace('%', "%25").replace('?', "%3f").replace('#', "%23");
        let uri = format!("file:{escaped}?immutable=1");
        let database = Database::connect(Path::new(&uri), READ_ONLY | OpenFlags::SQLITE_OPEN_URI)?;
        Ok(Database { path: path.to_owned(), ..database })
    }

    /// Makes every commit durable before it returns: WAL mode, with a sync at each commit.
    pub fn make_durable(&self) -> Result<(), StateError> {
        let deadline = Instant::now() + BUSY_WAIT;
        // SQLite does not wait for this change of a new file while another process makes the same change.
        while let Err(error) = self.connection.pragma_update(None, "journal_mode", "WAL") {
            if error.sqlite_error_code() != Some(ErrorCode::DatabaseBusy) || Instant::now() >= deadline {
                return Err(self.failed("switch on the WAL of")(error));
            }
            std::thread::sleep(BUSY_PAUSE);
        }
        self.connection.pragma_update(None, "synchronous", "FULL").map_err(self.failed("set up"))
    }

    /// Runs the migrations that the file does not have yet.
    ///
    /// # Errors
    /// `Newer` if the file has more migrations than this program knows.
    pub fn migrate(&mut self, migrations: &[M<'_>]) -> Result<(), StateError> {
        let before = self.version()?;
        let migrated = Migrations::from_slice(migrations).to_latest(&mut self.connection);
        if migrated.is_err() && self.version()? > before {
            // Another process migrated the file at the same time, so a table existed already.
            return self.migrate(migrations);
        }
        migrated.map_err(|error| match error {
            rusqlite_migration::Error::MigrationDefinition(_) => StateError::Newer { path: self.path.clone() },
            rusqlite_migration::Error::RusqliteError { err, .. } => StateError::sqlite("prepare", &self.path, err),
            other => StateError::Migration { path: self.path.clone(), why: other.to_string() },
        })
    }

    /// Returns the number of migrations that the file has.
    pub fn version(&self) -> Result<usize, StateError> {
        let version = self.connection.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0));
        version.map(|version| usize::try_from(version).unwrap_or(usize::MAX)).map_err(self.failed("read"))
    }

    /// Executes a statement. Returns the number of changed rows.
    pub fn execute(&self, sql: &str, values: impl Params) -> Result<usize, StateError> {
        self.connection.execute(sql, values).map_err(self.failed("write"))
    }

    /// Executes a statement whose effect a power failure may undo. The next durable commit makes it durable.
    pub fn execute_unsynced(&self, sql: &str, values: impl Params) -> Result<usize, StateError> {
        let synchronous = |value| self.connection.pragma_update(None, "synchronous", value);
        synchronous("NORMAL").map_err(self.failed("set up"))?;
        let changed = self.execute(sql, values);
        synchronous("FULL").map_err(self.failed("set up"))?;
        changed
    }

    /// Returns the first row, read by `read`. Fails if the query has no rows.
    pub fn query_row<T>(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, StateError> {
        let query = || self.connection.prepare_cached(sql)?.query_row(values, read);
        query().map_err(self.failed("read"))
    }

    /// Returns the first row, or `None` if the query has no rows.
    pub fn query_optional<T>(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, StateError> {
        let query = || self.connection.prepare_cached(sql)?.query_row(values, read).optional();
        query().map_err(self.failed("read"))
    }

    /// Returns all rows, read by `read`.
    pub fn query_all<T>(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, StateError> {
        let query = || self.connection.prepare_cached(sql)?.query_map(values, read)?.collect::<Result<Vec<T>, _>>();
        query().map_err(self.failed("read"))
    }

    /// Runs `change` in one transaction, which is durable when this function returns. An error rolls everything back.
    pub fn transact<T>(
        &mut self,
        change: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, StateError> {
        let failed = self.failed("write");
        let apply = || {
            let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let changed = change(&transaction)?;
            transaction.commit()?;
            Ok(changed)
        };
        apply().map_err(failed)
    }

    /// Returns a function for `map_err` that adds the action and the file to an SQLite error.
    pub fn failed(&self, action: &'static str) -> impl FnOnce(rusqlite::Error) -> StateError + use<> {
        let path = self.path.clone();
        move |source| StateError::sqlite(action, &path, source)
    }
}
