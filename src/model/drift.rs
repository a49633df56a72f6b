//! Drift: fields and values that the service sends and the contracts in `schemas/` do not know. Defines how drift is
//! handled, and counts drift.
//!
//! A [`Drift`] is safe to print: it contains field names, types and lengths, and no personal data. `flatten` ensures
//! this when it adds an entry; this module does not inspect values.

use std::{collections::BTreeMap, fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Stream, named::named};

/// Maximum number of entries in a [`Drift`]. Further drift is only counted.
pub const DRIFT_PLACES_MAX: usize = 100;

/// How a stream handles one kind of drift. The library dlt uses the same names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DriftMode {
    /// The value is stored as JSON, next to the columns of the contract. The columns of a table never change.
    #[default]
    Evolve,
    /// A window with drift is not applied to the warehouse.
    Freeze,
    /// The record is rejected; `rejects` stores its text.
    DiscardRow,
    /// The value is not stored; the rest of the record is.
    DiscardValue,
}

named! {
    /// Returns the name in the configuration.
    DriftMode {
        Evolve => "evolve",
        Freeze => "freeze",
        DiscardRow => "discard_row",
        DiscardValue => "discard_value",
    }
}

impl FromStr for DriftMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        DriftMode::from_name(text).ok_or_else(|| {
            let names: Vec<_> = DriftMode::ALL.into_iter().map(DriftMode::name).collect();
            format!("there is no mode '{text}'; there are {}", names.join(", "))
        })
    }
}

/// How one stream handles drift.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriftRules {
    /// Mode for fields that no contract names.
    pub unknown_fields: DriftMode,
    /// Mode for values that do not fit their typed column.
    pub type_clashes: DriftMode,
}

impl DriftRules {
    /// Returns the mode for a kind of drift. New values of an enumeration fit their text columns, so they are always
    /// stored.
    pub fn mode(self, kind: DriftKind) -> DriftMode {
        match kind {
            DriftKind::NewField => self.unknown_fields,
            DriftKind::TypeClash => self.type_clashes,
            DriftKind::NewQuestionType | DriftKind::NewEnumValue => DriftMode::Evolve,
        }
    }

    /// Returns true if a kind of drift can keep a window from being applied.
    pub fn can_freeze(self) -> bool {
        [self.unknown_fields, self.type_clashes].contains(&DriftMode::Freeze)
    }
}

/// The drift rules of all streams, including streams that are not enabled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriftPolicy([DriftRules; Stream::ALL.len()]);

impl DriftPolicy {
    /// Returns the rules of a stream.
    pub fn of(&self, stream: Stream) -> DriftRules {
        self.0[stream as usize]
    }

    /// Sets the rules of a stream.
    pub fn set(&mut self, stream: Stream, rules: DriftRules) {
        self.0[stream as usize] = rules;
    }
}

/// A kind of drift.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DriftKind {
    /// A field that no contract names.
    NewField,
    /// A question type that the contract does not list.
    NewQuestionType,
    /// A value of another enumeration that the contract of its column does not list.
    NewEnumValue,
    /// A value that does not fit its typed column.
    TypeClash,
}

impl DriftKind {
    const ALL: [DriftKind; 4] =
        [DriftKind::NewField, DriftKind::NewQuestionType, DriftKind::NewEnumValue, DriftKind::TypeClash];

    /// Returns the name that people read.
    pub fn title(self) -> &'static str {
        match self {
            DriftKind::NewField => "new field",
            DriftKind::NewQuestionType => "new question type",
            DriftKind::NewEnumValue => "new value",
            DriftKind::TypeClash => "type clash",
        }
    }
}

/// What happened to a drifted value or its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DriftFate {
    /// The warehouse stores the value, as JSON or text.
    Kept,
    /// The row does not contain the value. The archive does.
    ValueDiscarded,
    /// The record is in `rejects`.
    RowRejected,
    /// The window was not applied to the warehouse.
    Frozen,
}

impl fmt::Display for DriftFate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DriftFate::Kept => "kept",
            DriftFate::ValueDiscarded => "values discarded",
            DriftFate::RowRejected => "records in rejects",
            DriftFate::Frozen => "NOT APPLIED",
        })
    }
}

/// Drift of one kind in one field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriftEntry {
    pub kind: DriftKind,
    /// Path of the field, starting with the stream or with `webhooks`, such as `responses.meta.battery`.
    pub place: String,
    /// Number of records that contain the drift.
    pub records: u64,
    /// One example without personal data: a type, a length, or a value of an enumeration.
    pub example: String,
    pub fate: DriftFate,
}

/// The drift of a page, scan or run of one stream, or of webhook deliveries. Has at most [`DRIFT_PLACES_MAX`] entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drift {
    entries: BTreeMap<EntryKey, DriftEntry>,
    /// For each kind, the sum of the records of all fields, including fields without an entry.
    totals: BTreeMap<DriftKind, u64>,
}

/// Kind and path of an entry, and the new value of an enumeration: each new value has its own entry.
type EntryKey = (DriftKind, String, Option<String>);

impl Drift {
    /// Returns true if there is no drift.
    pub fn is_empty(&self) -> bool {
        self.totals.is_empty()
    }

    /// Adds an entry, or its records to the entry of the same drift. If the fates differ, the entry gets the one that
    /// comes later in [`DriftFate`]. If the list of entries is full, only the records are counted.
    pub fn add(&mut self, entry: DriftEntry) {
        *self.totals.entry(entry.kind).or_default() += entry.records;
        let is_value = matches!(entry.kind, DriftKind::NewQuestionType | DriftKind::NewEnumValue);
        let key = (entry.kind, entry.place.clone(), is_value.then(|| entry.example.clone()));
        if let Some(known) = self.entries.get_mut(&key) {
            known.records += entry.records;
            known.fate = known.fate.max(entry.fate);
        } else if self.entries.len() < DRIFT_PLACES_MAX {
            self.entries.insert(key, entry);
        }
    }

    /// Counts drift without an entry, because the maximum number of entries is reached.
    pub fn add_unlisted(&mut self, kind: DriftKind, records: u64) {
        *self.totals.entry(kind).or_default() += records;
    }

    /// Adds the drift of a page that has only `new_records` new records, because its other records were counted with
    /// another page. Each entry counts for at most `new_records` records. Drift without an entry counts in full, unless
    /// `new_records` is 0.
    pub fn merge_new(&mut self, other: &Drift, new_records: u64) {
        if new_records == 0 {
            return;
        }
        for (kind, unlisted) in other.unlisted() {
            self.add_unlisted(kind, unlisted);
        }
        for entry in other.entries.values() {
            self.add(DriftEntry { records: entry.records.min(new_records), ..entry.clone() });
        }
    }

    /// Adds the drift of another page or scan.
    pub fn merge(&mut self, other: &Drift) {
        self.merge_new(other, u64::MAX);
    }

    /// Returns the entries, sorted by kind and path.
    pub fn entries(&self) -> impl Iterator<Item = &DriftEntry> {
        self.entries.values()
    }

    /// Returns the number of records with drift that has no entry. A record counts once per field.
    pub fn unlisted_count(&self) -> u64 {
        self.unlisted().map(|(_, count)| count).sum()
    }

    /// Returns true if there is drift that `rules` handle with `mode`.
    pub fn has(&self, rules: DriftRules, mode: DriftMode) -> bool {
        self.totals.keys().any(|kind| rules.mode(*kind) == mode)
    }

    /// Returns each kind that has drift without an entry, with the number of records of this drift.
    fn unlisted(&self) -> impl Iterator<Item = (DriftKind, u64)> {
        DriftKind::ALL.into_iter().filter_map(|kind| {
            let listed: u64 = self.entries.values().filter(|entry| entry.kind == kind).map(|entry| entry.records).sum();
            let total = self.totals.get(&kind).copied().unwrap_or(0);
            Some((kind, total.saturating_sub(listed))).filter(|(_, count)| *count > 0)
        })
    }
}

#[cfg(test)]
mod tests;
