//! Finds the fields of a JSON object by name, and parses each field strictly as the type of its column.
//!
//! Three kinds of values go to [`Extra`] with their exact text, unless the drift rules discard them: values that do not
//! fit their column, unknown fields, and earlier values of repeated fields.

use std::{borrow::Cow, marker::PhantomData};

use super::extra::{Extra, canonical_key};
use crate::{
    json::{
        self, Entry, Shape,
        moments::{has_guessed_unit, read_timestamp},
    },
    model::{DriftKind, DriftMode, DriftRules, RejectReason},
};

/// The known fields of one kind of object.
pub(super) trait WireField: Copy {
    /// The names of the fields in JSON.
    const NAMES: &'static [&'static str];
    /// Returns the index of the field's name in `NAMES`.
    fn slot(self) -> usize;
    fn name(self) -> &'static str {
        Self::NAMES.get(self.slot()).copied().unwrap_or_default()
    }
}

/// Declares an enum of fields with their names in JSON.
macro_rules! wire_fields {
    ($(#[$doc:meta])* $name:ident { $($field:ident = $wire:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub(super) enum $name { $($field,)+ }
        impl $crate::flatten::fields::WireField for $name {
            const NAMES: &'static [&'static str] = &[$($wire,)+];
            fn slot(self) -> usize {
                self as usize
            }
        }
    };
}
pub(super) use wire_fields;

/// The reason why a record has no valid key, and the name of the missing or unreadable key field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyError {
    pub reason: RejectReason,
    pub field: &'static str,
}

/// Maximum bytes of a text in a key; a UUID has 36. The key is limited because every row of every child table repeats
/// it.
pub(super) const KEY_TEXT_BYTES_MAX: usize = 256;

/// For this many positions in an object, the field that the last object had at the position is remembered.
const REMEMBERED_POSITIONS: usize = 32;

/// The fields of one object; reused for each object.
#[derive(Debug)]
pub(super) struct Fields<'a, F> {
    /// The exact text of each known field by its slot; `None` if the object does not have the field.
    values: Vec<Option<&'a str>>,
    /// The slot of the field that the last object had at each position. `read` tries this slot first, because the
    /// objects of a page usually have their fields in the same order.
    last_slots: [u8; REMEMBERED_POSITIONS],
    /// The values of the current object that are stored in the column `extra`.
    pub extra: Extra<'a>,
    /// The drift of the current object, both of values that are stored and of values that the rules discard.
    pub drift: Vec<FieldDrift<'a>>,
    pub rules: DriftRules,
    field: PhantomData<F>,
}

impl<'a, F: WireField> Fields<'a, F> {
    pub(super) fn new(rules: DriftRules) -> Self {
        let values = vec![None; F::NAMES.len()];
        let last_slots = [0; REMEMBERED_POSITIONS];
        Self { values, last_slots, extra: Extra::default(), drift: Vec::new(), rules, field: PhantomData }
    }

    /// Reads the members of the next object, and forgets those of the last one. Unknown fields become drift, and go to
    /// `extra` unless the rules discard them.
    pub(super) fn read(&mut self, entries: &[Entry<'a>]) {
        self.values.fill(None);
        self.extra.clear();
        self.drift.clear();
        for (position, entry) in entries.iter().enumerate() {
            if let Some(slot) = self.remembered_slot(position, entry.key) {
                self.fill(slot, entry.value);
                continue;
            }
            let key = canonical_key(entry.key);
            match F::NAMES.iter().position(|known| *known == key) {
                Some(slot) => {
                    self.fill(slot, entry.value);
                    if let (Some(last), Ok(slot)) = (self.last_slots.get_mut(position), u8::try_from(slot)) {
                        *last = slot;
                    }
                }
                None => {
                    self.drift.push(FieldDrift::new_field(key.clone(), entry.value));
                    if self.rules.unknown_fields != DriftMode::DiscardValue {
                        self.extra.add(key, entry.value);
                    }
                }
            }
        }
    }

    /// Returns the slot that the last object had at this position if the name is the same.
    fn remembered_slot(&self, position: usize, key: &str) -> Option<usize> {
        let slot = usize::from(*self.last_slots.get(position)?);
        (*F::NAMES.get(slot)? == key).then_some(slot)
    }

    /// Stores the value of a known field. An earlier value of the same field goes to `extra`.
    fn fill(&mut self, slot: usize, value: &'a str) {
        if let Some(earlier) = self.values.get_mut(slot).and_then(|stored| stored.replace(value)) {
            self.extra.add_superseded(F::NAMES.get(slot).copied().unwrap_or_default(), earlier);
        }
    }

    /// Returns the exact JSON text of a field, also the text `null`; `None` if the field is missing.
    pub(super) fn raw(&self, field: F) -> Option<&'a str> {
        self.values.get(field.slot()).copied().flatten()
    }

    /// Returns the exact JSON text of a field; `None` if the field is missing or null.
    pub(super) fn json(&self, field: F) -> Option<&'a str> {
        self.raw(field).filter(|raw| *raw != "null")
    }

    /// Adds the exact text of the field to `extra`, because its column cannot hold the complete value. A null is not
    /// added.
    pub(super) fn add_to_extra(&mut self, field: F) {
        if let Some(raw) = self.json(field) {
            self.extra.add(field.name(), raw);
        }
    }

    /// Adds a value that does not fit the type of its column to the drift, and to `extra` unless the rules discard it.
    pub(super) fn add_clash_to_extra(&mut self, field: F) {
        if let Some(raw) = self.raw(field) {
            self.drift.push(FieldDrift::type_clash(field.name(), raw));
            if self.rules.type_clashes != DriftMode::DiscardValue {
                self.extra.add(field.name(), raw);
            }
        }
    }

    /// Reads a string. A value of another type is a type clash, and the result is `None`. If a lone surrogate had to be
    /// replaced by U+FFFD, the exact text goes to `extra`.
    pub(super) fn text(&mut self, field: F) -> Option<Cow<'a, str>> {
        let read = json::read_text(self.json(field)?);
        match &read {
            Some(text) if text.is_exact => {}
            Some(_) => self.add_to_extra(field),
            None => self.add_clash_to_extra(field),
        }
        read.map(|text| text.text)
    }

    /// Reads a string, or returns the digits of a number as sent. A value of another type is a type clash.
    pub(super) fn text_or_digits(&mut self, field: F) -> Option<Cow<'a, str>> {
        match self.json(field) {
            Some(raw) if json::shape(raw) == Shape::Number => Some(Cow::Borrowed(raw)),
            _ => self.text(field),
        }
    }

    /// Reads a number that is a 64-bit integer.
    pub(super) fn bigint(&mut self, field: F) -> Option<i64> {
        self.parse_or_extra(field, json::read_integer)
    }

    /// Reads a number as the nearest finite double.
    pub(super) fn double(&mut self, field: F) -> Option<f64> {
        self.parse_or_extra(field, json::read_number)
    }

    /// Reads a time, in epoch microseconds. A number that is not whole milliseconds also goes to `extra`, because its
    /// unit is a guess.
    pub(super) fn timestamp(&mut self, field: F) -> Option<i64> {
        let moment = self.parse_or_extra(field, read_timestamp)?;
        if self.json(field).is_some_and(has_guessed_unit) {
            self.add_to_extra(field);
        }
        Some(moment)
    }

    /// Parses a value with `read`. If `read` returns `None`, the value is a type clash, and goes to `extra` unless the
    /// rules discard it. A missing or null field is `None` without a clash.
    pub(super) fn parse_or_extra<T>(&mut self, field: F, read: impl Fn(&'a str) -> Option<T>) -> Option<T> {
        let value = read(self.json(field)?);
        if value.is_none() {
            self.add_clash_to_extra(field);
        }
        value
    }

    /// Reads a string of the key: at most [`KEY_TEXT_BYTES_MAX`] bytes, without lone surrogates.
    pub(super) fn key_text(&self, field: F) -> Result<Cow<'a, str>, KeyError> {
        let read = |raw| json::read_text(raw).filter(|text| text.is_exact && text.text.len() <= KEY_TEXT_BYTES_MAX);
        self.key(field, read).map(|text| text.text)
    }

    /// Reads an integer of the key, also from a string of digits.
    pub(super) fn key_bigint(&self, field: F) -> Result<i64, KeyError> {
        self.key(field, |raw| json::read_integer(raw).or_else(|| json::read_digits(raw)))
    }

    /// Reads a time of the key, in epoch microseconds. The record is rejected if the time is missing or unreadable.
    pub(super) fn key_timestamp(&mut self, field: F) -> Result<i64, KeyError> {
        self.key(field, read_timestamp)?;
        self.timestamp(field).ok_or(KeyError { reason: RejectReason::BadKey, field: field.name() })
    }

    /// Parses a field of the key with `read`. Fails with `MissingKey` if the field is missing or null, and with
    /// `BadKey` if `read` returns `None`.
    fn key<T>(&self, field: F, read: impl Fn(&'a str) -> Option<T>) -> Result<T, KeyError> {
        let error = |reason| KeyError { reason, field: field.name() };
        let raw = self.json(field).ok_or(error(RejectReason::MissingKey))?;
        read(raw).ok_or(error(RejectReason::BadKey))
    }
}

/// A field that no contract knows, or whose value does not fit the type of its column.
#[derive(Clone, Debug)]
pub(super) struct FieldDrift<'a> {
    pub kind: DriftKind,
    /// The name of the field in its canonical spelling.
    pub name: Cow<'a, str>,
    /// The exact JSON text of the field's value.
    pub value: &'a str,
}

/// Drift inside an answer: the path of the parent object, such as `response.`, and the field.
pub(super) type AnswerDrift<'a> = (&'static str, FieldDrift<'a>);

impl<'a> FieldDrift<'a> {
    pub(super) fn new_field(name: Cow<'a, str>, value: &'a str) -> Self {
        FieldDrift { kind: DriftKind::NewField, name, value }
    }

    pub(super) fn type_clash(name: &'static str, value: &'a str) -> Self {
        FieldDrift { kind: DriftKind::TypeClash, name: Cow::Borrowed(name), value }
    }
}
