//! Requests for pages of a list, and the ways in which the service marks the end of a list.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{FlagSet, Scope, Window, named::named};

/// A page token: the service's opaque `cursor`, which names the next page. A page token is never decoded, because its
/// content proves nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PageToken(pub String);

impl fmt::Display for PageToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A request for one page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageRequest {
    /// The stream, or one survey of it.
    pub scope: Scope,
    /// The range of creation time. `src/source/address.rs` requests up to two milliseconds more, because it is unknown
    /// whether the service's bounds are inclusive.
    pub window: Window,
    /// The optional parts to request; only responses have optional parts.
    pub flags: FlagSet,
    /// The `limit` parameter: the page size in rows. Not sent if the stream has no such parameter.
    pub page_rows: u32,
    /// The token of the page; `None` requests the first page.
    pub token: Option<PageToken>,
}

/// How a scan proved its window complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// Number of pages of the scan.
    pub pages: u64,
    /// How the service marked the end of the list. `None` for users, which have no list, and if it was not recorded.
    pub end: Option<EndStyle>,
}

/// How the service marks the end of a list. The value is its bit in [`EndStyles`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndStyle {
    /// `cursor: null`.
    Null = 1,
    /// No `cursor`.
    Missing = 2,
    /// `cursor: ""`.
    EmptyText = 4,
    /// Status 404. For a first page: the list exists, and no row is in the range. For a page token: the 404 was proven
    /// to be the end.
    NotFound = 8,
}

named! {
    /// Returns the name in the ledger and in JSON.
    EndStyle {
        Null => "null",
        Missing => "missing",
        EmptyText => "empty_text",
        NotFound => "not_found",
    }
}

impl fmt::Display for EndStyle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EndStyle::Null => "cursor: null",
            EndStyle::Missing => "no cursor",
            EndStyle::EmptyText => "cursor: \"\"",
            EndStyle::NotFound => "404",
        })
    }
}

/// A set of end styles. The checkpoints store its bits, so the bits never change meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndStyles(u8);

impl EndStyles {
    /// Creates a set from stored bits.
    pub fn from_bits(bits: u8) -> Self {
        EndStyles(bits)
    }

    /// Returns the bits to store.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Returns the styles that are in at least one of the two sets.
    #[must_use]
    pub fn union(self, other: EndStyles) -> Self {
        EndStyles(self.0 | other.0)
    }

    /// Returns the styles of the set.
    pub fn iter(self) -> impl Iterator<Item = EndStyle> {
        EndStyle::ALL.into_iter().filter(move |style| self.0 & *style as u8 != 0)
    }
}

impl FromIterator<EndStyle> for EndStyles {
    fn from_iter<I: IntoIterator<Item = EndStyle>>(styles: I) -> Self {
        styles.into_iter().fold(EndStyles::default(), |set, style| EndStyles(set.0 | style as u8))
    }
}
