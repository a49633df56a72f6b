//! The time of a row that `start` and `end` of a list call filter by.

use serde::{Deserialize, Serialize};

/// The time of a row that `start` and `end` of a list call filter by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FilteredBy {
    /// The creation of the row.
    #[default]
    Created,
    /// The last change of the row.
    Updated,
    /// The creation of the first answer in the session of the row. For responses only; like `Nothing` for surveys.
    Session,
    /// The launch of the survey. For surveys only; like `Nothing` for responses.
    Launched,
    /// No time: `start` and `end` are ignored.
    Ignored,
    /// A time that no row has: a request with `start` or `end` gets no rows, and any other request gets all.
    Nothing,
}
