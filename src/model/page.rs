//! One list call, and what marks the end of a list.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{FlagSet, Scope, Window};

/// The opaque position that the service hands out in `cursor`. Never decoded: its content proves nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PageToken(pub String);

impl fmt::Display for PageToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One list call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageRequest {
    /// Stream and survey.
    pub scope: Scope,
    /// The window; `source` decides how its half-open end goes onto the wire.
    pub window: Window,
    /// The optional parts asked for; only responses know them.
    pub flags: FlagSet,
    /// The `limit` parameter; left out where the stream has none.
    pub page_rows: u32,
    /// Where to continue; `None` asks for the first page.
    pub token: Option<PageToken>,
}

/// How the service said that a list is at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndStyle {
    /// `cursor: null`.
    Null,
    /// No `cursor` at all.
    Missing,
    /// `cursor: ""`.
    EmptyText,
    /// 404 on the list call: an empty, complete result.
    NotFound,
}
