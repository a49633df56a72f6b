//! What `flatten` hands to `load`: Arrow rows by table, and the records that could not be placed.

use std::fmt;

use arrow::record_batch::RecordBatch;

/// Arrow rows of one table. The columns are the table's contract without those that `load` fills (`origin = "load"`).
#[derive(Clone, Debug)]
pub struct TableBatch {
    /// The table's name: the stem of its file in `schemas/`.
    pub table: &'static str,
    /// The rows.
    pub rows: RecordBatch,
}

/// One page, flattened. Batches are per table; a table without rows is left out.
#[derive(Clone, Debug, Default)]
pub struct FlatPage {
    /// Rows by table, at most one batch a table.
    pub batches: Vec<TableBatch>,
    /// For each row of the stream's base table (`responses`, `surveys` or `themes`), in order: the hash of its key.
    pub key_hashes: Vec<u128>,
    /// Records that could not be placed.
    pub rejects: Vec<Reject>,
    /// Records in the page's `data`: rows of the base table and rejects together.
    pub records: usize,
}

impl FlatPage {
    /// The rows of one table, if the page has any.
    pub fn table(&self, name: &str) -> Option<&RecordBatch> {
        self.batches.iter().find(|batch| batch.table == name).map(|batch| &batch.rows)
    }

    /// The memory that the page's buffers take, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let rejects: usize = self.rejects.iter().map(|reject| reject.raw.len()).sum();
        self.batches.iter().map(|batch| batch.rows.get_array_memory_size()).sum::<usize>() + rejects
    }
}

/// A record that could not be placed in its table, with its exact text (promise P1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reject {
    /// Why.
    pub reason: RejectReason,
    /// The field at fault, as the service names it.
    pub field: &'static str,
    /// The record's raw text.
    pub raw: String,
}

/// Why a record could not be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RejectReason {
    /// The item of `data` is not an object.
    NotAnObject,
    /// A field of the key, or the creation time, is missing or null.
    MissingKey,
    /// A field of the key, or the creation time, has a value that cannot be read as its type.
    BadKey,
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RejectReason::NotAnObject => "not_an_object",
            RejectReason::MissingKey => "missing_key",
            RejectReason::BadKey => "bad_key",
        })
    }
}
