//! Records drift, and which records the drift rules discard.
//!
//! A record without drift costs one check of an empty list. Of a value only type and length are recorded. Field names
//! and words of enumerations are reported only if they look like names and words; no other text is reported.

use std::{borrow::Cow, collections::BTreeMap};

use super::{
    fields::{Fields, WireField},
    met::Met,
};
use crate::{
    json::{self, Entry, Shape},
    model::{DRIFT_PLACES_MAX, Drift, DriftEntry, DriftFate, DriftKind, DriftMode, DriftRules, RejectReason},
};

/// Maximum bytes of a reported field name.
const NAME_BYTES_MAX: usize = 64;
/// Maximum bytes of a reported word of an enumeration.
const WORD_BYTES_MAX: usize = 40;
/// Replaces a name that is not reported.
const UNTOLD_NAME: &str = "?";

/// Why a record goes to the rejects, and for which field.
pub(super) type Doom = (RejectReason, String);

/// The drift of a page.
#[derive(Debug)]
pub(super) struct DriftLog {
    /// The origin of the records: the name of a stream, or `webhooks`.
    source: &'static str,
    rules: DriftRules,
    entries: Vec<Noted>,
    /// Drift beyond the capacity of `entries`.
    unlisted: Drift,
    /// Records that the rules discard, by their index in the page.
    pub doomed: BTreeMap<i64, Doom>,
}

#[derive(Debug)]
struct Noted {
    kind: DriftKind,
    /// The path of the parent object.
    prefix: &'static str,
    name: String,
    /// The new value of an enumeration; empty for other drift.
    word: Option<String>,
    example: String,
    fate: DriftFate,
    records: u64,
    last_record: i64,
}

impl DriftLog {
    pub(super) fn new(source: &'static str, rules: DriftRules) -> Self {
        Self { source, rules, entries: Vec::new(), unlisted: Drift::default(), doomed: BTreeMap::new() }
    }

    /// Adds the drift of an object's fields.
    pub(super) fn take<F: WireField>(&mut self, record: i64, prefix: &'static str, fields: &mut Fields<'_, F>) {
        if !fields.drift.is_empty() {
            self.note_all(record, prefix, &fields.drift);
            fields.drift.clear();
        }
    }

    pub(super) fn note_all(&mut self, record: i64, prefix: &'static str, met: &[Met]) {
        met.iter().for_each(|met| self.note(record, prefix, met, DriftFate::ValueDiscarded));
    }

    /// Adds drift in an answer, which `answer_json` keeps in full.
    pub(super) fn note_in_answer(&mut self, record: i64, prefix: &'static str, met: &Met) {
        self.note(record, prefix, met, DriftFate::Kept);
    }

    /// Adds a value whose unreadability rejects the record.
    pub(super) fn note_unplaceable(&mut self, record: i64, name: &'static str, value: &str) {
        let met = Met { kind: DriftKind::TypeClash, name: Cow::Borrowed(name), value };
        let fate =
            if self.rules.type_clashes == DriftMode::Freeze { DriftFate::Frozen } else { DriftFate::RowRejected };
        self.count(record, "", (met.kind, &met.name, None), fate, || example_of(&met));
    }

    /// Adds a word that the enumeration of its column does not list.
    pub(super) fn note_word(&mut self, record: i64, place: &'static str, kind: DriftKind, word: &str) {
        let length = word.chars().count();
        let told = if looks_like_a_word(word) { word.to_owned() } else { format!("string of length {length}") };
        self.count(record, "", (kind, place, Some(&told)), DriftFate::Kept, || told.clone());
    }

    fn note(&mut self, record: i64, prefix: &'static str, met: &Met, when_value_discarded: DriftFate) {
        let name = told_name(&met.name);
        let fate = match self.rules.mode(met.kind) {
            DriftMode::Evolve => DriftFate::Kept,
            DriftMode::Freeze => DriftFate::Frozen,
            DriftMode::DiscardValue => when_value_discarded,
            DriftMode::DiscardRow => {
                let reason = match met.kind {
                    DriftKind::TypeClash => RejectReason::TypeClash,
                    _ => RejectReason::UnknownField,
                };
                self.doomed.entry(record).or_insert_with(|| (reason, format!("{prefix}{name}")));
                DriftFate::RowRejected
            }
        };
        self.count(record, prefix, (met.kind, name, None), fate, || example_of(met));
    }

    fn count(
        &mut self,
        record: i64,
        prefix: &'static str,
        (kind, name, word): (DriftKind, &str, Option<&str>),
        fate: DriftFate,
        example: impl Fn() -> String,
    ) {
        let is_same = |noted: &&mut Noted| {
            noted.kind == kind && noted.prefix == prefix && noted.name == name && noted.word.as_deref() == word
        };
        if let Some(noted) = self.entries.iter_mut().find(is_same) {
            noted.records += u64::from(noted.last_record != record);
            noted.last_record = record;
        } else if self.entries.len() < DRIFT_PLACES_MAX {
            let (name, word, example) = (name.to_owned(), word.map(str::to_owned), example());
            let noted = Noted { kind, prefix, name, word, example, fate, records: 1, last_record: record };
            self.entries.push(noted);
        } else {
            self.unlisted.add_unlisted(kind, 1);
        }
    }

    /// All drift, with complete paths.
    pub(super) fn finish(self) -> (Drift, BTreeMap<i64, Doom>) {
        let mut drift = self.unlisted;
        for Noted { kind, prefix, name, example, fate, records, .. } in self.entries {
            let source = self.source;
            let dot = if prefix.is_empty() && name.is_empty() { "" } else { "." };
            let place = format!("{source}{dot}{prefix}{name}");
            drift.add(DriftEntry { kind, place, records, example, fate });
        }
        (drift, self.doomed)
    }
}

/// The name, if it looks like a program's and not like a mail address, a telephone number or a sentence.
fn told_name(name: &str) -> &str {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-$[]".contains(&byte);
    let begins_well = name.bytes().next().is_none_or(|first| first.is_ascii_alphabetic() || b"_$".contains(&first));
    let is_told = name.len() <= NAME_BYTES_MAX && begins_well && name.bytes().all(is_plain);
    if is_told { name } else { UNTOLD_NAME }
}

fn looks_like_a_word(word: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    let begins_well = word.bytes().next().is_some_and(|first| first.is_ascii_alphabetic());
    word.len() <= WORD_BYTES_MAX && begins_well && word.bytes().all(is_plain)
}

/// Describes a value without its content: `battery: number`, `string of length 12`.
fn example_of(met: &Met) -> String {
    let sort = match json::read_text(met.value) {
        Some(text) => format!("string of length {}", text.text.chars().count()),
        None => json_type(met.value).to_owned(),
    };
    match (met.kind, told_name(&met.name)) {
        (DriftKind::NewField, UNTOLD_NAME) => format!("a name of length {}: {sort}", met.name.chars().count()),
        (DriftKind::NewField, name) => format!("{name}: {sort}"),
        _ => sort,
    }
}

/// The name of a value's type.
pub(super) fn json_type(raw: &str) -> &'static str {
    match json::shape(raw) {
        Shape::Null => "null",
        Shape::Boolean => "boolean",
        Shape::Number => "number",
        Shape::Text => "string",
        Shape::List => "array",
        Shape::Object => "object",
    }
}

/// An object without the members that the rules discard, so that hashes cover stored values only; `None` if none is
/// discarded.
pub(super) fn without_discarded(entries: &[Entry], met: &[Met], rules: DriftRules) -> Option<String> {
    let is_discarded = |entry: &Entry| {
        met.iter().any(|met| {
            rules.mode(met.kind) == DriftMode::DiscardValue && met.name == super::extra::canonical_key(entry.key)
        })
    };
    if !entries.iter().any(is_discarded) {
        return None;
    }
    let kept = entries.iter().filter(|entry| !is_discarded(entry));
    let members: Vec<String> = kept.map(|entry| format!("\"{}\":{}", entry.key, entry.value)).collect();
    Some(format!("{{{}}}", members.join(",")))
}

#[cfg(test)]
mod tests {
    //! What is told of a name and of a word.

    use super::*;

    #[test]
    fn only_names_and_words_of_programs_are_told() {
        for told in ["battery", "$set", "_x", "a-b_C9", ""] {
            assert_eq!(told_name(told), told);
        }
        for untold in ["jane.doe@example.com", "Jane Doe", "+491511", "491511", "Zoë", "a.b", &"n".repeat(65)] {
            assert_eq!(told_name(untold), UNTOLD_NAME);
        }
        assert!(looks_like_a_word("SLIDER") && looks_like_a_word("card-sort_2"));
        for untold in ["", "Jane Doe", "0151123", "a@b", "très", &"W".repeat(41)] {
            assert!(!looks_like_a_word(untold), "{untold}");
        }
    }

    #[test]
    fn an_example_has_no_text_of_the_value() {
        let example = |met| example_of(&met);
        assert_eq!(example(Met::new_field("note".into(), r#""Zo\u00eb""#)), "note: string of length 3");
        assert_eq!(example(Met::new_field("a b".into(), "[1]")), "a name of length 3: array");
        assert_eq!(example(Met::clash("surveyId", r#""me""#)), "string of length 2");
    }
}
