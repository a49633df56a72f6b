//! Finds identifiers in texts and in raw bytes, in every spelling.
//!
//! In a *text* (the value of a column, or a page) an identifier matches only as a complete word: `anna@example.com` is
//! not in `joanna@example.com`. JSON and percent escapes are undone first, and letters are composed. In *raw bytes* (a
//! file of unknown format) an identifier matches anywhere. A visitor's number looks like any other number, so texts and
//! raw bytes are never searched for it. Callers find the number in the columns and fields that contain visitor numbers.

use std::{
    collections::{BTreeSet, HashSet},
    io::{self, Read},
    ops::Range,
    sync::LazyLock,
};

use super::{
    decoded_text::{DecodedText, can_hide_value, may_have_ace_label, must_be_escaped},
    patterns::{Patterns, is_distinctive, raw_spellings},
};
use crate::{
    model::{Identifier, IdentifierKind, Spellings, composed, folded},
    schema::tables,
};

/// Replaces an identifier in the text of another person.
pub const ERASED: &str = "[erased]";
/// Identifiers shorter than this match in a text only if they are the complete text, or stand between two quotes.
const UNQUOTED_BYTES_MIN: usize = 4;
/// Number of bytes of a file that are read at a time.
const READ_BYTES: usize = 1 << 20;
/// Letters beyond ASCII whose composed form is an ASCII letter.
const COMPOSED_TO_ASCII: [&str; 3] = ["\u{212a}", "\u{37e}", "\u{1fef}"];

/// Searches for a set of identifiers. Expensive to build.
#[derive(Clone, Debug)]
pub struct IdentifierMatcher {
    /// The identifiers that texts are searched for.
    identifiers: Vec<Identifier>,
    /// The case-folded values of `identifiers`, in the same order.
    folded_values: Patterns,
    fields: FieldTest,
    /// All spellings of the identifiers that raw bytes are searched for.
    raw_spellings: Patterns,
    /// Length of the longest of `raw_spellings`, in bytes.
    raw_spelling_bytes_max: usize,
    /// See [`IdentifierMatcher::not_in_texts`].
    not_in_texts: usize,
    /// See [`IdentifierMatcher::not_in_bytes`].
    not_in_bytes: usize,
}

impl IdentifierMatcher {
    /// Creates a matcher for these identifiers.
    pub fn new(identifiers: &[Identifier]) -> IdentifierMatcher {
        IdentifierMatcher::with_spellings(identifiers, &Spellings::new())
    }

    /// Creates a matcher for these identifiers and their known spellings.
    pub fn with_spellings(identifiers: &[Identifier], spellings: &Spellings) -> IdentifierMatcher {
        let is_searched =
            |identifier: &&Identifier| identifier.is_searchable() && !is_word_of_contracts(&identifier.value);
        let searched: Vec<Identifier> = identifiers.iter().filter(is_searched).cloned().collect();
        let folded_values: Vec<String> = searched.iter().map(|identifier| folded(&identifier.value)).collect();
        let distinctive: Vec<_> = searched.iter().filter(|identifier| is_distinctive(&identifier.value)).collect();
        let raw: BTreeSet<String> =
            distinctive.iter().flat_map(|identifier| raw_spellings(identifier, spellings)).collect();
        IdentifierMatcher {
            folded_values: Patterns::new(&folded_values),
            fields: FieldTest::new(identifiers),
            raw_spelling_bytes_max: raw.iter().map(String::len).max().unwrap_or(0),
            raw_spellings: Patterns::new(&raw.into_iter().collect::<Vec<_>>()),
            not_in_texts: identifiers.len() - searched.len(),
            not_in_bytes: identifiers.len() - distinctive.len(),
            identifiers: searched,
        }
    }

    /// Returns the number of identifiers that texts are not searched for: numbers, and words that the service itself
    /// uses. Such identifiers are found in columns and fields only.
    pub fn not_in_texts(&self) -> usize {
        self.not_in_texts
    }

    /// Returns the number of identifiers that raw bytes are not searched for: the same as for texts, and short
    /// identifiers, which occur in any file by chance.
    pub fn not_in_bytes(&self) -> usize {
        self.not_in_bytes
    }

    /// Returns true if the text contains an identifier.
    pub fn is_in_text(&self, text: &[u8]) -> bool {
        !self.ranges(text).is_empty()
    }

    /// Like [`IdentifierMatcher::redacted_bytes`], for a text.
    pub fn redacted(&self, text: &str) -> Option<String> {
        // Start and end of a range are between two characters, because identifiers and escapes consist of whole
        // characters.
        self.redacted_bytes(text.as_bytes()).map(|redacted| String::from_utf8_lossy(&redacted).into_owned())
    }

    /// Replaces each identifier in the text with [`ERASED`]. Returns `None` if the text contains no identifier.
    /// Identifiers that overlap are replaced together: a user id can be the beginning of a mail address. All other
    /// bytes stay, also bytes that are not UTF-8.
    pub fn redacted_bytes(&self, text: &[u8]) -> Option<Vec<u8>> {
        let mut ranges = self.ranges(text);
        ranges.sort_unstable_by_key(|range| (range.start, range.end));
        let (mut redacted, mut done) = (Vec::with_capacity(text.len()), 0);
        for range in &ranges {
            if let Some(kept) = text.get(done..range.start) {
                redacted.extend(kept);
                redacted.extend(ERASED.bytes());
            }
            done = done.max(range.end);
        }
        redacted.extend(text.get(done..).unwrap_or_default());
        (!ranges.is_empty()).then_some(redacted)
    }

    /// Returns the ranges of the text that spell an identifier: plain, with JSON escapes, or also percent-encoded. JSON
    /// in a text inside JSON is escaped several times. The ranges are unsorted, and can overlap.
    fn ranges(&self, text: &[u8]) -> Vec<Range<usize>> {
        let mut ranges = Vec::new();
        if !self.may_be_in(text) {
            return ranges;
        }
        if std::str::from_utf8(text).is_err() {
            let decoded = DecodedText::from_bytes(text);
            return self.ranges(&decoded.bytes).into_iter().map(|range| decoded.source_range(range)).collect();
        }
        self.find(text, |range| ranges.push(range));
        if !text.contains(&b'\\') && !text.contains(&b'%') {
            return ranges;
        }
        let mut decoded = DecodedText::from_json(text);
        loop {
            self.find(&decoded.bytes, |range| ranges.push(decoded.source_range(range)));
            if decoded.bytes.contains(&b'%') {
                let percent = decoded.percent_decoded();
                self.find(&percent.bytes, |range| ranges.push(percent.source_range(range)));
            }
            let inner = decoded.json_decoded();
            if inner.bytes.len() == decoded.bytes.len() {
                return ranges;
            }
            decoded = inner;
        }
    }

    /// Calls `found` with the range of each identifier in the text. Does not undo escapes.
    fn find(&self, text: &[u8], mut found: impl FnMut(Range<usize>)) {
        let folded = self.fields.may_be_folded(text).then(|| DecodedText::folded(text));
        let searched = folded.as_ref().map_or(text, |folded| &folded.bytes);
        self.folded_values.each_in(searched, |pattern, hit| {
            let source = folded.as_ref().map_or_else(|| hit.clone(), |folded| folded.source_range(hit.clone()));
            let spelling = text.get(source.clone()).unwrap_or_default();
            let identifier = self.identifiers.get(pattern);
            if identifier.is_some_and(|identifier| is_match(identifier, searched, hit, spelling)) {
                found(source);
            }
        });
    }

    /// Returns false if the text certainly contains no identifier. The fast test of every search of a text: a result of
    /// true proves nothing.
    pub fn may_be_in(&self, text: &[u8]) -> bool {
        text.contains(&b'%')
            || can_hide_value(text, self.fields.has_escaped)
            || self.fields.may_be_folded(text)
            || self.folded_values.any_in(text)
    }

    /// Like [`FieldTest::may_be_a_field`].
    pub fn may_be_a_field(&self, text: &[u8]) -> bool {
        self.fields.may_be_a_field(text)
    }

    /// Returns true if the bytes contain an identifier in any spelling, also within a longer word.
    pub fn has_bytes_in(&self, bytes: &[u8]) -> bool {
        self.raw_spellings.any_in(bytes)
    }

    /// Counts the occurrences of the identifiers in raw bytes, in any spelling. Leaves out the identifiers that
    /// [`IdentifierMatcher::not_in_bytes`] counts. Returns the count and the number of bytes that were read.
    pub fn count_in_raw(&self, mut input: impl Read) -> io::Result<(u64, u64)> {
        let (mut hits, mut total, mut kept) = (0, 0, 0);
        let overlap = self.raw_spelling_bytes_max.saturating_sub(1);
        let mut buffer = vec![0; READ_BYTES + overlap];
        loop {
            let read = match input.read(&mut buffer[kept..]) {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if read == 0 {
                return Ok((hits, total));
            }
            total += read as u64;
            let filled = kept + read;
            // The buffer begins with the last `kept` bytes of the previous round. A hit that ends within them was
            // counted in that round.
            self.raw_spellings.each_in(&buffer[..filled], |_, hit| hits += u64::from(hit.end > kept));
            kept = overlap.min(filled);
            buffer.copy_within(filled - kept..filled, 0);
        }
    }
}

/// A fast test for identifiers in the fields of records.
#[derive(Clone, Debug)]
pub struct FieldTest {
    /// The values of all identifiers, including numbers, as fields contain them.
    values: Patterns,
    /// True if a value contains a character that JSON writes with a backslash.
    has_escaped: bool,
    /// True if a value contains letters beyond ASCII, which have several spellings.
    has_non_ascii: bool,
    /// True if an identifier is a mail address, whose domain has several spellings.
    has_emails: bool,
}

impl FieldTest {
    /// Creates the test for these identifiers.
    pub fn new<'a>(identifiers: impl IntoIterator<Item = &'a Identifier>) -> FieldTest {
        let (kinds, values): (BTreeSet<_>, Vec<_>) =
            identifiers.into_iter().map(|identifier| (identifier.kind, identifier.value.clone())).unzip();
        FieldTest {
            values: Patterns::new(&field_spellings(&values)),
            has_escaped: values.iter().any(|value| value.contains(must_be_escaped)),
            has_non_ascii: values.iter().any(|value| !value.is_ascii()),
            has_emails: kinds.contains(&IdentifierKind::Email),
        }
    }

    /// Returns false if certainly no field of a record in the text contains an identifier, including numbers. A result
    /// of true proves nothing.
    pub fn may_be_a_field(&self, text: &[u8]) -> bool {
        let may_have_domain = self.has_emails && !text.is_ascii();
        may_have_domain
            || can_hide_value(text, self.has_escaped)
            || self.may_be_folded(text)
            || self.values.any_in(text)
    }

    /// Returns true if the text may contain an identifier in letters that folding changes.
    fn may_be_folded(&self, text: &[u8]) -> bool {
        self.has_non_ascii && (!text.is_ascii() || may_have_ace_label(text))
    }
}

/// Returns the patterns of a fast test: every ASCII field with one of these values contains at least one pattern. The
/// patterns are the values, UUIDs without hyphens, and letters that become ASCII when they are composed.
fn field_spellings(values: &[String]) -> Vec<String> {
    let simple = values.iter().filter(|value| uuid::Uuid::try_parse(value).is_ok()).map(|value| value.replace('-', ""));
    values.iter().cloned().chain(simple).chain(COMPOSED_TO_ASCII.map(str::to_owned)).collect()
}

/// Returns true if a contract uses the value as the name of a field, a column or an enumeration's value. A word of a
/// contract must not be replaced in a page.
fn is_word_of_contracts(value: &str) -> bool {
    static WORDS: LazyLock<HashSet<&str>> = LazyLock::new(|| {
        let columns = tables().iter().flat_map(|table| &table.columns);
        let words = columns.flat_map(|column| {
            let path = column.json.as_deref().unwrap_or_default().split('.');
            path.chain([column.name.as_str()]).chain(column.values.iter().map(String::as_str))
        });
        words.chain(["cursor", "data"]).collect()
    });
    WORDS.contains(value)
}

/// Returns true if a hit in a text is the identifier and not a part of a longer word. `spelling` are the bytes of the
/// hit before folding, because user ids and anonymous ids match only in their exact case.
fn is_match(identifier: &Identifier, text: &[u8], hit: Range<usize>, spelling: &[u8]) -> bool {
    let has_case = matches!(identifier.kind, IdentifierKind::UserId | IdentifierKind::AnonymousId);
    if has_case && std::str::from_utf8(spelling).map(composed).as_deref() != Ok(identifier.value.as_str()) {
        return false;
    }
    let before = hit.start.checked_sub(1).and_then(|at| text.get(at)).copied();
    let (after, second_after) = (text.get(hit.end).copied(), text.get(hit.end + 1).copied());
    if identifier.value.len() < UNQUOTED_BYTES_MIN {
        return [before, after].into_iter().flatten().all(|byte| byte == b'"');
    }
    let is_word = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if identifier.kind == IdentifierKind::Email {
        let is_longer_domain = after == Some(b'-') || (after == Some(b'.') && is_word(second_after));
        let is_longer_name = before.is_some_and(|byte| b".+-".contains(&byte));
        return !is_word(before) && !is_longer_name && !is_word(after) && !is_longer_domain;
    }
    !is_word(before) && !is_word(after)
}

#[cfg(test)]
mod tests;
