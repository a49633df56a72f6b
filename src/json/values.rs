//! Splits objects and lists one level deep into exact texts, and parses single strings, numbers and booleans.
//!
//! Every value stays a slice of the page until it is parsed for a column. So the exact text is available if the value
//! does not fit the column. The grammar is that of serde_json. If [`Scanner`] refuses a text, serde_json reads the text
//! through `RawValue`. `RawValue` does not recurse, so no nesting overflows the stack. The functions expect a valid
//! JSON value without surrounding whitespace, and return `None` for a value of another type.

use std::{borrow::Cow, fmt};

use memchr::memchr;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::{Scanner, Shape, shape};

/// A member of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    /// The text between the quotes of the key, escaped as sent.
    pub key: &'a str,
    /// The exact text of the value.
    pub value: &'a str,
}

/// Appends the members of an object in the order sent, also duplicates. Returns `None` and appends nothing if the text
/// is not an object.
pub(crate) fn read_entries<'a>(raw: &'a str, into: &mut Vec<Entry<'a>>) -> Option<()> {
    if shape(raw) != Shape::Object {
        return None;
    }
    let length_before = into.len();
    take_entries(&mut Scanner::new(raw), into).or_else(|| {
        into.truncate(length_before);
        Members(into).deserialize(&mut serde_json::Deserializer::from_str(raw)).ok()
    })
}

/// Appends the members of the object at the scanner's position. If the scanner refuses the text, returns `None`, and
/// some members may be appended.
pub(crate) fn take_entries<'a>(scanner: &mut Scanner<'a>, into: &mut Vec<Entry<'a>>) -> Option<()> {
    scanner.each_member(|scanner, key| {
        into.push(Entry { key, value: scanner.value()? });
        Some(())
    })
}

/// Appends the members of an object with serde_json.
struct Members<'v, 'a>(&'v mut Vec<Entry<'a>>);

impl<'a> DeserializeSeed<'a> for Members<'_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'a> Visitor<'a> for Members<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'a>>(self, mut members: M) -> Result<(), M::Error> {
        // The key is read raw, because serde_json refuses to decode lone surrogates, which a key may contain.
        while let Some((key, value)) = members.next_entry::<&'a RawValue, &'a RawValue>()? {
            self.0.push(Entry { key: unquoted(key.get()), value: value.get() });
        }
        Ok(())
    }
}

/// Returns the items of a list in order; `None` if the text is not exactly one list. Whitespace around the list is
/// ignored.
pub(crate) fn read_items(raw: &str) -> Option<Vec<&str>> {
    match shape(raw.trim_ascii_start()) {
        Shape::List => scanned_items(raw).or_else(|| parsed_items(raw)),
        _ => None,
    }
}

fn scanned_items(raw: &str) -> Option<Vec<&str>> {
    let (mut scanner, mut items) = (Scanner::new(raw), Vec::new());
    scanner.each_item(|scanner| {
        items.push(scanner.value()?);
        Some(())
    })?;
    scanner.is_at_end().then_some(items)
}

/// Returns the items of a list with serde_json.
fn parsed_items(raw: &str) -> Option<Vec<&str>> {
    struct Items;
    impl<'a> Visitor<'a> for Items {
        type Value = Vec<&'a str>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }
        fn visit_seq<S: SeqAccess<'a>>(self, mut items: S) -> Result<Self::Value, S::Error> {
            let mut texts = Vec::new();
            while let Some(item) = items.next_element::<&'a RawValue>()? {
                texts.push(item.get());
            }
            Ok(texts)
        }
    }
    let mut parser = serde_json::Deserializer::from_str(raw);
    let items = parser.deserialize_seq(Items).ok()?;
    parser.end().ok()?;
    Some(items)
}

/// Returns bytes as text. A byte that is not UTF-8 becomes an escape like `\xff`. The text is for people, and need not
/// be JSON.
pub(crate) fn escape_invalid_utf8(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
    }
    text
}

/// Returns the text between the quotes of a string.
pub(super) fn unquoted(raw: &str) -> &str {
    raw.get(1..raw.len().saturating_sub(1)).unwrap_or_default()
}

/// The decoded value of a JSON string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DecodedText<'a> {
    /// The value; U+FFFD replaces each lone surrogate.
    pub text: Cow<'a, str>,
    /// False if a lone surrogate was replaced.
    pub is_exact: bool,
}

/// Returns the decoded value of a JSON string; `None` for a value of another type.
pub(crate) fn read_text(raw: &str) -> Option<DecodedText<'_>> {
    (shape(raw) == Shape::Text).then(|| unescaped(unquoted(raw)))
}

/// Returns the value of a string, or the digits of a number as sent; `None` for other shapes.
pub(crate) fn scalar_text(raw: &str) -> Option<Cow<'_, str>> {
    match shape(raw) {
        Shape::Text => read_text(raw).map(|text| text.text),
        Shape::Number => Some(Cow::Borrowed(raw)),
        _ => None,
    }
}

/// Returns the value of a string, the exact JSON of any other shape, and `None` for null.
pub(crate) fn text_or_json(raw: &str) -> Option<Cow<'_, str>> {
    match shape(raw) {
        Shape::Null => None,
        Shape::Text => read_text(raw).map(|text| text.text),
        _ => Some(Cow::Borrowed(raw)),
    }
}

/// Decodes the text between the quotes of a string.
pub(crate) fn unescaped(inner: &str) -> DecodedText<'_> {
    // A search by bytes is enough: no byte of a longer character equals a backslash.
    match memchr(b'\\', inner.as_bytes()).map(|at| inner.split_at(at)) {
        None => DecodedText { text: Cow::Borrowed(inner), is_exact: true },
        Some((plain, escaped)) => unescaped_from(inner.len(), plain, escaped.get(1..).unwrap_or_default()),
    }
}

/// Decodes a text with escapes. `plain` is the text before the first backslash, and `rest` the text after the
/// backslash. `bytes_max` is the memory to reserve.
fn unescaped_from<'a>(bytes_max: usize, plain: &str, mut rest: &str) -> DecodedText<'a> {
    let mut text = String::with_capacity(bytes_max);
    text.push_str(plain);
    let mut is_exact = true;
    loop {
        let mut characters = rest.chars();
        let escape = characters.next();
        rest = characters.as_str();
        match escape {
            Some('n') => text.push('\n'),
            Some('t') => text.push('\t'),
            Some('r') => text.push('\r'),
            Some('b') => text.push('\u{8}'),
            Some('f') => text.push('\u{c}'),
            Some('u') => {
                let (character, after) = unicode_escape(rest);
                is_exact &= character.is_some();
                text.push(character.unwrap_or(char::REPLACEMENT_CHARACTER));
                rest = after;
            }
            Some(itself) => text.push(itself),
            None => {}
        }
        match rest.split_once('\\') {
            Some((plain, escaped)) => {
                text.push_str(plain);
                rest = escaped;
            }
            None => {
                text.push_str(rest);
                return DecodedText { text: Cow::Owned(text), is_exact };
            }
        }
    }
}

/// Reads the text after `\u`. Returns the character, or `None` for a lone surrogate, and the rest of the text.
pub(super) fn unicode_escape(rest: &str) -> (Option<char>, &str) {
    let Some((unit, after)) = hex_unit(rest) else {
        return (None, rest);
    };
    if !(0xD800..0xDC00).contains(&unit) {
        return (char::from_u32(unit), after);
    }
    let low = after.strip_prefix("\\u").and_then(hex_unit).filter(|(low, _)| (0xDC00..0xE000).contains(low));
    match low {
        Some((low, after)) => (char::from_u32(0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00)), after),
        None => (None, after),
    }
}

/// Reads four hexadecimal digits. Returns the number and the rest of the text.
fn hex_unit(text: &str) -> Option<(u32, &str)> {
    let (digits, after) = text.split_at_checked(4)?;
    Some((u32::from_str_radix(digits, 16).ok()?, after))
}

/// Returns the value of a number that is a 64-bit integer, in any notation (`12`, `12.0`, `1.2e1`).
pub(crate) fn read_integer(raw: &str) -> Option<i64> {
    if shape(raw) != Shape::Number {
        return None;
    }
    // Plain digits are the common case.
    raw.parse().ok().or_else(|| integer_of_decimal(raw))
}

/// Reads an integer, a list of integers, or such a list as JSON inside a string into `integers`. Returns `None` for
/// other values.
pub(crate) fn read_integers(raw: &str, integers: &mut Vec<i64>) -> Option<()> {
    integers.clear();
    match shape(raw) {
        Shape::Number => integers.push(read_integer(raw)?),
        Shape::List => {
            for item in read_items(raw)? {
                integers.push(read_integer(item)?);
            }
        }
        Shape::Text => {
            for item in read_items(&read_text(raw)?.text)? {
                integers.push(read_integer(item)?);
            }
        }
        _ => return None,
    }
    Some(())
}

/// Returns the value of a string of decimal digits (`"17"`, `"-3"`).
pub(crate) fn read_digits(raw: &str) -> Option<i64> {
    let text = read_text(raw)?.text;
    let digits = text.strip_prefix('-').unwrap_or(&text);
    let is_decimal = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_decimal.then(|| text.parse().ok()).flatten()
}

/// Parses a number with a point or an exponent exactly, by moving the decimal point instead of using a double.
fn integer_of_decimal(raw: &str) -> Option<i64> {
    /// Digits of the largest integer.
    const DIGITS_MAX: i64 = 19;
    let (mantissa, exponent) = match raw.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent),
        None => (raw, "0"),
    };
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(mantissa) => ("-", mantissa),
        None => ("", mantissa),
    };
    let (integer_part, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{integer_part}{fraction}");
    let significant = digits.trim_end_matches('0');
    if significant.is_empty() {
        return Some(0);
    }
    // The digits are not all zero. If the exponent does not fit i64, the number is therefore no 64-bit integer.
    let exponent: i64 = exponent.parse().ok()?;
    let zeros = exponent.checked_sub(fraction.len() as i64)?.checked_add((digits.len() - significant.len()) as i64)?;
    if !(0..=DIGITS_MAX).contains(&zeros) {
        return None;
    }
    let zeros = "0".repeat(zeros as usize);
    format!("{sign}{significant}{zeros}").parse().ok()
}

/// Returns the double nearest to a JSON number; `None` if that double is infinite, or for a value of another type.
pub(crate) fn read_number(raw: &str) -> Option<f64> {
    if shape(raw) != Shape::Number {
        return None;
    }
    raw.parse().ok().filter(|number: &f64| number.is_finite())
}

/// Returns the value of a JSON boolean; `None` for a value of another type.
pub(crate) fn read_boolean(raw: &str) -> Option<bool> {
    match raw {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

/// Returns true for an empty list or object.
pub(crate) fn is_empty_container(raw: &str) -> bool {
    matches!(shape(raw), Shape::List | Shape::Object) && unquoted(raw).trim_ascii().is_empty()
}

/// Returns the list or object inside a string, and any other value unchanged.
pub(crate) fn unwrap_json(raw: &str) -> Cow<'_, str> {
    json_in_string(raw).map_or(Cow::Borrowed(raw), Cow::Owned)
}

/// Returns the list or object that a JSON string contains; `None` for other values. Services send some lists and
/// objects as JSON inside a string.
pub(crate) fn json_in_string(raw: &str) -> Option<String> {
    if shape(raw) != Shape::Text {
        return None;
    }
    let inner = read_text(raw)?.text;
    let inner = inner.trim();
    let is_container = matches!(shape(inner), Shape::List | Shape::Object);
    (is_container && serde_json::from_str::<&RawValue>(inner).is_ok()).then(|| inner.to_owned())
}

#[cfg(test)]
mod tests;
