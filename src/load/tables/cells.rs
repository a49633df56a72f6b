//! Builds rows of a table from values, and reads values from rows.

use std::sync::Arc;

use arrow::{
    array::{
        Array, ArrayRef, BooleanBuilder, Int64Builder, RecordBatch, StringArray, StringBuilder,
        TimestampMicrosecondArray, TimestampMicrosecondBuilder, new_null_array,
    },
    datatypes::{DataType, Field, Schema},
};

use crate::{
    load::{
        LoadError,
        error::invalid_rows,
        store::{clamped_us, number_column, text_column, time_column, with_columns},
    },
    model::RunId,
    schema::{ColumnType, Table},
};

/// The value of one column in one row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::load) enum Cell<'a> {
    /// A value of a text or JSON column.
    Text(&'a str),
    Integer(i64),
    Boolean(bool),
    /// A time in epoch microseconds. [`RowBuilder`] limits it to the years 1 to 9999.
    Moment(i64),
    Null,
}

impl<'a> Cell<'a> {
    /// Creates the integer of a count. A count that does not fit becomes the largest integer.
    pub fn count(count: u64) -> Self {
        Cell::Integer(i64::try_from(count).unwrap_or(i64::MAX))
    }

    /// Creates a time from epoch milliseconds.
    pub fn at_ms(at_ms: i64) -> Self {
        Cell::Moment(at_ms.saturating_mul(1000))
    }

    /// Creates a text; NULL for `None`.
    pub fn text_or_null(text: Option<&'a str>) -> Self {
        text.map_or(Cell::Null, Cell::Text)
    }

    /// Creates an integer; NULL for `None`.
    pub fn integer_or_null(number: Option<i64>) -> Self {
        number.map_or(Cell::Null, Cell::Integer)
    }
}

/// Builds rows of one table, with all its columns.
pub(in crate::load) struct RowBuilder {
    table: &'static Table,
    columns: Vec<ColumnBuilder>,
}

impl RowBuilder {
    /// Creates a builder without rows.
    pub fn new(table: &'static Table) -> Self {
        let columns = table.columns.iter().map(|column| ColumnBuilder::new(column.column_type)).collect();
        Self { table, columns }
    }

    /// Adds a row. `cell` returns the value for the name of a column.
    ///
    /// # Errors
    /// `Bug` if a value does not have its column's type.
    pub fn add<'a>(&mut self, cell: impl Fn(&str) -> Cell<'a>) -> Result<(), LoadError> {
        for (column, builder) in self.table.columns.iter().zip(&mut self.columns) {
            let value = cell(&column.name);
            if !builder.append(value) {
                let column = format!("{}.{}", self.table.name, column.name);
                return Err(LoadError::Bug(format!("{column} cannot hold {value:?}")));
            }
        }
        Ok(())
    }

    /// Returns the added rows, with the table's full schema.
    ///
    /// # Errors
    /// `Bug` if a value is NULL where the column allows none.
    pub fn finish(self) -> Result<RecordBatch, LoadError> {
        let columns = self.columns.into_iter().map(ColumnBuilder::finish).collect();
        RecordBatch::try_new(self.table.full_schema(), columns).map_err(invalid_rows(self.table))
    }
}

/// Builds one column from the values of the added rows.
enum ColumnBuilder {
    Text(StringBuilder),
    Integer(Int64Builder),
    Boolean(BooleanBuilder),
    Moment(TimestampMicrosecondBuilder),
    /// Builds a column of a type that no [`Cell`] has: all values are NULL.
    Nulls {
        data_type: DataType,
        rows: usize,
    },
}

impl ColumnBuilder {
    /// Creates a builder without values for a column of this type.
    fn new(column_type: ColumnType) -> Self {
        match column_type {
            ColumnType::Text | ColumnType::Json => Self::Text(StringBuilder::new()),
            ColumnType::Bigint => Self::Integer(Int64Builder::new()),
            ColumnType::Boolean => Self::Boolean(BooleanBuilder::new()),
            ColumnType::Timestamp => Self::Moment(TimestampMicrosecondBuilder::new()),
            ColumnType::Double | ColumnType::BigintList => Self::Nulls { data_type: column_type.arrow(), rows: 0 },
        }
    }

    /// Adds a value. Returns false, and adds nothing, if the value does not have the type of the column.
    fn append(&mut self, cell: Cell<'_>) -> bool {
        match (self, cell) {
            (Self::Text(texts), Cell::Text(text)) => texts.append_value(text),
            (Self::Text(texts), Cell::Null) => texts.append_null(),
            (Self::Integer(numbers), Cell::Integer(number)) => numbers.append_value(number),
            (Self::Integer(numbers), Cell::Null) => numbers.append_null(),
            (Self::Boolean(values), Cell::Boolean(value)) => values.append_value(value),
            (Self::Boolean(values), Cell::Null) => values.append_null(),
            (Self::Moment(times), Cell::Moment(at_us)) => times.append_value(clamped_us(at_us)),
            (Self::Moment(times), Cell::Null) => times.append_null(),
            (Self::Nulls { rows, .. }, Cell::Null) => *rows += 1,
            _ => return false,
        }
        true
    }

    /// Returns the column.
    fn finish(self) -> ArrayRef {
        match self {
            Self::Text(mut texts) => Arc::new(texts.finish()),
            Self::Integer(mut numbers) => Arc::new(numbers.finish()),
            Self::Boolean(mut values) => Arc::new(values.finish()),
            Self::Moment(mut times) => Arc::new(times.finish()),
            Self::Nulls { data_type, rows } => new_null_array(&data_type, rows),
        }
    }
}

/// The run that wrote a row, and when.
#[derive(Clone, Copy, Debug)]
pub struct Stamp<'a> {
    pub run_id: &'a RunId,
    /// When the row was written, in epoch milliseconds.
    pub at_ms: i64,
}

impl<'a> Stamp<'a> {
    /// Returns the value of a stamp column; `None` for other columns.
    pub(in crate::load) fn cell(self, column: &str) -> Option<Cell<'a>> {
        match column {
            "_run_id" => Some(Cell::Text(&self.run_id.0)),
            "_synced_at" => Some(Cell::at_ms(self.at_ms)),
            _ => None,
        }
    }

    /// Adds the columns of the stamp to the rows. All other columns of the table that the rows lack become NULL.
    ///
    /// # Errors
    /// `Bug` if a missing column must not be NULL.
    pub(in crate::load) fn stamp_rows(self, table: &Table, rows: &RecordBatch) -> Result<RecordBatch, LoadError> {
        let run_ids: ArrayRef = Arc::new(StringArray::from_iter_values((0..rows.num_rows()).map(|_| &self.run_id.0)));
        let at_us = clamped_us(self.at_ms.saturating_mul(1000));
        let times: ArrayRef = Arc::new(TimestampMicrosecondArray::from_value(at_us, rows.num_rows()));
        let mut fields: Vec<Arc<Field>> = rows.schema().fields().iter().cloned().collect();
        fields.push(Arc::new(Field::new("_run_id", DataType::Utf8, false)));
        fields.push(Arc::new(Field::new("_synced_at", times.data_type().clone(), false)));
        let columns = rows.columns().iter().cloned().chain([run_ids, times]).collect();
        let stamped = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(invalid_rows(table))?;
        with_columns(table, &table.full_schema(), &stamped)
    }
}

/// One row of a batch.
#[derive(Clone, Copy, Debug)]
pub(in crate::load) struct Row<'a> {
    pub rows: &'a RecordBatch,
    /// The index of the row in the batch.
    pub index: usize,
}

impl<'a> Row<'a> {
    /// Returns the text in a column. Fails if the value is NULL. All methods of [`Row`] fail if the batch lacks the
    /// column, or has it with another type.
    pub fn text(&self, name: &str) -> Result<&'a str, LoadError> {
        required(name, self.text_or_null(name)?)
    }

    /// Returns the text in a column; `None` for NULL.
    pub fn text_or_null(&self, name: &str) -> Result<Option<&'a str>, LoadError> {
        let column = text_column(self.rows, name)?;
        Ok(column.is_valid(self.index).then(|| column.value(self.index)))
    }

    /// Returns the id of a run in a column. Fails if the value is NULL.
    pub fn run_id(&self, name: &str) -> Result<RunId, LoadError> {
        self.text(name).map(|id| RunId(id.to_owned()))
    }

    /// Returns the integer in a column. Fails if the value is NULL.
    pub fn integer(&self, name: &str) -> Result<i64, LoadError> {
        required(name, self.integer_or_null(name)?)
    }

    /// Returns the integer in a column; `None` for NULL.
    pub fn integer_or_null(&self, name: &str) -> Result<Option<i64>, LoadError> {
        let column = number_column(self.rows, name)?;
        Ok(column.is_valid(self.index).then(|| column.value(self.index)))
    }

    /// Returns the count in a column. Fails if the value is NULL.
    pub fn count(&self, name: &str) -> Result<u64, LoadError> {
        self.integer(name).map(i64::unsigned_abs)
    }

    /// Returns the time in a column, in epoch microseconds. Fails if the value is NULL.
    pub fn moment_us(&self, name: &str) -> Result<i64, LoadError> {
        required(name, self.moment_us_or_null(name)?)
    }

    /// Returns the time in a column, in epoch microseconds; `None` for NULL.
    pub fn moment_us_or_null(&self, name: &str) -> Result<Option<i64>, LoadError> {
        let column = time_column(self.rows, name)?;
        Ok(column.is_valid(self.index).then(|| column.value(self.index)))
    }

    /// Returns the time in a column, in epoch milliseconds, rounded down. Fails if the value is NULL.
    pub fn moment_ms(&self, name: &str) -> Result<i64, LoadError> {
        self.moment_us(name).map(|at_us| at_us.div_euclid(1000))
    }

    /// Returns the time in a column, in epoch milliseconds, rounded down; `None` for NULL.
    pub fn moment_ms_or_null(&self, name: &str) -> Result<Option<i64>, LoadError> {
        Ok(self.moment_us_or_null(name)?.map(|at_us| at_us.div_euclid(1000)))
    }
}

/// Returns the value of the column `name`; an error if `value` is `None`.
fn required<T>(name: &str, value: Option<T>) -> Result<T, LoadError> {
    value.ok_or_else(|| LoadError::DamagedRows(format!("{name} is NULL")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::table;

    #[test]
    fn a_row_has_every_column_and_reads_back() {
        let table = table("response_choices").unwrap();
        let mut builder = RowBuilder::new(table);
        let cell = |name: &str| match name {
            "response_group_uid" | "_run_id" => Cell::Text("g"),
            "question_id" | "choice_ordinal" => Cell::Integer(7),
            "created_at" | "_synced_at" => Cell::at_ms(-1),
            _ => Cell::Null,
        };
        builder.add(cell).unwrap();
        let rows = builder.finish().unwrap();
        assert_eq!((rows.schema(), rows.num_rows()), (table.full_schema(), 1));
        let row = Row { rows: &rows, index: 0 };
        assert_eq!((row.text("response_group_uid").unwrap(), row.integer("question_id").unwrap()), ("g", 7));
        assert_eq!((row.moment_us("created_at").unwrap(), row.moment_ms("created_at").unwrap()), (-1000, -1));
        assert_eq!((row.text_or_null("label").unwrap(), row.integer_or_null("survey_id").unwrap()), (None, None));
        assert!(row.text("label").is_err() && row.text("question_id").is_err() && row.text("nothing").is_err());
    }

    #[test]
    fn moments_are_limited_to_the_years_1_to_9999() {
        let table = table("sync_windows").unwrap();
        let written = |at_ms: i64| {
            let mut builder = RowBuilder::new(table);
            let cell = |name: &str| match table.column(name).unwrap().column_type {
                ColumnType::Timestamp => Cell::at_ms(at_ms),
                ColumnType::Bigint => Cell::Integer(0),
                ColumnType::Boolean => Cell::Boolean(true),
                _ => Cell::Text(""),
            };
            builder.add(cell).unwrap();
            let rows = builder.finish().unwrap();
            Row { rows: &rows, index: 0 }.moment_us("window_start").unwrap()
        };
        assert_eq!(written(i64::MIN), -62_135_596_800_000_000);
        assert_eq!(written(i64::MAX), 253_402_300_799_999_999);
        assert_eq!(written(5), 5000);
    }

    #[test]
    fn a_value_of_another_type_and_a_forbidden_null_are_refused() {
        let table = table("response_media").unwrap();
        assert!(RowBuilder::new(table).add(|_| Cell::Integer(1)).is_err());
        // `duration_secs` is a double: no cell is.
        let mut builder = RowBuilder::new(table);
        builder.add(|_| Cell::Null).unwrap();
        assert!(builder.finish().is_err());
    }
}
