//! Drift: fields and values that the service sends and the contracts in `schemas/` do not know. The modes, and the
//! counts.
//!
//! What is kept here of a record is safe to print: names that look like those of fields, types, lengths. Whoever adds
//! to a [`Drift`] sees to that; nothing here looks into a value.

use std::{collections::BTreeMap, fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Stream;

/// Places of drift that are listed for a stream and run; the records of all others are only counted.
pub const DRIFT_PLACES_MAX: usize = 100;

/// The handling of drift. The words are those of dlt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DriftMode {
    /// It is kept: as JSON, beside the columns that the contract knows. The columns of a table never change.
    #[default]
    Evolve,
    /// A window with drift is not applied.
    Freeze,
    /// The record goes to the rejects, with its text.
    DiscardRow,
    /// The value is left out; the rest of the record is kept.
    DiscardValue,
}

impl DriftMode {
    /// Every mode.
    pub const ALL: [DriftMode; 4] =
        [DriftMode::Evolve, DriftMode::Freeze, DriftMode::DiscardRow, DriftMode::DiscardValue];

    /// The name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            DriftMode::Evolve => "evolve",
            DriftMode::Freeze => "freeze",
            DriftMode::DiscardRow => "discard_row",
            DriftMode::DiscardValue => "discard_value",
        }
    }
}

impl FromStr for DriftMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = DriftMode::ALL.into_iter().find(|mode| mode.name() == text);
        known.ok_or_else(|| {
            let names: Vec<_> = DriftMode::ALL.into_iter().map(DriftMode::name).collect();
            format!("there is no mode '{text}'; there are {}", names.join(", "))
        })
    }
}

/// The modes of one stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriftRules {
    /// For fields that no contract names.
    pub unknown_fields: DriftMode,
    /// For values that their typed column cannot take.
    pub type_clashes: DriftMode,
}

impl DriftRules {
    /// The mode for a kind of drift. New values of an enumeration fit their text columns, so they are always kept.
    pub fn mode(self, kind: DriftKind) -> DriftMode {
        match kind {
            DriftKind::NewField => self.unknown_fields,
            DriftKind::TypeClash => self.type_clashes,
            DriftKind::NewQuestionType | DriftKind::NewEnumValue => DriftMode::Evolve,
        }
    }

    /// Whether some drift keeps a window from being applied.
    pub fn can_freeze(self) -> bool {
        [self.unknown_fields, self.type_clashes].contains(&DriftMode::Freeze)
    }
}

/// The modes of all streams, enabled or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriftPolicy {
    surveys: DriftRules,
    responses: DriftRules,
    themes: DriftRules,
    users: DriftRules,
}

impl DriftPolicy {
    /// The modes of a stream.
    pub fn of(&self, stream: Stream) -> DriftRules {
        match stream {
            Stream::Surveys => self.surveys,
            Stream::Responses => self.responses,
            Stream::Themes => self.themes,
            Stream::Users => self.users,
        }
    }

    /// Sets the modes of a stream.
    pub fn set(&mut self, stream: Stream, rules: DriftRules) {
        match stream {
            Stream::Surveys => self.surveys = rules,
            Stream::Responses => self.responses = rules,
            Stream::Themes => self.themes = rules,
            Stream::Users => self.users = rules,
        }
    }
}

/// What is new about something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DriftKind {
    /// A field that no contract names.
    NewField,
    /// A type of question that the contract does not list.
    NewQuestionType,
    /// Another value that the contract of its column does not list.
    NewEnumValue,
    /// A value that its typed column cannot take.
    TypeClash,
}

impl DriftKind {
    const ALL: [DriftKind; 4] =
        [DriftKind::NewField, DriftKind::NewQuestionType, DriftKind::NewEnumValue, DriftKind::TypeClash];

    /// For people.
    pub fn title(self) -> &'static str {
        match self {
            DriftKind::NewField => "new field",
            DriftKind::NewQuestionType => "new question type",
            DriftKind::NewEnumValue => "new value",
            DriftKind::TypeClash => "type clash",
        }
    }
}

/// The result of handling drift.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DriftFate {
    /// In the warehouse, as JSON or text.
    Kept,
    /// Left out of the row. The archive has it.
    ValueDiscarded,
    /// Its record is in `rejects`.
    RowRejected,
    /// Its window was not applied.
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

/// Drift of one kind at one place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriftEntry {
    pub kind: DriftKind,
    /// Path of the field, beginning with the stream, or with `webhooks`: `responses.meta.battery`.
    pub place: String,
    /// Records in which it was met.
    pub records: u64,
    /// One example without personal data: a type, a length, a word of an enumeration.
    pub example: String,
    pub fate: DriftFate,
}

/// The drift of a page, a scan or a run of one stream, or of webhooks; bounded by [`DRIFT_PLACES_MAX`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drift {
    entries: BTreeMap<Place, DriftEntry>,
    /// By kind: places times records, listed or not.
    met: BTreeMap<DriftKind, u64>,
}

/// Of new values, each is an entry of its own; of all else, each path.
type Place = (DriftKind, String, Option<String>);

impl Drift {
    /// Whether there is no drift.
    pub fn is_empty(&self) -> bool {
        self.met.is_empty()
    }

    /// Counts what was met.
    pub fn add(&mut self, entry: DriftEntry) {
        *self.met.entry(entry.kind).or_default() += entry.records;
        let is_value = matches!(entry.kind, DriftKind::NewQuestionType | DriftKind::NewEnumValue);
        let place = (entry.kind, entry.place.clone(), is_value.then(|| entry.example.clone()));
        if let Some(known) = self.entries.get_mut(&place) {
            known.records += entry.records;
            known.fate = known.fate.max(entry.fate);
        } else if self.entries.len() < DRIFT_PLACES_MAX {
            self.entries.insert(place, entry);
        }
    }

    /// Counts what was met at a place for which there is no room.
    pub fn add_unlisted(&mut self, kind: DriftKind, records: u64) {
        *self.met.entry(kind).or_default() += records;
    }

    /// Takes in what was met on a page of which only so many records are new: the others were counted with another
    /// page.
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
        for (kind, unlisted) in other.unlisted() {
            self.add_unlisted(kind, unlisted);
        }
        other.entries.values().for_each(|entry| self.add(entry.clone()));
    }

    /// What is listed, by kind and place.
    pub fn entries(&self) -> impl Iterator<Item = &DriftEntry> {
        self.entries.values()
    }

    /// How often drift was met at places that are not listed.
    pub fn unlisted_count(&self) -> u64 {
        self.unlisted().map(|(_, count)| count).sum()
    }

    /// Whether drift was met for which these rules have that mode.
    pub fn has(&self, rules: DriftRules, mode: DriftMode) -> bool {
        self.met.keys().any(|kind| rules.mode(*kind) == mode)
    }

    fn unlisted(&self) -> impl Iterator<Item = (DriftKind, u64)> {
        DriftKind::ALL.into_iter().filter_map(|kind| {
            let listed: u64 = self.entries.values().filter(|entry| entry.kind == kind).map(|entry| entry.records).sum();
            let met = self.met.get(&kind).copied().unwrap_or(0);
            Some((kind, met.saturating_sub(listed))).filter(|(_, count)| *count > 0)
        })
    }
}

#[cfg(test)]
mod tests;
