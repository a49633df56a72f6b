//! The optional parts of a response that a scan can request.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::named::named;

/// One optional part of a response record. The value is its bit in a [`FlagSet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Flag {
    /// Adds `visitorSnapshot`.
    WithSnapshots = 1,
    /// Adds `url`.
    WithUrls = 2,
    /// Adds `meta`.
    WithMeta = 4,
    /// Adds `customMetadata`, which only responses to link studies have.
    WithCustomMetadata = 8,
    /// Includes soft-deleted responses, with `deletedAt`.
    WithDeletedResponses = 16,
}

named! {
    /// Returns the name of the query parameter.
    Flag {
        WithSnapshots => "with_snapshots",
        WithUrls => "with_urls",
        WithMeta => "with_meta",
        WithCustomMetadata => "with_custom_metadata",
        WithDeletedResponses => "with_deleted_responses",
    }
}

impl Flag {
    /// Returns the flag with this query parameter; `None` if there is none.
    pub fn from_name(name: &str) -> Option<Flag> {
        Flag::ALL.into_iter().find(|flag| flag.name() == name)
    }
}

/// A set of flags. The ledger and `responses._flags` store its bits, so the bits never change meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FlagSet(u8);

impl FlagSet {
    /// The empty set.
    pub const EMPTY: FlagSet = FlagSet(0);
    /// All flags.
    pub const ALL: FlagSet = FlagSet(31);

    /// Creates a set from stored bits. Unknown bits are ignored.
    pub fn from_bits(bits: u8) -> Self {
        FlagSet(bits & Self::ALL.0)
    }

    /// Returns the bits to store.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Returns the set with one flag added.
    #[must_use]
    pub fn with(self, flag: Flag) -> Self {
        FlagSet(self.0 | flag as u8)
    }

    /// Returns true if the flag is in the set.
    pub fn contains(self, flag: Flag) -> bool {
        self.0 & flag as u8 != 0
    }

    /// Returns the flags that are in both sets.
    #[must_use]
    pub fn intersection(self, other: FlagSet) -> FlagSet {
        FlagSet(self.0 & other.0)
    }

    /// Returns true if every flag of `other` is in the set.
    pub fn includes(self, other: FlagSet) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the flags of the set.
    pub fn iter(self) -> impl Iterator<Item = Flag> {
        Flag::ALL.into_iter().filter(move |flag| self.contains(*flag))
    }
}

impl FromIterator<Flag> for FlagSet {
    fn from_iter<I: IntoIterator<Item = Flag>>(flags: I) -> Self {
        flags.into_iter().fold(FlagSet::EMPTY, FlagSet::with)
    }
}

impl fmt::Display for FlagSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.iter().map(Flag::name).collect();
        f.write_str(&names.join(","))
    }
}
