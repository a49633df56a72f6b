//! Decodes a text before it is searched: undoes escapes, or converts letters to their normal form. Each decoded byte
//! keeps the index in the source text where its spelling begins.

use std::{borrow::Cow, ops::Range};

use unicode_normalization::{IsNormalized, char::canonical_combining_class, is_nfc_quick};

use crate::model::{folded, unicode_domain};

/// Prefix of a domain's label that encodes letters beyond ASCII.
const ACE_PREFIX: &str = "xn--";

/// A decoded text, and for each byte its index in the source text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DecodedText {
    pub bytes: Vec<u8>,
    /// For each byte, the index in the source where its spelling begins; then the length of the source.
    source: Vec<usize>,
}

impl DecodedText {
    /// Returns the range of the source that spells a range of the decoded bytes.
    pub fn source_range(&self, decoded: Range<usize>) -> Range<usize> {
        let end = self.source.last().copied().unwrap_or(0);
        let index = |decoded: usize| self.source.get(decoded).copied().unwrap_or(end);
        index(decoded.start)..index(decoded.end)
    }

    /// Undoes the escapes of JSON strings. A lone surrogate becomes U+FFFD, as in the warehouse.
    pub fn from_json(text: &[u8]) -> DecodedText {
        decode(text, b'\\', json_escape)
    }

    /// Undoes the escapes of a JSON string inside the JSON string that was decoded.
    pub fn json_decoded(&self) -> DecodedText {
        self.decoded_again(DecodedText::from_json(&self.bytes))
    }

    /// Undoes percent encoding.
    pub fn percent_decoded(&self) -> DecodedText {
        self.decoded_again(decode(&self.bytes, b'%', percent_escape))
    }

    /// Returns `inner`, which was decoded from the bytes of `self`, with source indexes that refer to the source of
    /// `self`.
    fn decoded_again(&self, inner: DecodedText) -> DecodedText {
        let source = inner.source.iter().map(|index| self.source.get(*index).copied().unwrap_or(0)).collect();
        DecodedText { bytes: inner.bytes, source }
    }

    /// Converts bytes to a text, as [`text_of_bytes`] does.
    pub fn from_bytes(bytes: &[u8]) -> DecodedText {
        let mut decoded = DecodedText::with_capacity(bytes.len());
        let mut index = 0;
        for chunk in bytes.utf8_chunks() {
            decoded.source.extend(index..index + chunk.valid().len());
            decoded.bytes.extend(chunk.valid().bytes());
            index += chunk.valid().len();
            for byte in chunk.invalid() {
                decoded.push(char::from(*byte).to_string().as_bytes(), index);
                index += 1;
            }
        }
        decoded.source.push(bytes.len());
        decoded
    }

    /// Converts a text to the normal form of identifiers: composed letters in lower case, domain labels in Unicode.
    pub fn folded(text: &[u8]) -> DecodedText {
        let mut folded = DecodedText::with_capacity(text.len());
        let mut index = 0;
        for chunk in text.utf8_chunks() {
            folded.fold(chunk.valid(), index);
            index += chunk.valid().len();
            for byte in chunk.invalid() {
                folded.push(std::slice::from_ref(byte), index);
                index += 1;
            }
        }
        folded.source.push(text.len());
        folded
    }

    fn with_capacity(bytes: usize) -> DecodedText {
        DecodedText { bytes: Vec::with_capacity(bytes), source: Vec::with_capacity(bytes + 1) }
    }

    /// Appends the normal form of a text that begins at `start` in the source. Domain labels in ASCII form are
    /// converted only at the start of a word.
    fn fold(&mut self, text: &str, start: usize) {
        let mut index = 0;
        let mut is_in_word = false;
        while let Some(rest) = text.get(index..).filter(|rest| !rest.is_empty()) {
            let label = if is_in_word { None } else { ace_label(rest) };
            let (length, normal) = label.unwrap_or_else(|| {
                let length = composed_length(rest);
                (length, folded(rest.get(..length).unwrap_or_default()))
            });
            is_in_word = rest.as_bytes().first().is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'-');
            self.push(normal.as_bytes(), start + index);
            index += length;
        }
    }

    /// Appends bytes whose spelling begins at `index` in the source.
    fn push(&mut self, bytes: &[u8], index: usize) {
        self.source.extend(std::iter::repeat_n(index, bytes.len()));
        self.bytes.extend(bytes);
    }
}

/// Returns true if JSON must escape the character: a quote, a backslash or a control character.
pub(super) fn must_be_escaped(letter: char) -> bool {
    letter.is_control() || matches!(letter, '"' | '\\')
}

/// Returns true if the text has an escape that may stand for a character of a searched value. `has_escaped` is true if
/// such a value contains a character that [`must_be_escaped`].
pub(super) fn can_hide_value(mut text: &[u8], has_escaped: bool) -> bool {
    while let Some(backslash) = memchr::memchr(b'\\', text) {
        match text.get(backslash + 1) {
            // `\u` can stand for any character, `\/` for a slash, `\x` for a byte that is not UTF-8. `\\` may begin an
            // escape inside an escaped text.
            Some(b'u' | b'/' | b'x' | b'\\') | None => return true,
            // Other escapes, such as `\n` and `\"`, stand for characters that JSON must escape.
            Some(_) if has_escaped => return true,
            Some(_) => text = text.get(backslash + 2..).unwrap_or_default(),
        }
    }
    false
}

/// Returns bytes as a text. Bytes that are not UTF-8 are read as Latin-1, so that a name in Latin-1 is recognized.
pub fn text_of_bytes(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(String::from_utf8_lossy(&DecodedText::from_bytes(bytes).bytes).into_owned()),
    }
}

/// Returns true if the text may contain a domain label in ASCII form (`xn--`).
pub fn may_have_ace_label(text: &[u8]) -> bool {
    let mut hyphens = memchr::memmem::find_iter(text, b"--");
    hyphens.any(|at| {
        at.checked_sub(2).and_then(|start| text.get(start..at)).is_some_and(|xn| xn.eq_ignore_ascii_case(b"xn"))
    })
}

/// Returns the length and the Unicode form of the domain label in ASCII form (`xn--`) at the start of the text; `None`
/// if there is no such label.
fn ace_label(text: &str) -> Option<(usize, String)> {
    text.get(..ACE_PREFIX.len()).filter(|start| start.eq_ignore_ascii_case(ACE_PREFIX))?;
    let length = text.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'-').count();
    let label = unicode_domain(text.get(..length)?);
    (!label.is_ascii()).then(|| (length, folded(&label)))
}

/// Returns the length in bytes of the first letter of a text, including the marks that are composed with the letter.
fn composed_length(text: &str) -> usize {
    let begins_letter = |letter: char| {
        letter.is_ascii()
            || (canonical_combining_class(letter) == 0 && is_nfc_quick(std::iter::once(letter)) == IsNormalized::Yes)
    };
    let next = text.char_indices().skip(1).find(|(_, letter)| begins_letter(*letter));
    next.map_or(text.len(), |(at, _)| at)
}

/// A function that decodes the escape at the start of a text. It returns the decoded bytes and the length of the
/// escape; `None` if the text does not start with a valid escape.
type Escape = fn(&[u8]) -> Option<(Vec<u8>, usize)>;

/// Decodes all escapes of a text, each of which starts with the byte `mark`. Invalid escapes stay as they are.
fn decode(text: &[u8], mark: u8, escape: Escape) -> DecodedText {
    let mut decoded = DecodedText::with_capacity(text.len());
    let mut index = 0;
    while let Some(byte) = text.get(index) {
        match (*byte == mark).then(|| escape(&text[index..])).flatten() {
            Some((bytes, length)) => {
                decoded.push(&bytes, index);
                index += length;
            }
            None => {
                decoded.source.push(index);
                decoded.bytes.push(*byte);
                index += 1;
            }
        }
    }
    decoded.source.push(text.len());
    decoded
}

/// Decodes an escape of a JSON string, as an [`Escape`].
fn json_escape(text: &[u8]) -> Option<(Vec<u8>, usize)> {
    let simple = match text.get(1)? {
        b'u' => return json_unicode(text),
        b'x' => return latin1_escape(text),
        b'n' => b'\n',
        b't' => b'\t',
        b'r' => b'\r',
        b'b' => b'\x08',
        b'f' => b'\x0c',
        other @ (b'"' | b'\\' | b'/') => *other,
        _ => return None,
    };
    Some((vec![simple], 2))
}

/// Decodes `\u....`, or two of them that form a surrogate pair.
fn json_unicode(text: &[u8]) -> Option<(Vec<u8>, usize)> {
    let unit = |text: &[u8]| {
        let digits = text.get(2..6).filter(|_| text.starts_with(b"\\u"))?;
        u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    let first = unit(text)?;
    let (letter, length) = match (first, text.get(6..).and_then(unit)) {
        (0xd800..=0xdbff, Some(second @ 0xdc00..=0xdfff)) => {
            (char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)), 12)
        }
        _ => (char::from_u32(first), 6),
    };
    Some((letter.unwrap_or(char::REPLACEMENT_CHARACTER).to_string().into_bytes(), length))
}

/// Decodes `\x..`, with which rejects show a byte that is not UTF-8, as Latin-1.
fn latin1_escape(text: &[u8]) -> Option<(Vec<u8>, usize)> {
    let byte = hex_byte(text.get(2..4)?).filter(|byte| !byte.is_ascii())?;
    Some((char::from(byte).to_string().into_bytes(), 4))
}

/// Decodes `%..`, as an [`Escape`].
fn percent_escape(text: &[u8]) -> Option<(Vec<u8>, usize)> {
    hex_byte(text.get(1..3)?).map(|byte| (vec![byte], 3))
}

/// Returns the byte that two hexadecimal digits name.
fn hex_byte(digits: &[u8]) -> Option<u8> {
    let digits = std::str::from_utf8(digits).ok()?;
    let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_hex.then(|| u8::from_str_radix(digits, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_undone_and_their_source_is_known() {
        let text = br#"a\u00e9\ud83d\ude00\/\n%2B"#;
        let json = DecodedText::from_json(text);
        assert_eq!(json.bytes, "aé😀/\n%2B".as_bytes());
        assert_eq!(json.source_range(1..3), 1..7);
        let both = json.percent_decoded();
        assert_eq!(both.bytes, "aé😀/\n+".as_bytes());
        assert_eq!(both.source_range(9..10), 23..26);
        assert_eq!(both.source_range(0..10), 0..text.len());
    }

    #[test]
    fn p9_letters_are_composed_and_their_source_is_known() {
        let text = "A: Ju\u{308}RGEN, ti\u{ea}\u{301}n @XN--exmple-cua.de \u{1112}\u{1161}\u{11ab}\u{fffd}";
        let folded = DecodedText::folded(text.as_bytes());
        let expected = "a: jürgen, ti\u{1ebf}n @exämple.de \u{d55c}\u{fffd}";
        assert_eq!(String::from_utf8(folded.bytes.clone()).unwrap(), expected);
        for (word, spelled) in
            [("jürgen", "Ju\u{308}RGEN"), ("ti\u{1ebf}n", "ti\u{ea}\u{301}n"), ("exämple", "XN--exmple-cua")]
        {
            let at = expected.find(word).unwrap();
            assert_eq!(&text[folded.source_range(at..at + word.len())], spelled);
        }
        for text in [&b"\xff\xfea\xcc"[..], b"xn--", b"axn--exmple-cua", b"xn--zzzzzzzzzzz--", b""] {
            assert_eq!(DecodedText::folded(text).bytes, text, "{text:?}");
            assert_eq!(DecodedText::folded(text).source_range(0..text.len()), 0..text.len());
        }
        assert!(may_have_ace_label(b"--a Xn--b") && !may_have_ace_label(b"--xn-a"));
    }

    #[test]
    fn an_invalid_escape_stays() {
        for text in [r"\", r"\u12", r"\uzzzz", r"\x41", "%", "%4", "%zz", "100% \u{e9}"] {
            assert_eq!(DecodedText::from_json(text.as_bytes()).percent_decoded().bytes, text.as_bytes(), "{text}");
        }
        assert_eq!(DecodedText::from_json(br"\ud800x").bytes, "\u{fffd}x".as_bytes());
    }
}
