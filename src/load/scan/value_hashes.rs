//! Hashes of values of any column type, to compare rows by content.

use arrow::{
    array::{Array as _, AsArray as _, RecordBatch},
    datatypes::{DataType, Float64Type, Int64Type, TimestampMicrosecondType},
};

use crate::{
    load::LoadError,
    model::{RowContent, column_name_hash},
};

/// Returns, for each row, a hash of its values in these columns. Callers compare rows by this hash, always with the
/// same columns. NULL is distinct from every value. Fails if a column is missing, or if a value has a type that no
/// table uses.
pub(super) fn value_hashes(columns: &[&str], rows: &RecordBatch) -> Result<Vec<u128>, LoadError> {
    let mut columns_with_values = Vec::with_capacity(columns.len());
    for name in columns {
        let column = rows.column_by_name(name).ok_or_else(|| LoadError::Bug(format!("a batch without {name}")))?;
        // A column that is entirely NULL adds nothing to a hash. Most columns are entirely NULL.
        if column.null_count() < column.len() {
            columns_with_values.push((column_name_hash(name), column));
        }
    }
    let (mut content, mut hashes) = (RowContent::default(), Vec::with_capacity(rows.num_rows()));
    for row in 0..rows.num_rows() {
        content.clear();
        for (name_hash, column) in columns_with_values.iter().filter(|(_, column)| column.is_valid(row)) {
            match column.data_type() {
                DataType::Utf8 => content.text(*name_hash, column.as_string::<i32>().value(row)),
                DataType::Int64 => content.bigint(*name_hash, column.as_primitive::<Int64Type>().value(row)),
                DataType::Float64 => content.double(*name_hash, column.as_primitive::<Float64Type>().value(row)),
                DataType::Boolean => content.boolean(*name_hash, column.as_boolean().value(row)),
                DataType::Timestamp(..) => {
                    content.timestamp(*name_hash, column.as_primitive::<TimestampMicrosecondType>().value(row));
                }
                DataType::List(_) => {
                    let items = column.as_list::<i32>().value(row);
                    let items = items.as_primitive_opt::<Int64Type>();
                    let not_integers = || LoadError::Bug("a list of other items than integers".to_owned());
                    let items: Vec<i64> =
                        items.ok_or_else(not_integers)?.iter().map(Option::unwrap_or_default).collect();
                    content.bigints(*name_hash, &items);
                }
                other => return Err(LoadError::Bug(format!("a column of type {other}"))),
            }
        }
        hashes.push(content.hash_128());
    }
    Ok(hashes)
}
