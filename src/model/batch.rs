//! Flattened pages: Arrow rows by table and rejected records. `flatten` produces them, `load` reads them.

use std::{borrow::Cow, fmt};

use arrow::record_batch::RecordBatch;

use super::{Drift, LongTexts};

/// Arrow rows of one table, with all columns of the table's contract except the columns that `load` fills (`origin =
/// "load"`).
#[derive(Clone, Debug)]
pub struct TableBatch {
    /// The table's name: the stem of its file in `schemas/`.
    pub table: &'static str,
    /// The rows.
    pub rows: RecordBatch,
}

/// The rows and rejects of one page.
#[derive(Clone, Debug, Default)]
pub struct FlatPage {
    /// At most one batch per table; none for a table without rows.
    pub batches: Vec<TableBatch>,
    /// The key hash of each row of the stream's base table (`responses`, `surveys`, `themes` or `users`), in order.
    pub key_hashes: Vec<u128>,
    /// Rejected records.
    pub rejects: Vec<Reject>,
    /// Number of records in the page's `data`: rows of the base table plus rejects.
    pub records: usize,
    /// Records that the drift rules rejected although their key is readable; `None` if there are none. The service
    /// still returns these records, so their stored rows have not vanished.
    pub discarded: Option<DiscardedRows>,
    /// Requested keys that the service does not know; empty for all streams except users, which are requested by key.
    pub absent: Vec<String>,
    /// Fields and values of the page that no contract knows.
    pub drift: Drift,
}

/// Valid records that the drift rules moved to the rejects.
#[derive(Clone, Debug)]
pub struct DiscardedRows {
    /// The rows of the stream's base table that the records would have become.
    pub rows: RecordBatch,
    /// The key hash of each row, in order.
    pub key_hashes: Vec<u128>,
}

impl FlatPage {
    /// Returns the rows of one table; `None` if the page has none.
    pub fn table(&self, name: &str) -> Option<&RecordBatch> {
        self.batches.iter().find(|batch| batch.table == name).map(|batch| &batch.rows)
    }

    /// Returns the bytes of the long texts of all rows.
    pub fn long_text_bytes(&self) -> usize {
        self.batches.iter().map(|batch| LongTexts::of(&batch.rows).total_bytes()).sum()
    }

    /// Returns the memory of the page's buffers, in bytes. Does not count key hashes and drift.
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
    /// Why the record was rejected.
    pub reason: RejectReason,
    /// The service's name of the field that caused the reject.
    pub field: Cow<'static, str>,
    /// The record's raw text. Bytes that are not UTF-8 are written as `\xff`.
    pub raw: String,
}

/// The reason of a reject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RejectReason {
    /// The item of `data` is not JSON.
    NotJson,
    /// The item of `data` is not an object.
    NotAnObject,
    /// A field of the key, or the creation time, is missing or null.
    MissingKey,
    /// A field of the key, or the creation time, has a value that does not fit its type.
    BadKey,
    /// The record has a field that no contract names, and the stream's mode for unknown fields is `discard_row`.
    UnknownField,
    /// A value does not fit its typed column, and the stream's mode for type clashes is `discard_row`.
    TypeClash,
    /// Another record with the same key is stored in the table.
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
