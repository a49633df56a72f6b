//! Single JSON values as texts.

use std::borrow::Cow;

use crate::json::{self, Shape};

/// A string's value, or the digits of a number as sent.
pub(super) fn scalar_text(raw: &str) -> Option<Cow<'_, str>> {
    match json::shape(raw) {
        Shape::Text => json::read_text(raw).map(|text| text.text),
        Shape::Number => Some(Cow::Borrowed(raw)),
        _ => None,
    }
}

/// A string's value, nothing for null, and the exact JSON of any other shape.
pub(super) fn label(raw: &str) -> Option<Cow<'_, str>> {
    match json::shape(raw) {
        Shape::Null => None,
        Shape::Text => json::read_text(raw).map(|text| text.text),
        _ => Some(Cow::Borrowed(raw)),
    }
}
