//! Excerpts of answers for people: short, on one line, and without the key even if the service echoes it (promise P11).

use bytes::Bytes;
use serde_json::Value;

use crate::{redact::ApiKey, text::bytes_without_mark};

/// Maximum characters shown of a body that is not a page.
const BODY_CHARS_MAX: usize = 80;
/// Maximum characters shown of the service's error message.
const MESSAGE_CHARS_MAX: usize = 300;
/// Maximum bytes of a body that are decoded for an excerpt.
const EXCERPT_BYTES_MAX: usize = 16 << 10;

/// Describes a body that is not a page: its type, its size and its first characters.
pub(super) fn describe_body(content_type: &str, body: &[u8], key: &ApiKey) -> String {
    let kind = if content_type.is_empty() { "no content type" } else { content_type };
    let kind = presentable(kind, key, BODY_CHARS_MAX);
    if body.is_empty() {
        return format!("{kind}, empty");
    }
    let beginning = presentable(&prefix(body), key, BODY_CHARS_MAX);
    format!("{kind}, {} bytes: {beginning}", body.len())
}

/// Returns true if a body is a web page, by its content type or its first character.
pub(super) fn is_html(content_type: &str, body: &[u8]) -> bool {
    content_type.to_ascii_lowercase().contains("html") || bytes_without_mark(body).trim_ascii_start().starts_with(b"<")
}

/// Returns the message in the body of an error answer, shortened and without the key. Reads `{error: text}`, a list of
/// messages or a JSON string; for any other body returns its text.
pub(super) fn message(body: &Bytes, key: &ApiKey) -> String {
    let text = prefix(body);
    let found = serde_json::from_slice::<Value>(bytes_without_mark(body)).ok().and_then(|value| message_in(&value));
    presentable(found.as_deref().unwrap_or(&text), key, MESSAGE_CHARS_MAX)
}

/// Returns the message in a JSON value; `None` if the value has none.
fn message_in(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(items) => {
            let parts: Vec<String> =
                items.iter().map(|item| message_in(item).unwrap_or_else(|| item.to_string())).collect();
            Some(parts.join("; "))
        }
        Value::Object(fields) => {
            let inner = ["error", "errors", "message"].into_iter().find_map(|name| fields.get(name))?;
            Some(message_in(inner).unwrap_or_else(|| inner.to_string()))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

/// Returns the first [`EXCERPT_BYTES_MAX`] bytes of a body as text.
fn prefix(body: &[u8]) -> String {
    let body = bytes_without_mark(body);
    let prefix = body.get(..EXCERPT_BYTES_MAX).unwrap_or(body);
    String::from_utf8_lossy(prefix).into_owned()
}

/// Returns a text on one line, with control characters escaped and at most `chars_max` characters. The key is removed
/// before the text is cut, because half a key is a secret too.
pub(super) fn presentable(text: &str, key: &ApiKey, chars_max: usize) -> String {
    let text = key.removed_from(text);
    let mut shown = String::new();
    for (count, letter) in text.trim().chars().enumerate() {
        if count == chars_max {
            shown.push('…');
            break;
        }
        if letter.is_control() {
            shown.extend(letter.escape_default());
        } else {
            shown.push(letter);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> ApiKey {
        ApiKey::new("s3cr3t-s3cr3t", "a test")
    }

    fn message_of(body: &'static str) -> String {
        message(&Bytes::from_static(body.as_bytes()), &key())
    }

    #[test]
    fn every_form_of_an_error_is_readable() {
        assert_eq!(message_of(r#"{"error":"limit must be at most 1000"}"#), "limit must be at most 1000");
        assert_eq!(
            message_of(r#"["start is no integer","end is no integer"]"#),
            "start is no integer; end is no integer"
        );
        assert_eq!(message_of("bad request\n"), "bad request");
        assert_eq!(message_of("\u{feff}{\"error\":\"bad\"}"), "bad");
        assert_eq!(message_of(r#""bad""#), "bad");
        assert_eq!(message_of(r#"{"error":{"code":7}}"#), r#"{"code":7}"#);
        assert_eq!(message_of(r#"{"message":["a",{"error":"b"}]}"#), "a; b");
        assert_eq!(message_of(r#"{"unknown":1}"#), r#"{"unknown":1}"#);
        assert_eq!(message_of(""), "");
    }

    #[test]
    fn a_long_message_is_cut() {
        let message = message(&Bytes::from("é".repeat(5_000)), &key());
        assert_eq!(message, format!("{}…", "é".repeat(300)));
    }

    #[test]
    fn p11_an_echoed_key_is_not_shown_even_where_the_text_is_cut() {
        for spaces in 0..90 {
            let body = format!("{}.s3cr3t-s3cr3t", "-".repeat(spaces));
            let shown = describe_body("text/plain; s3cr3t-s3cr3t", body.as_bytes(), &key());
            assert!(!shown.contains("s3c"), "{shown}");
        }
        assert_eq!(message_of(r#"{"error":"no such key: s3cr3t-s3cr3t"}"#), "no such key: [key]");
    }

    #[test]
    fn what_came_is_one_line() {
        let shown = describe_body("text/html", b"<html>\r\n\x1b[31m\0</html>\xff", &key());
        assert_eq!(shown, "text/html, 22 bytes: <html>\\r\\n\\u{1b}[31m\\u{0}</html>\u{fffd}");
        assert_eq!(describe_body("", b"", &key()), "no content type, empty");
    }

    #[test]
    fn a_web_page_is_known_by_its_type_or_its_beginning() {
        assert!(is_html("text/HTML; charset=utf-8", b""));
        assert!(is_html("application/json", b" \n<!doctype html>"));
        assert!(is_html("application/json", "\u{feff}<html>".as_bytes()));
        assert!(!is_html("application/json", b"{}"));
    }
}
