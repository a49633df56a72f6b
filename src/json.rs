//! Takes JSON texts apart into slices, in one pass and without a copy: the hot half of reading a page. Reads single
//! values as what columns hold (`values`, `moments`).
//!
//! A [`Scanner`] accepts a part of what serde_json accepts, and returns the same slices; property tests compare the
//! two. A refusal gives no reason: the caller then asks serde_json, which reads deeper nesting and names what is wrong.
//! The scanner looks for the end of a text sixteen bytes at once, and calls no visitor for each value.
//!
//! It is our own because no library came within 10 % of it. Measured on 2026-11-27: pages of 1,000 responses of the
//! sandbox, taken apart as `flatten` does it (the members of each record as slices), in a release build for plain
//! x86-64. Times as a multiple of the scanner's, median of 401 pairs; in brackets instructions, by callgrind.
//!
//! | way | smooth data | all flags | rough data | all flags |
//! |---|---|---|---|---|
//! | serde_json 1.0.154, `RawValue` | 1.68 (1.84) | 1.51 (1.67) | 1.74 (1.84) | 1.53 (1.67) |
//! | sonic-rs 0.5.10, `LazyValue` through serde | 2.00 (1.72) | 1.94 (1.67) | 2.04 (1.72) | 1.96 (1.68) |
//! | sonic-rs 0.5.10, `to_object_iter` | 5.30 (4.29) | 4.44 (4.03) | 5.48 (4.27) | 4.48 (4.03) |
//! | jiter 0.19.0, `next_skip` | 2.25 (1.83) | 2.02 (1.85) | 2.38 (1.83) | 2.09 (1.85) |
//! | simd-json 0.19.0, its tape alone | 1.47 (1.30) | 1.71 (1.51) | 1.50 (1.34) | 1.71 (1.53) |
//!
//! The scanner reads 2.4 GB/s. Compiled for a processor with AVX2, the nearest is still 1.29. simd-json keeps no exact
//! texts, which columns and checks need, so its tape is less than half of the work.

pub(crate) mod moments;
mod special_bytes;
mod values;

use self::special_bytes::{CHUNK_BYTES, special_bytes};
pub(crate) use self::values::{
    Entry, is_empty_container, read_boolean, read_digits, read_entries, read_integer, read_integers, read_items,
    read_number, read_text, shown, take_entries, unescaped,
};

/// The deepest nesting of containers that a scanner follows: one bit for each level.
const DEPTH_MAX: u32 = u64::BITS;

/// The shape of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Null,
    Boolean,
    Number,
    Text,
    List,
    Object,
}

/// The shape of a value, by its first character.
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

/// A place in a JSON text. A method that returns `None` leaves the place undefined.
#[derive(Debug)]
pub(crate) struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    /// Starts at the first value of a text.
    pub fn new(text: &'a str) -> Self {
        Self::starting_at(text, 0)
    }

    /// Starts at a place in a text, in bytes, behind the space there.
    pub fn starting_at(text: &'a str, at: usize) -> Self {
        let mut scanner = Self { text, at };
        scanner.skip_spaces();
        scanner
    }

    /// Moves to another place, in bytes.
    pub fn go_to(&mut self, at: usize) {
        self.at = at;
    }

    /// Returns true if only space is left.
    pub fn is_at_end(&mut self) -> bool {
        self.skip_spaces();
        self.at == self.text.len()
    }

    /// The current place, in bytes.
    pub fn at(&self) -> usize {
        self.at
    }

    /// The byte at the current place.
    #[inline]
    pub fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Reads an object. `read` is called with each name, as it is written between its quotes, and must read the value
    /// that follows.
    pub fn each_member(&mut self, mut read: impl FnMut(&mut Self, &'a str) -> Option<()>) -> Option<()> {
        self.take(b'{')?;
        if self.peek()? == b'}' {
            return self.take(b'}');
        }
        loop {
            let name = self.name()?;
            read(self, name)?;
            if !self.is_followed(b'}')? {
                return Some(());
            }
        }
    }

    /// Reads the rest of an object, from behind one of its values.
    pub fn rest_of_object(&mut self) -> Option<()> {
        while self.is_followed(b'}')? {
            self.name()?;
            self.value()?;
        }
        Some(())
    }

    /// Reads a list. `read` is called at each item and must read it.
    pub fn each_item(&mut self, mut read: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.take(b'[')?;
        if self.peek()? == b']' {
            return self.take(b']');
        }
        loop {
            read(self)?;
            if !self.is_followed(b']')? {
                return Some(());
            }
        }
    }

    /// Reads a value of any kind and returns its text.
    pub fn value(&mut self) -> Option<&'a str> {
        let start = self.at;
        match self.peek()? {
            b'{' | b'[' => self.skip_container()?,
            _ => self.skip_scalar()?,
        }
        self.text.get(start..self.at)
    }

    /// Takes the comma behind a value, or the end of its container. Returns true if another value follows.
    fn is_followed(&mut self, end: u8) -> Option<bool> {
        self.skip_spaces();
        let is_followed = self.peek()? == b',';
        self.take(if is_followed { b',' } else { end })?;
        Some(is_followed)
    }

    /// Takes this byte and the space behind it.
    #[inline]
    fn take(&mut self, byte: u8) -> Option<()> {
        if self.peek()? != byte {
            return None;
        }
        self.at += 1;
        self.skip_spaces();
        Some(())
    }

    #[inline]
    fn skip_spaces(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    /// Takes a member's name and its colon; returns the name.
    fn name(&mut self) -> Option<&'a str> {
        let start = self.at + 1;
        self.skip_text()?;
        let name = self.text.get(start..self.at - 1)?;
        self.skip_spaces();
        self.take(b':')?;
        Some(name)
    }

    /// The same without a slice, which costs a tenth of a page with nested records.
    fn skip_name(&mut self) -> Option<()> {
        self.skip_text()?;
        self.skip_spaces();
        self.take(b':')
    }

    /// A loop and not a recursion, so no depth of nesting overflows the stack.
    fn skip_container(&mut self) -> Option<()> {
        // The innermost container is the lowest bit; an object is a one.
        let (mut objects, mut depth) = (0_u64, 0);
        loop {
            let opened = self.peek()?;
            if let b'{' | b'[' = opened {
                if depth == DEPTH_MAX {
                    return None;
                }
                (objects, depth) = (objects << 1 | u64::from(opened == b'{'), depth + 1);
                self.take(opened)?;
                if self.peek()? != end_of(objects) {
                    if opened == b'{' {
                        self.skip_name()?;
                    }
                    continue;
                }
            } else {
                self.skip_scalar()?;
                self.skip_spaces();
            }
            // Behind a value, or in an empty container.
            while self.peek()? == end_of(objects) {
                self.at += 1;
                (objects, depth) = (objects >> 1, depth - 1);
                if depth == 0 {
                    return Some(());
                }
                self.skip_spaces();
            }
            self.take(b',')?;
            if objects & 1 == 1 {
                self.skip_name()?;
            }
        }
    }

    fn skip_scalar(&mut self) -> Option<()> {
        match self.peek()? {
            b'"' => self.skip_text(),
            b't' => self.skip_word("true"),
            b'f' => self.skip_word("false"),
            b'n' => self.skip_word("null"),
            _ => self.skip_number(),
        }
    }

    fn skip_word(&mut self, word: &str) -> Option<()> {
        self.text.as_bytes().get(self.at..)?.starts_with(word.as_bytes()).then(|| self.at += word.len())
    }

    /// Skips a text with its quotes.
    fn skip_text(&mut self) -> Option<()> {
        let bytes = self.text.as_bytes();
        if self.peek()? != b'"' {
            return None;
        }
        self.at += 1;
        loop {
            self.skip_plain(bytes);
            self.at += match bytes.get(self.at)? {
                b'"' => {
                    self.at += 1;
                    return Some(());
                }
                b'\\' => match bytes.get(self.at + 1)? {
                    b'u' if bytes.get(self.at + 2..self.at + 6)?.iter().all(u8::is_ascii_hexdigit) => 6,
                    b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => 2,
                    _ => return None,
                },
                0..b' ' => return None,
                _ => 1,
            };
        }
    }

    /// Skips to the next quote, backslash or control character, or until less than a chunk is left.
    #[inline]
    fn skip_plain(&mut self, bytes: &[u8]) {
        while let Some(chunk) = bytes.get(self.at..).and_then(|rest| rest.first_chunk()) {
            match special_bytes(chunk) {
                0 => self.at += CHUNK_BYTES,
                found => return self.at += found.trailing_zeros() as usize,
            }
        }
    }

    fn skip_number(&mut self) -> Option<()> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        let is_zero = self.peek() == Some(b'0');
        if self.skip_digits()? > 1 && is_zero {
            return None;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.skip_digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'-' | b'+') = self.peek() {
                self.at += 1;
            }
            self.skip_digits()?;
        }
        Some(())
    }

    /// Skips at least one digit; returns how many.
    fn skip_digits(&mut self) -> Option<usize> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        Some(self.at - start).filter(|digits| *digits > 0)
    }
}

/// The last byte of the innermost container.
fn end_of(objects: u64) -> u8 {
    if objects & 1 == 1 { b'}' } else { b']' }
}

#[cfg(test)]
mod tests;
