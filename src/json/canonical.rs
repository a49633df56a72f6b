//! The canonical spelling of JSON values, by which values are compared and hashed. Two texts have the same canonical
//! spelling if they are the same value: the order of members, whitespace, escapes, and the notation of numbers do not
//! matter. The order of items in a list does.
//!
//! A value that was sent compactly, with sorted members and without needless escapes, is its own canonical spelling.
//! Members with the same name stay in the order sent, because readers use the first or the last of them. Numbers are
//! compared exactly, as decimals: integers beyond the range of a double stay distinct.

use std::ops::Range;

use xxhash_rust::xxh3::xxh3_64;

use super::{Scanner, values::unicode_escape};

/// Maximum nesting of a value whose spelling is changed. A more deeply nested value is compared by its text.
const DEPTH_MAX: usize = 64;
/// Maximum length of a number that is written without an exponent.
const PLAIN_DIGITS_MAX: i64 = 64;
/// Maximum number of zeros between the point and the first other digit of a number that is written without an exponent.
const LEADING_ZEROS_MAX: i64 = 6;

/// Appends the canonical spelling of a JSON text. In members of the outermost object that `links` names, the query
/// string of a link is left out: what follows `?`. Appends a text that is not JSON unchanged.
pub(crate) fn write_canonical(raw: &str, links: &[String], out: &mut Vec<u8>) {
    let start = out.len();
    let (mut scanner, mut writer) = (Scanner::new(raw), Writer { out, members: Vec::new(), links });
    let is_written = writer.value(&mut scanner, 0).is_some() && scanner.is_at_end();
    if !is_written {
        out.truncate(start);
        out.extend_from_slice(raw.as_bytes());
    }
}

/// Returns the hash of the canonical spelling of a JSON text. `buffer` is overwritten.
pub(crate) fn canonical_hash(raw: &str, buffer: &mut Vec<u8>) -> i64 {
    buffer.clear();
    write_canonical(raw, &[], buffer);
    xxh3_64(buffer).cast_signed()
}

/// Returns true if two JSON texts have the same value. Texts that are not JSON must be equal. `links` as for
/// [`write_canonical`].
pub(crate) fn is_same_value(left: &str, right: &str, links: &[String]) -> bool {
    let canonical = |raw: &str| {
        let mut out = Vec::with_capacity(raw.len());
        write_canonical(raw, links, &mut out);
        out
    };
    left == right || canonical(left) == canonical(right)
}

/// Returns true if the text is its own canonical spelling. `links` as for [`write_canonical`].
pub(crate) fn is_canonical(raw: &str, links: &[String]) -> bool {
    let mut out = Vec::with_capacity(raw.len());
    write_canonical(raw, links, &mut out);
    out == raw.as_bytes()
}

/// Returns the value of a link without its query string, which a service may sign anew for each request.
pub(crate) fn without_query(link: &str) -> &str {
    link.split_once('?').map_or(link, |(path, _)| path)
}

/// Writes values in canonical spelling.
struct Writer<'o> {
    out: &'o mut Vec<u8>,
    /// The written members of all open objects, outermost object first.
    members: Vec<Member>,
    links: &'o [String],
}

/// A member of an open object: the ranges of its quoted name and of its complete text in the output.
#[derive(Clone, Debug)]
struct Member {
    name: Range<usize>,
    end: usize,
}

impl Writer<'_> {
    /// Reads the value at the scanner and writes it. Returns `None` if the scanner refuses the text, or if the value is
    /// nested too deeply.
    fn value(&mut self, scanner: &mut Scanner<'_>, depth: usize) -> Option<()> {
        match scanner.peek()? {
            b'{' | b'[' if depth == DEPTH_MAX => return None,
            b'{' => self.object(scanner, depth)?,
            b'[' => self.list(scanner, depth)?,
            b'"' => {
                let raw = scanner.value()?;
                self.string(raw.get(1..raw.len() - 1)?);
            }
            b'-' | b'0'..=b'9' => write_number(scanner.value()?, self.out),
            _ => self.out.extend_from_slice(scanner.value()?.as_bytes()),
        }
        Some(())
    }

    fn list(&mut self, scanner: &mut Scanner<'_>, depth: usize) -> Option<()> {
        self.out.push(b'[');
        let start = self.out.len();
        scanner.each_item(|scanner| {
            if self.out.len() > start {
                self.out.push(b',');
            }
            self.value(scanner, depth + 1)
        })?;
        self.out.push(b']');
        Some(())
    }

    fn object(&mut self, scanner: &mut Scanner<'_>, depth: usize) -> Option<()> {
        self.out.push(b'{');
        let (start, first_member) = (self.out.len(), self.members.len());
        scanner.each_member(|scanner, name| {
            if self.out.len() > start {
                self.out.push(b',');
            }
            let name_start = self.out.len();
            self.string(name);
            let written_name = name_start..self.out.len();
            self.out.push(b':');
            let value_start = self.out.len();
            self.value(scanner, depth + 1)?;
            if depth == 0 && self.links.iter().any(|link| link == name) {
                self.cut_query(value_start);
            }
            self.members.push(Member { name: written_name, end: self.out.len() });
            Some(())
        })?;
        self.sort_members(start, first_member);
        self.members.truncate(first_member);
        self.out.push(b'}');
        Some(())
    }

    /// Removes the query string of the link that was written from `start` on. Does nothing for a value that is no text.
    fn cut_query(&mut self, start: usize) {
        let question_mark = self.out.iter().skip(start).position(|byte| *byte == b'?');
        if let (Some(b'"'), Some(length)) = (self.out.get(start), question_mark) {
            self.out.truncate(start + length);
            self.out.push(b'"');
        }
    }

    /// Sorts the written members of the innermost object by their names. `start` is where the first of them begins.
    fn sort_members(&mut self, start: usize, first_member: usize) {
        let name = |out: &[u8], member: &Member| out.get(member.name.clone()).unwrap_or_default().to_vec();
        let members = self.members.get(first_member..).unwrap_or_default();
        if members.is_sorted_by(|left, right| self.out.get(left.name.clone()) <= self.out.get(right.name.clone())) {
            return;
        }
        let mut sorted: Vec<(Vec<u8>, Range<usize>)> =
            members.iter().map(|member| (name(self.out, member), member.name.start..member.end)).collect();
        sorted.sort_by(|(left, _), (right, _)| left.cmp(right));
        let mut text = Vec::with_capacity(self.out.len() - start);
        for (index, (_, range)) in sorted.into_iter().enumerate() {
            if index > 0 {
                text.push(b',');
            }
            text.extend_from_slice(self.out.get(range).unwrap_or_default());
        }
        self.out.truncate(start);
        self.out.append(&mut text);
    }

    /// Writes a string. `inner` is the text between its quotes, escaped as sent.
    fn string(&mut self, inner: &str) {
        self.out.push(b'"');
        let mut rest = inner;
        while let Some((plain, escaped)) = rest.split_once('\\') {
            self.out.extend_from_slice(plain.as_bytes());
            rest = self.escape(escaped);
        }
        self.out.extend_from_slice(rest.as_bytes());
        self.out.push(b'"');
    }

    /// Writes the character of an escape, and returns the text behind the escape. `escaped` begins behind the
    /// backslash.
    fn escape<'t>(&mut self, escaped: &'t str) -> &'t str {
        let mut characters = escaped.chars();
        let character = match characters.next() {
            Some('n') => '\n',
            Some('t') => '\t',
            Some('r') => '\r',
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('u') => {
                let digits = characters.as_str();
                let (character, after) = unicode_escape(digits);
                match character {
                    Some(character) => self.character(character),
                    // A lone surrogate is no character and stays an escape.
                    None => {
                        let digits = digits.get(..digits.len() - after.len()).unwrap_or_default();
                        self.out.extend_from_slice(b"\\u");
                        self.out.extend_from_slice(digits.to_ascii_lowercase().as_bytes());
                    }
                }
                return after;
            }
            Some(itself) => itself,
            None => return "",
        };
        self.character(character);
        characters.as_str()
    }

    /// Writes a character of a string, with an escape if JSON requires one.
    fn character(&mut self, character: char) {
        match character {
            '"' | '\\' => self.out.extend_from_slice(&[b'\\', character as u8]),
            '\n' => self.out.extend_from_slice(b"\\n"),
            '\t' => self.out.extend_from_slice(b"\\t"),
            '\r' => self.out.extend_from_slice(b"\\r"),
            '\u{8}' => self.out.extend_from_slice(b"\\b"),
            '\u{c}' => self.out.extend_from_slice(b"\\f"),
            control @ '\0'..' ' => self.out.extend_from_slice(format!("\\u{:04x}", control as u32).as_bytes()),
            other => self.out.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

/// Writes a number: without an exponent, unless it is very large or small, and without digits that do not matter.
fn write_number(raw: &str, out: &mut Vec<u8>) {
    let unsigned = raw.strip_prefix('-').unwrap_or(raw);
    let is_plain = unsigned.len() <= PLAIN_DIGITS_MAX as usize && unsigned.bytes().all(|byte| byte.is_ascii_digit());
    if is_plain && raw != "-0" {
        return out.extend_from_slice(raw.as_bytes());
    }
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let (integer_part, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{integer_part}{fraction}");
    let significant = digits.trim_start_matches('0').trim_end_matches('0');
    if significant.is_empty() {
        return out.push(b'0');
    }
    let trailing_zeros = digits.len() - digits.trim_end_matches('0').len();
    // The value is `significant` times ten to the power of `exponent`.
    let exponent = exponent
        .parse::<i64>()
        .ok()
        .and_then(|exponent| exponent.checked_sub(fraction.len() as i64)?.checked_add(trailing_zeros as i64));
    let Some(exponent) = exponent else { return out.extend_from_slice(raw.as_bytes()) };
    if raw.starts_with('-') {
        out.push(b'-');
    }
    let length = significant.len() as i64;
    let point = length.saturating_add(exponent);
    let zeros = |count: i64| std::iter::repeat_n(b'0', usize::try_from(count).unwrap_or(0));
    if exponent >= 0 && point <= PLAIN_DIGITS_MAX {
        out.extend_from_slice(significant.as_bytes());
        out.extend(zeros(exponent));
    } else if exponent < 0 && point > 0 {
        let (integer_part, fraction) = significant.split_at(usize::try_from(point).unwrap_or(0));
        out.extend_from_slice(format!("{integer_part}.{fraction}").as_bytes());
    } else if exponent < 0 && point >= -LEADING_ZEROS_MAX {
        out.extend_from_slice(b"0.");
        out.extend(zeros(-point));
        out.extend_from_slice(significant.as_bytes());
    } else {
        out.extend_from_slice(format!("{significant}e{exponent}").as_bytes());
    }
}

#[cfg(test)]
mod tests;
