//! The views over Parquet files, which a reader creates when a query names them. The engine plans a view when it is
//! created, with all views below it: all of them take seconds, where a query needs few.

use std::{
    cell::Cell,
    path::{Path, PathBuf},
    time::Duration,
};

use duckdb::Connection;

use crate::{
    files,
    load::{
        LoadError, LockPatience,
        store::{duckdb::explain, parquet::BucketTables},
    },
    model::Location,
    schema::{self, Column, Table, ViewKind, named_in, quote_identifier, quote_text, words},
};

/// Catalog name of the views over Parquet files.
pub(super) const PARQUET_CATALOG: &str = "parquet";
/// Name of the file of a partition, and of the file of a table without partitions.
pub(super) const PARQUET_FILE: &str = "data.parquet";
/// How long a reader of a bucket waits for other readers on this machine, which are many then.
const READER_WAIT: Duration = Duration::from_secs(60);
/// Beginnings of the words with which a query lists views.
const LISTS: [&str; 6] = ["show", "information_schema", "duckdb_", "pg_", "pragma_", "sqlite_"];

/// The views and macros over the Parquet files of a warehouse.
pub(super) struct ParquetViews {
    root: PathBuf,
    /// The tables of a warehouse in a bucket, whose files are fetched into `root`; `None` for a folder.
    bucket: Option<BucketTables>,
    /// Catalog in which queries look names up.
    catalog: &'static str,
    /// Each after the views that it reads.
    views: Vec<ParquetView>,
}

struct ParquetView {
    name: String,
    create_sql: String,
    exists: Cell<bool>,
}

impl ParquetViews {
    /// Prepares a view for each table over its files, and the views of this program. `catalog` is where queries look
    /// names up.
    fn new(root: PathBuf, bucket: Option<BucketTables>, catalog: &'static str) -> Result<ParquetViews, LoadError> {
        let view = |name: &str, create_sql| ParquetView { name: name.to_owned(), create_sql, exists: Cell::new(false) };
        let mut views = Vec::new();
        for table in schema::tables() {
            let has_files = match &bucket {
                Some(bucket) => bucket.has_files(table),
                None => has_files(&root, table)?,
            };
            let rows = if has_files { select_files(&root, table) } else { select_no_rows(table) };
            let name = quote_identifier(&table.name);
            views.push(view(&table.name, format!("CREATE OR REPLACE VIEW {name} AS {rows}")));
        }
        // A macro looks tables up in the catalog of the query. If that is another one, there is no macro.
        let is_alone = catalog == PARQUET_CATALOG;
        let of_program = schema::views().iter().filter(|view| is_alone || view.kind == ViewKind::View);
        views.extend(of_program.map(|found| view(&found.name, found.create_sql())));
        Ok(ParquetViews { root, bucket, catalog, views })
    }

    /// Creates a catalog for the views in the engine of a reader. `catalog` is where queries look names up.
    ///
    /// # Errors
    /// `Missing` if there is no folder, or no warehouse in the bucket.
    pub(super) fn attach(
        connection: &Connection,
        location: &Location,
        catalog: &'static str,
    ) -> Result<ParquetViews, LoadError> {
        let (root, bucket) = match &location.bucket {
            Some(address) => {
                let patience = LockPatience { wait: READER_WAIT, ..LockPatience::default() };
                let tables = BucketTables::list(address, &location.reader_folder(), &patience)?;
                (tables.folder().to_owned(), Some(tables))
            }
            None => {
                LoadError::require_folder(&location.path)?;
                (location.path.clone(), None)
            }
        };
        connection
            .execute_batch(&format!("ATTACH ':memory:' AS {PARQUET_CATALOG}"))
            .map_err(explain("open the warehouse", &root))?;
        ParquetViews::new(root, bucket, catalog)
    }

    /// Returns the folder, as the engine compares it with the paths of files.
    pub(super) fn folder(&self) -> String {
        folder_text(&self.root)
    }

    /// Creates the views that a query names, and the views that these read.
    pub(super) fn create_named(&self, connection: &Connection, sql: &str) -> Result<(), LoadError> {
        let sql = sql.to_ascii_lowercase();
        if words(&sql).any(|word| LISTS.iter().any(|list| word.starts_with(list))) {
            return self.create_all(connection).map(drop);
        }
        let may_name = self.catalog == PARQUET_CATALOG || words(&sql).any(|word| word == PARQUET_CATALOG);
        let views = if may_name { &self.views[..] } else { &[] };
        let named = named_in(&sql, views, |view| (&view.name, &view.create_sql));
        self.create(connection, named.into_iter()).map(drop)
    }

    /// Creates the views that do not exist. Returns false if all exist.
    pub(super) fn create_all(&self, connection: &Connection) -> Result<bool, LoadError> {
        self.create(connection, self.views.iter())
    }

    fn create<'a>(
        &self,
        connection: &Connection,
        views: impl Iterator<Item = &'a ParquetView>,
    ) -> Result<bool, LoadError> {
        let missing: Vec<&ParquetView> = views.filter(|view| !view.exists.get()).collect();
        if missing.is_empty() {
            return Ok(false);
        }
        if let Some(bucket) = &self.bucket {
            let names = missing.iter().map(|view| view.name.as_str());
            bucket.fetch(names.filter(|name| schema::table(name).is_some()))?;
        }
        let failed = explain("open the warehouse", &self.root);
        let use_catalog = |catalog| connection.execute_batch(&format!("USE {catalog}.main"));
        let create = |view: &&ParquetView| {
            connection.execute_batch(&view.create_sql)?;
            view.exists.set(true);
            Ok(())
        };
        let created = use_catalog(PARQUET_CATALOG).and_then(|()| missing.iter().try_for_each(create));
        use_catalog(self.catalog).and(created).map_err(failed)?;
        Ok(true)
    }
}

/// Returns the SELECT of all rows in the Parquet files of a table. The engine expands the glob for each query, so a
/// query sees files that were published after the reader was opened, if the table had a file then.
fn select_files(root: &Path, table: &Table) -> String {
    let partitions = if table.partition.is_some() { "*/" } else { "" };
    let glob = format!("{}{}/{partitions}{PARQUET_FILE}", folder_text(root), table.name);
    let columns: Vec<String> = table.columns.iter().map(Column::select_from_file).collect();
    format!(
        "SELECT {} FROM ({} FROM read_parquet({}, union_by_name = true, hive_partitioning = false))",
        columns.join(", "),
        table.columns_of_files(),
        quote_text(&glob)
    )
}

/// Returns a SELECT with the columns of the table and no rows, for a table without files.
fn select_no_rows(table: &Table) -> String {
    let columns: Vec<String> = table.columns.iter().map(Column::select_null).collect();
    format!("SELECT {} WHERE false", columns.join(", "))
}

/// Returns true if a table has a Parquet file. Fails if this user may not read a folder, because the engine would skip
/// the folder silently.
fn has_files(root: &Path, table: &Table) -> Result<bool, LoadError> {
    let folder = root.join(&table.name);
    let is_file = |path: &Path| match files::metadata(path) {
        Ok(found) => Ok(found.is_some_and(|found| found.is_file())),
        Err(source) => Err(LoadError::io("read", path)(source)),
    };
    let Some(_) = table.partition else { return is_file(&folder.join(PARQUET_FILE)) };
    let failed = LoadError::io("read", &folder);
    let partitions = match std::fs::read_dir(&folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        partitions => partitions.map_err(failed)?,
    };
    let mut has_any = false;
    for partition in partitions {
        has_any |= is_file(&partition.map_err(failed)?.path().join(PARQUET_FILE))?;
    }
    Ok(has_any)
}

/// Returns the path of the folder as the engine compares it with paths of files: absolute, with a slash at the end.
fn folder_text(root: &Path) -> String {
    let absolute: PathBuf = std::path::absolute(root).unwrap_or_else(|_| root.to_owned());
    format!("{}/", absolute.to_string_lossy().trim_end_matches('/'))
}
