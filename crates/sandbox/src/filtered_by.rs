//! Which time a list is filtered by.

use serde::{Deserialize, Serialize};

/// What `start` and `end` of a list mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FilteredBy {
    /// The creation of the row.
    #[default]
    Created,
    /// The last change of the row.
    Updated,
    /// The first answer of the session; of responses alone.
    Session,
    /// The launch; of surveys alone.
    Launched,
    /// They do nothing.
    Ignored,
    /// A time that no row shows: every range is empty.
    Nothing,
}
