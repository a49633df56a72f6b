//! A text with its escapes undone, and where in the text each byte of it stood.

/// The bytes that escapes stand for, each with the place of its first byte in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decoded {
    pub bytes: Vec<u8>,
    /// For each byte where its spelling begins in the text, and behind the last where the text ends.
    at: Vec<usize>,
}

impl Decoded {
    /// The range of the text that spells a range of the bytes.
    pub fn spelled(&self, start: usize, end: usize) -> (usize, usize) {
        let whole = self.at.last().copied().unwrap_or(0);
        (self.at.get(start).copied().unwrap_or(whole), self.at.get(end).copied().unwrap_or(whole))
    }

    /// Undoes JSON's escapes; everything else stays. A lone surrogate becomes U+FFFD, as in the warehouse.
    pub fn of_json(text: &[u8]) -> Decoded {
        decode(text, b'\\', json_escape)
    }

    /// Undoes percent encoding on top of this.
    pub fn then_percent(self) -> Decoded {
        let inner = decode(&self.bytes, b'%', percent_escape);
        let at = inner.at.iter().map(|at| self.at.get(*at).copied().unwrap_or(0)).collect();
        Decoded { bytes: inner.bytes, at }
    }
}

/// What an escape that begins at the start of the text stands for, and how long it is.
type Escape = fn(&[u8]) -> Option<(Vec<u8>, usize)>;

fn decode(text: &[u8], mark: u8, escape: Escape) -> Decoded {
    let mut decoded = Decoded { bytes: Vec::with_capacity(text.len()), at: Vec::with_capacity(text.len() + 1) };
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
        let json = Decoded::of_json(text);
        assert_eq!(json.bytes, "aé😀/\n%2B".as_bytes());
        assert_eq!(json.spelled(1, 3), (1, 7));
        let both = json.then_percent();
        assert_eq!(both.bytes, "aé😀/\n+".as_bytes());
        assert_eq!(both.spelled(9, 10), (23, 26));
        assert_eq!(both.spelled(0, 10), (0, text.len()));
    }

    #[test]
    fn what_is_no_escape_stays() {
        for text in [r"\", r"\u12", r"\uzzzz", r"\x41", "%", "%4", "%zz", "100% \u{e9}"] {
            assert_eq!(Decoded::of_json(text.as_bytes()).then_percent().bytes, text.as_bytes(), "{text}");
        }
        assert_eq!(Decoded::of_json(br"\ud800x").bytes, "\u{fffd}x".as_bytes());
    }
}
