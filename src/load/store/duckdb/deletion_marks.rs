//! Estimates the memory of the engine's deletion marks, which say which rows are removed. The engine cannot spill
//! deletion marks to disk, and keeps them until a checkpoint has written them and the file is closed.

use super::{names::qualified, transaction::with_keys};
use crate::load::{LoadError, engine::Engine, store::TableChange};

/// Number of rows of a vector. The engine stores rows in vectors, and the deletion marks of each vector together.
const VECTOR_ROWS: u64 = 2048;
/// Memory of the marks of one vector in bytes, for any number of removed rows in the vector. Measured with 50,000
/// removals among a million rows.
const VECTOR_BYTES: u64 = 18 * 1024;
/// Largest number of removed rows of a change for which each row counts as one vector, which saves a query. Also the
/// largest number of vectors for which [`DeletionMarks::is_small`] returns true.
const FEW_VECTORS_MAX: u64 = 256;

/// The estimated memory of the marks of all removals since the file was opened. A vector in which several changes
/// remove rows counts several times.
#[derive(Debug)]
pub(super) struct DeletionMarks {
    /// Number of vectors with marks.
    vectors: u64,
    /// Memory of the marks, in bytes, at which the file should be closed.
    bytes_max: u64,
}

impl DeletionMarks {
    /// Creates a count without marks. A quarter of the engine's memory, `memory_limit_bytes`, may be used for marks. A
    /// commit needs the other three quarters.
    pub fn none(memory_limit_bytes: u64) -> Self {
        Self { vectors: 0, bytes_max: memory_limit_bytes / 4 }
    }

    /// Adds the vectors in which a change is about to remove rows. Must be called before the change removes them.
    pub fn add(&mut self, engine: &Engine, change: &TableChange) -> Result<(), LoadError> {
        let removed = change.removed.len() as u64;
        self.vectors += if removed <= FEW_VECTORS_MAX { removed } else { vectors_of(engine, change)? };
        Ok(())
    }

    /// Resets the count, because closing the file frees the marks.
    pub fn clear(&mut self) {
        self.vectors = 0;
    }

    /// Returns true if so few rows were removed that a checkpoint has little to write.
    pub fn is_small(&self) -> bool {
        self.vectors <= FEW_VECTORS_MAX
    }

    /// Returns true if the marks take so much memory that the file should be closed.
    pub fn is_large(&self) -> bool {
        self.vectors * VECTOR_BYTES >= self.bytes_max
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
