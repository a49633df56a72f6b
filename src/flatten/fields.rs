//! Sorts the fields of a JSON object into slots and parses each strictly as its column's type.
//!
//! Values that do not fit their column, unknown fields, and earlier values of repeated fields go to [`Extra`] with
//! their exact text, unless the drift rules discard them.

use std::{borrow::Cow, marker::PhantomData};

use super::{
    extra::{Extra, canonical_key},
    met::Met,
};
use crate::{
    json::{
        self, Entry,
        moments::{is_of_another_unit, read_timestamp},
    },
    model::{DriftMode, DriftRules, RejectReason},
};

/// The fields of one kind of object that columns are filled from.
pub(super) trait WireField: Copy {
    /// Their names on the wire.
    const NAMES: &'static [&'static str];
    /// The index of the field's name in `NAMES`.
    fn slot(self) -> usize;
    /// The name on the wire.
    fn name(self) -> &'static str {
        Self::NAMES.get(self.slot()).copied().unwrap_or_default()
    }
}

/// Declares an enum of fields with their names on the wire.
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

/// Why a record cannot be placed, and the field at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unplaceable {
    pub reason: RejectReason,
    pub field: &'static str,
}

/// A text of a key is repeated in every row of every child, so it is bounded. A UUID has 36.
pub(super) const KEY_TEXT_BYTES_MAX: usize = 256;

/// How many places of an object remember which field stood there last.
const GUESSES: usize = 32;

/// The fields of one object; cleared and used again for each.
#[derive(Debug)]
pub(super) struct Fields<'a, F> {
    values: Vec<Option<&'a str>>,
    /// Objects of a page have their fields in the same order, so the slot that a place had last is tried first.
    guesses: [u8; GUESSES],
    /// The values without a column so far.
    pub extra: Extra<'a>,
    /// The drift so far, stored or discarded.
    pub drift: Vec<Met<'a>>,
    pub rules: DriftRules,
    field: PhantomData<F>,
}

impl<'a, F: WireField> Fields<'a, F> {
    pub(super) fn new(rules: DriftRules) -> Self {
        let values = vec![None; F::NAMES.len()];
        Self { values, guesses: [0; GUESSES], extra: Extra::default(), drift: Vec::new(), rules, field: PhantomData }
    }

    pub(super) fn clear(&mut self) {
        self.values.fill(None);
        self.extra.clear();
        self.drift.clear();
    }

    /// Replaces the object by another one.
    pub(super) fn read(&mut self, entries: &[Entry<'a>]) {
        self.clear();
        for (at, entry) in entries.iter().enumerate() {
            if let Some(slot) = self.guessed_slot(at, entry.key) {
                self.fill(slot, entry.value);
                continue;
            }
            let key = canonical_key(entry.key);
            match F::NAMES.iter().position(|known| *known == key) {
                Some(slot) => {
                    self.fill(slot, entry.value);
                    if let (Some(guess), Ok(slot)) = (self.guesses.get_mut(at), u8::try_from(slot)) {
                        *guess = slot;
                    }
                }
                None => {
                    self.drift.push(Met::new_field(key.clone(), entry.value));
                    if self.rules.unknown_fields != DriftMode::DiscardValue {
                        self.extra.add(key, entry.value);
                    }
                }
            }
        }
    }

    fn guessed_slot(&self, at: usize, key: &str) -> Option<usize> {
        let guess = usize::from(*self.guesses.get(at)?);
        (*F::NAMES.get(guess)? == key).then_some(guess)
    }

    fn fill(&mut self, slot: usize, value: &'a str) {
        if let Some(earlier) = self.values.get_mut(slot).and_then(|held| held.replace(value)) {
            self.extra.add_superseded(F::NAMES.get(slot).copied().unwrap_or_default(), earlier);
        }
    }

    /// The exact text, `null` included; `None` when the field is missing.
    pub(super) fn raw(&self, field: F) -> Option<&'a str> {
        self.values.get(field.slot()).copied().flatten()
    }

    /// The exact text; `None` when the field is missing or null.
    pub(super) fn json(&self, field: F) -> Option<&'a str> {
        self.raw(field).filter(|raw| *raw != "null")
    }

    /// Keeps the field's exact text, because its column cannot.
    pub(super) fn keep(&mut self, field: F) {
        if let Some(raw) = self.raw(field) {
            self.extra.add(field.name(), raw);
        }
    }

    /// The same for a value of another type than its column's: drift, which the rules may discard.
    pub(super) fn keep_clash(&mut self, field: F) {
        if let Some(raw) = self.raw(field) {
            self.drift.push(Met::clash(field.name(), raw));
            if self.rules.type_clashes != DriftMode::DiscardValue {
                self.extra.add(field.name(), raw);
            }
        }
    }

    /// A string. One with a lone surrogate fills the column with U+FFFD in its place, and is kept.
    pub(super) fn text(&mut self, field: F) -> Option<Cow<'a, str>> {
        let read = json::read_text(self.json(field)?);
        match &read {
            Some(text) if text.is_exact => {}
            Some(_) => self.keep(field),
            None => self.keep_clash(field),
        }
        read.map(|text| text.text)
    }

    /// A number that is an integer of 64 bits.
    pub(super) fn bigint(&mut self, field: F) -> Option<i64> {
        self.read_or_keep(field, json::read_integer)
    }

    /// A number, as the nearest finite double.
    pub(super) fn double(&mut self, field: F) -> Option<f64> {
        self.read_or_keep(field, json::read_number)
    }

    /// A moment, in microseconds. A number that is not of milliseconds is kept as well: its unit is a guess.
    pub(super) fn timestamp(&mut self, field: F) -> Option<i64> {
        let moment = self.read_or_keep(field, read_timestamp)?;
        if self.json(field).is_some_and(is_of_another_unit) {
            self.keep(field);
        }
        Some(moment)
    }

    fn read_or_keep<T>(&mut self, field: F, read: impl Fn(&'a str) -> Option<T>) -> Option<T> {
        let value = read(self.json(field)?);
        if value.is_none() {
            self.keep_clash(field);
        }
        value
    }

    /// A string that names the row: exact, and short enough to be repeated.
    pub(super) fn key_text(&self, field: F) -> Result<Cow<'a, str>, Unplaceable> {
        let read = |raw| json::read_text(raw).filter(|text| text.is_exact && text.text.len() <= KEY_TEXT_BYTES_MAX);
        self.key(field, read).map(|text| text.text)
    }

    /// An integer that names the row: also as a string of digits.
    pub(super) fn key_bigint(&self, field: F) -> Result<i64, Unplaceable> {
        self.key(field, |raw| json::read_integer(raw).or_else(|| json::read_digits(raw)))
    }

    /// A time without which the record is rejected.
    pub(super) fn key_timestamp(&mut self, field: F) -> Result<i64, Unplaceable> {
        self.key(field, read_timestamp)?;
        self.timestamp(field).ok_or(Unplaceable { reason: RejectReason::BadKey, field: field.name() })
    }

    fn key<T>(&self, field: F, read: impl Fn(&'a str) -> Option<T>) -> Result<T, Unplaceable> {
        let unplaceable = |reason| Unplaceable { reason, field: field.name() };
        let raw = self.json(field).ok_or(unplaceable(RejectReason::MissingKey))?;
        read(raw).ok_or(unplaceable(RejectReason::BadKey))
    }
}
