//! Estimates the memory that the engine cannot spill to disk: deletion marks, which say which rows are removed, and
//! long texts of new rows. The engine keeps them until a checkpoint has written them and the file is closed.

use super::{super::sql::with_keys, names::qualified};
use crate::{
    load::{LoadError, engine::Engine, store::TableChange},
    model::LongTexts,
};

/// Number of rows of a vector. The engine stores rows in vectors, and the deletion marks of each vector together.
const VECTOR_ROWS: u64 = 2048;
/// Memory of the marks of one vector in bytes, for any number of removed rows in the vector. Measured with 50,000
/// removals among a million rows.
const VECTOR_BYTES: u64 = 18 * 1024;
/// Largest number of removed rows of a change for which each row counts as one vector, which saves a query.
const FEW_VECTORS_MAX: u64 = 256;

/// The estimated memory of the changes since the file was opened. A vector in which several changes remove rows counts
/// several times.
#[derive(Debug)]
pub(super) struct UnspillableMemory {
    /// Number of vectors with marks.
    vectors: u64,
    /// Bytes of long texts.
    text_bytes: u64,
    /// Memory in bytes at which the file should be closed.
    bytes_max: u64,
}

impl UnspillableMemory {
    /// Creates a count without changes. The file should be closed at a quarter of the engine's memory,
    /// `memory_limit_bytes`: a commit and the next window need the rest.
    pub fn none(memory_limit_bytes: u64) -> Self {
        Self { vectors: 0, text_bytes: 0, bytes_max: memory_limit_bytes / 4 }
    }

    /// Adds the long texts of a change, and the vectors in which it is about to remove rows. Must be called before the
    /// change removes them.
    pub fn add(&mut self, engine: &Engine, change: &TableChange) -> Result<(), LoadError> {
        self.text_bytes += change.added.iter().map(|rows| LongTexts::of(rows).total_bytes() as u64).sum::<u64>();
        let removed = change.removed.len() as u64;
        self.vectors += if removed <= FEW_VECTORS_MAX { removed } else { vectors_of(engine, change)? };
        Ok(())
    }

    /// Resets the count, because closing the file frees the memory.
    pub fn clear(&mut self) {
        (self.vectors, self.text_bytes) = (0, 0);
    }

    /// Returns true if rows were removed.
    pub fn has_removals(&self) -> bool {
        self.vectors > 0
    }

    /// Returns true if the changes take so much memory that the file should be closed.
    pub fn is_large(&self) -> bool {
        self.vectors * VECTOR_BYTES + self.text_bytes >= self.bytes_max
    }
}

/// Queries the number of vectors that have rows with the keys that a change removes.
fn vectors_of(engine: &Engine, change: &TableChange) -> Result<u64, LoadError> {
    let (table, removed) = (change.table, &change.removed);
    let sql = |rows: &str| {
        let from = with_keys(table, &qualified(&table.name), rows, removed, change.removed_range);
        format!("SELECT DISTINCT t.rowid // {VECTOR_ROWS} FROM {from}")
    };
    let mut vectors = 0;
    engine.each_batch_with_rows("count what is removed", removed.values(), sql, |batch| {
        vectors += batch.num_rows() as u64;
        Ok(())
    })?;
    Ok(vectors)
}
