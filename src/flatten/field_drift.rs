//! A field of an object whose name or value is drift.

use std::borrow::Cow;

use crate::model::DriftKind;

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
