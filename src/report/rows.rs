//! Queries the warehouse and reads the values of each row: texts, integers and floating-point numbers.

use arrow::{
    array::{Array, AsArray, RecordBatch},
    datatypes::{DataType, Float64Type, Int64Type},
};

use super::limits::{TEXT_CHARS_MAX, rows_max};
use crate::load::{LoadError, Reader};

/// One row of a query's result.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    batch: &'a RecordBatch,
    index: usize,
}

/// Runs a query and converts each row with `make`. The columns of the query must be BIGINT, DOUBLE or VARCHAR. Fails if
/// the result has more than [`rows_max`] rows.
pub(super) fn query<T>(
    reader: &mut Reader,
    sql: &str,
    mut make: impl FnMut(Row<'_>) -> T,
) -> Result<Vec<T>, LoadError> {
    let rows_max = rows_max(reader);
    let mut values = Vec::new();
    let streamed = reader.stream(sql, rows_max, |batch| {
        values.extend((0..batch.num_rows()).map(|index| make(Row { batch: &batch, index })));
        Ok::<(), LoadError>(())
    })?;
    let too_many = || LoadError::Unsupported(format!("a part of the report has more than {rows_max} rows"));
    if streamed.truncated { Err(too_many()) } else { Ok(values) }
}

impl Row<'_> {
    /// Returns a text; `None` for NULL.
    pub fn text(self, name: &str) -> Option<String> {
        let column = self.column(name, &DataType::Utf8)?;
        Some(column.as_string::<i32>().value(self.index).to_owned())
    }

    /// Returns an integer; `None` for NULL.
    pub fn integer(self, name: &str) -> Option<i64> {
        let column = self.column(name, &DataType::Int64)?;
        Some(column.as_primitive::<Int64Type>().value(self.index))
    }

    /// Returns an integer; 0 for NULL.
    pub fn count(self, name: &str) -> i64 {
        self.integer(name).unwrap_or(0)
    }

    /// Returns a floating-point number; `None` for NULL.
    pub fn number(self, name: &str) -> Option<f64> {
        let column = self.column(name, &DataType::Float64)?;
        Some(column.as_primitive::<Float64Type>().value(self.index))
    }

    /// Returns the column `name` if it has this type and the row's value is not NULL.
    fn column(&self, name: &str, wanted: &DataType) -> Option<&dyn Array> {
        let column = self.batch.column_by_name(name);
        debug_assert!(column.is_some_and(|column| column.data_type() == wanted), "{name} is no {wanted}");
        column.filter(|column| column.data_type() == wanted && column.is_valid(self.index)).map(AsRef::as_ref)
    }
}

/// Returns SQL that shortens a text to one character more than the page shows. The extra character tells the page that
/// the text is longer.
pub(super) fn shortened(column: &str) -> String {
    format!("left({column}::VARCHAR, {}) ", TEXT_CHARS_MAX + 1)
}

/// Returns SQL for a day as days since 1970.
pub(super) fn day_number(column: &str) -> String {
    format!("datediff('day', DATE '1970-01-01', {column})::BIGINT")
}

/// Returns a SQL predicate for rows of these surveys: `survey_id IN (1, 2)`, or `true` if the list is empty.
pub(super) fn survey_filter(surveys: &[i64]) -> String {
    if surveys.is_empty() {
        return "true".to_owned();
    }
    let ids: Vec<String> = surveys.iter().map(i64::to_string).collect();
    format!("survey_id IN ({})", ids.join(", "))
}

/// Survey id and question id.
pub(super) type Key = (i64, i64);

/// Reads the columns `survey_id` and `question_id`.
pub(super) fn key(row: Row<'_>) -> Key {
    (row.count("survey_id"), row.count("question_id"))
}

/// Converts a length to a count.
pub(super) fn count(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}
