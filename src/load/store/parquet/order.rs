//! The order of rows in the files of a table, as sort keys that compare byte by byte.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, RecordBatch},
    compute::SortOptions,
    error::ArrowError,
    row::{RowConverter, Rows, SortField},
};
use parquet::file::metadata::{ParquetMetaData, SortingColumn};

use crate::schema::Table;

/// Returns the columns by which the rows of a table are sorted: the columns of the contract's order, then the rest of
/// the key. A key is unique in its table, so with the complete key the same rows always have the same order.
pub(super) fn sort_columns(table: &Table) -> impl Iterator<Item = &str> {
    let rest = table.key.iter().filter(|name| !table.sort.contains(name));
    table.sort.iter().chain(rest).map(String::as_str)
}

/// Returns the order of a table's rows as a Parquet footer states it: ascending, NULL first.
pub(super) fn sorting_columns(table: &Table) -> Vec<SortingColumn> {
    let index = |name: &str| table.columns.iter().position(|column| column.name == name).unwrap_or(0);
    let column = |name| SortingColumn {
        column_idx: i32::try_from(index(name)).unwrap_or(0),
        descending: false,
        nulls_first: true,
    };
    sort_columns(table).map(column).collect()
}

/// Returns true if a file's footer says that the rows of every row group are in the order of the table.
pub(super) fn is_in_order(table: &Table, footer: &ParquetMetaData) -> bool {
    let columns = footer.file_metadata().schema_descr().root_schema().get_fields();
    let name = |column: &SortingColumn| {
        let column = usize::try_from(column.column_idx).ok().and_then(|index| columns.get(index))?;
        Some(column.name().to_owned())
    };
    let is_ascending = |column: &SortingColumn| !column.descending && column.nulls_first;
    footer.row_groups().iter().all(|group| {
        let sorting = group.sorting_columns().map_or(&[][..], Vec::as_slice);
        sorting.iter().all(is_ascending)
            && sorting.iter().map(name).eq(sort_columns(table).map(|name| Some(name.to_owned())))
    })
}

/// Makes sort keys for rows. Comparing two keys of one instance byte by byte gives the order of their rows: ascending,
/// NULL first.
pub(super) struct SortKeys {
    /// The names of the sort columns, in order.
    columns: Vec<String>,
    converter: RowConverter,
}

impl SortKeys {
    /// Prepares sort keys for rows of this table, in the types of its Parquet files.
    pub(super) fn new(table: &Table) -> Result<Self, ArrowError> {
        let schema = table.parquet_schema();
        let options = SortOptions { descending: false, nulls_first: true };
        let columns: Vec<String> = sort_columns(table).map(str::to_owned).collect();
        let field = |name: &String| {
            let data_type = schema.field_with_name(name)?.data_type().clone();
            Ok(SortField::new_with_options(data_type, options))
        };
        let fields = columns.iter().map(field).collect::<Result<Vec<_>, ArrowError>>()?;
        Ok(Self { columns, converter: RowConverter::new(fields)? })
    }

    /// Returns the sort keys of these rows, which must have the sort columns.
    pub(super) fn of(&self, rows: &RecordBatch) -> Result<Rows, ArrowError> {
        let column = |name: &String| rows.schema().index_of(name).map(|index| Arc::clone(rows.column(index)));
        let columns = self.columns.iter().map(column).collect::<Result<Vec<ArrayRef>, _>>()?;
        self.converter.convert_columns(&columns)
    }
}
