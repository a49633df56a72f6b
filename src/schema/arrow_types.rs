//! Contracts as Arrow schemas.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};

use super::{Column, ColumnType, Table};

/// Last column of every batch that `flatten` makes, `BIGINT NOT NULL`: the place of the row's record among the records
/// of its page, from 0. It ties children to the very record they came from, should one scan hold a key twice; no table
/// keeps it.
pub const RECORD_COLUMN: &str = "_record";
/// The column of a base table that says whether two records are the same.
pub const ROW_HASH_COLUMN: &str = "_row_hash";

impl ColumnType {
    /// The Arrow type of batches. Timestamps are UTC and carry no zone here; Parquet files mark them as adjusted to UTC
    /// ([`Table::parquet_schema`]).
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
    /// The schema of the batches that `flatten` makes: all columns but those that `load` fills, then [`RECORD_COLUMN`].
    pub fn flat_schema(&self) -> SchemaRef {
        let schema = self.flat_schema.get_or_init(|| {
            let mut fields = fields(self.flat_columns(), ColumnType::arrow);
            fields.push(Field::new(RECORD_COLUMN, DataType::Int64, false));
            Arc::new(Schema::new(fields))
        });
        Arc::clone(schema)
    }

    /// The schema of all columns, as in DuckDB.
    pub fn full_schema(&self) -> SchemaRef {
        Arc::new(Schema::new(fields(self.columns.iter(), ColumnType::arrow)))
    }

    /// The schema of all columns in Parquet: timestamps adjusted to UTC.
    pub fn parquet_schema(&self) -> SchemaRef {
        Arc::new(Schema::new(fields(self.columns.iter(), ColumnType::parquet)))
    }
}

fn fields<'a>(columns: impl Iterator<Item = &'a Column>, arrow_type: fn(ColumnType) -> DataType) -> Vec<Field> {
    columns.map(|column| Field::new(&column.name, arrow_type(column.column_type), column.nullable)).collect()
}
