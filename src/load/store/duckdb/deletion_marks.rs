//! Estimates the memory of deletion marks. The engine cannot spill them, and keeps them until a checkpoint has written
//! them and the file is closed.

use super::{names::qualified, transaction::with_keys};
use crate::load::{LoadError, engine::Engine, store::TableChange};

/// Rows of a vector, the unit in which the engine marks rows.
const VECTOR_ROWS: u64 = 2048;
/// Memory of a vector's marks, in bytes, whatever the number of its removed rows. Measured with 50,000 removals among a
/// million rows.
const VECTOR_BYTES: u64 = 18 * 1024;
/// Up to this number of removals, each counts as a vector of its own.
const FEW: u64 = 256;

/// The removals since the file was opened.
#[derive(Debug)]
pub(super) struct DeletionMarks {
    vectors: u64,
    bytes_max: u64,
}

impl DeletionMarks {
    /// No marks. `memory_limit_bytes` is the engine's memory: a quarter of it is for marks, since a commit needs the
    /// rest.
    pub fn none(memory_limit_bytes: u64) -> Self {
        Self { vectors: 0, bytes_max: memory_limit_bytes / 4 }
    }

    /// Counts the vectors in which a change will remove rows.
    pub fn add(&mut self, engine: &Engine, change: &TableChange) -> Result<(), LoadError> {
        let removed = change.removed.len() as u64;
        self.vectors += if removed <= FEW { removed } else { vectors_of(engine, change)? };
        Ok(())
    }

    /// Resets the count: the file is closed.
    pub fn clear(&mut self) {
        self.vectors = 0;
    }

    /// Returns true if hardly a row was removed.
    pub fn is_small(&self) -> bool {
        self.vectors <= FEW
    }

    /// Returns true if the marks take so much memory that the file should be closed.
    pub fn is_large(&self) -> bool {
        self.vectors * VECTOR_BYTES >= self.bytes_max
    }
}

/// The number of vectors in which a change removes rows.
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
