//! Contracts as DuckDB DDL.

use super::{
    contract::{ColumnType, Table},
    quote::{quote_identifier, quote_text},
};

impl ColumnType {
    /// The type's name in DuckDB. TIMESTAMP without a zone holds UTC: answers then do not depend on a session's zone,
    /// and the bundled engine needs no extension for them.
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

    /// The quoted column as a `SELECT` over our Parquet files lists it: times in them are adjusted to UTC, those of
    /// tables are plain. By their microseconds, since a cast goes by the session's zone, and one value at a time
    /// through a calendar: it takes seven times as long as to read them.
    pub fn select_from_file(self, quoted: &str) -> String {
        match self {
            ColumnType::Timestamp => format!("make_timestamp(epoch_us({quoted})) AS {quoted}"),
            _ => quoted.to_owned(),
        }
    }
}

impl Table {
    /// `CREATE TABLE IF NOT EXISTS`, without a primary key: an index costs more than a third of the load, and
    /// uniqueness is kept by how scans are applied.
    pub fn create_sql(&self) -> String {
        let columns: Vec<String> = self
            .columns
            .iter()
            .map(|column| {
                let null = if column.nullable { "" } else { " NOT NULL" };
                format!("    {} {}{null}", quote_identifier(&column.name), column.column_type.duckdb())
            })
            .collect();
        format!("CREATE TABLE IF NOT EXISTS {} (\n{}\n)", quote_identifier(&self.name), columns.join(",\n"))
    }

    /// `COMMENT ON` for the table and each of its columns.
    pub fn comment_sql(&self) -> Vec<String> {
        let table = quote_identifier(&self.name);
        let mut statements = vec![format!("COMMENT ON TABLE {table} IS {}", quote_text(&self.comment))];
        statements.extend(self.columns.iter().map(|column| {
            format!("COMMENT ON COLUMN {table}.{} IS {}", quote_identifier(&column.name), quote_text(&column.comment))
        }));
        statements
    }
}
