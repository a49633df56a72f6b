//! The DuckDB DDL of contracts.
//!
//! The Arrow schemas of contracts.
//!
//! Quotes names and texts in SQL.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};

use super::{
    Column,
    contract::{ColumnType, Table, TableKind},
};

impl ColumnType {
    /// Returns the name of the type in DuckDB. TIMESTAMP has no time zone and contains UTC. So results do not depend on
    /// the time zone of a session, and DuckDB needs no extension.
    pub fn duckdb(self) -> &'static str {
        match self {
            ColumnType::Text | ColumnType::Json => "VARCHAR",
            ColumnType::Bigint => "BIGINT",
            ColumnType::Double => "DOUBLE",
            ColumnType::Boolean => "BOOLEAN",
            ColumnType::Timestamp => "TIMESTAMP",
            ColumnType::BigintList => "BIGINT[]",
        }
    }

    /// Returns the type that the engine reads from a Parquet file.
    fn in_file(self) -> &'static str {
        match self {
            ColumnType::Timestamp => "TIMESTAMP WITH TIME ZONE",
            _ => self.duckdb(),
        }
    }
}

impl Column {
    /// Returns the SQL that selects the column from a Parquet file. Times in the files have the zone UTC, times in
    /// tables have none. A time is converted by its microseconds, because a cast would use the time zone of the
    /// session, and takes seven times as long.
    pub fn select_from_file(&self) -> String {
        let name = quote_identifier(&self.name);
        match (&self.copy_of, self.column_type) {
            (Some(source), _) => format!("{} AS {name}", quote_identifier(source)),
            (None, ColumnType::Timestamp) => format!("make_timestamp(epoch_us({name})) AS {name}"),
            (None, _) => name,
        }
    }

    /// Returns the SQL that selects the column from a table that lacks it.
    pub fn select_missing(&self) -> String {
        let source = self.copy_of.as_deref().map_or_else(|| "NULL".to_owned(), quote_identifier);
        format!("{source}::{} AS {}", self.column_type.duckdb(), quote_identifier(&self.name))
    }

    /// Returns the SQL that selects NULL as the column.
    pub fn select_null(&self) -> String {
        format!("NULL::{} AS {}", self.column_type.duckdb(), quote_identifier(&self.name))
    }
}

/// Follows the type of the column `answer_json` in [`Table::create_sql`]. No view reads the column, and zstd is faster
/// to write and smaller than what the engine would choose. The engine's own list of statements leaves it out.
pub const ANSWER_COMPRESSION: &str = " USING COMPRESSION zstd";

impl Table {
    /// Returns the begin of a relation that is `UNION ALL BY NAME` with Parquet files of the table: it has all columns
    /// and no rows. Without it, a column is an error if no file has it, because all files are of an earlier version.
    pub fn columns_of_files(&self) -> String {
        let columns = self.columns.iter();
        let columns = columns
            .map(|column| format!("NULL::{} AS {}", column.column_type.in_file(), quote_identifier(&column.name)));
        format!("SELECT {} WHERE false UNION ALL BY NAME", columns.collect::<Vec<_>>().join(", "))
    }

    /// Returns `CREATE TABLE IF NOT EXISTS`. The table has no primary key: an index would take more than a third of the
    /// load time, and `load` keeps keys unique.
    pub fn create_sql(&self) -> String {
        format!("CREATE TABLE IF NOT EXISTS {} {}", quote_identifier(&self.name), self.columns_sql(ANSWER_COMPRESSION))
    }

    /// Returns the columns of a `CREATE TABLE`, in parentheses. `compression` is the clause of `answer_json`, which
    /// only the tables of a DuckDB file have.
    pub fn columns_sql(&self, compression: &str) -> String {
        let columns: Vec<String> = self
            .columns
            .iter()
            .map(|column| {
                let null = if column.nullable { "" } else { " NOT NULL" };
                let compression = if column.name == "answer_json" { compression } else { "" };
                let column_type = column.column_type.duckdb();
                format!("    {} {column_type}{null}{compression}", quote_identifier(&column.name))
            })
            .collect();
        format!("(\n{}\n)", columns.join(",\n"))
    }

    /// Returns `COMMENT ON` for the table and each column.
    pub fn comment_sql(&self) -> Vec<String> {
        let table = quote_identifier(&self.name);
        let mut statements = vec![format!("COMMENT ON TABLE {table} IS {}", quote_text(&self.comment))];
        statements.extend(self.columns.iter().map(|column| {
            format!("COMMENT ON COLUMN {table}.{} IS {}", quote_identifier(&column.name), quote_text(&column.comment))
        }));
        statements
    }
}

/// The last column of every batch from `flatten`, `BIGINT NOT NULL`: the index of the row's record in its page, from 0.
/// The column assigns child rows to their record, even if a scan contains a key twice. No table stores it.
pub const RECORD_COLUMN: &str = "_record";
/// The column of a base table with the content hash. The program takes records with the same key, flags and hash for
/// equal.
pub const ROW_HASH_COLUMN: &str = "_row_hash";

impl ColumnType {
    /// Returns the Arrow type in batches. Timestamps are UTC: in batches they have no time zone, in Parquet files the
    /// time zone UTC ([`Table::parquet_schema`]).
    pub fn arrow(self) -> DataType {
        match self {
            ColumnType::Text | ColumnType::Json => DataType::Utf8,
            ColumnType::Bigint => DataType::Int64,
            ColumnType::Double => DataType::Float64,
            ColumnType::Boolean => DataType::Boolean,
            ColumnType::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            ColumnType::BigintList => DataType::List(Arc::new(Field::new("item", DataType::Int64, true))),
        }
    }

    fn parquet(self) -> DataType {
        match self {
            ColumnType::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            other => other.arrow(),
        }
    }
}

impl Table {
    /// Returns the schema of the batches from `flatten`: all columns that `load` does not fill, then [`RECORD_COLUMN`].
    pub fn flat_schema(&self) -> SchemaRef {
        let schema = self.flat_schema.get_or_init(|| {
            let mut fields = fields(self.flat_columns(), ColumnType::arrow);
            fields.push(Field::new(RECORD_COLUMN, DataType::Int64, false));
            Arc::new(Schema::new(fields))
        });
        Arc::clone(schema)
    }

    /// Returns true if the summary of a page has this column: a column of the key, a time by which records are
    /// compared, or one of the columns [`ROW_HASH_COLUMN`] and [`RECORD_COLUMN`]. Always false for a child table.
    pub fn is_in_summary(&self, column: &str) -> bool {
        let is_compared = matches!(column, "created_at" | "updated_at" | ROW_HASH_COLUMN | RECORD_COLUMN);
        self.kind == TableKind::Base && (is_compared || self.key.iter().any(|key| key == column))
    }

    /// Returns the schema of the batches of a page summary: the columns of [`Self::flat_schema`] that
    /// [`Self::is_in_summary`] names.
    pub fn summary_schema(&self) -> SchemaRef {
        let flat = self.flat_schema();
        let fields = flat.fields().iter().filter(|field| self.is_in_summary(field.name()));
        Arc::new(Schema::new(fields.cloned().collect::<Fields>()))
    }

    /// Returns the Arrow schema of all columns, with timestamps without a time zone, as in DuckDB.
    pub fn full_schema(&self) -> SchemaRef {
        Arc::new(Schema::new(fields(self.columns.iter(), ColumnType::arrow)))
    }

    /// Returns the schema of all columns in Parquet, with timestamps in UTC.
    pub fn parquet_schema(&self) -> SchemaRef {
        Arc::new(Schema::new(fields(self.columns.iter(), ColumnType::parquet)))
    }
}

/// Converts columns to Arrow fields. `arrow_type` returns the Arrow type for the type of a column.
fn fields<'a>(columns: impl Iterator<Item = &'a Column>, arrow_type: fn(ColumnType) -> DataType) -> Vec<Field> {
    columns.map(|column| Field::new(&column.name, arrow_type(column.column_type), column.nullable)).collect()
}

/// Returns an identifier in double quotes.
pub fn quote_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Returns a text literal in single quotes.
pub fn quote_text(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
