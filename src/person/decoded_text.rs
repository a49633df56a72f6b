//! A text with its escapes undone, or its letters in one form, and where in the text each byte of it stood.

use unicode_normalization::{IsNormalized, char::canonical_combining_class, is_nfc_quick};

use crate::model::{folded, unicode_domain};

/// How the labels of domains begin that stand for letters beyond ASCII.
const ACE_PREFIX: &str = "xn--";

/// The bytes that escapes stand for, each with the place of its first byte in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DecodedText {
    pub bytes: Vec<u8>,
    /// For each byte where its spelling begins in the text, and behind the last where the text ends.
    at: Vec<usize>,
}

impl DecodedText {
    /// The range of the text that spells a range of the bytes.
    pub fn source_range(&self, start: usize, end: usize) -> (usize, usize) {
        let whole = self.at.last().copied().unwrap_or(0);
        (self.at.get(start).copied().unwrap_or(whole), self.at.get(end).copied().unwrap_or(whole))
    }

    /// Undoes JSON's escapes; everything else stays. A lone surrogate becomes U+FFFD, as in the warehouse.
    pub fn from_json(text: &[u8]) -> DecodedText {
        decode(text, b'\\', json_escape)
    }

    /// Undoes percent encoding on top of this.
    pub fn percent_decoded(self) -> DecodedText {
        let inner = decode(&self.bytes, b'%', percent_escape);
        let at = inner.at.iter().map(|at| self.at.get(*at).copied().unwrap_or(0)).collect();
        DecodedText { bytes: inner.bytes, at }
    }
}

impl DecodedText {
    /// The text in the form in which identifiers are compared:
    /// letters composed and in lower case, labels of domains as Unicode.
    pub fn folded(text: &[u8]) -> DecodedText {
        let mut folded = DecodedText { bytes: Vec::with_capacity(text.len()), at: Vec::with_capacity(text.len() + 1) };
        let mut place = 0;
        for chunk in text.utf8_chunks() {
            folded.fold(chunk.valid(), place);
            place += chunk.valid().len();
            for byte in chunk.invalid() {
                folded.push(std::slice::from_ref(byte), place);
                place += 1;
            }
        }
        folded.at.push(text.len());
        folded
    }

    fn fold(&mut self, text: &str, begins_at: usize) {
        let mut place = 0;
        let mut is_in_word = false;
        while let Some(rest) = text.get(place..).filter(|rest| !rest.is_empty()) {
            let label = if is_in_word { None } else { ace_label(rest) };
            let (length, piece) = match label {
                Some((length, label)) => (length, label),
                None => {
                    let length = length_of_letter(rest);
                    (length, folded(rest.get(..length).unwrap_or_default()))
                }
            };
            is_in_word = rest.as_bytes().first().is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'-');
            self.push(piece.as_bytes(), begins_at + place);
            place += length;
        }
    }

    fn push(&mut self, bytes: &[u8], place: usize) {
        self.at.extend(std::iter::repeat_n(place, bytes.len()));
        self.bytes.extend(bytes);
    }
}

/// Whether some letters may be the label of a domain in ASCII's form.
pub(super) fn may_have_ace_label(text: &[u8]) -> bool {
    let mut ends = memchr::memmem::find_iter(text, b"--");
    ends.any(|at| {
        at.checked_sub(2).and_then(|start| text.get(start..at)).is_some_and(|xn| xn.eq_ignore_ascii_case(b"xn"))
    })
}

/// The label at the start of the text, if it stands for letters beyond ASCII: how long it is there, and those letters.
fn ace_label(text: &str) -> Option<(usize, String)> {
    text.get(..ACE_PREFIX.len()).filter(|start| start.eq_ignore_ascii_case(ACE_PREFIX))?;
    let is_of_label = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
    let length = text.bytes().take_while(|byte| is_of_label(byte)).count();
    let label = unicode_domain(text.get(..length)?);
    (!label.is_ascii()).then(|| (length, folded(&label)))
}

/// The bytes of the first letter, with all that is composed with it.
fn length_of_letter(text: &str) -> usize {
    let begins_letter = |letter: char| {
        letter.is_ascii()
            || (canonical_combining_class(letter) == 0 && is_nfc_quick(std::iter::once(letter)) == IsNormalized::Yes)
    };
    let next = text.char_indices().skip(1).find(|(_, letter)| begins_letter(*letter));
    next.map_or(text.len(), |(at, _)| at)
}

/// What an escape that begins at the start of the text stands for, and how long it is.
type Escape = fn(&[u8]) -> Option<(Vec<u8>, usize)>;

fn decode(text: &[u8], mark: u8, escape: Escape) -> DecodedText {
    let mut decoded = DecodedText { bytes: Vec::with_capacity(text.len()), at: Vec::with_capacity(text.len() + 1) };
    let mut place = 0;
    while let Some(byte) = text.get(place) {
        match (*byte == mark).then(|| escape(&text[place..])).flatten() {
            Some((bytes, length)) => {
                decoded.at.extend(std::iter::repeat_n(place, bytes.len()));
                decoded.bytes.extend(bytes);
                place += length;
            }
            None => {
                decoded.at.push(place);
                decoded.bytes.push(*byte);
                place += 1;
            }
        }
    }
    decoded.at.push(text.len());
    decoded
}

fn json_escape(text: &[u8]) -> Option<(Vec<u8>, usize)> {
    let simple = match text.get(1)? {
        b'u' => return json_unicode(text),
        b'n' => b'\n',
        b't' => b'\t',
        b'r' => b'\r',
        b'b' => 8,
        b'f' => 12,
        other @ (b'"' | b'\\' | b'/') => *other,
        _ => return None,
    };
    Some((vec![simple], 2))
}

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

fn percent_escape(text: &[u8]) -> Option<(Vec<u8>, usize)> {
    let digits = std::str::from_utf8(text.get(1..3)?).ok()?;
    let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_hex.then(|| u8::from_str_radix(digits, 16).ok()).flatten().map(|byte| (vec![byte], 3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_undone_and_their_places_known() {
        let text = br#"a\u00e9\ud83d\ude00\/\n%2B"#;
        let json = DecodedText::from_json(text);
        assert_eq!(json.bytes, "aé😀/\n%2B".as_bytes());
        assert_eq!(json.source_range(1, 3), (1, 7));
        let both = json.percent_decoded();
        assert_eq!(both.bytes, "aé😀/\n+".as_bytes());
        assert_eq!(both.source_range(9, 10), (23, 26));
        assert_eq!(both.source_range(0, 10), (0, text.len()));
    }

    #[test]
    fn p9_letters_are_composed_and_their_places_known() {
        let text = "A: Ju\u{308}RGEN, ti\u{ea}\u{301}n @XN--exmple-cua.de \u{1112}\u{1161}\u{11ab}\u{fffd}";
        let folded = DecodedText::folded(text.as_bytes());
        let expected = "a: jürgen, ti\u{1ebf}n @exämple.de \u{d55c}\u{fffd}";
        assert_eq!(String::from_utf8(folded.bytes.clone()).unwrap(), expected);
        for (word, spelled) in
            [("jürgen", "Ju\u{308}RGEN"), ("ti\u{1ebf}n", "ti\u{ea}\u{301}n"), ("exämple", "XN--exmple-cua")]
        {
            let at = expected.find(word).unwrap();
            let (start, end) = folded.source_range(at, at + word.len());
            assert_eq!(&text[start..end], spelled);
        }
        for text in [&b"\xff\xfea\xcc"[..], b"xn--", b"axn--exmple-cua", b"xn--zzzzzzzzzzz--", b""] {
            assert_eq!(DecodedText::folded(text).bytes, text, "{text:?}");
            assert_eq!(DecodedText::folded(text).source_range(0, text.len()), (0, text.len()));
        }
        assert!(may_have_ace_label(b"--a Xn--b") && !may_have_ace_label(b"--xn-a"));
    }

    #[test]
    fn what_is_no_escape_stays() {
        for text in [r"\", r"\u12", r"\uzzzz", r"\x41", "%", "%4", "%zz", "100% \u{e9}"] {
            assert_eq!(DecodedText::from_json(text.as_bytes()).percent_decoded().bytes, text.as_bytes(), "{text}");
        }
        assert_eq!(DecodedText::from_json(br"\ud800x").bytes, "\u{fffd}x".as_bytes());
    }
}
