//! Single JSON values as texts.

use std::borrow::Cow;

use crate::json::{self, Shape};

/// Returns the value of a string, or the digits of a number as sent; `None` for other shapes.
pub(super) fn scalar_text(raw: &str) -> Option<Cow<'_, str>> {
    match json::shape(raw) {
        Shape::Text => json::read_text(raw).map(|text| text.text),
        Shape::Number => Some(Cow::Borrowed(raw)),
        _ => None,
    }
}

/// Returns the value of a string, the exact JSON of any other shape, and `None` for null.
pub(super) fn text_or_json(raw: &str) -> Option<Cow<'_, str>> {
    match json::shape(raw) {
        Shape::Null => None,
        Shape::Text => json::read_text(raw).map(|text| text.text),
        _ => Some(Cow::Borrowed(raw)),
    }
}
