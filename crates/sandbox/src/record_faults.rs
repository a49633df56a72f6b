//! Records that the service cannot deliver, or delivers as no JSON. Only data: what a fault does stands in `service`.

use serde::{Deserialize, Serialize};

/// What is wrong with a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordFault {
    /// A page that would hold it is answered with 500, whatever its size.
    #[default]
    ServerError,
    /// A page that would hold it is a piece of JSON.
    NoPage,
    /// A member is `NaN`.
    Nan,
    /// A text holds a line break.
    RawNewline,
    /// A text holds another control character.
    ControlCharacter,
    /// A text holds a byte that is no UTF-8.
    BadUtf8,
    /// Its last third is missing.
    Truncated,
}

/// Records that the service cannot deliver, or delivers broken, however it is asked for them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BrokenRecords {
    /// Those that were created at these times, epoch milliseconds.
    pub created_ms: Vec<i64>,
    /// What is wrong with them.
    pub fault: RecordFault,
    /// Only in lists whose path begins with this.
    pub path: String,
}
