//! The output of `flatten` and input of `load`: Arrow rows by table, and rejected records.

use std::{borrow::Cow, fmt};

use arrow::record_batch::RecordBatch;

use super::Drift;

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
    /// For each row of the stream's base table (`responses`, `surveys`, `themes` or `users`), in order: the hash of its
    /// key.
    pub key_hashes: Vec<u128>,
    /// Rejected records.
    pub rejects: Vec<Reject>,
    /// Records in the page's `data`: rows of the base table and rejects together.
    pub records: usize,
    /// Rejects that have a key: the service still returns them, so their stored rows have not vanished.
    pub discarded: Option<DiscardedRows>,
    /// Requested keys that the service does not know. Only users are requested by key.
    pub absent: Vec<String>,
    /// What the contracts do not know.
    pub drift: Drift,
}

/// Valid records that the drift rules moved to the rejects.
#[derive(Clone, Debug)]
pub struct DiscardedRows {
    /// Their rows of the stream's base table, as they would have been.
    pub rows: RecordBatch,
    /// For each row, the hash of its key.
    pub key_hashes: Vec<u128>,
}

impl FlatPage {
    /// The rows of one table, if the page has any.
    pub fn table(&self, name: &str) -> Option<&RecordBatch> {
        self.batches.iter().find(|batch| batch.table == name).map(|batch| &batch.rows)
    }

    /// The memory that the page's buffers take, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let rejects: usize = self.rejects.iter().map(|reject| reject.raw.len()).sum();
        let absent: usize = self.absent.iter().map(|key| key.capacity() + size_of::<String>()).sum();
        let discarded = self.discarded.as_ref().map_or(0, |discarded| discarded.rows.get_array_memory_size());
        self.batches.iter().map(|batch| batch.rows.get_array_memory_size()).sum::<usize>()
            + rejects
            + absent
            + discarded
    }
}

/// A rejected record, with its exact text (promise P1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reject {
    /// Why.
    pub reason: RejectReason,
    /// The field at fault, as the service names it.
    pub field: Cow<'static, str>,
    /// The record's raw text. Bytes that are no UTF-8 stand there as `\xff`.
    pub raw: String,
}

/// The reason of a reject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RejectReason {
    /// The item of `data` is no JSON.
    NotJson,
    /// The item of `data` is not an object.
    NotAnObject,
    /// A field of the key, or the creation time, is missing or null.
    MissingKey,
    /// A field of the key, or the creation time, has a value that cannot be read as its type.
    BadKey,
    /// A field that no contract names, and the stream's mode for those is `discard_row`.
    UnknownField,
    /// A value that its column cannot take, and the stream's mode for those is `discard_row`.
    TypeClash,
    /// Another record of the same key is stored in its table.
    KeyCollision,
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RejectReason::NotJson => "not_json",
            RejectReason::NotAnObject => "not_an_object",
            RejectReason::MissingKey => "missing_key",
            RejectReason::BadKey => "bad_key",
            RejectReason::UnknownField => "unknown_field",
            RejectReason::TypeClash => "type_clash",
            RejectReason::KeyCollision => "key_collision",
        })
    }
}
