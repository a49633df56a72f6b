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

/// How a scan proved its window complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// Pages that the scan took.
    pub pages: u64,
    /// How the service said that there is no more; `None` where that was not noted.
    pub end: Option<EndStyle>,
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

impl EndStyle {
    /// Every style, in the order of their bits in [`EndStyles`].
    pub const ALL: [EndStyle; 4] = [EndStyle::Null, EndStyle::Missing, EndStyle::EmptyText, EndStyle::NotFound];

    /// The name in the ledger and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            EndStyle::Null => "null",
            EndStyle::Missing => "missing",
            EndStyle::EmptyText => "empty_text",
            EndStyle::NotFound => "not_found",
        }
    }

    /// The style of a name.
    pub fn from_name(name: &str) -> Option<EndStyle> {
        EndStyle::ALL.into_iter().find(|style| style.name() == name)
    }

    fn bit(self) -> u8 {
        match self {
            EndStyle::Null => 1,
            EndStyle::Missing => 2,
            EndStyle::EmptyText => 4,
            EndStyle::NotFound => 8,
        }
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

/// A set of end styles. Its bits are stored in the checkpoints, so they never change meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndStyles(u8);

impl EndStyles {
    /// From the stored bits.
    pub fn from_bits(bits: u8) -> Self {
        EndStyles(bits)
    }

    /// The bits, as stored.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// What is in either set.
    #[must_use]
    pub fn union(self, other: EndStyles) -> Self {
        EndStyles(self.0 | other.0)
    }

    /// The styles of the set.
    pub fn iter(self) -> impl Iterator<Item = EndStyle> {
        EndStyle::ALL.into_iter().filter(move |style| self.0 & style.bit() != 0)
    }
}

impl FromIterator<EndStyle> for EndStyles {
    fn from_iter<I: IntoIterator<Item = EndStyle>>(styles: I) -> Self {
        styles.into_iter().fold(EndStyles::default(), |set, style| EndStyles(set.0 | style.bit()))
    }
}
