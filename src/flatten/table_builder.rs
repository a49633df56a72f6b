//! The rows of one table, cell by cell in the order of its contract.
//!
//! Beside each row runs the hash of its key and of its content. What is hashed follows from the contract: the key's
//! columns into the one; into the other the columns that hold what the service sent (`origin = "wire"`, and the JSON of
//! fields without a column). The rest is computed from those, and a program that computes better must not make every
//! row look edited.

use std::sync::Arc;

use arrow::{
    array::{
        Array, ArrayRef, BooleanBuilder, Float64Builder, Int64Builder, ListBuilder, RecordBatch, StringBuilder,
        TimestampMicrosecondBuilder,
    },
    datatypes::SchemaRef,
    error::ArrowError,
};

use crate::{
    model::{RowContent, TableBatch, column_name_hash},
    schema::{Column, ColumnType, RECORD_COLUMN, ROW_HASH_COLUMN, Table, TableKind, table},
};

/// Rows of one child table that one page may fill. A page that would need more is no list of answers; its further rows
/// stay in the JSON columns of the base table. It keeps the text of a child's columns far from Arrow's 2 GiB.
const CHILD_ROWS_MAX: usize = 4_000_000;

/// Bytes that a text column is likely to need for a row.
const TEXT_BYTES_GUESS: usize = 24;

/// Rows of one table under construction. Each row is one call a column, in the order of the contract, then
/// [`Self::end_row`].
#[derive(Debug)]
pub(super) struct TableBuilder {
    name: &'static str,
    schema: SchemaRef,
    columns: Vec<ColumnBuilder>,
    /// The column that the next cell goes to.
    next: usize,
    rows: usize,
    /// A cell came out of order: the batch cannot be built.
    is_misordered: bool,
    /// The values of the row's key.
    pub key: RowContent,
    /// The other values that the service sent.
    pub content: RowContent,
}

#[derive(Debug)]
struct ColumnBuilder {
    name: &'static str,
    mark: u32,
    role: Role,
    cells: Cells,
}

/// Which hash a column goes into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Key,
    Content,
    Unhashed,
}

#[derive(Debug)]
enum Cells {
    Text(StringBuilder),
    Bigint(Int64Builder),
    Double(Float64Builder),
    Boolean(BooleanBuilder),
    Timestamp(TimestampMicrosecondBuilder),
    BigintList(ListBuilder<Int64Builder>),
}

impl Cells {
    fn new(column_type: ColumnType, rows: usize) -> Self {
        match column_type {
            ColumnType::Text | ColumnType::Json => {
                Cells::Text(StringBuilder::with_capacity(rows, rows * TEXT_BYTES_GUESS))
            }
            ColumnType::Bigint => Cells::Bigint(Int64Builder::with_capacity(rows)),
            ColumnType::Double => Cells::Double(Float64Builder::with_capacity(rows)),
            ColumnType::Boolean => Cells::Boolean(BooleanBuilder::with_capacity(rows)),
            ColumnType::Timestamp => Cells::Timestamp(TimestampMicrosecondBuilder::with_capacity(rows)),
            ColumnType::BigintList => {
                Cells::BigintList(ListBuilder::with_capacity(Int64Builder::with_capacity(rows), rows))
            }
        }
    }

    /// The column, in no more memory than it needs: pages are held, and counted, by what they take.
    fn finish(&mut self) -> ArrayRef {
        match self {
            Cells::Text(builder) => fitted(builder.finish()),
            Cells::Bigint(builder) => fitted(builder.finish()),
            Cells::Double(builder) => fitted(builder.finish()),
            Cells::Boolean(builder) => fitted(builder.finish()),
            Cells::Timestamp(builder) => fitted(builder.finish()),
            Cells::BigintList(builder) => fitted(builder.finish()),
        }
    }
}

fn fitted(mut column: impl Array + 'static) -> ArrayRef {
    column.shrink_to_fit();
    Arc::new(column)
}

fn role(table: &Table, column: &Column) -> Role {
    if table.kind != TableKind::Base {
        // Children change with their parent.
        Role::Unhashed
    } else if table.key.contains(&column.name) {
        Role::Key
    } else if column.is_hashed() {
        Role::Content
    } else {
        Role::Unhashed
    }
}

/// A cell's value goes to its builder and, unless it is NULL, into the hash that its column belongs to: as it is, or as
/// what it is compared by.
macro_rules! cell {
    ($method:ident, $cells:ident, $hash:ident, $value:ty, $borrow:expr, $doc:literal) => {
        #[doc = $doc]
        pub(super) fn $method(&mut self, name: &'static str, value: Option<$value>) {
            cell!(self, name, value, value, $cells, $hash, $borrow);
        }
    };
    ($self:ident, $name:ident, $value:ident, $compared:expr, $cells:ident, $hash:ident, $borrow:expr) => {
        let Some(column) = $self.columns.get_mut($self.next) else {
            $self.is_misordered = true;
            return;
        };
        $self.next += 1;
        if let Some(compared) = $compared {
            match column.role {
                Role::Key => $self.key.$hash(column.mark, compared),
                Role::Content => $self.content.$hash(column.mark, compared),
                Role::Unhashed => {}
            }
        }
        // The order is the same for every row, so the first one proves it.
        $self.is_misordered |= $self.rows == 0 && column.name != $name;
        match &mut column.cells {
            Cells::$cells(builder) => builder.append_option($value.map($borrow)),
            _ => $self.is_misordered = true,
        }
    };
}

fn list_items(values: &[i64]) -> impl Iterator<Item = Option<i64>> {
    values.iter().copied().map(Some)
}

impl TableBuilder {
    /// A builder of the table, with room for so many rows.
    pub(super) fn new(name: &'static str, rows: usize) -> Result<Self, ArrowError> {
        let table = table(name).ok_or_else(|| ArrowError::SchemaError(format!("no contract is called {name}")))?;
        let mut columns: Vec<ColumnBuilder> = table
            .flat_columns()
            .map(|column| ColumnBuilder {
                name: &column.name,
                mark: column_name_hash(&column.name),
                role: role(table, column),
                cells: Cells::new(column.column_type, rows),
            })
            .collect();
        let record = Cells::new(ColumnType::Bigint, rows);
        columns.push(ColumnBuilder { name: RECORD_COLUMN, mark: 0, role: Role::Unhashed, cells: record });
        let (key, content) = Default::default();
        Ok(Self { name, schema: table.flat_schema(), columns, next: 0, rows: 0, is_misordered: false, key, content })
    }

    cell!(text, Text, text, &str, |text| text, "A text or JSON cell.");
    /// A text or JSON cell that counts as edited if another text of it has changed.
    pub(super) fn text_compared_as(&mut self, name: &'static str, value: Option<&str>, compared: &str) {
        cell!(self, name, value, Some(compared), Text, text, |text| text);
    }

    cell!(bigint, Bigint, bigint, i64, |number| number, "An integer cell.");
    cell!(double, Double, double, f64, |number| number, "A double cell.");
    cell!(boolean, Boolean, boolean, bool, |truth| truth, "A boolean cell.");
    cell!(timestamp, Timestamp, timestamp, i64, |micros| micros, "A timestamp cell, in microseconds.");
    cell!(bigints, BigintList, bigints, &[i64], list_items, "A cell that is a list of integers.");

    /// The cell `_row_hash`; its value is returned.
    pub(super) fn row_hash(&mut self) -> i64 {
        let hash = self.content.hash_64();
        self.bigint(ROW_HASH_COLUMN, Some(hash));
        hash
    }

    /// Ends the row: it came from that record of the page. The hash of its key is returned.
    pub(super) fn end_row(&mut self, record: i64) -> u128 {
        self.bigint(RECORD_COLUMN, Some(record));
        self.is_misordered |= self.next != self.columns.len();
        self.next = 0;
        self.rows += 1;
        let hash = self.key.hash_128();
        self.key.clear();
        self.content.clear();
        hash
    }

    /// Whether a child table takes no more rows.
    pub(super) fn is_full(&self) -> bool {
        self.rows >= CHILD_ROWS_MAX
    }

    /// Appends the rows as a batch, unless there are none.
    pub(super) fn finish_into(mut self, batches: &mut Vec<TableBatch>) -> Result<(), ArrowError> {
        if self.is_misordered {
            return Err(ArrowError::SchemaError(format!("cells of {} do not follow its contract", self.name)));
        }
        if self.rows == 0 {
            return Ok(());
        }
        let columns = self.columns.iter_mut().map(|column| column.cells.finish()).collect();
        batches.push(TableBatch { table: self.name, rows: RecordBatch::try_new(self.schema, columns)? });
        Ok(())
    }
}

#[cfg(test)]
mod tests;
