//! The hash of a row's content: equal hashes mean that nothing changed.
//!
//! Hashed is the sequence of the values that are not NULL, each as the mark of its name, the tag of its type, and its
//! bytes with their length in front where the type does not fix it. So no two rows become one by concatenation, and a
//! column that is added to the contract changes no hash of the rows in which it is NULL. Warehouses keep these hashes:
//! a change here makes every row look edited.

use arrow::{
    array::{Array as _, ArrayRef, AsArray as _, RecordBatch},
    datatypes::{DataType, Int64Type, TimeUnit, TimestampMicrosecondType},
    error::ArrowError,
};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

/// What a column's name contributes: 32 bits are plenty to tell the columns of a table apart, and a test does.
pub(crate) fn column_name_hash(name: &str) -> u32 {
    (xxh3_64(name.as_bytes()) >> 32) as u32
}

/// The values of one row, in the order of the contract; cleared and used again for each row.
#[derive(Debug, Default)]
pub(crate) struct RowContent {
    bytes: Vec<u8>,
}

impl RowContent {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
    }

    pub(crate) fn text(&mut self, mark: u32, value: &str) {
        self.begin(mark, b't');
        self.bytes.extend_from_slice(&(value.len() as u64).to_le_bytes());
        self.bytes.extend_from_slice(value.as_bytes());
    }

    pub(crate) fn bigint(&mut self, mark: u32, value: i64) {
        self.begin(mark, b'i');
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn double(&mut self, mark: u32, value: f64) {
        self.begin(mark, b'd');
        self.bytes.extend_from_slice(&value.to_bits().to_le_bytes());
    }

    pub(crate) fn boolean(&mut self, mark: u32, value: bool) {
        self.begin(mark, b'b');
        self.bytes.push(u8::from(value));
    }

    /// Microseconds.
    pub(crate) fn timestamp(&mut self, mark: u32, value: i64) {
        self.begin(mark, b's');
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn bigints(&mut self, mark: u32, values: &[i64]) {
        self.begin(mark, b'l');
        self.bytes.extend_from_slice(&(values.len() as u64).to_le_bytes());
        values.iter().for_each(|value| self.bytes.extend_from_slice(&value.to_le_bytes()));
    }

    fn begin(&mut self, mark: u32, tag: u8) {
        self.bytes.extend_from_slice(&mark.to_le_bytes());
        self.bytes.push(tag);
    }

    /// For `_row_hash`.
    pub(crate) fn hash_64(&self) -> i64 {
        xxh3_64(&self.bytes) as i64
    }

    /// For keys, which are told apart by the hash alone.
    pub(crate) fn hash_128(&self) -> u128 {
        xxh3_128(&self.bytes)
    }
}

/// For each row, the hash of its key: the same as in [`super::FlatPage::key_hashes`]. `key` are the columns of the key,
/// in the order of their table.
///
/// # Errors
/// If one of them is missing, or has a type that no key has.
pub(crate) fn key_hashes(key: &[&str], rows: &RecordBatch) -> Result<Vec<u128>, ArrowError> {
    let mut columns: Vec<(u32, &ArrayRef)> = Vec::with_capacity(key.len());
    for name in key {
        let held = rows.column_by_name(name).filter(|held| is_of_a_key(held.data_type()));
        let held = held.ok_or_else(|| ArrowError::SchemaError(format!("rows without {name}, of their key")))?;
        columns.push((column_name_hash(name), held));
    }
    let (mut content, mut hashes) = (RowContent::default(), Vec::with_capacity(rows.num_rows()));
    for row in 0..rows.num_rows() {
        content.clear();
        for (mark, column) in columns.iter().filter(|(_, column)| column.is_valid(row)) {
            match column.data_type() {
                DataType::Utf8 => content.text(*mark, column.as_string::<i32>().value(row)),
                DataType::Int64 => content.bigint(*mark, column.as_primitive::<Int64Type>().value(row)),
                _ => content.timestamp(*mark, column.as_primitive::<TimestampMicrosecondType>().value(row)),
            }
        }
        hashes.push(content.hash_128());
    }
    Ok(hashes)
}

fn is_of_a_key(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::Int64 | DataType::Timestamp(TimeUnit::Microsecond, _))
}

#[cfg(test)]
mod tests;
