//! Reads the tables of a warehouse with the engine. Each value is a text that compares exactly.

use std::{collections::BTreeMap, fmt::Write as _, path::Path, sync::OnceLock};

use duckdb::{Connection, types::Value};
use serde::Deserialize;

use super::catalogs::Catalog;

/// One value: times as epoch microseconds, numbers in the shortest form that round-trips, lists as `[1, 2]`. `None` is
/// NULL.
pub type Cell = Option<String>;

/// One row: column name to value.
pub type Row = BTreeMap<String, Cell>;

/// The contract of a table, as in its file in `schemas/`.
#[derive(Clone, Debug, Deserialize)]
pub struct Contract {
    pub name: String,
    pub kind: String,
    pub key: Vec<String>,
    pub partition: Option<String>,
    #[serde(rename = "column")]
    pub columns: Vec<Column>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Column {
    pub name: String,
    #[serde(rename = "type")]
    pub column_type: String,
    #[serde(default)]
    pub origin: String,
    #[serde(default)]
    pub json: String,
    #[serde(default)]
    pub flag: String,
    #[serde(default)]
    pub identifies: String,
}

/// Returns every contract by the name of its table.
pub fn all_contracts() -> &'static BTreeMap<String, Contract> {
    static CONTRACTS: OnceLock<BTreeMap<String, Contract>> = OnceLock::new();
    CONTRACTS.get_or_init(|| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas");
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "toml"));
        let contracts = files.map(|path| {
            let contract: Contract = toml::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
            (contract.name.clone(), contract)
        });
        contracts.collect()
    })
}

/// The contract of one table.
pub fn contract(table: &str) -> &'static Contract {
    &all_contracts()[table]
}

/// A warehouse open for reading. A DuckDB file cannot be written meanwhile: drop it before the next run.
pub struct Tables {
    connection: Connection,
}

impl Tables {
    pub fn duckdb(path: &Path) -> Tables {
        let connection = connect();
        let path = path.to_string_lossy().replace('\'', "''");
        connection.execute_batch(&format!("ATTACH '{path}' AS w (READ_ONLY); USE w.main")).unwrap();
        Tables { connection }
    }

    /// A table without files is an empty table.
    pub fn parquet(root: &Path) -> Tables {
        let connection = connect();
        for contract in all_contracts().values() {
            let select = if let Some(files) = parquet_files(root, contract) {
                format!("SELECT * FROM {files}")
            } else {
                let nulls: Vec<String> = contract
                    .columns
                    .iter()
                    .map(|column| format!("{} AS \"{}\"", null_of(column), column.name))
                    .collect();
                format!("SELECT {} WHERE false", nulls.join(", "))
            };
            connection.execute_batch(&format!("CREATE VIEW \"{}\" AS {select}", contract.name)).unwrap();
        }
        Tables { connection }
    }

    /// Opens the Parquet files of a folder with the example script, which makes the views.
    pub fn parquet_with_views(root: &Path) -> Tables {
        let script = studysync::schema::parquet_views_sql();
        let root = root.display().to_string().replace('\'', "''");
        let connection = connect();
        connection.execute_batch(&script.replacen("'warehouse-parquet'", &format!("'{root}'"), 1)).unwrap();
        Tables { connection }
    }

    /// Returns the first column of the first row of a query, as text.
    pub fn value(&self, sql: &str) -> Cell {
        self.rows_of(sql).first().and_then(|row| row.first().cloned()).flatten()
    }

    /// Returns the first column of the first row of a query, as a number.
    pub fn count(&self, sql: &str) -> i64 {
        self.value(sql).unwrap_or_else(|| panic!("{sql}: no value")).parse().unwrap()
    }

    /// Returns the rows of a query, with values in the order of its columns.
    pub fn rows_of(&self, sql: &str) -> Vec<Vec<Cell>> {
        let mut statement = self.connection.prepare(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        let mut rows = statement.query([]).unwrap_or_else(|error| panic!("{sql}: {error}"));
        let mut found = Vec::new();
        let columns = rows.as_ref().unwrap().column_count();
        while let Some(row) = rows.next().unwrap() {
            found.push((0..columns).map(|column| cell(row.get::<_, Value>(column).unwrap())).collect());
        }
        found
    }

    /// Reads tables of a warehouse through a connection that stays open, because opening one takes most of the time of
    /// a small read. Tables of files without rows are not queried.
    pub fn read_through(
        connection: Connection,
        place: WarehousePlace,
        names: &[&str],
    ) -> (Connection, BTreeMap<String, Vec<Row>>) {
        let tables = Tables { connection };
        let attach = place.attach_sql();
        attach.iter().for_each(|sql| tables.connection.execute_batch(sql).unwrap());
        // The estimate may exceed the count after deletions, but it is zero only for an empty table.
        let filled = "SELECT table_name FROM duckdb_tables() WHERE database_name = 'w' AND estimated_size > 0";
        let filled: Vec<Cell> = match place {
            WarehousePlace::DuckDb(_) => tables.rows_of(filled).into_iter().flatten().collect(),
            _ => Vec::new(),
        };
        let is_filled = |table: &str| match place {
            WarehousePlace::DuckDb(_) => filled.iter().any(|name| name.as_deref() == Some(table)),
            WarehousePlace::Parquet(root) => !is_empty_file(root, contract(table)),
            WarehousePlace::Catalog(_) => true,
        };
        let rows = names.iter().map(|table| {
            let from = is_filled(table).then(|| place.relation(table)).flatten();
            let rows = from.map(|from| tables.rows_from(table, &from, "true")).unwrap_or_default();
            ((*table).to_owned(), rows)
        });
        let rows = rows.collect();
        if attach.is_some() {
            tables.connection.execute_batch("DETACH w").unwrap();
        }
        (tables.connection, rows)
    }

    /// Returns all rows of a table with all columns of its contract, in any order.
    pub fn rows(&self, table: &str) -> Vec<Row> {
        self.rows_where(table, "true")
    }

    /// Returns the rows of a table that satisfy a condition.
    pub fn rows_where(&self, table: &str, condition: &str) -> Vec<Row> {
        self.rows_from(table, &format!("\"{table}\""), condition)
    }

    fn rows_from(&self, table: &str, from: &str, condition: &str) -> Vec<Row> {
        let columns = &contract(table).columns;
        let selected: Vec<String> = columns
            .iter()
            .map(|column| match column.column_type.as_str() {
                "timestamp" => format!("epoch_us(\"{}\")", column.name),
                "json" => format!("\"{}\"::VARCHAR", column.name),
                _ => format!("\"{}\"", column.name),
            })
            .collect();
        let sql = format!("SELECT {} FROM {from} WHERE {condition}", selected.join(", "));
        let named = |row: Vec<Cell>| columns.iter().map(|column| column.name.clone()).zip(row).collect();
        self.rows_of(&sql).into_iter().map(named).collect()
    }
}

/// Where a warehouse is.
#[derive(Clone, Copy, Debug)]
pub enum WarehousePlace<'a> {
    DuckDb(&'a Path),
    Parquet(&'a Path),
    Catalog(&'a Catalog),
}

impl WarehousePlace<'_> {
    /// Returns the statements that attach the warehouse as `w`; `None` for a folder.
    fn attach_sql(self) -> Option<String> {
        match self {
            WarehousePlace::DuckDb(path) => {
                let path = path.to_string_lossy().replace('\'', "''");
                Some(format!("ATTACH '{path}' AS w (READ_ONLY)"))
            }
            WarehousePlace::Parquet(_) => None,
            WarehousePlace::Catalog(catalog) => Some(catalog.attach_sql()),
        }
    }

    /// Returns the SQL that reads a table of the attached warehouse; `None` if a folder has no files of it.
    fn relation(self, table: &str) -> Option<String> {
        match self {
            WarehousePlace::DuckDb(_) => Some(format!("w.main.\"{table}\"")),
            WarehousePlace::Parquet(root) => parquet_files(root, contract(table)),
            WarehousePlace::Catalog(catalog) => Some(format!("w.{}.\"{table}\"", catalog.schema())),
        }
    }

    /// Returns whether a run has created the tables.
    pub fn has_tables(self, connection: &Connection) -> bool {
        let Some(attach) = self.attach_sql() else { return self.relation("sync_windows").is_some() };
        if matches!(self, WarehousePlace::DuckDb(path) if !path.is_file()) {
            return false;
        }
        match (self, connection.execute_batch(&attach)) {
            (_, Ok(())) => {}
            // A DuckLake that no run has created cannot be attached.
            (WarehousePlace::Catalog(_), Err(_)) => return false,
            (_, Err(error)) => panic!("{attach}: {error}"),
        }
        let relation = self.relation("sync_windows").unwrap();
        let has_tables = connection.prepare(&format!("SELECT * FROM {relation}")).is_ok();
        connection.execute_batch("DETACH w").unwrap();
        has_tables
    }
}

/// Returns the SQL that reads the files of a table; `None` if there are none.
fn parquet_files(root: &Path, contract: &Contract) -> Option<String> {
    let folder = root.join(&contract.name);
    let glob = if contract.partition.is_some() { "*/data.parquet" } else { "data.parquet" };
    let has_files = match contract.partition {
        None => folder.join("data.parquet").is_file(),
        Some(_) => std::fs::read_dir(&folder)
            .is_ok_and(|mut parts| parts.any(|part| part.unwrap().path().join("data.parquet").is_file())),
    };
    let glob = folder.join(glob).to_string_lossy().replace('\'', "''");
    has_files.then(|| format!("read_parquet('{glob}', hive_partitioning = false)"))
}

/// Returns whether a table that is one file has no rows.
fn is_empty_file(root: &Path, contract: &Contract) -> bool {
    let file = std::fs::File::open(root.join(&contract.name).join("data.parquet"));
    let facts = |file| parquet::file::metadata::ParquetMetaDataReader::new().parse_and_finish(&file).unwrap();
    file.is_ok_and(|file| facts(file).file_metadata().num_rows() == 0)
}

/// Opens an engine that can read warehouses.
pub fn connect() -> Connection {
    let connection = Connection::open_in_memory().unwrap();
    // Tables of tests are small: a second thread would only use CPU time while it waits.
    connection.execute_batch("SET threads = 1; SET memory_limit = '1GB'").unwrap();
    connection
}

fn null_of(column: &Column) -> &'static str {
    match column.column_type.as_str() {
        "bigint" => "NULL::BIGINT",
        "double" => "NULL::DOUBLE",
        "boolean" => "NULL::BOOLEAN",
        "timestamp" => "NULL::TIMESTAMP",
        "bigint_list" => "NULL::BIGINT[]",
        _ => "NULL::VARCHAR",
    }
}

fn cell(value: Value) -> Cell {
    Some(match value {
        Value::Null => return None,
        Value::Boolean(value) => value.to_string(),
        Value::TinyInt(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::BigInt(value) => value.to_string(),
        Value::HugeInt(value) => value.to_string(),
        Value::UBigInt(value) => value.to_string(),
        Value::Double(value) => format!("{value:?}"),
        Value::Text(value) => value,
        Value::Timestamp(_, value) => value.to_string(),
        Value::List(values) => {
            let values: Vec<String> = values.into_iter().map(|value| cell(value).unwrap_or("NULL".into())).collect();
            format!("[{}]", values.join(", "))
        }
        other => panic!("no text for {other:?}"),
    })
}

/// Returns the key of a row as one text.
pub fn key_text(contract: &Contract, row: &Row) -> String {
    let parts: Vec<&str> = contract.key.iter().map(|column| row[column].as_deref().unwrap_or("NULL")).collect();
    parts.join(" / ")
}

/// Describes how two sets of rows of a table differ in the named columns, for the first few differences. Returns `None`
/// if they are equal.
pub fn different_rows(table: &str, columns: &[&str], expected: &[Row], found: &[Row]) -> Option<String> {
    const SHOWN: usize = 5;
    let contract = contract(table);
    let index = |rows: &[Row]| -> BTreeMap<String, Vec<Row>> {
        let mut by_key: BTreeMap<String, Vec<Row>> = BTreeMap::new();
        for row in rows {
            by_key.entry(key_text(contract, row)).or_default().push(row.clone());
        }
        by_key
    };
    let (expected_by_key, mut found_by_key) = (index(expected), index(found));
    let mut problems = Vec::new();
    for (key, rows) in expected_by_key {
        let same_key = found_by_key.remove(&key).unwrap_or_default();
        if rows.len() != 1 || same_key.len() != 1 {
            problems.push(format!("{key}: expected {} rows, found {}: {:?}", rows.len(), same_key.len(), rows[0]));
            continue;
        }
        let mut lines = String::new();
        for column in columns {
            let (want, have) = (&rows[0][*column], &same_key[0][*column]);
            if want != have {
                let _ = write!(lines, "\n    {column}: expected {want:?}\n    {column}: found    {have:?}");
            }
        }
        if !lines.is_empty() {
            problems.push(format!("{key}:{lines}"));
        }
    }
    problems.extend(
        found_by_key.iter().map(|(key, rows)| format!("{key}: not expected, found {} rows: {:?}", rows.len(), rows[0])),
    );
    if problems.is_empty() {
        return None;
    }
    let shown = problems.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join("\n  ");
    Some(format!(
        "{table}: {} rows differ (expected {}, found {})\n  {shown}",
        problems.len(),
        expected.len(),
        found.len()
    ))
}
