//! The Arrow schemas of contracts.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};

use super::{Column, ColumnType, Table};

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

    /// Returns the Arrow type in Parquet files.
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
