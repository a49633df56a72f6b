//! Hashes the content of a row. Two rows with equal hashes have equal content.
//!
//! The hash covers all values that are not NULL, in the order of the contract. Each value is encoded as the hash of its
//! column name, a tag of its type, and its bytes. The bytes of a text or list start with its length, so different rows
//! never have the same encoding. A new column of the contract changes no hash of a row in which the column is NULL.
//!
//! Warehouses store these hashes: if the encoding changes, every row looks edited.

use arrow::{
    array::{Array as _, ArrayRef, AsArray as _, RecordBatch},
    datatypes::{DataType, Int64Type, TimeUnit, TimestampMicrosecondType},
    error::ArrowError,
};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

/// Returns the 32-bit hash that stands for a column's name. A test checks that it is distinct within each table.
pub(crate) fn column_name_hash(name: &str) -> u32 {
    (xxh3_64(name.as_bytes()) >> 32) as u32
}

/// Encodes the values of one row, in the order of the contract, and hashes them. `column` is the [`column_name_hash`]
/// of a value's column. After `clear`, the same encoder serves the next row.
#[derive(Debug, Default)]
pub(crate) struct RowContent {
    bytes: Vec<u8>,
}

impl RowContent {
    /// Removes all values.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Adds a text.
    pub(crate) fn text(&mut self, column: u32, value: &str) {
        self.begin(column, b't');
        self.bytes.extend_from_slice(&(value.len() as u64).to_le_bytes());
        self.bytes.extend_from_slice(value.as_bytes());
    }

    /// Adds the text that `write` appends to the bytes. Callers write JSON in its canonical spelling, so that texts of
    /// the same value have the same hash.
    pub(crate) fn written_text(&mut self, column: u32, write: impl FnOnce(&mut Vec<u8>)) {
        self.begin(column, b't');
        let length_at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; size_of::<u64>()]);
        let start = self.bytes.len();
        write(&mut self.bytes);
        let length = (self.bytes.len() - start) as u64;
        self.bytes.iter_mut().skip(length_at).zip(length.to_le_bytes()).for_each(|(slot, byte)| *slot = byte);
    }

    /// Adds an integer.
    pub(crate) fn bigint(&mut self, column: u32, value: i64) {
        self.begin(column, b'i');
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// Adds a number, by its bits.
    pub(crate) fn double(&mut self, column: u32, value: f64) {
        self.begin(column, b'd');
        self.bytes.extend_from_slice(&value.to_bits().to_le_bytes());
    }

    /// Adds a boolean.
    pub(crate) fn boolean(&mut self, column: u32, value: bool) {
        self.begin(column, b'b');
        self.bytes.push(u8::from(value));
    }

    /// Adds a time in microseconds since the epoch.
    pub(crate) fn timestamp(&mut self, column: u32, value: i64) {
        self.begin(column, b's');
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// Adds a list of integers.
    pub(crate) fn bigints(&mut self, column: u32, values: &[i64]) {
        self.begin(column, b'l');
        self.bytes.extend_from_slice(&(values.len() as u64).to_le_bytes());
        values.iter().for_each(|value| self.bytes.extend_from_slice(&value.to_le_bytes()));
    }

    /// Starts a value. `tag` stands for the type of the value.
    fn begin(&mut self, column: u32, tag: u8) {
        self.bytes.extend_from_slice(&column.to_le_bytes());
        self.bytes.push(tag);
    }

    /// Returns the hash for the column `_row_hash`.
    pub(crate) fn hash_64(&self) -> i64 {
        xxh3_64(&self.bytes) as i64
    }

    /// Returns the hash of a key, with 128 bits, because keys are compared by their hash alone.
    pub(crate) fn hash_128(&self) -> u128 {
        xxh3_128(&self.bytes)
    }
}

/// Returns the key hash of each row, equal to [`super::FlatPage::key_hashes`]. `key` names the key columns in the order
/// of the table.
///
/// # Errors
/// If a key column is missing, or its type is not allowed in a key.
pub(crate) fn key_hashes(key: &[&str], rows: &RecordBatch) -> Result<Vec<u128>, ArrowError> {
    let mut columns: Vec<(u32, &ArrayRef)> = Vec::with_capacity(key.len());
    for name in key {
        let column = rows.column_by_name(name).filter(|column| is_key_type(column.data_type()));
        let column = column.ok_or_else(|| ArrowError::SchemaError(format!("the rows have no key column {name}")))?;
        columns.push((column_name_hash(name), column));
    }
    let (mut content, mut hashes) = (RowContent::default(), Vec::with_capacity(rows.num_rows()));
    for row in 0..rows.num_rows() {
        content.clear();
        for (name, column) in columns.iter().filter(|(_, column)| column.is_valid(row)) {
            match column.data_type() {
                DataType::Utf8 => content.text(*name, column.as_string::<i32>().value(row)),
                DataType::Int64 => content.bigint(*name, column.as_primitive::<Int64Type>().value(row)),
                _ => content.timestamp(*name, column.as_primitive::<TimestampMicrosecondType>().value(row)),
            }
        }
        hashes.push(content.hash_128());
    }
    Ok(hashes)
}

fn is_key_type(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::Int64 | DataType::Timestamp(TimeUnit::Microsecond, _))
}

#[cfg(test)]
mod tests;
