//! Splits JSON texts into slices, in one pass and without a copy, and parses single values as the types of columns
//! (`values`, `moments`). Splitting takes half of the time of flattening a page.
//!
//! A [`Scanner`] accepts a subset of what serde_json accepts, and returns the same slices; property tests compare both.
//! If the scanner refuses a text, it gives no reason. The caller then uses serde_json, which reads deeper nesting and
//! describes the error. The scanner searches for the end of a string sixteen bytes at a time, and calls no visitor per
//! value.
//!
//! We use our own scanner because no library was within 10 % of its speed. Measured on 2026-11-27: pages of 1,000
//! responses of the sandbox, split into the members of each record as `flatten` does, in a release build for plain
//! x86-64. Times are multiples of the scanner's time, median of 401 pairs; in brackets instructions, by callgrind.
//!
//! | library | smooth data | all flags | rough data | all flags |
//! |---|---|---|---|---|
//! | serde_json 1.0.154, `RawValue` | 1.68 (1.84) | 1.51 (1.67) | 1.74 (1.84) | 1.53 (1.67) |
//! | sonic-rs 0.5.10, `LazyValue` through serde | 2.00 (1.72) | 1.94 (1.67) | 2.04 (1.72) | 1.96 (1.68) |
//! | sonic-rs 0.5.10, `to_object_iter` | 5.30 (4.29) | 4.44 (4.03) | 5.48 (4.27) | 4.48 (4.03) |
//! | jiter 0.19.0, `next_skip` | 2.25 (1.83) | 2.02 (1.85) | 2.38 (1.83) | 2.09 (1.85) |
//! | simd-json 0.19.0, its tape alone | 1.47 (1.30) | 1.71 (1.51) | 1.50 (1.34) | 1.71 (1.53) |
//!
//! The scanner reads 2.4 GB/s. Compiled for a processor with AVX2, the fastest library still needs 1.29 times as long.
//! simd-json does not return the exact texts of values, so its tape is less than half of the work.

mod canonical;
pub(crate) mod moments;
mod special_bytes;
mod values;

pub(crate) use self::canonical::{canonical_hash, is_canonical, is_same_value, without_query, write_canonical};
use self::special_bytes::{CHUNK_BYTES, special_bytes};
pub(crate) use self::values::{
    Entry, escape_invalid_utf8, is_empty_container, json_in_string, read_boolean, read_digits, read_entries,
    read_integer, read_integers, read_items, read_number, read_text, scalar_text, take_entries, text_or_json,
    unescaped, unwrap_json,
};

/// Maximum nesting of containers that a scanner accepts: one bit for each level.
const DEPTH_MAX: u32 = u64::BITS;

/// The type of a JSON value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Null,
    Boolean,
    Number,
    Text,
    List,
    Object,
}

/// Returns the type of a value, by its first character. Any character that begins no other type, and an empty text,
/// mean null.
#[inline]
pub(crate) fn shape(raw: &str) -> Shape {
    match raw.as_bytes().first() {
        Some(b'"') => Shape::Text,
        Some(b'{') => Shape::Object,
        Some(b'[') => Shape::List,
        Some(b't' | b'f') => Shape::Boolean,
        Some(b'-' | b'0'..=b'9') => Shape::Number,
        _ => Shape::Null,
    }
}

/// Reads a JSON text from a position on. A method returns `None` if the text is not as the method expects; after that
/// the position is undefined.
#[derive(Debug)]
pub(crate) struct Scanner<'a> {
    text: &'a str,
    position: usize,
}

impl<'a> Scanner<'a> {
    /// Returns a scanner at the first value of a text.
    pub fn new(text: &'a str) -> Self {
        Self::starting_at(text, 0)
    }

    /// Returns a scanner at the first byte from `position` on that is not whitespace.
    pub fn starting_at(text: &'a str, position: usize) -> Self {
        let mut scanner = Self { text, position };
        scanner.skip_spaces();
        scanner
    }

    /// Moves to another position.
    pub fn go_to(&mut self, position: usize) {
        self.position = position;
    }

    /// Returns true if only whitespace follows.
    pub fn is_at_end(&mut self) -> bool {
        self.skip_spaces();
        self.position == self.text.len()
    }

    /// Returns the current position, in bytes.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Returns the byte at the current position.
    #[inline]
    pub fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.position).copied()
    }

    /// Reads an object. Calls `read` with each name, escaped as sent; `read` must read the value after the name. Stops
    /// with `None` if `read` returns `None`.
    pub fn each_member(&mut self, mut read: impl FnMut(&mut Self, &'a str) -> Option<()>) -> Option<()> {
        self.read_byte(b'{')?;
        if self.peek()? == b'}' {
            return self.read_byte(b'}');
        }
        loop {
            let name = self.name()?;
            read(self, name)?;
            if !self.is_followed(b'}')? {
                return Some(());
            }
        }
    }

    /// Reads the rest of an object after one of its values.
    pub fn rest_of_object(&mut self) -> Option<()> {
        while self.is_followed(b'}')? {
            self.name()?;
            self.value()?;
        }
        Some(())
    }

    /// Reads a list. Calls `read` at each item; `read` must read the item. Stops with `None` if `read` returns `None`.
    pub fn each_item(&mut self, mut read: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.read_byte(b'[')?;
        if self.peek()? == b']' {
            return self.read_byte(b']');
        }
        loop {
            read(self)?;
            if !self.is_followed(b']')? {
                return Some(());
            }
        }
    }

    /// Reads a value of any type and returns its exact text.
    pub fn value(&mut self) -> Option<&'a str> {
        let start = self.position;
        match self.peek()? {
            b'{' | b'[' => self.skip_container()?,
            _ => self.skip_scalar()?,
        }
        self.text.get(start..self.position)
    }

    /// Reads the comma after a value, or the byte `end` of its container. Returns true if another value follows.
    fn is_followed(&mut self, end: u8) -> Option<bool> {
        self.skip_spaces();
        let is_followed = self.peek()? == b',';
        self.read_byte(if is_followed { b',' } else { end })?;
        Some(is_followed)
    }

    /// Reads one expected byte and the whitespace after it. Returns `None` if another byte follows.
    #[inline]
    fn read_byte(&mut self, byte: u8) -> Option<()> {
        if self.peek()? != byte {
            return None;
        }
        self.position += 1;
        self.skip_spaces();
        Some(())
    }

    #[inline]
    fn skip_spaces(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.position += 1;
        }
    }

    /// Reads the name of a member and the colon; returns the name.
    fn name(&mut self) -> Option<&'a str> {
        let start = self.position + 1;
        self.skip_string()?;
        let name = self.text.get(start..self.position - 1)?;
        self.skip_spaces();
        self.read_byte(b':')?;
        Some(name)
    }

    /// Reads the name of a member and the colon, without returning the name. Returning the name would cost 10 % of the
    /// time of a page with nested records.
    fn skip_name(&mut self) -> Option<()> {
        self.skip_string()?;
        self.skip_spaces();
        self.read_byte(b':')
    }

    /// Skips a list or object. Returns `None` if it is nested more than [`DEPTH_MAX`] levels deep. A loop instead of a
    /// recursion, so that no nesting overflows the stack.
    fn skip_container(&mut self) -> Option<()> {
        // One bit per open container: 1 for an object, 0 for a list. The innermost container is the lowest bit.
        let (mut objects, mut depth) = (0_u64, 0);
        loop {
            let opened = self.peek()?;
            if let b'{' | b'[' = opened {
                if depth == DEPTH_MAX {
                    return None;
                }
                (objects, depth) = (objects << 1 | u64::from(opened == b'{'), depth + 1);
                self.read_byte(opened)?;
                if self.peek()? != closing_byte(objects) {
                    if opened == b'{' {
                        self.skip_name()?;
                    }
                    continue;
                }
            } else {
                self.skip_scalar()?;
                self.skip_spaces();
            }
            // The position is after a value, or in an empty container.
            while self.peek()? == closing_byte(objects) {
                self.position += 1;
                (objects, depth) = (objects >> 1, depth - 1);
                if depth == 0 {
                    return Some(());
                }
                self.skip_spaces();
            }
            self.read_byte(b',')?;
            if objects & 1 == 1 {
                self.skip_name()?;
            }
        }
    }

    fn skip_scalar(&mut self) -> Option<()> {
        match self.peek()? {
            b'"' => self.skip_string(),
            b't' => self.skip_word("true"),
            b'f' => self.skip_word("false"),
            b'n' => self.skip_word("null"),
            _ => self.skip_number(),
        }
    }

    fn skip_word(&mut self, word: &str) -> Option<()> {
        self.text.as_bytes().get(self.position..)?.starts_with(word.as_bytes()).then(|| self.position += word.len())
    }

    /// Skips a string with its quotes.
    fn skip_string(&mut self) -> Option<()> {
        let bytes = self.text.as_bytes();
        if self.peek()? != b'"' {
            return None;
        }
        self.position += 1;
        loop {
            self.skip_plain(bytes);
            self.position += match bytes.get(self.position)? {
                b'"' => {
                    self.position += 1;
                    return Some(());
                }
                b'\\' => match bytes.get(self.position + 1)? {
                    b'u' if bytes.get(self.position + 2..self.position + 6)?.iter().all(u8::is_ascii_hexdigit) => 6,
                    b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => 2,
                    _ => return None,
                },
                0..b' ' => return None,
                _ => 1,
            };
        }
    }

    /// Skips to the next quote, backslash or control character, but stops when less than a chunk of the text remains.
    #[inline]
    fn skip_plain(&mut self, bytes: &[u8]) {
        while let Some(chunk) = bytes.get(self.position..).and_then(|rest| rest.first_chunk()) {
            match special_bytes(chunk) {
                0 => self.position += CHUNK_BYTES,
                found => return self.position += found.trailing_zeros() as usize,
            }
        }
    }

    /// Skips a JSON number: a sign, digits without a leading zero, a fraction and an exponent.
    fn skip_number(&mut self) -> Option<()> {
        if self.peek() == Some(b'-') {
            self.position += 1;
        }
        let is_zero = self.peek() == Some(b'0');
        if self.skip_digits()? > 1 && is_zero {
            return None;
        }
        if self.peek() == Some(b'.') {
            self.position += 1;
            self.skip_digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.position += 1;
            if let Some(b'-' | b'+') = self.peek() {
                self.position += 1;
            }
            self.skip_digits()?;
        }
        Some(())
    }

    /// Skips at least one digit; returns how many.
    fn skip_digits(&mut self) -> Option<usize> {
        let start = self.position;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.position += 1;
        }
        Some(self.position - start).filter(|digits| *digits > 0)
    }
}

/// Returns the closing byte of the innermost container. The lowest bit of `objects` is 1 if this container is an
/// object.
fn closing_byte(objects: u64) -> u8 {
    if objects & 1 == 1 { b'}' } else { b']' }
}

#[cfg(test)]
mod tests;
