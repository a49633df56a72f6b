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
mod tests {
    use super::*;

    fn matcher(named: &[(IdentifierKind, &str)]) -> IdentifierMatcher {
        let identifiers: Vec<_> =
            named.iter().map(|(kind, text)| Identifier::read(*kind, text).expect("names somebody")).collect();
        IdentifierMatcher::new(&identifiers)
    }

    const MAIL: (IdentifierKind, &str) = (IdentifierKind::Email, "zoë+a@example.com");

    #[test]
    fn p9_every_spelling_is_found_in_a_text() {
        let matcher = matcher(&[MAIL, (IdentifierKind::VisitorUuid, "2F1C9D6E-0B7A-4C55-9A40-1D2E3F405162")]);
        for text in [
            "zoë+a@example.com",
            "write to ZOË+A@Example.COM.",
            r#"{"mail":"zo\u00eb\u002ba@example.com"}"#,
            r#"{"mail":"\nzo\u00EB+a@example.com"}"#,
            r#"{"attributes":"{\"mail\":\"zo\\u00EB+a@example.com\"}"}"#,
            r#"{"a":"{\"b\":\"{\\\"mail\\\":\\\"zo\\\\u00EB%2Ba@example.com\\\"}\"}"}"#,
            r"a reject: zo\xeb+a@example.com",
            "https://x.example/?m=zo%C3%AB%2Ba%40example.com&b=1",
            r"https:\/\/x.example\/?m=zo%c3%ab%2Ba@example.com",
            "連絡はzoë+a@example.comまで",
            "v=2f1c9d6e-0B7A-4c55-9a40-1d2e3f405162",
        ] {
            assert!(matcher.is_in_text(text.as_bytes()) && matcher.may_be_in(text.as_bytes()), "{text}");
            let redacted = matcher.redacted(text).unwrap();
            assert!(redacted.contains(ERASED) && !matcher.is_in_text(redacted.as_bytes()), "{text}: {redacted}");
        }
    }

    #[test]
    fn p9_an_identifier_with_control_characters_is_found() {
        let matcher = matcher(&[(IdentifierKind::UserId, "bob\t77\n")]);
        for text in [r#"{"userId":"bob\t77\n"}"#, r#"{"userId":"bob\u000977\u000A"}"#, r"of bob\t77\n"] {
            assert!(matcher.may_be_a_field(text.as_bytes()) && matcher.may_be_in(text.as_bytes()), "{text}");
            assert!(matcher.is_in_text(text.as_bytes()), "{text}");
            assert!(matcher.count_in_raw(text.as_bytes()).unwrap().0 > 0, "{text}");
        }
    }

    #[test]
    fn p9_an_identifier_in_latin1_is_found_and_all_other_bytes_stay() {
        let matcher = matcher(&[MAIL]);
        let text = b"\xe9: ZO\xcb+a@example.com, zo\xc3\xab+a@example.com \xff";
        assert!(matcher.may_be_in(text) && matcher.is_in_text(text));
        assert_eq!(matcher.redacted_bytes(text).unwrap(), b"\xe9: [erased], [erased] \xff");
        assert_eq!(matcher.redacted_bytes(b"\xe9: Zo\xe9+a@example.com"), None);
    }

    #[test]
    fn p9_composed_and_decomposed_letters_are_found() {
        let matcher = matcher(&[
            (IdentifierKind::Email, "jürgen.öz@exämple.de"),
            (IdentifierKind::UserId, "Tiến-4711"),
            (IdentifierKind::Email, "νίκος@x.gr"),
        ]);
        for (text, rest) in [
            ("to JÜRGEN.öz@Exämple.de!", "to [erased]!"),
            ("to ju\u{308}rgen.O\u{308}z@exa\u{308}mple.de, b", "to [erased], b"),
            ("to jürgen.öz@xn--exmple-cua.de.", "to [erased]."),
            ("to jürgen.o\u{308}z@XN--EXMPLE-CUA.DE/", "to [erased]/"),
            (r#"{"a":"ju\u0308rgen.o\u0308z@xn--exmple-cua.de"}"#, r#"{"a":"[erased]"}"#),
            (r#"{"a":"j\u00fcrgen.o\u0308z@exa\u0308mple.de\n"}"#, r#"{"a":"[erased]\n"}"#),
            ("?m=ju%CC%88rgen.%c3%b6z%40exa%cc%88mple.de&b", "?m=[erased]&b"),
            ("Tie\u{302}\u{301}n-4711 or Ti\u{ea}\u{301}n-4711.", "[erased] or [erased]."),
            ("ΝΊΚΟΣ@x.gr", "[erased]"),
        ] {
            let is_a_field = matcher.may_be_a_field(text.as_bytes()) || text.starts_with('?');
            assert!(matcher.may_be_in(text.as_bytes()) && is_a_field, "{text}");
            assert_eq!(matcher.redacted(text).as_deref(), Some(rest), "{text}");
        }
        for text in [
            "jurgen.oz@example.de",
            "TIẾN-4711",
            "Tien-4711",
            "ti\u{1ebf}n-4711",
            "ajürgen.öz@exämple.de",
            "jürgen.öz@exämple.dex",
        ] {
            assert_eq!(matcher.redacted(text), None, "{text}");
        }
    }

    #[test]
    fn p9_the_fast_test_of_fields_knows_every_parsed_spelling() {
        let uuid = "2f1c9d6e-0b7a-4c55-9a40-1d2e3f405162";
        for (kind, value, written) in [
            (IdentifierKind::VisitorUuid, uuid, "2F1C9D6E0B7A4C559A401D2E3F405162"),
            (IdentifierKind::Session, uuid, "{2f1c9d6e-0b7a-4c55-9a40-1d2e3f405162}"),
            (IdentifierKind::UserId, "K-1", "\u{212a}-1"),
            (IdentifierKind::UserId, "a;b", "a\u{37e}b"),
        ] {
            let identifier = Identifier::read(kind, written).unwrap();
            assert_eq!(Some(&identifier), Identifier::read(kind, value).as_ref(), "{written}");
            let field = format!(r#"{{"id":"{written}"}}"#);
            assert!(IdentifierMatcher::new(&[identifier]).may_be_a_field(field.as_bytes()), "{written}");
        }
        // The table contains all letters that are composed to ASCII, and no others.
        let composed: Vec<String> = ('\u{80}'..=char::MAX)
            .map(String::from)
            .filter(|letter| crate::model::composed(letter).is_ascii())
            .collect();
        assert_eq!(composed.len(), COMPOSED_TO_ASCII.len(), "{composed:?}");
        assert!(COMPOSED_TO_ASCII.iter().all(|letter| composed.iter().any(|found| found == letter)));
    }

    #[test]
    fn p9_raw_bytes_are_searched_for_every_spelling() {
        let mail = Identifier::read(IdentifierKind::Email, "jürgen@exämple.de").unwrap();
        let odd = "ju\u{308}rgen@ｅｘämple.de";
        let spellings = Spellings::from([(mail.clone(), [odd.to_owned()].into())]);
        let matcher = IdentifierMatcher::with_spellings(&[mail], &spellings);
        for text in [
            "jürgen@exämple.de",
            "ju\u{308}rgen@exa\u{308}mple.de",
            "JU\u{308}RGEN@XN--EXMPLE-CUA.DE",
            "jürgen@xn--exmple-cua.de",
            r"ju\u0308rgen@exa\u0308mple.de",
            "ju%cc%88rgen%40xn--exmple-cua.de",
            odd,
        ] {
            assert_eq!(matcher.count_in_raw(text.as_bytes()).unwrap().0, 1, "{text}");
        }
    }

    #[test]
    fn p9_a_longer_identifier_of_another_person_is_not_found() {
        let matcher = matcher(&[
            (IdentifierKind::Email, "a@x.de"),
            (IdentifierKind::UserId, "user-000123"),
            (IdentifierKind::UserId, "b7"),
            (IdentifierKind::VisitorId, "5"),
        ]);
        for text in ["maria@x.de", "j.a@x.de", "a@x.des", "a@x.de.example", "user-0001234", "User-000123", "b7 5", "5"]
        {
            assert!(!matcher.is_in_text(text.as_bytes()), "{text}");
            assert_eq!(matcher.redacted(text), None);
        }
        for text in ["a@x.de", "<a@x.de>, b", "user-000123-b", "b7", r#"{"id":"b7"}"#] {
            assert!(matcher.is_in_text(text.as_bytes()), "{text}");
        }
        assert_eq!(
            matcher.redacted("to a@x.de, a@x.de and maria@x.de").unwrap(),
            "to [erased], [erased] and maria@x.de"
        );
    }

    #[test]
    fn p9_identifiers_that_overlap_are_replaced_together() {
        let matcher = matcher(&[
            (IdentifierKind::UserId, "anna.smith"),
            (IdentifierKind::Email, "anna.smith@example.org"),
            (IdentifierKind::UserId, "example.org:7"),
            (IdentifierKind::UserId, "shop:anna.smith"),
        ]);
        for (text, rest) in [
            ("to anna.smith@example.org, anna.smith.", "to [erased], [erased]."),
            ("anna.smith@example.org:7 left", "[erased] left"),
            (r#"{"id":"shop:anna.smith@example.org"}"#, r#"{"id":"[erased]"}"#),
            ("?u=anna.smith%40example.org&v", "?u=[erased]&v"),
        ] {
            assert_eq!(matcher.redacted(text).as_deref(), Some(rest), "{text}");
            assert!(!matcher.is_in_text(rest.as_bytes()), "{rest}");
        }
    }

    #[test]
    fn p9_numbers_and_service_words_do_not_match_in_texts() {
        let matcher = matcher(&[
            (IdentifierKind::UserId, "4711000"),
            (IdentifierKind::UserId, "responseGroupUid"),
            (IdentifierKind::UserId, "true"),
            (IdentifierKind::UserId, "annamaria"),
        ]);
        let page = r#"{"data":[{"response":4711000,"responseGroupUid":"g","is":true,"note":"4711000"}]}"#;
        assert_eq!(matcher.redacted(page), None);
        assert_eq!((matcher.not_in_texts(), matcher.not_in_bytes()), (3, 4));
        assert!(matcher.may_be_a_field(page.as_bytes()), "fields are searched for numbers");
        assert!(matcher.is_in_text(b"annamaria") && matcher.count_in_raw(&b"annamaria"[..]).unwrap().0 == 0);
    }

    #[test]
    fn p9_raw_bytes_are_searched_across_reads() {
        let matcher = matcher(&[MAIL, (IdentifierKind::UserId, "short")]);
        let spelled = ["zoë+a@example.com", r"zo\u00EB+a@example.com", "zo%C3%AB%2Ba%40example.com"];
        for spelling in spelled {
            let mut bytes = vec![0xffu8; READ_BYTES - 7];
            bytes.extend(spelling.as_bytes());
            bytes.extend([0; 100]);
            bytes.extend(spelling.as_bytes());
            let length = bytes.len() as u64;
            assert_eq!(matcher.count_in_raw(bytes.as_slice()).unwrap(), (2, length), "{spelling}");
            // The same with small reads.
            struct Slow<'a>(&'a [u8]);
            impl Read for Slow<'_> {
                fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
                    let count = self.0.len().min(5).min(into.len());
                    let (now, later) = self.0.split_at(count);
                    into[..count].copy_from_slice(now);
                    self.0 = later;
                    Ok(count)
                }
            }
            let tail = &bytes[READ_BYTES - 50..];
            assert_eq!(matcher.count_in_raw(Slow(tail)).unwrap().0, 2, "{spelling}");
        }
        assert_eq!((matcher.not_in_bytes(), matcher.count_in_raw(&b"short"[..]).unwrap().0), (1, 0));
    }
}
