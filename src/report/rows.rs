//! The rows of a question to the warehouse, as values. Only texts, whole numbers and numbers are asked for.

use arrow::{
    array::{Array, AsArray, RecordBatch},
    datatypes::{DataType, Float64Type, Int64Type},
};

use super::limits::{ROWS_MAX, TEXT_CHARS_MAX};
use crate::load::{LoadError, Reader};

/// One row.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    batch: &'a RecordBatch,
    at: usize,
}

/// Asks, and makes a value of each row. Columns are BIGINT, DOUBLE or VARCHAR.
pub(super) fn ask<T>(reader: &mut Reader, sql: &str, mut make: impl FnMut(Row<'_>) -> T) -> Result<Vec<T>, LoadError> {
    let mut made = Vec::new();
    reader.stream(sql, ROWS_MAX, |batch| {
        made.extend((0..batch.num_rows()).map(|at| make(Row { batch: &batch, at })));
        Ok::<(), LoadError>(())
    })?;
    Ok(made)
}

impl Row<'_> {
    /// A text; `None` for NULL.
    pub fn text(self, name: &str) -> Option<String> {
        let column = self.column(name, &DataType::Utf8)?;
        Some(column.as_string::<i32>().value(self.at).to_owned())
    }

    /// A whole number; `None` for NULL.
    pub fn whole(self, name: &str) -> Option<i64> {
        let column = self.column(name, &DataType::Int64)?;
        Some(column.as_primitive::<Int64Type>().value(self.at))
    }

    /// A count: NULL is none.
    pub fn count(self, name: &str) -> i64 {
        self.whole(name).unwrap_or(0)
    }

    /// A number; `None` for NULL.
    pub fn number(self, name: &str) -> Option<f64> {
        let column = self.column(name, &DataType::Float64)?;
        Some(column.as_primitive::<Float64Type>().value(self.at))
    }

    /// The column, if it has this type and a value here.
    fn column(&self, name: &str, wanted: &DataType) -> Option<&dyn Array> {
        let column = self.batch.column_by_name(name);
        debug_assert!(column.is_some_and(|column| column.data_type() == wanted), "{name} is no {wanted}");
        column.filter(|column| column.data_type() == wanted && column.is_valid(self.at)).map(AsRef::as_ref)
    }
}

/// SQL for a text that is cut: one letter more than is shown tells that there is more.
pub(super) fn cut(column: &str) -> String {
    format!("left({column}::VARCHAR, {}) ", TEXT_CHARS_MAX + 1)
}

/// SQL for a day as a number: days since 1970.
pub(super) fn day_number(column: &str) -> String {
    format!("datediff('day', DATE '1970-01-01', {column})::BIGINT")
}

/// SQL that keeps rows of these surveys: `survey_id IN (1, 2)`; everything, if none is named.
pub(super) fn of_surveys(surveys: &[i64]) -> String {
    if surveys.is_empty() {
        return "true".to_owned();
    }
    let ids: Vec<String> = surveys.iter().map(i64::to_string).collect();
    format!("survey_id IN ({})", ids.join(", "))
}

/// A length as a count.
pub(super) fn count(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}
