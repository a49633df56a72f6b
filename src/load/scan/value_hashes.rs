//! Values of columns, to compare rows by content. Values that are only spelled in another way are equal: JSON with
//! another order of members, and links that are signed anew.

use arrow::{
    array::{Array as _, ArrayRef, AsArray as _, RecordBatch},
    datatypes::{DataType, Float64Type, Int64Type, TimestampMicrosecondType},
};

use crate::{
    json,
    load::LoadError,
    model::{RowContent, column_name_hash},
    schema::{Column, ColumnType, Origin, Table},
};

/// How the texts of a column are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextKind {
    /// Byte by byte.
    Exact,
    /// As a link without its query string.
    SignedLink,
    /// As a JSON value. A text that is not JSON is compared byte by byte.
    Json,
}

impl TextKind {
    /// Returns how the texts of a column of the table are compared. A computed column may contain the text of a number
    /// or of a list, so it is compared as JSON too; the JSON that it was computed from tells other differences.
    pub fn of(table: &Table, column: &Column) -> Self {
        match column.column_type {
            ColumnType::Json => Self::Json,
            _ if !column.signed_links.is_empty() => Self::SignedLink,
            _ if column.origin == Origin::Derived && !table.key.contains(&column.name) => Self::Json,
            _ => Self::Exact,
        }
    }

    /// Returns true if two texts of the column are the same value.
    pub fn is_same(self, column: &Column, left: &str, right: &str) -> bool {
        match self {
            Self::Exact => left == right,
            Self::SignedLink => json::without_query(left) == json::without_query(right),
            Self::Json => json::is_same_value(left, right, &column.signed_links),
        }
    }
}

/// The column of attribute tables with the JSON type of the value. A text among the values is not compared as JSON.
const JSON_TYPE_COLUMN: &str = "json_type";
const STRING_TYPE: &str = "string";

/// Returns, for each row of a batch of `table`, a hash of its values in these columns. Callers compare rows by this
/// hash, always with the same columns. NULL is distinct from every value. Columns with [`Column::compared`] `false` are
/// left out. Fails if a column is missing, or if a value has a type that no table uses.
pub(super) fn value_hashes(table: &Table, columns: &[&str], rows: &RecordBatch) -> Result<Vec<u128>, LoadError> {
    let mut hashed = Vec::with_capacity(columns.len());
    for name in columns {
        let missing = || LoadError::Bug(format!("a batch of {} without {name}", table.name));
        let (column, values) = table.column(name).zip(rows.column_by_name(name)).ok_or_else(missing)?;
        // A column that is entirely NULL adds nothing to a hash. Most columns are entirely NULL.
        if column.compared && values.null_count() < values.len() {
            hashed.push(HashedColumn::of(table, column, values));
        }
    }
    let json_types = rows.column_by_name(JSON_TYPE_COLUMN).and_then(|types| types.as_string_opt::<i32>());
    let is_string = |row: usize| json_types.is_some_and(|types| types.is_valid(row) && types.value(row) == STRING_TYPE);
    let (mut content, mut hashes) = (RowContent::default(), Vec::with_capacity(rows.num_rows()));
    for row in 0..rows.num_rows() {
        content.clear();
        for hashed in hashed.iter().filter(|hashed| hashed.values.is_valid(row)) {
            let is_text = hashed.column.column_type != ColumnType::Json && is_string(row);
            let kind = if hashed.kind == TextKind::Json && is_text { TextKind::Exact } else { hashed.kind };
            hashed.add_to(&mut content, kind, row)?;
        }
        hashes.push(content.hash_128());
    }
    Ok(hashes)
}

/// Returns, for each row of a batch, the content hash that `flatten` computes for the table's rows: of the hashed
/// columns, except the key and the time of the partition. Only for tables whose hash covers nothing else.
pub(super) fn content_hashes(table: &Table, rows: &RecordBatch) -> Result<Vec<i64>, LoadError> {
    let is_content = |column: &&Column| column.is_hashed() && table.partition.as_ref() != Some(&column.name);
    let columns: Vec<_> = table
        .content_columns()
        .filter(is_content)
        .filter_map(|column| Some(HashedColumn::of(table, column, rows.column_by_name(&column.name)?)))
        .collect();
    let (mut content, mut hashes) = (RowContent::default(), Vec::with_capacity(rows.num_rows()));
    for row in 0..rows.num_rows() {
        content.clear();
        for column in columns.iter().filter(|column| column.values.is_valid(row)) {
            column.add_to(&mut content, column.kind, row)?;
        }
        hashes.push(content.hash_64());
    }
    Ok(hashes)
}

/// A column whose values are hashed.
struct HashedColumn<'c> {
    column: &'c Column,
    name: u32,
    kind: TextKind,
    values: &'c ArrayRef,
}

impl<'c> HashedColumn<'c> {
    fn of(table: &Table, column: &'c Column, values: &'c ArrayRef) -> Self {
        Self { column, name: column_name_hash(&column.name), kind: TextKind::of(table, column), values }
    }

    /// Adds the value of a row to its content; a text as one of this kind. The value must not be NULL.
    fn add_to(&self, content: &mut RowContent, kind: TextKind, row: usize) -> Result<(), LoadError> {
        let Self { column, name, values, .. } = *self;
        match values.data_type() {
            DataType::Utf8 => {
                let text = values.as_string::<i32>().value(row);
                match kind {
                    TextKind::Exact => content.text(name, text),
                    TextKind::SignedLink => content.text(name, json::without_query(text)),
                    TextKind::Json => {
                        content.written_text(name, |bytes| json::write_canonical(text, &column.signed_links, bytes));
                    }
                }
            }
            DataType::Int64 => content.bigint(name, values.as_primitive::<Int64Type>().value(row)),
            DataType::Float64 => content.double(name, values.as_primitive::<Float64Type>().value(row)),
            DataType::Boolean => content.boolean(name, values.as_boolean().value(row)),
            DataType::Timestamp(..) => {
                content.timestamp(name, values.as_primitive::<TimestampMicrosecondType>().value(row))
            }
            DataType::List(_) => content.bigints(name, &integers(values.as_list::<i32>().value(row).as_ref())?),
            other => return Err(LoadError::Bug(format!("a column of type {other}"))),
        }
        Ok(())
    }
}

fn integers(items: &dyn arrow::array::Array) -> Result<Vec<i64>, LoadError> {
    let items = items.as_primitive_opt::<Int64Type>();
    let items = items.ok_or_else(|| LoadError::Bug("a list of other items than integers".to_owned()))?;
    Ok(items.iter().map(Option::unwrap_or_default).collect())
}
