//! Finds identifiers in texts and in raw bytes, however they are spelled there.
//!
//! In a *text* (a value of a column, a page) an identifier counts where it stands alone: `anna@example.com` is not in
//! `joanna@example.com`. Escapes of JSON and of addresses are undone first, and letters composed. In *raw* bytes (a
//! file as it lies on the disk) nothing is known of borders, so it counts wherever its bytes are. A visitor's number
//! cannot be told from any other number: it is found by the columns and fields that hold it, never here.

use std::{
    collections::HashSet,
    io::{self, Read},
    ops::Range,
    sync::LazyLock,
};

use super::{
    decoded_text::{DecodedText, may_have_ace_label},
    patterns::Patterns,
};
use crate::{
    model::{Identifier, IdentifierKind, Spellings, composed, folded},
    schema::tables,
};

/// What takes the place of an identifier in somebody else's text.
pub const ERASED: &str = "[erased]";
/// Shorter identifiers are in any file by chance; in raw bytes they are not looked for.
const RAW_BYTES_MIN: usize = 6;
/// The same for words of nothing but letters: files name their columns in such.
const RAW_WORD_BYTES_MIN: usize = 12;
/// Shorter ones count in a text only where they are all of it, or all between two quotes.
const WITHIN_TEXT_BYTES_MIN: usize = 4;
/// Bytes of a file that are searched at once.
const READ_BYTES: usize = 1 << 20;

/// Looks for a set of identifiers. Cheap to share, not to build.
#[derive(Clone, Debug)]
pub struct IdentifierMatcher {
    identifiers: Vec<Identifier>,
    /// As [`DecodedText::folded`] makes them, in the order of the identifiers.
    plain: Patterns,
    /// As they are, and the numbers of visitors: what a field of a record holds.
    fields: Patterns,
    /// Whether some hold what JSON can only write with a backslash.
    has_quoted: bool,
    /// Whether some have letters beyond ASCII, which can be written in several ways.
    is_beyond_ascii: bool,
    /// Whether some are mail addresses, whose domain can be written with other letters.
    has_emails: bool,
    /// In every spelling.
    raw: Patterns,
    raw_bytes_max: usize,
    not_in_texts: usize,
    not_in_bytes: usize,
}

/// Letters that are composed to one of ASCII: texts with them are looked at whole.
const COMPOSED_TO_ASCII: [&str; 3] = ["\u{212a}", "\u{37e}", "\u{1fef}"];

/// What the bytes of a field hold that is read as one of these values, if all of its letters are ASCII's:
/// a UUID is the same without its hyphens.
fn as_in_fields(values: &[String]) -> Vec<String> {
    let simple = values.iter().filter(|value| uuid::Uuid::try_parse(value).is_ok()).map(|value| value.replace('-', ""));
    values.iter().cloned().chain(simple).chain(COMPOSED_TO_ASCII.map(str::to_owned)).collect()
}

impl IdentifierMatcher {
    /// A matcher of these identifiers.
    pub fn new(identifiers: &[Identifier]) -> IdentifierMatcher {
        IdentifierMatcher::with_spellings(identifiers, &Spellings::new())
    }

    /// The same, of identifiers of which it is known how they were written somewhere.
    pub fn with_spellings(identifiers: &[Identifier], spellings: &Spellings) -> IdentifierMatcher {
        let values: Vec<String> = identifiers.iter().map(|identifier| identifier.value.clone()).collect();
        let has_quoted = values.iter().any(|value| value.contains(['"', '\\']));
        let is_beyond_ascii = values.iter().any(|value| !value.is_ascii());
        let has_emails = identifiers.iter().any(|identifier| identifier.kind == IdentifierKind::Email);
        let all = identifiers.len();
        let is_searched =
            |identifier: &&Identifier| identifier.is_searchable() && !is_word_of_contracts(&identifier.value);
        let identifiers: Vec<Identifier> = identifiers.iter().filter(is_searched).cloned().collect();
        let plain: Vec<String> = identifiers.iter().map(|identifier| folded(&identifier.value)).collect();
        let distinctive = identifiers.iter().filter(|identifier| is_distinctive(&identifier.value));
        let mut raw: Vec<String> = distinctive
            .flat_map(|identifier| identifier.all_forms(spellings).into_iter().map(move |form| (identifier, form)))
            .flat_map(|(identifier, form)| cases(&form).into_iter().map(move |form| (identifier, form)))
            .flat_map(|(identifier, form)| spellings_of(identifier, &form))
            // The automaton takes both cases of ASCII's letters for one.
            .map(|spelling| spelling.to_ascii_lowercase())
            .collect();
        raw.sort();
        raw.dedup();
        let raw_bytes_max = raw.iter().map(String::len).max().unwrap_or(0);
        let not_in_bytes = identifiers.iter().filter(|identifier| !is_distinctive(&identifier.value)).count();
        let not_in_texts = all - identifiers.len();
        IdentifierMatcher {
            plain: Patterns::new(&plain),
            fields: Patterns::new(&as_in_fields(&values)),
            raw: Patterns::new(&raw),
            identifiers,
            has_quoted,
            is_beyond_ascii,
            has_emails,
            raw_bytes_max,
            not_in_texts,
            not_in_bytes: not_in_texts + not_in_bytes,
        }
    }

    /// Identifiers that cannot be told from other texts: numbers, and words that the service itself uses. They are
    /// looked for in columns and fields alone.
    pub fn not_in_texts(&self) -> usize {
        self.not_in_texts
    }

    /// Identifiers that are not looked for in raw bytes: those, and all that are in any file by chance.
    pub fn not_in_bytes(&self) -> usize {
        self.not_in_bytes
    }

    /// Whether the text holds one of them.
    pub fn is_in_text(&self, text: &[u8]) -> bool {
        self.with_ranges(text, |ranges| !ranges.is_empty())
    }

    /// The text with [`ERASED`] in the place of each of them; `None` if it holds none.
    pub fn redacted(&self, text: &str) -> Option<String> {
        let mut ranges = self.with_ranges(text.as_bytes(), <[_]>::to_vec);
        ranges.sort_unstable();
        let (mut redacted, mut done) = (String::new(), 0);
        for (start, end) in &ranges {
            // Both are borders of letters: an identifier begins and ends with whole ones, and so do escapes.
            if *start >= done
                && let Some(kept) = text.get(done..*start)
            {
                redacted.push_str(kept);
                redacted.push_str(ERASED);
                done = *end;
            }
        }
        redacted.push_str(text.get(done..).unwrap_or_default());
        (!ranges.is_empty()).then_some(redacted)
    }

    /// Where identifiers are spelled in the text.
    fn with_ranges<T>(&self, text: &[u8], take: impl FnOnce(&[(usize, usize)]) -> T) -> T {
        let mut ranges = Vec::new();
        self.find(text, |start, end| ranges.push((start, end)));
        let (has_escapes, has_percent) = (text.contains(&b'\\'), text.contains(&b'%'));
        if has_escapes || has_percent {
            let mut decoded = DecodedText::from_json(text);
            self.find(&decoded.bytes, |start, end| ranges.push(decoded.source_range(start, end)));
            if has_percent || decoded.bytes.contains(&b'%') {
                decoded = decoded.percent_decoded();
                self.find(&decoded.bytes, |start, end| ranges.push(decoded.source_range(start, end)));
            }
        }
        take(&ranges)
    }

    fn find(&self, bytes: &[u8], mut found: impl FnMut(usize, usize)) {
        let stands = |pattern: usize, bytes: &[u8], place: Range<usize>, written: &[u8]| {
            self.identifiers.get(pattern).is_some_and(|identifier| stands_alone(identifier, bytes, place, written))
        };
        let written = |start, end| bytes.get(start..end).unwrap_or_default();
        if !self.may_be_folded(bytes) {
            self.plain.each_in(bytes, |pattern, start, end| {
                if stands(pattern, bytes, start..end, written(start, end)) {
                    found(start, end);
                }
            });
            return;
        }
        let folded = DecodedText::folded(bytes);
        self.plain.each_in(&folded.bytes, |pattern, start, end| {
            let (from, to) = folded.source_range(start, end);
            if stands(pattern, &folded.bytes, start..end, written(from, to)) {
                found(from, to);
            }
        });
    }

    /// Whether the text may hold one of them in letters that are written otherwise.
    fn may_be_folded(&self, bytes: &[u8]) -> bool {
        self.is_beyond_ascii && (!bytes.is_ascii() || may_have_ace_label(bytes))
    }

    /// Whether any of them could be in the text:
    /// quicker than [`IdentifierMatcher::is_in_text`], and never wrong about "no".
    pub fn may_be_in(&self, bytes: &[u8]) -> bool {
        bytes.contains(&b'%') || self.has_escapes(bytes) || self.may_be_folded(bytes) || self.plain.any_in(bytes)
    }

    /// Whether a field of some record in the text, numbers too, could hold one of them; never wrong about "no".
    pub fn may_be_a_field(&self, bytes: &[u8]) -> bool {
        let is_mapped = self.has_emails && !bytes.is_ascii();
        is_mapped || self.has_escapes(bytes) || self.may_be_folded(bytes) || self.fields.any_in(bytes)
    }

    /// Whether the text has escapes of JSON that can hide an identifier: hardly any needs the others.
    fn has_escapes(&self, bytes: &[u8]) -> bool {
        let mut rest = bytes;
        while let Some(at) = memchr::memchr(b'\\', rest) {
            match rest.get(at + 1) {
                Some(b'u' | b'/') => return true,
                Some(_) if !self.has_quoted => rest = rest.get(at + 2..).unwrap_or_default(),
                _ => return true,
            }
        }
        false
    }

    /// Whether their bytes are in the text, alone or inside something longer.
    pub fn has_bytes_in(&self, text: &[u8]) -> bool {
        self.raw.any_in(text)
    }

    /// How often they are in raw bytes, in any spelling, and how many bytes those were.
    pub fn count_in_raw(&self, mut input: impl Read) -> io::Result<(u64, u64)> {
        let (mut hits, mut total, mut kept) = (0, 0, 0);
        let overlap = self.raw_bytes_max.saturating_sub(1);
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
            // A hit that lies whole in what was kept has been counted before.
            self.raw.each_in(&buffer[..filled], |_, _, end| hits += u64::from(end > kept));
            kept = overlap.min(filled);
            buffer.copy_within(filled - kept..filled, 0);
        }
    }
}

/// Whether a value would hardly be in a file by chance.
fn is_distinctive(value: &str) -> bool {
    let is_plain = value.bytes().all(|byte| byte.is_ascii_alphabetic());
    value.len() >= if is_plain { RAW_WORD_BYTES_MIN } else { RAW_BYTES_MIN }
}

/// Whether the service or a table has a field of that name: replaced in a page it would take the field away.
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

/// The value in the cases of its letters beyond ASCII; those of ASCII are the automaton's.
fn cases(value: &str) -> Vec<String> {
    let mut cases = vec![value.to_owned()];
    if !value.is_ascii() {
        cases.extend([value.to_lowercase(), value.to_uppercase()]);
        cases.sort();
        cases.dedup();
    }
    cases
}

/// How a value is written in JSON, in addresses, and by itself.
fn spellings_of(identifier: &Identifier, value: &str) -> Vec<String> {
    let escaped = |also: &[char]| {
        let letter = |letter: char| match letter {
            '"' | '\\' => format!("\\{letter}"),
            _ if !letter.is_ascii() || letter.is_control() || also.contains(&letter) => {
                let mut units = [0; 2];
                letter.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")).collect()
            }
            _ => letter.to_string(),
        };
        value.chars().map(letter).collect::<String>()
    };
    let percent = |plain: &[u8]| {
        let byte = |byte: u8| match byte {
            byte if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || plain.contains(&byte) => {
                (byte as char).to_string()
            }
            byte => format!("%{byte:02x}"),
        };
        value.bytes().map(byte).collect::<String>()
    };
    let mut all = vec![value.to_owned(), escaped(&[]), escaped(&['+', '@', '/', '&', '<', '>', '\''])];
    all.extend([percent(b""), percent(b"@"), percent(b"@+"), value.replace('/', "\\/")]);
    if matches!(identifier.kind, IdentifierKind::VisitorUuid | IdentifierKind::Session) {
        all.push(value.replace('-', ""));
    }
    all
}

/// Whether the bytes around a hit end it, and it is written in a case in which it names the person.
fn stands_alone(identifier: &Identifier, bytes: &[u8], place: Range<usize>, written: &[u8]) -> bool {
    let is_cased = matches!(identifier.kind, IdentifierKind::UserId | IdentifierKind::AnonymousId);
    if is_cased && std::str::from_utf8(written).map(composed).as_deref() != Ok(identifier.value.as_str()) {
        return false;
    }
    let before = place.start.checked_sub(1).and_then(|at| bytes.get(at)).copied();
    let (after, then) = (bytes.get(place.end).copied(), bytes.get(place.end + 1).copied());
    if identifier.value.len() < WITHIN_TEXT_BYTES_MIN {
        return [before, after].into_iter().flatten().all(|byte| byte == b'"');
    }
    let is_word = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if identifier.kind == IdentifierKind::Email {
        let goes_on = after == Some(b'-') || (after == Some(b'.') && is_word(then));
        return !is_word(before) && !before.is_some_and(|byte| b".+-".contains(&byte)) && !is_word(after) && !goes_on;
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
    fn p9_a_name_is_found_in_composed_and_decomposed_letters() {
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
    fn p9_a_field_may_hold_an_identifier_in_whatever_form_it_is_read() {
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
        // Every letter of the table is composed to one of ASCII, and no other letter is.
        let composed: Vec<String> = ('\u{80}'..=char::MAX)
            .map(String::from)
            .filter(|letter| crate::model::composed(letter).is_ascii())
            .collect();
        assert_eq!(composed.len(), COMPOSED_TO_ASCII.len(), "{composed:?}");
        assert!(COMPOSED_TO_ASCII.iter().all(|letter| composed.iter().any(|found| found == letter)));
    }

    #[test]
    fn p9_raw_bytes_are_searched_for_every_form_of_a_name() {
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
    fn p9_a_longer_identifier_of_somebody_else_is_not_found() {
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
    fn p9_a_number_or_a_service_word_does_not_match_a_person() {
        let matcher = matcher(&[
            (IdentifierKind::UserId, "4711000"),
            (IdentifierKind::UserId, "responseGroupUid"),
            (IdentifierKind::UserId, "true"),
            (IdentifierKind::UserId, "annamaria"),
        ]);
        let page = r#"{"data":[{"response":4711000,"responseGroupUid":"g","is":true,"note":"4711000"}]}"#;
        assert_eq!(matcher.redacted(page), None);
        assert_eq!((matcher.not_in_texts(), matcher.not_in_bytes()), (3, 4));
        assert!(matcher.may_be_a_field(page.as_bytes()), "a field is looked at all the same");
        assert!(matcher.is_in_text(b"annamaria") && matcher.count_in_raw(&b"annamaria"[..]).unwrap().0 == 0);
    }

    #[test]
    fn p9_raw_bytes_are_searched_across_the_borders_of_reads() {
        let matcher = matcher(&[MAIL, (IdentifierKind::UserId, "short")]);
        let spelled = ["zoë+a@example.com", r"zo\u00EB+a@example.com", "zo%C3%AB%2Ba%40example.com"];
        for spelling in spelled {
            let mut bytes = vec![0xffu8; READ_BYTES - 7];
            bytes.extend(spelling.as_bytes());
            bytes.extend([0; 100]);
            bytes.extend(spelling.as_bytes());
            let length = bytes.len() as u64;
            assert_eq!(matcher.count_in_raw(bytes.as_slice()).unwrap(), (2, length), "{spelling}");
            // However small the reads are.
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
