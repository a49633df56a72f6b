//! The optional parts of a response that a scan may ask for.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One optional part of a response record, by the name of its query parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Flag {
    /// Adds `visitorSnapshot`.
    WithSnapshots,
    /// Adds `url`.
    WithUrls,
    /// Adds `meta`.
    WithMeta,
    /// Adds `customMetadata` (link studies only).
    WithCustomMetadata,
    /// Includes soft-deleted responses, with `deletedAt`.
    WithDeletedResponses,
}

impl Flag {
    /// Every flag, in the order of their bits in a [`FlagSet`].
    pub const ALL: [Flag; 5] =
        [Flag::WithSnapshots, Flag::WithUrls, Flag::WithMeta, Flag::WithCustomMetadata, Flag::WithDeletedResponses];

    /// The query parameter.
    pub fn name(self) -> &'static str {
        match self {
            Flag::WithSnapshots => "with_snapshots",
            Flag::WithUrls => "with_urls",
            Flag::WithMeta => "with_meta",
            Flag::WithCustomMetadata => "with_custom_metadata",
            Flag::WithDeletedResponses => "with_deleted_responses",
        }
    }

    /// The flag of a query parameter's name.
    pub fn from_name(name: &str) -> Option<Flag> {
        Flag::ALL.into_iter().find(|flag| flag.name() == name)
    }

    fn bit(self) -> u8 {
        match self {
            Flag::WithSnapshots => 1,
            Flag::WithUrls => 2,
            Flag::WithMeta => 4,
            Flag::WithCustomMetadata => 8,
            Flag::WithDeletedResponses => 16,
        }
    }
}

/// A set of flags. Its bits are stored in the ledger and in `responses._flags`, so they never change meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FlagSet(u8);

impl FlagSet {
    /// No flag at all.
    pub const EMPTY: FlagSet = FlagSet(0);
    /// All five.
    pub const ALL: FlagSet = FlagSet(31);

    /// From the stored bits; bits that no flag owns are dropped.
    pub fn from_bits(bits: u8) -> Self {
        FlagSet(bits & Self::ALL.0)
    }

    /// The bits, as stored.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// The set with one flag more.
    #[must_use]
    pub fn with(self, flag: Flag) -> Self {
        FlagSet(self.0 | flag.bit())
    }

    /// Whether the flag is in the set.
    pub fn contains(self, flag: Flag) -> bool {
        self.0 & flag.bit() != 0
    }

    /// The flags that are in both sets.
    #[must_use]
    pub fn intersection(self, other: FlagSet) -> FlagSet {
        FlagSet(self.0 & other.0)
    }

    /// Whether all of `other` is in the set.
    pub fn includes(self, other: FlagSet) -> bool {
        self.0 & other.0 == other.0
    }

    /// The flags of the set.
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
