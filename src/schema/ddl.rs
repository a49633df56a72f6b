//! The DuckDB DDL of contracts.

use super::{
    contract::{ColumnType, Table},
    quote::{quote_identifier, quote_text},
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

    /// Returns the SQL that selects a quoted column from a Parquet file. Times in the files have the zone UTC, times in
    /// tables have none. A time is converted by its microseconds, because a cast would use the time zone of the
    /// session, and takes seven times as long.
    pub fn select_from_file(self, quoted: &str) -> String {
        match self {
            ColumnType::Timestamp => format!("make_timestamp(epoch_us({quoted})) AS {quoted}"),
            _ => quoted.to_owned(),
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
