//! The views over Parquet files, or over the tables of an attached catalog, which a reader creates when a query names
//! them. The engine plans a view when it is created, with all views below it: all of them take seconds, where a query
//! needs few.

use std::{
    cell::Cell,
    path::{Path, PathBuf},
    time::Duration,
};

use duckdb::Connection;

use crate::{
    files,
    load::{
        LoadError, LockPatience, replace,
        store::{attached::AttachedTables, duckdb::explain, parquet::BucketTables},
    },
    model::{Location, WarehouseKind},
    schema::{self, Column, Table, ViewKind, named_in, quote_identifier, quote_text, words},
};

/// Name of the file of a partition, and of the file of a table without partitions.
pub(super) const PARQUET_FILE: &str = "data.parquet";
const OPEN: &str = "open the warehouse";
/// How long a reader of a bucket waits for other readers on this machine, which are many then.
const READER_WAIT: Duration = Duration::from_secs(60);
/// Beginnings of the words with which a query lists views.
const LISTS: [&str; 6] = ["show", "information_schema", "duckdb_", "pg_", "pragma_", "sqlite_"];

/// The views and macros over the tables of a warehouse that the engine does not have itself.
pub(super) struct TableViews {
    rows: Rows,
    /// Catalog of the views.
    own: &'static str,
    /// Catalog in which queries look names up.
    catalog: &'static str,
    /// Each after the views that it reads.
    views: Vec<TableView>,
}

/// Where the rows are.
enum Rows {
    /// In Parquet files of a folder.
    Folder(PathBuf),
    /// In Parquet files of a bucket, which are fetched when they are needed.
    Bucket(BucketTables),
    /// In tables that the engine has attached.
    Catalog(AttachedTables),
}

struct TableView {
    name: String,
    create_sql: String,
    exists: Cell<bool>,
}

impl Rows {
    fn of(connection: &Connection, kind: WarehouseKind, location: &Location) -> Result<Rows, LoadError> {
        if let Some(catalog) = &location.catalog {
            // The views over the tables are in a catalog with the name of the kind.
            let name = format!("{}_tables", kind.name());
            return AttachedTables::attach(connection, catalog, name).map(Rows::Catalog);
        }
        let Some(address) = &location.bucket else {
            LoadError::require_folder(&location.path)?;
            return Ok(Rows::Folder(location.path.clone()));
        };
        let patience = LockPatience { wait: READER_WAIT, ..LockPatience::default() };
        BucketTables::list(address, &replace::reader_folder(&location.path), &patience).map(Rows::Bucket)
    }

    /// Returns the SELECT of all rows of a table.
    fn select(&self, table: &Table) -> Result<String, LoadError> {
        let has_files = |root: &Path, has_any: bool| has_any.then(|| select_files(root, table));
        let rows = match self {
            Rows::Folder(root) => has_files(root, has_any_file(root, table)?),
            Rows::Bucket(bucket) => has_files(bucket.folder(), bucket.has_files(table)),
            Rows::Catalog(tables) => tables.relation(table).map(|relation| select_relation(&relation, table)),
        };
        Ok(rows.unwrap_or_else(|| select_no_rows(table)))
    }
}

impl TableViews {
    /// Creates a catalog for the views in the engine of a reader, and prepares a view for each table and the views of
    /// this program. `catalog` is where queries look names up.
    ///
    /// # Errors
    /// `Missing` if there is no warehouse.
    pub(super) fn attach(
        connection: &Connection,
        kind: WarehouseKind,
        location: &Location,
        catalog: &'static str,
    ) -> Result<TableViews, LoadError> {
        let (rows, own) = (Rows::of(connection, kind, location)?, kind.name());
        connection.execute_batch(&format!("ATTACH ':memory:' AS {own}")).map_err(LoadError::engine(OPEN))?;
        let view = |name: &str, create_sql| TableView { name: name.to_owned(), create_sql, exists: Cell::new(false) };
        let mut views = Vec::new();
        for table in schema::tables() {
            let (name, select) = (quote_identifier(&table.name), rows.select(table)?);
            views.push(view(&table.name, format!("CREATE OR REPLACE VIEW {name} AS {select}")));
        }
        // A macro looks tables up in the catalog of the query. If that is another one, there is no macro.
        let is_alone = catalog == own;
        let of_program = schema::views().iter().filter(|view| is_alone || view.kind == ViewKind::View);
        views.extend(of_program.map(|found| view(&found.name, found.create_sql())));
        Ok(TableViews { rows, own, catalog, views })
    }

    /// Returns the folders that the engine must read, as it compares them with the paths of files.
    pub(super) fn folders(&self, connection: &Connection) -> Result<Vec<String>, LoadError> {
        match &self.rows {
            Rows::Folder(root) => Ok(vec![folder_text(root)]),
            Rows::Bucket(bucket) => Ok(vec![folder_text(bucket.folder())]),
            Rows::Catalog(tables) => tables.folders(connection),
        }
    }

    /// Creates the views that a query names, and the views that these read.
    pub(super) fn create_named(&self, connection: &Connection, sql: &str) -> Result<(), LoadError> {
        let sql = sql.to_ascii_lowercase();
        if words(&sql).any(|word| LISTS.iter().any(|list| word.starts_with(list))) {
            return self.create_all(connection).map(drop);
        }
        let may_name = self.catalog == self.own || words(&sql).any(|word| word == self.own);
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
        views: impl Iterator<Item = &'a TableView>,
    ) -> Result<bool, LoadError> {
        let missing: Vec<&TableView> = views.filter(|view| !view.exists.get()).collect();
        if missing.is_empty() {
            return Ok(false);
        }
        if let Rows::Bucket(bucket) = &self.rows {
            let names = missing.iter().map(|view| view.name.as_str());
            bucket.fetch(names.filter(|name| schema::table(name).is_some()))?;
        }
        let place = match &self.rows {
            Rows::Folder(root) => root,
            Rows::Bucket(bucket) => bucket.folder(),
            Rows::Catalog(_) => Path::new(self.own),
        };
        let failed = explain(OPEN, place);
        let use_catalog = |catalog| connection.execute_batch(&format!("USE {catalog}.main"));
        let create = |view: &&TableView| {
            connection.execute_batch(&view.create_sql)?;
            view.exists.set(true);
            Ok(())
        };
        let created = use_catalog(self.own).and_then(|()| missing.iter().try_for_each(create));
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

/// Returns the SELECT of all rows of an attached table. Columns that it lacks, since an earlier version wrote it, are
/// NULL.
fn select_relation(relation: &str, table: &Table) -> String {
    let columns: Vec<String> = table.columns.iter().map(|column| quote_identifier(&column.name)).collect();
    let empty = select_no_rows(table);
    format!("SELECT {} FROM ({empty} UNION ALL BY NAME FROM {relation})", columns.join(", "))
}

/// Returns a SELECT with the columns of the table and no rows, for a table without files.
fn select_no_rows(table: &Table) -> String {
    let columns: Vec<String> = table.columns.iter().map(Column::select_null).collect();
    format!("SELECT {} WHERE false", columns.join(", "))
}

/// Returns true if a table has a Parquet file. Fails if this user may not read a folder, because the engine would skip
/// the folder silently.
fn has_any_file(root: &Path, table: &Table) -> Result<bool, LoadError> {
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
