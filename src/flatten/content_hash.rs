//! The hash of a row's content: equal hashes mean that nothing changed.
//!
//! Hashed is the sequence of the values that are not NULL, each as the mark of its name, the tag of its type, and its bytes with
//! their length in front where the type does not fix it. So no two rows become one by concatenation, and a column that is
//! added to the contract changes no hash of the rows in which it is NULL. Warehouses keep these hashes: a change here makes every
//! row look edited.

use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

/// What a column's name contributes: 32 bits are plenty to tell the columns of a table apart, and a test does.
pub(super) fn column_mark(name: &str) -> u32 {
    (xxh3_64(name.as_bytes()) >> 32) as u32
}

/// The values of one row, in the order of the contract; cleared and used again for each row.
#[derive(Debug, Default)]
pub(super) struct Content {
    bytes: Vec<u8>,
}

impl Content {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
    }

    pub(super) fn text(&mut self, mark: u32, value: &str) {
        self.begin(mark, b't');
        self.bytes.extend_from_slice(&(value.len() as u64).to_le_bytes());
        self.bytes.extend_from_slice(value.as_bytes());
    }

    pub(super) fn bigint(&mut self, mark: u32, value: i64) {
        self.begin(mark, b'i');
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn double(&mut self, mark: u32, value: f64) {
        self.begin(mark, b'd');
        self.bytes.extend_from_slice(&value.to_bits().to_le_bytes());
    }

    pub(super) fn boolean(&mut self, mark: u32, value: bool) {
        self.begin(mark, b'b');
        self.bytes.push(u8::from(value));
    }

    /// Microseconds.
    pub(super) fn timestamp(&mut self, mark: u32, value: i64) {
        self.begin(mark, b's');
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn bigints(&mut self, mark: u32, values: &[i64]) {
        self.begin(mark, b'l');
        self.bytes.extend_from_slice(&(values.len() as u64).to_le_bytes());
        values.iter().for_each(|value| self.bytes.extend_from_slice(&value.to_le_bytes()));
    }

    fn begin(&mut self, mark: u32, tag: u8) {
        self.bytes.extend_from_slice(&mark.to_le_bytes());
        self.bytes.push(tag);
    }

    /// For `_row_hash`.
    pub(super) fn hash_64(&self) -> i64 {
        xxh3_64(&self.bytes) as i64
    }

    /// For keys, which are told apart by the hash alone.
    pub(super) fn hash_128(&self) -> u128 {
        xxh3_128(&self.bytes)
    }
}

#[cfg(test)]
mod tests;
