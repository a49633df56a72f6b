//! What `flatten` produces and `load` reads: Arrow rows by table and rejected records of pages, rows of webhook
//! deliveries, and how many long texts the rows have.

use std::{borrow::Cow, fmt};

use arrow::{array::AsArray as _, record_batch::RecordBatch};

use super::{Drift, Stream, named::named};

/// Arrow rows of one table, with all columns of the table's contract except the columns that `load` fills (`origin =
/// "load"`).
#[derive(Clone, Debug)]
pub struct TableBatch {
    /// The table's name: the stem of its file in `schemas/`.
    pub table: &'static str,
    /// The rows.
    pub rows: RecordBatch,
}

/// Which rows and columns of a page are built.
#[derive(Clone, Debug)]
pub enum PageDetail {
    /// All rows, with all columns.
    Rows,
    /// All rows of base tables, with the columns and hashes by which records are compared with stored rows:
    /// `Table::is_in_summary` names these columns. No rows of child tables.
    Summary,
    /// The rows of these records, with all columns. Records outside the set are not parsed: they are in no other field
    /// of the page, and not in its drift.
    Records(RecordSet),
}

impl PageDetail {
    /// Returns true if the rows of the record with this index are built.
    pub fn includes(&self, record: i64) -> bool {
        match self {
            PageDetail::Records(records) => records.contains(record),
            PageDetail::Rows | PageDetail::Summary => true,
        }
    }
}

/// A set of records of a page: for each record index (from 0), true if the record is in the set.
#[derive(Clone, Debug, Default)]
pub struct RecordSet(Vec<bool>);

impl RecordSet {
    /// Adds a record. Ignores a negative index.
    pub fn insert(&mut self, record: i64) {
        let Ok(index) = usize::try_from(record) else { return };
        if self.0.len() <= index {
            self.0.resize(index + 1, false);
        }
        self.0.iter_mut().skip(index).take(1).for_each(|present| *present = true);
    }

    /// Returns true if the record is in the set.
    pub fn contains(&self, record: i64) -> bool {
        usize::try_from(record).is_ok_and(|index| self.0.get(index).copied().unwrap_or(false))
    }

    /// Returns the number of records.
    pub fn len(&self) -> usize {
        self.0.iter().filter(|present| **present).count()
    }

    /// Returns true if the set has no record.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<i64> for RecordSet {
    fn from_iter<T: IntoIterator<Item = i64>>(records: T) -> Self {
        let mut set = Self::default();
        records.into_iter().for_each(|record| set.insert(record));
        set
    }
}

/// The rows and rejects of one page.
#[derive(Clone, Debug, Default)]
pub struct FlatPage {
    /// At most one batch per table; none for a table without rows.
    pub batches: Vec<TableBatch>,
    /// True if the batches have only the columns of [`PageDetail::Summary`].
    pub is_summary: bool,
    /// The key hash of each row of the stream's base table (`responses`, `surveys`, `themes` or `users`), in order.
    pub key_hashes: Vec<u128>,
    /// The hash of the answer of each row of `responses`, in order; 0 for a row without an answer. Empty for other
    /// streams.
    pub answer_hashes: Vec<i64>,
    /// The bytes of the long texts of all rows, as [`long_text_bytes`] counts them. Texts of columns and tables that
    /// are not built count, too.
    pub long_text_bytes: usize,
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

/// A webhook delivery in the inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The sequence number in the inbox, which increases with every delivery.
    pub id: i64,
    /// When this machine received the delivery, in epoch milliseconds.
    pub received_ms: i64,
    /// The exact bytes of the request body.
    pub body: Vec<u8>,
}

/// The table rows of a list of deliveries.
#[derive(Clone, Debug)]
pub struct FlatEvents {
    /// Rows of `webhook_events`: one per delivery, in order.
    pub events: RecordBatch,
    /// Rows of `webhook_questions`; `None` if there are none.
    pub questions: Option<RecordBatch>,
}

/// The kind of event that a delivery reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EventKind {
    /// One question was answered.
    AnswerSubmitted,
    /// A study was completed.
    StudySubmitted,
    /// A study was delivered.
    StudySent,
    /// A study was seen.
    StudySeen,
    /// A theme was found.
    ThemeIdentified,
    /// A study's status changed.
    StudyStatusChanged,
    /// A test delivery: somebody pressed 'Test Webhook' at the service.
    Test,
    /// The event belongs to another environment of the service than the warehouse.
    OtherEnvironment,
    /// Any other JSON.
    Unknown,
    /// The body is not JSON.
    NotJson,
}

named! {
    /// Returns the name in the column `webhook_events.kind`.
    EventKind {
        AnswerSubmitted => "answer_submitted",
        StudySubmitted => "study_submitted",
        StudySent => "study_sent",
        StudySeen => "study_seen",
        ThemeIdentified => "theme_identified",
        StudyStatusChanged => "study_status_changed",
        Test => "test",
        OtherEnvironment => "other_environment",
        Unknown => "unknown",
        NotJson => "not_json",
    }
}

impl EventKind {
    /// Returns true if a delivery of this kind proves from which environment the webhooks come. Returns false for test
    /// deliveries, for bodies that are unknown or not JSON, and for events of another environment.
    pub fn identifies_environment(self) -> bool {
        !matches!(self, EventKind::Test | EventKind::OtherEnvironment | EventKind::Unknown | EventKind::NotJson)
    }

    /// Returns the stream that has new or changed records after an event of this kind; `None` if no stream has.
    pub fn changed_stream(self) -> Option<Stream> {
        match self {
            EventKind::AnswerSubmitted | EventKind::StudySubmitted => Some(Stream::Responses),
            EventKind::StudyStatusChanged => Some(Stream::Surveys),
            EventKind::ThemeIdentified => Some(Stream::Themes),
            _ => None,
        }
    }
}

/// A text of more bytes than this is long. DuckDB stores long texts in blocks that it cannot spill.
const SHORT_BYTES_MAX: usize = 4096;
/// The bytes of such a block. A text of more than half of it has a block of its own.
const BLOCK_BYTES: usize = 256 << 10;

/// Returns the bytes that a text of this length takes in such blocks; 0 for a short text.
pub fn long_text_bytes(text_bytes: usize) -> usize {
    match text_bytes {
        ..=SHORT_BYTES_MAX => 0,
        bytes if bytes > BLOCK_BYTES / 2 => bytes.max(BLOCK_BYTES),
        bytes => bytes,
    }
}

/// The bytes of the long texts of each row of a batch; empty if the batch has none.
#[derive(Debug, Default)]
pub struct LongTexts(Vec<usize>);

impl LongTexts {
    /// Measures the columns of texts. Lists and numbers count as short.
    pub fn of(batch: &RecordBatch) -> Self {
        let mut row_bytes = Vec::new();
        for column in batch.columns().iter().filter_map(|column| column.as_string_opt::<i32>()) {
            let offsets = column.value_offsets();
            let total = offsets.last().copied().unwrap_or(0) - offsets.first().copied().unwrap_or(0);
            if total as usize <= SHORT_BYTES_MAX {
                continue;
            }
            for (row, ends) in offsets.windows(2).enumerate() {
                let bytes = ends.iter().copied().reduce(|start, end| end - start).unwrap_or(0) as usize;
                let taken = long_text_bytes(bytes);
                if taken > 0 {
                    row_bytes.resize(batch.num_rows(), 0);
                    row_bytes.iter_mut().skip(row).take(1).for_each(|sum: &mut usize| *sum += taken);
                }
            }
        }
        Self(row_bytes)
    }

    /// Returns the bytes of the long texts of a row.
    pub fn row_bytes(&self, row: usize) -> usize {
        self.0.get(row).copied().unwrap_or(0)
    }

    /// Returns the bytes of all long texts.
    pub fn total_bytes(&self) -> usize {
        self.0.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, StringArray};

    use super::*;

    #[test]
    fn texts_of_more_than_a_block_are_counted_by_row() {
        let text = |bytes: usize| Some("x".repeat(bytes));
        let columns: [(&str, ArrayRef); 3] = [
            ("one", Arc::new(StringArray::from(vec![text(10), text(4097), None, text(9000)]))),
            ("other", Arc::new(StringArray::from(vec![text(4096), text(5000), text(1), None]))),
            ("number", Arc::new(Int64Array::from(vec![1, 2, 3, 4]))),
        ];
        let rows = RecordBatch::try_from_iter(columns).unwrap();
        let long = LongTexts::of(&rows);
        assert_eq!((0..4).map(|row| long.row_bytes(row)).collect::<Vec<_>>(), [0, 9097, 0, 9000]);
        assert_eq!(LongTexts::of(&rows.slice(2, 2)).total_bytes(), 9000, "rows of a slice");
        assert_eq!(LongTexts::of(&rows.slice(2, 1)).total_bytes(), 0);
    }
}
