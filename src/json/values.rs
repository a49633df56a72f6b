//! JSON as exact texts: splits objects and lists one level deep, and reads single strings and numbers.
//!
//! Every value stays a slice of the page until a column reads it, so its exact text is there if the column cannot hold
//! the value. The grammar is serde_json's. A text that [`Scanner`] refuses is read by serde_json, through `RawValue`,
//! which does not recurse: no depth of nesting overflows the stack. Nothing here knows columns. The readers expect
//! values that the scanner has accepted, and return `None` for another shape.

use std::{borrow::Cow, fmt};

use memchr::memchr;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::{Scanner, Shape, shape};

/// A member of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    /// The text between the quotes of the key, escapes and all.
    pub key: &'a str,
    /// The exact text of the value.
    pub value: &'a str,
}

/// Appends the members of an object in the order sent, duplicates too. `None` if the text is not an object.
pub(crate) fn read_entries<'a>(raw: &'a str, into: &mut Vec<Entry<'a>>) -> Option<()> {
    let length_before = into.len();
    take_entries(&mut Scanner::new(raw), into).or_else(|| {
        into.truncate(length_before);
        Members(into).deserialize(&mut serde_json::Deserializer::from_str(raw)).ok()
    })
}

/// Appends the members of the object at the scanner's place.
pub(crate) fn take_entries<'a>(scanner: &mut Scanner<'a>, into: &mut Vec<Entry<'a>>) -> Option<()> {
    scanner.each_member(|scanner, key| {
        into.push(Entry { key, value: scanner.value()? });
        Some(())
    })
}

/// Appends the members of an object; the way of serde_json.
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
        // A raw key, because serde_json refuses to decode lone surrogates, and a key may hold one.
        while let Some((key, value)) = members.next_entry::<&'a RawValue, &'a RawValue>()? {
            self.0.push(Entry { key: unquoted(key.get()), value: value.get() });
        }
        Ok(())
    }
}

/// The items of a list, in order. `None` if the text is not one list and nothing more.
pub(crate) fn read_items(raw: &str) -> Option<Vec<&str>> {
    scanned_items(raw).or_else(|| parsed_items(raw))
}

fn scanned_items(raw: &str) -> Option<Vec<&str>> {
    let (mut scanner, mut items) = (Scanner::new(raw), Vec::new());
    scanner.each_item(|scanner| {
        items.push(scanner.value()?);
        Some(())
    })?;
    scanner.is_at_end().then_some(items)
}

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

/// The bytes of a record as a text. A byte that is no UTF-8 is written like `\xff`, which is no JSON.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
    }
    text
}

/// The text between the quotes of a string.
pub(super) fn unquoted(raw: &str) -> &str {
    raw.get(1..raw.len().saturating_sub(1)).unwrap_or_default()
}

/// A string's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Text<'a> {
    /// The value; U+FFFD stands for each lone surrogate.
    pub text: Cow<'a, str>,
    /// False if a lone surrogate was replaced.
    pub is_exact: bool,
}

/// The value of a string.
pub(crate) fn read_text(raw: &str) -> Option<Text<'_>> {
    (shape(raw) == Shape::Text).then(|| unescaped(unquoted(raw)))
}

/// The value of a string, from the text between its quotes.
pub(crate) fn unescaped(inner: &str) -> Text<'_> {
    // A search by bytes is enough: no byte of a longer character equals a backslash.
    match memchr(b'\\', inner.as_bytes()).map(|at| inner.split_at(at)) {
        None => Text { text: Cow::Borrowed(inner), is_exact: true },
        Some((plain, escaped)) => unescaped_slowly(inner.len(), plain, escaped.get(1..).unwrap_or_default()),
    }
}

/// `plain` is decoded; `rest` begins behind a backslash.
fn unescaped_slowly<'a>(bytes_max: usize, plain: &str, mut rest: &str) -> Text<'a> {
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
                return Text { text: Cow::Owned(text), is_exact };
            }
        }
    }
}

/// Reads behind `\u`: the character, or `None` for a lone surrogate, and what follows it.
fn unicode_escape(rest: &str) -> (Option<char>, &str) {
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

fn hex_unit(text: &str) -> Option<(u32, &str)> {
    let (digits, after) = text.split_at_checked(4)?;
    Some((u32::from_str_radix(digits, 16).ok()?, after))
}

/// The value of a number that is an integer, however it is written (`12`, `12.0`, `1.2e1`), if it fits 64 bits.
pub(crate) fn read_integer(raw: &str) -> Option<i64> {
    if shape(raw) != Shape::Number {
        return None;
    }
    // The common case. It also refuses what is too large, which the exact reading below then refuses again.
    raw.parse().ok().or_else(|| integer_of_decimal(raw))
}

/// Reads integers into `integers`: one, a list of them, or such a list as JSON inside a string. `None` for anything
/// else.
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

/// The value of a string of decimal digits (`"17"`, `"-3"`).
pub(crate) fn read_digits(raw: &str) -> Option<i64> {
    let text = read_text(raw)?.text;
    let digits = text.strip_prefix('-').unwrap_or(&text);
    let is_decimal = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_decimal.then(|| text.parse().ok()).flatten()
}

/// Exact, by moving the decimal point; never through a double.
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
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_end_matches('0');
    if significant.is_empty() {
        return Some(0);
    }
    // An exponent that is too long for i64 belongs to no integer, as the digits are not all zero.
    let exponent: i64 = exponent.parse().ok()?;
    let zeros = exponent.checked_sub(fraction.len() as i64)?.checked_add((digits.len() - significant.len()) as i64)?;
    if !(0..=DIGITS_MAX).contains(&zeros) {
        return None;
    }
    let zeros = "0".repeat(zeros as usize);
    format!("{sign}{significant}{zeros}").parse().ok()
}

/// The double nearest to a number; `None` where that is infinite.
pub(crate) fn read_number(raw: &str) -> Option<f64> {
    if shape(raw) != Shape::Number {
        return None;
    }
    raw.parse().ok().filter(|number: &f64| number.is_finite())
}

/// The value of a boolean.
pub(crate) fn read_boolean(raw: &str) -> Option<bool> {
    match raw {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

/// Whether a list or an object holds nothing.
pub(crate) fn is_empty_container(raw: &str) -> bool {
    matches!(shape(raw), Shape::List | Shape::Object) && unquoted(raw).trim_ascii().is_empty()
}

#[cfg(test)]
mod tests;
