//! Takes JSON texts apart into slices, in one pass and without a copy: the hot half of reading a page. Reads single values as what columns
//! hold (`values`, `moments`).
//!
//! A [`Scanner`] accepts a part of what serde_json accepts, and gives the same slices for it; a test holds the one to the other. It says no more
//! than that it does not: whoever needs to know why, or has a text with another form of nesting or of escapes than services send, asks
//! serde_json. It looks for the end of a text sixteen bytes at once, and goes through no layers of a visitor for each value.

pub(crate) mod moments;
mod steers;
mod values;

use self::steers::{PIECE_BYTES, steers};
pub(crate) use self::values::{
    Entry, is_empty_container, read_boolean, read_digits, read_entries, read_integer, read_integers, read_items,
    read_number, read_text, shown, take_entries, unescaped,
};

/// Containers within one another that are followed: one bit for each.
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

/// A JSON text, and a place in it. After `None` the place means nothing.
#[derive(Debug)]
pub(crate) struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    /// At the beginning of a text.
    pub fn new(text: &'a str) -> Self {
        Self::starting_at(text, 0)
    }

    /// At a place in a text, in bytes, or behind the space there.
    pub fn starting_at(text: &'a str, at: usize) -> Self {
        let mut scanner = Self { text, at };
        scanner.skip_spaces();
        scanner
    }

    /// Moves to another place, in bytes.
    pub fn go_to(&mut self, at: usize) {
        self.at = at;
    }

    /// Whether nothing is left but space.
    pub fn is_at_end(&mut self) -> bool {
        self.skip_spaces();
        self.at == self.text.len()
    }

    /// The place in the text, in bytes.
    pub fn at(&self) -> usize {
        self.at
    }

    /// The first byte of what stands here.
    #[inline]
    pub fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Reads an object: hands over each name, as it is written between its quotes, with the scanner at the value, which is to be read.
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
            self.skip_name()?;
            self.value()?;
        }
        Some(())
    }

    /// Reads a list: with the scanner at each item, which is to be read.
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

    /// Reads a value, and returns its text.
    pub fn value(&mut self) -> Option<&'a str> {
        let start = self.at;
        match self.peek()? {
            b'{' | b'[' => self.skip_container()?,
            _ => self.skip_scalar()?,
        }
        self.text.get(start..self.at)
    }

    /// Behind a value: takes a comma, or the end of its container. True if another value follows.
    fn is_followed(&mut self, end: u8) -> Option<bool> {
        self.skip_spaces();
        let is_followed = self.peek()? == b',';
        self.take(if is_followed { b',' } else { end })?;
        Some(is_followed)
    }

    /// Takes a byte, and the space behind it.
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

    /// A member's name and its colon.
    fn name(&mut self) -> Option<&'a str> {
        let start = self.at + 1;
        self.skip_text()?;
        let name = self.text.get(start..self.at - 1)?;
        self.take_colon()?;
        Some(name)
    }

    fn skip_name(&mut self) -> Option<()> {
        self.skip_text()?;
        self.take_colon()
    }

    fn take_colon(&mut self) -> Option<()> {
        self.skip_spaces();
        self.take(b':')
    }

    /// Not by recursion: no depth of nesting overflows the stack.
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
            // Behind a value, or in a container that holds nothing.
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

    /// A text with its quotes.
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

    /// To the next quote, backslash or control character, or near the end.
    #[inline]
    fn skip_plain(&mut self, bytes: &[u8]) {
        while let Some(piece) = bytes.get(self.at..).and_then(|rest| rest.first_chunk()) {
            match steers(piece) {
                0 => self.at += PIECE_BYTES,
                met => return self.at += met.trailing_zeros() as usize,
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

    /// At least one; says how many.
    fn skip_digits(&mut self) -> Option<usize> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        Some(self.at - start).filter(|digits| *digits > 0)
    }
}

/// How the innermost container ends.
fn end_of(objects: u64) -> u8 {
    if objects & 1 == 1 { b'}' } else { b']' }
}

#[cfg(test)]
mod tests;
