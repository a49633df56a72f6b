//! A part of a record that no contract knows.

use std::borrow::Cow;

use crate::model::DriftKind;

/// A part of a record that no contract knows.
#[derive(Clone, Debug)]
pub(super) struct Met<'a> {
    pub kind: DriftKind,
    /// The field, as it is written.
    pub name: Cow<'a, str>,
    /// The exact text of its value.
    pub value: &'a str,
}

impl<'a> Met<'a> {
    pub(super) fn new_field(name: Cow<'a, str>, value: &'a str) -> Self {
        Met { kind: DriftKind::NewField, name, value }
    }

    pub(super) fn clash(name: &'static str, value: &'a str) -> Self {
        Met { kind: DriftKind::TypeClash, name: Cow::Borrowed(name), value }
    }
}
