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
    /// The first answer of the session of the row. For responses only.
    Session,
    /// The launch of the survey. For surveys only.
    Launched,
    /// No time: `start` and `end` are ignored.
    Ignored,
    /// A time that no row has: every range is empty.
    Nothing,
}
