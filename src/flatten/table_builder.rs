//! Builds the rows of one table, cell by cell in the order of its contract. [`RecordTables`] are the tables of a
//! stream.
//!
//! The builder also hashes the key and the content of each row of a base table. The contract decides which columns are
//! content: columns with values as the service sent them (`origin = "wire"`), and the JSON of fields without a column.
//! Computed columns are not hashed, so that a better computation does not make every row look edited. JSON is hashed in
//! its canonical spelling, because another order of members or another escape is no edit.

use std::sync::Arc;

use arrow::{
    array::{
        Array, ArrayRef, BooleanBuilder, Float64Builder, Int64Builder, ListBuilder, RecordBatch, StringBuilder,
        TimestampMicrosecondBuilder,
    },
    error::ArrowError,
};

use super::{drift::DriftLog, fields::KeyError};
use crate::{
    json::{Entry, write_canonical},
    model::{DriftRules, FlatPage, RowContent, TableBatch, column_name_hash, long_text_bytes},
    schema::{Column, ColumnType, RECORD_COLUMN, ROW_HASH_COLUMN, Table, TableKind, table},
};

/// Maximum rows of a child table from one page. This limit keeps the texts of a column far below the 2 GiB of Arrow.
/// The values of further rows are only in the JSON columns of the base table. Callers ask [`TableBuilder::is_full`].
/// Tables of surveys are not limited: their rows repeat no text.
const CHILD_ROWS_MAX: usize = 4_000_000;

/// Typical bytes of a text cell, to estimate the size of a column.
const TEXT_BYTES_GUESS: usize = 24;

/// The columns that are built. All values are hashed, whatever columns are built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColumnSet {
    All,
    /// The columns for which [`Table::is_in_summary`] is true.
    Summary,
}

/// The tables of a stream under construction.
pub(super) trait RecordTables<'a>: Sized {
    /// Returns empty tables with capacity for this many records.
    fn new(records: usize, rules: DriftRules, columns: ColumnSet) -> Result<Self, ArrowError>;

    /// Appends the rows of a record, and returns the hash of the key of its row in the base table. `record` is the
    /// index of the record in the page, from 0. A failed call appends no rows.
    fn append(&mut self, record: i64, entries: &[Entry<'a>]) -> Result<u128, KeyError>;

    /// Returns the log of drift.
    fn drift(&mut self) -> &mut DriftLog;

    /// Appends a batch for each table that has rows to the page, and returns the log of drift.
    fn finish_into(self, page: &mut FlatPage) -> Result<DriftLog, ArrowError>;
}

/// The rows of one table under construction. The caller appends each row with one call per column, in the order of the
/// contract, and then calls [`Self::end_row`].
#[derive(Debug)]
pub(super) struct TableBuilder {
    table: &'static Table,
    column_set: ColumnSet,
    columns: Vec<ColumnBuilder>,
    /// The index of the column of the next cell.
    next: usize,
    rows: usize,
    /// The bytes of the long texts in all cells, built or not.
    long_text_bytes: usize,
    /// True if a cell was appended to the wrong column. In this case [`Self::finish_into`] fails.
    is_misordered: bool,
    /// Hashes the key of the current row.
    pub key: RowContent,
    /// Hashes the other values of the current row that the service sent.
    pub content: RowContent,
}

/// The cells of one column under construction.
#[derive(Debug)]
struct ColumnBuilder {
    name: &'static str,
    /// The hash of the column's name, which is hashed together with each value.
    mark: u32,
    hash_target: HashTarget,
    /// Members with links that the service signs anew for each request.
    signed_links: &'static [String],
    cells: Cells,
}

/// The hash that includes a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HashTarget {
    Key,
    Content,
    None,
}

/// The cells of a column, in the builder for their type.
#[derive(Debug)]
enum Cells {
    Text(StringBuilder),
    Json(StringBuilder),
    Bigint(Int64Builder),
    Double(Float64Builder),
    Boolean(BooleanBuilder),
    Timestamp(TimestampMicrosecondBuilder),
    BigintList(ListBuilder<Int64Builder>),
    /// The column is not built.
    Skipped,
}

impl Cells {
    fn new(column_type: ColumnType, rows: usize) -> Self {
        match column_type {
            ColumnType::Text => Cells::Text(StringBuilder::with_capacity(rows, rows * TEXT_BYTES_GUESS)),
            ColumnType::Json => Cells::Json(StringBuilder::with_capacity(rows, rows * TEXT_BYTES_GUESS)),
            ColumnType::Bigint => Cells::Bigint(Int64Builder::with_capacity(rows)),
            ColumnType::Double => Cells::Double(Float64Builder::with_capacity(rows)),
            ColumnType::Boolean => Cells::Boolean(BooleanBuilder::with_capacity(rows)),
            ColumnType::Timestamp => Cells::Timestamp(TimestampMicrosecondBuilder::with_capacity(rows)),
            ColumnType::BigintList => {
                Cells::BigintList(ListBuilder::with_capacity(Int64Builder::with_capacity(rows), rows))
            }
        }
    }

    /// Returns the column without unused memory, because buffered pages are limited by their memory. Returns `None` if
    /// the column is not built.
    fn finish(&mut self) -> Option<ArrayRef> {
        Some(match self {
            Cells::Text(builder) | Cells::Json(builder) => shrunk(builder.finish()),
            Cells::Bigint(builder) => shrunk(builder.finish()),
            Cells::Double(builder) => shrunk(builder.finish()),
            Cells::Boolean(builder) => shrunk(builder.finish()),
            Cells::Timestamp(builder) => shrunk(builder.finish()),
            Cells::BigintList(builder) => shrunk(builder.finish()),
            Cells::Skipped => return None,
        })
    }
}

/// Releases the unused memory of a column.
fn shrunk(mut column: impl Array + 'static) -> ArrayRef {
    column.shrink_to_fit();
    Arc::new(column)
}

fn hash_target(table: &Table, column: &Column) -> HashTarget {
    match table.kind {
        TableKind::Base if table.key.contains(&column.name) => HashTarget::Key,
        TableKind::Base if column.is_hashed() => HashTarget::Content,
        // Computed columns are not hashed. Rows of child tables need no hash, because they are replaced with their
        // parent row.
        _ => HashTarget::None,
    }
}

/// Declares a method that appends a cell to the next column, and its value to the hash that includes the column.
/// `$hash` adds the value to the hash: `|hash, column, value|`. `$long_bytes` returns the bytes of a long text.
macro_rules! cell {
    ($method:ident, $cells:ident, $value:ty, $hash:expr, $borrow:expr, $long_bytes:expr, $doc:literal) => {
        #[doc = $doc]
        pub(super) fn $method(&mut self, name: &'static str, value: Option<$value>) {
            let Some(column) = self.columns.get_mut(self.next) else {
                self.is_misordered = true;
                return;
            };
            self.next += 1;
            let add_to: fn(&mut RowContent, &ColumnBuilder, $value) = $hash;
            let long_bytes: fn($value) -> usize = $long_bytes;
            if let Some(value) = value {
                self.long_text_bytes += long_bytes(value);
                match column.hash_target {
                    HashTarget::Key => add_to(&mut self.key, column, value),
                    HashTarget::Content => add_to(&mut self.content, column, value),
                    HashTarget::None => {}
                }
            }
            // Every row calls the same code, so checking the first row is enough.
            self.is_misordered |= self.rows == 0 && column.name != name;
            match &mut column.cells {
                Cells::Skipped => {}
                Cells::$cells(builder) => builder.append_option(value.map($borrow)),
                _ => self.is_misordered = true,
            }
        }
    };
}

fn list_items(values: &[i64]) -> impl Iterator<Item = Option<i64>> {
    values.iter().copied().map(Some)
}

impl TableBuilder {
    /// Returns an empty builder for the table `name` with capacity for `rows` rows. Fails if no contract has this name.
    pub(super) fn new(name: &'static str, rows: usize, column_set: ColumnSet) -> Result<Self, ArrowError> {
        let table = table(name).ok_or_else(|| ArrowError::SchemaError(format!("no contract is called {name}")))?;
        let cells = |name: &str, column_type| match column_set == ColumnSet::All || table.is_in_summary(name) {
            true => Cells::new(column_type, rows),
            false => Cells::Skipped,
        };
        let mut columns: Vec<ColumnBuilder> = table
            .flat_columns()
            .map(|column| ColumnBuilder {
                name: &column.name,
                mark: column_name_hash(&column.name),
                hash_target: hash_target(table, column),
                signed_links: &column.signed_links,
                cells: cells(&column.name, column.column_type),
            })
            .collect();
        columns.push(ColumnBuilder {
            name: RECORD_COLUMN,
            mark: 0,
            hash_target: HashTarget::None,
            signed_links: &[],
            cells: cells(RECORD_COLUMN, ColumnType::Bigint),
        });
        let (key, content) = Default::default();
        let (next, rows, long_text_bytes, is_misordered) = (0, 0, 0, false);
        Ok(Self { table, column_set, columns, next, rows, long_text_bytes, is_misordered, key, content })
    }

    cell!(
        text,
        Text,
        &str,
        |hash, column, text| hash.text(column.mark, text),
        |text| text,
        |text| long_text_bytes(text.len()),
        "Appends a text cell."
    );
    cell!(
        json,
        Json,
        &str,
        |hash, column, raw| hash.written_text(column.mark, |bytes| write_canonical(raw, column.signed_links, bytes)),
        |raw| raw,
        |raw| long_text_bytes(raw.len()),
        "Appends a cell with the exact text of a JSON value."
    );
    cell!(
        bigint,
        Bigint,
        i64,
        |hash, column, number| hash.bigint(column.mark, number),
        |number| number,
        |_| 0,
        "Appends an integer cell."
    );
    cell!(
        double,
        Double,
        f64,
        |hash, column, number| hash.double(column.mark, number),
        |number| number,
        |_| 0,
        "Appends a double cell."
    );
    cell!(
        boolean,
        Boolean,
        bool,
        |hash, column, boolean| hash.boolean(column.mark, boolean),
        |boolean| boolean,
        |_| 0,
        "Appends a boolean cell."
    );
    cell!(
        timestamp,
        Timestamp,
        i64,
        |hash, column, micros| hash.timestamp(column.mark, micros),
        |micros| micros,
        |_| 0,
        "Appends a timestamp cell, in microseconds."
    );
    cell!(
        bigints,
        BigintList,
        &[i64],
        |hash, column, numbers| hash.bigints(column.mark, numbers),
        list_items,
        |_| 0,
        "Appends a cell that is a list of integers."
    );

    /// Appends the cell `_row_hash` and returns its value.
    pub(super) fn row_hash(&mut self) -> i64 {
        let hash = self.content.hash_64();
        self.bigint(ROW_HASH_COLUMN, Some(hash));
        hash
    }

    /// Ends the row and returns the hash of its key. `record` is the index of the row's record in the page.
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

    /// Returns true if the table has the maximum rows of a child table.
    pub(super) fn is_full(&self) -> bool {
        self.rows >= CHILD_ROWS_MAX
    }

    /// Returns true if rows with parts of this text have to be appended: if they are built, or if they may have long
    /// texts, which count although they are not built.
    pub(super) fn needs_rows_of(&self, text: &str) -> bool {
        self.column_set == ColumnSet::All || long_text_bytes(text.len()) > 0
    }

    /// Appends the rows to the page as one batch, unless there are no rows or no columns. Fails if cells were appended
    /// to wrong columns, which is a bug.
    pub(super) fn finish_into(mut self, page: &mut FlatPage) -> Result<(), ArrowError> {
        let table = self.table;
        if self.is_misordered {
            return Err(ArrowError::SchemaError(format!("cells of {} do not follow its contract", table.name)));
        }
        page.long_text_bytes += self.long_text_bytes;
        let columns: Vec<ArrayRef> = self.columns.iter_mut().filter_map(|column| column.cells.finish()).collect();
        if self.rows == 0 || columns.is_empty() {
            return Ok(());
        }
        let schema = match self.column_set {
            ColumnSet::All => table.flat_schema(),
            ColumnSet::Summary => table.summary_schema(),
        };
        page.batches.push(TableBatch { table: &table.name, rows: RecordBatch::try_new(schema, columns)? });
        Ok(())
    }
}

#[cfg(test)]
mod tests;
