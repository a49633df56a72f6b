//! Reads and decompresses a body in chunks, up to a limit on the decompressed size: a small gzip stream can expand to
//! any size. Makes excerpts of answers for people: short, on one line, and without the key even if the service echoes
//! the key (promise P11).

use std::{
    io::{self, Write},
    time::Duration,
};

use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use reqwest::{
    Response,
    header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap},
};
use serde_json::Value;
use tokio::time::timeout;

use super::{error::Failure, transport::cause_of};
use crate::{redact::ApiKey, text::bytes_without_mark};

/// Maximum characters shown of an unknown encoding.
const ENCODING_CHARS_MAX: usize = 60;

/// Bounds of one body.
#[derive(Clone, Copy, Debug)]
pub(super) struct BodyLimits {
    /// Maximum decompressed bytes.
    pub bytes_max: usize,
    /// The longest pause between two chunks.
    pub idle: Duration,
}

/// Reads and decompresses the complete body. `read_bytes` is increased with each chunk, so that the count is right even
/// if the caller cancels. Fails if the body has an unknown encoding, is too large, stalls, or breaks off. `key` is
/// removed from messages.
pub(super) async fn read(
    response: &mut Response,
    limits: BodyLimits,
    key: &ApiKey,
    read_bytes: &mut usize,
) -> Result<Bytes, Failure> {
    let is_gzip = is_gzip(response.headers()).map_err(|encoding| {
        let encoding = presentable(&encoding, key, ENCODING_CHARS_MAX);
        Failure::UnknownEncoding { encoding }
    })?;
    let too_large = Failure::BodyTooLarge { limit_bytes: limits.bytes_max };
    let announced = response.content_length().map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    if announced.is_some_and(|bytes| bytes > limits.bytes_max) {
        return Err(too_large);
    }
    let sink = Sink { bytes: Vec::with_capacity(announced.unwrap_or(0)), bytes_max: limits.bytes_max, is_full: false };
    let mut body =
        if is_gzip { BodyDecoder::Gzip(Box::new(MultiGzDecoder::new(sink))) } else { BodyDecoder::Plain(sink) };
    let mut is_empty = true;
    loop {
        let before = body.sink().bytes.len();
        let chunk = match timeout(limits.idle, response.chunk()).await {
            Err(_) => return Err(Failure::hung(limits.idle, before)),
            Ok(Err(error)) => return Err(Failure::Cut { bytes: before, detail: cause_of(error) }),
            Ok(Ok(chunk)) => chunk,
        };
        let written = match &chunk {
            Some(chunk) => body.write(chunk),
            // The body has ended. An empty body is valid even if the headers announce gzip.
            None if is_empty => Ok(()),
            None => body.finish(),
        };
        is_empty &= chunk.as_ref().is_none_or(Bytes::is_empty);
        let sink = body.sink();
        *read_bytes += sink.bytes.len() - before;
        match written {
            Err(_) if sink.is_full => return Err(too_large),
            Err(error) => {
                let detail = format!("the gzip stream is incomplete: {error}");
                return Err(Failure::Cut { bytes: sink.bytes.len(), detail });
            }
            Ok(()) if chunk.is_none() => return Ok(Bytes::from(body.into_bytes())),
            Ok(()) => {}
        }
    }
}

/// Returns true if the headers announce gzip, and false for a body without compression. `Err` lists all encodings if
/// they are not supported.
pub(super) fn is_gzip(headers: &HeaderMap) -> Result<bool, String> {
    let values = headers.get_all(CONTENT_ENCODING).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
    let listed = values.collect::<Vec<_>>().join(", ").to_ascii_lowercase();
    let codings: Vec<&str> =
        listed.split(',').map(str::trim).filter(|coding| !matches!(*coding, "" | "identity")).collect();
    match codings.as_slice() {
        [] => Ok(false),
        ["gzip" | "x-gzip"] => Ok(true),
        others => Err(others.join(", ")),
    }
}

/// Collects decompressed bytes up to a limit.
struct Sink {
    bytes: Vec<u8>,
    bytes_max: usize,
    /// True if a chunk was refused because it exceeds the limit.
    is_full: bool,
}

impl Write for Sink {
    fn write(&mut self, chunk: &[u8]) -> io::Result<usize> {
        if chunk.len() > self.bytes_max.saturating_sub(self.bytes.len()) {
            self.is_full = true;
            return Err(io::Error::other("too large"));
        }
        self.bytes.extend_from_slice(chunk);
        Ok(chunk.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Decompresses chunks into a [`Sink`].
enum BodyDecoder {
    Plain(Sink),
    Gzip(Box<MultiGzDecoder<Sink>>),
}

impl BodyDecoder {
    fn write(&mut self, chunk: &[u8]) -> io::Result<()> {
        match self {
            BodyDecoder::Plain(sink) => sink.write_all(chunk),
            BodyDecoder::Gzip(decoder) => decoder.write_all(chunk),
        }
    }

    /// Ends the stream. Fails if a gzip stream is incomplete.
    fn finish(&mut self) -> io::Result<()> {
        match self {
            BodyDecoder::Plain(_) => Ok(()),
            BodyDecoder::Gzip(decoder) => decoder.try_finish(),
        }
    }

    fn sink(&self) -> &Sink {
        match self {
            BodyDecoder::Plain(sink) => sink,
            BodyDecoder::Gzip(decoder) => decoder.get_ref(),
        }
    }

    fn into_bytes(mut self) -> Vec<u8> {
        match &mut self {
            BodyDecoder::Plain(sink) => std::mem::take(&mut sink.bytes),
            BodyDecoder::Gzip(decoder) => std::mem::take(&mut decoder.get_mut().bytes),
        }
    }
}

/// Maximum characters shown of a body that is not a page.
const BODY_CHARS_MAX: usize = 80;
/// Maximum characters shown of the service's error message.
const MESSAGE_CHARS_MAX: usize = 300;
/// Maximum bytes of a body that are decoded for an excerpt.
const EXCERPT_BYTES_MAX: usize = 16 << 10;

/// Returns the `Content-Type` header; empty if there is none.
pub(super) fn content_type(headers: &HeaderMap) -> &str {
    headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

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
    use reqwest::header::HeaderValue;

    use super::*;

    fn read_as(values: &[&'static str]) -> Result<bool, String> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(CONTENT_ENCODING, HeaderValue::from_static(value));
        }
        is_gzip(&headers)
    }

    #[test]
    fn every_legal_spelling_of_gzip_is_read() {
        for spelled in ["gzip", "GZIP", "x-gzip", " X-GZip ", "identity, gzip", "gzip,", "gzip , IDENTITY"] {
            assert_eq!(read_as(&[spelled]), Ok(true), "{spelled}");
        }
        assert_eq!(read_as(&["identity", "gzip"]), Ok(true));
        for plain in [&[][..], &[""], &["identity"], &["Identity, identity"]] {
            assert_eq!(read_as(plain), Ok(false), "{plain:?}");
        }
    }

    #[test]
    fn an_encoding_that_cannot_be_read_is_named() {
        assert_eq!(read_as(&["BR"]), Err("br".to_owned()));
        assert_eq!(read_as(&["deflate, identity"]), Err("deflate".to_owned()));
        assert_eq!(read_as(&["gzip", "gzip"]), Err("gzip, gzip".to_owned()));
    }

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
