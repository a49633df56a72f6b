//! The settings of records that the service cannot deliver, or delivers broken. The module `service` implements them.

use serde::{Deserialize, Serialize};

/// What is wrong with a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordFault {
    /// A request for a page with the record is answered with 500, whatever the page size.
    #[default]
    ServerError,
    /// A page with the record is truncated JSON.
    NoPage,
    /// A member of the record is `NaN`.
    Nan,
    /// A text in the record has an unescaped line break.
    RawNewline,
    /// A text in the record has an unescaped control character.
    ControlCharacter,
    /// A text in the record has a byte that is not UTF-8.
    BadUtf8,
    /// The last third of the record is missing.
    Truncated,
}

/// Records that the service cannot deliver, or delivers broken, in every request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BrokenRecords {
    /// The creation times of the broken records, epoch milliseconds.
    pub created_ms: Vec<i64>,
    /// What is wrong with the records.
    pub fault: RecordFault,
    /// The fault applies only to lists whose path begins with this text.
    pub path: String,
}
