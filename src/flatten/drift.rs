//! Records the drift of a page, and which records the drift rules discard.
//!
//! For a record without drift, the cost is one check of an empty list. The report names the type and length of a value,
//! never the content. Field names and words of enumerations are reported only if they look like names and words.

use std::collections::BTreeMap;

use super::fields::{FieldDrift, Fields, WireField};
use crate::{
    json::{self, Entry, Shape},
    model::{DRIFT_PLACES_MAX, Drift, DriftEntry, DriftFate, DriftKind, DriftMode, DriftRules, RejectReason},
};

/// Maximum bytes of a reported field name.
const NAME_BYTES_MAX: usize = 64;
/// Maximum bytes of a reported word of an enumeration.
const WORD_BYTES_MAX: usize = 40;
/// Replaces a name that could be personal data.
const HIDDEN_NAME: &str = "?";

/// Why the drift rules discard a record, and the path of the field.
pub(super) type DiscardReason = (RejectReason, String);

/// Records that the drift rules discard, by their index in the page.
pub(super) type DiscardedRecords = BTreeMap<i64, DiscardReason>;

/// The drift of a page.
#[derive(Debug)]
pub(super) struct DriftLog {
    /// The origin of the records: the name of a stream, or `webhooks`.
    source: &'static str,
    rules: DriftRules,
    counts: Vec<DriftCount>,
    /// Drift beyond the capacity of `counts`.
    unlisted: Drift,
    discarded: DiscardedRecords,
}

/// Identifies one kind of drift at one place: all its occurrences in the page count as one entry.
struct DriftKey<'k> {
    kind: DriftKind,
    /// The path of the parent object.
    prefix: &'static str,
    name: &'k str,
    /// The new value of an enumeration; `None` for other drift.
    word: Option<&'k str>,
}

/// One entry of the log: a kind of drift at one place, and the number of records that have it.
#[derive(Debug)]
struct DriftCount {
    kind: DriftKind,
    prefix: &'static str,
    name: String,
    word: Option<String>,
    example: String,
    fate: DriftFate,
    records: u64,
    /// The record that was counted last, so that a record counts once.
    last_record: i64,
}

impl DriftLog {
    pub(super) fn new(source: &'static str, rules: DriftRules) -> Self {
        Self { source, rules, counts: Vec::new(), unlisted: Drift::default(), discarded: BTreeMap::new() }
    }

    /// Moves the drift of an object's fields into the log.
    pub(super) fn drain_fields<F: WireField>(&mut self, record: i64, prefix: &'static str, fields: &mut Fields<'_, F>) {
        if !fields.drift.is_empty() {
            self.add_all(record, prefix, &fields.drift);
            fields.drift.clear();
        }
    }

    /// Adds the drift of an object's fields. If the rules discard a value, the fate of its entry says so.
    pub(super) fn add_all(&mut self, record: i64, prefix: &'static str, drift: &[FieldDrift]) {
        drift.iter().for_each(|field| self.add(record, prefix, field, DriftFate::ValueDiscarded));
    }

    /// Adds drift in an answer. No rule discards the value, because `answer_json` stores the complete answer.
    pub(super) fn add_in_answer(&mut self, record: i64, prefix: &'static str, field: &FieldDrift) {
        self.add(record, prefix, field, DriftFate::Kept);
    }

    /// Adds a value that cannot be read, and whose record is therefore rejected. `name` is the key field; empty if the
    /// record is not an object.
    pub(super) fn add_unreadable(&mut self, record: i64, name: &'static str, value: &str) {
        let fate =
            if self.rules.type_clashes == DriftMode::Freeze { DriftFate::Frozen } else { DriftFate::RowRejected };
        let field = FieldDrift::type_clash(name, value);
        self.count(record, DriftKey { kind: field.kind, prefix: "", name, word: None }, fate, || example_of(&field));
    }

    /// Adds an enumeration value that the contract of its column does not list. `path` is the path of the field in a
    /// record. The value is reported only if it looks like a word.
    pub(super) fn add_word(&mut self, record: i64, path: &'static str, kind: DriftKind, word: &str) {
        let length = word.chars().count();
        let reported = if looks_like_a_word(word) { word.to_owned() } else { format!("string of length {length}") };
        let key = DriftKey { kind, prefix: "", name: path, word: Some(&reported) };
        self.count(record, key, DriftFate::Kept, || reported.clone());
    }

    /// Adds drift of one field, and applies the drift rules: a rule may discard the record. `prefix` is the path of the
    /// parent object. `fate_if_value_discarded` is the fate of the value under the mode `DiscardValue`, which differs
    /// for fields of answers.
    fn add(&mut self, record: i64, prefix: &'static str, field: &FieldDrift, fate_if_value_discarded: DriftFate) {
        let (kind, name) = (field.kind, reportable_name(&field.name));
        let fate = match self.rules.mode(kind) {
            DriftMode::Evolve => DriftFate::Kept,
            DriftMode::Freeze => DriftFate::Frozen,
            DriftMode::DiscardValue => fate_if_value_discarded,
            DriftMode::DiscardRow => {
                let reason = match kind {
                    DriftKind::TypeClash => RejectReason::TypeClash,
                    _ => RejectReason::UnknownField,
                };
                self.discarded.entry(record).or_insert_with(|| (reason, format!("{prefix}{name}")));
                DriftFate::RowRejected
            }
        };
        self.count(record, DriftKey { kind, prefix, name, word: None }, fate, || example_of(field));
    }

    /// Counts a record for the entry with this key. `example` is called only for a new entry. If the log is full, the
    /// record counts as unlisted drift.
    fn count(&mut self, record: i64, key: DriftKey, fate: DriftFate, example: impl FnOnce() -> String) {
        let DriftKey { kind, prefix, name, word } = key;
        let is_same = |count: &&mut DriftCount| {
            count.kind == kind && count.prefix == prefix && count.name == name && count.word.as_deref() == word
        };
        if let Some(count) = self.counts.iter_mut().find(is_same) {
            count.records += u64::from(count.last_record != record);
            count.last_record = record;
        } else if self.counts.len() < DRIFT_PLACES_MAX {
            let (name, word, example) = (name.to_owned(), word.map(str::to_owned), example());
            self.counts.push(DriftCount { kind, prefix, name, word, example, fate, records: 1, last_record: record });
        } else {
            self.unlisted.add_unlisted(kind, 1);
        }
    }

    /// Returns the drift of the page with complete paths, and the records that the rules discard.
    pub(super) fn finish(self) -> (Drift, DiscardedRecords) {
        let mut drift = self.unlisted;
        for DriftCount { kind, prefix, name, example, fate, records, .. } in self.counts {
            let source = self.source;
            let dot = if prefix.is_empty() && name.is_empty() { "" } else { "." };
            let place = format!("{source}{dot}{prefix}{name}");
            drift.add(DriftEntry { kind, place, records, example, fate });
        }
        (drift, self.discarded)
    }
}

/// Returns the name if it looks like a field name, and otherwise [`HIDDEN_NAME`], because the name could be a mail
/// address, a telephone number or a sentence.
fn reportable_name(name: &str) -> &str {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-$[]".contains(&byte);
    let begins_well = name.bytes().next().is_none_or(|first| first.is_ascii_alphabetic() || b"_$".contains(&first));
    let is_reportable = name.len() <= NAME_BYTES_MAX && begins_well && name.bytes().all(is_plain);
    if is_reportable { name } else { HIDDEN_NAME }
}

/// Returns true if a value is short and looks like a word, so that it is probably no personal data.
fn looks_like_a_word(word: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    let begins_well = word.bytes().next().is_some_and(|first| first.is_ascii_alphabetic());
    word.len() <= WORD_BYTES_MAX && begins_well && word.bytes().all(is_plain)
}

/// Describes the value of a field without its content, such as `string of length 12`. For a new field the name comes
/// first: `battery: number`.
fn example_of(field: &FieldDrift) -> String {
    let description = match json::read_text(field.value) {
        Some(text) => format!("string of length {}", text.text.chars().count()),
        None => json_type(field.value).to_owned(),
    };
    match (field.kind, reportable_name(&field.name)) {
        (DriftKind::NewField, HIDDEN_NAME) => format!("a name of length {}: {description}", field.name.chars().count()),
        (DriftKind::NewField, name) => format!("{name}: {description}"),
        _ => description,
    }
}

/// Returns the name of a value's JSON type.
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

/// Returns the JSON text of an object without the members that the rules discard, so that hashes cover only stored
/// values. `entries` are all members, and `drift` is the drift of the object. Returns `None` if no member is discarded.
pub(super) fn without_discarded(entries: &[Entry], drift: &[FieldDrift], rules: DriftRules) -> Option<String> {
    let is_discarded = |entry: &Entry| {
        drift.iter().any(|field| {
            rules.mode(field.kind) == DriftMode::DiscardValue && field.name == super::extra::canonical_key(entry.key)
        })
    };
    if !entries.iter().any(is_discarded) {
        return None;
    }
    let stored = entries.iter().filter(|entry| !is_discarded(entry));
    let members: Vec<String> = stored.map(|entry| format!("\"{}\":{}", entry.key, entry.value)).collect();
    Some(format!("{{{}}}", members.join(",")))
}

#[cfg(test)]
mod tests {
    //! Which names and words are reported.

    use super::*;

    #[test]
    fn only_names_and_words_of_programs_are_reported() {
        for name in ["battery", "$set", "_x", "a-b_C9", ""] {
            assert_eq!(reportable_name(name), name);
        }
        for hidden in ["jane.doe@example.com", "Jane Doe", "+491511", "491511", "Zoë", "a.b", &"n".repeat(65)] {
            assert_eq!(reportable_name(hidden), HIDDEN_NAME);
        }
        assert!(looks_like_a_word("SLIDER") && looks_like_a_word("card-sort_2"));
        for hidden in ["", "Jane Doe", "0151123", "a@b", "très", &"W".repeat(41)] {
            assert!(!looks_like_a_word(hidden), "{hidden}");
        }
    }

    #[test]
    fn an_example_has_no_text_of_the_value() {
        let example = |field| example_of(&field);
        assert_eq!(example(FieldDrift::new_field("note".into(), r#""Zo\u00eb""#)), "note: string of length 3");
        assert_eq!(example(FieldDrift::new_field("a b".into(), "[1]")), "a name of length 3: array");
        assert_eq!(example(FieldDrift::type_clash("surveyId", r#""me""#)), "string of length 2");
    }
}
