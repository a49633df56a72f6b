//! Decodes text input. A byte order mark names the encoding and is not a part of the text. Without a mark, a text has
//! the encoding that the user names; else it is UTF-8, or UTF-16 if its first two characters show it. Invalid bytes are
//! an error and never replaced; only [`decoding`] passes UTF-8 through unchecked.

use std::{
    fmt,
    io::{self, Read},
};

use encoding_rs::{Decoder, DecoderResult, UTF_16BE, UTF_16LE};

/// Number of bytes that are decoded at a time.
const CHUNK_BYTES: usize = 16 << 10;
/// The byte order mark.
const MARK: &str = "\u{feff}";

/// Why bytes cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodingError {
    #[error("byte {at} is not UTF-8: save the file as UTF-8")]
    NotUtf8 { at: usize },
    #[error("the text is not valid {encoding}: save the file as UTF-8")]
    Invalid { encoding: &'static str },
    #[error("the text is UTF-32: save the file as UTF-8")]
    Utf32,
}

/// Returns the text without a byte order mark at its start.
pub fn without_mark(text: &str) -> &str {
    text.strip_prefix(MARK).unwrap_or(text)
}

/// Returns UTF-8 bytes without a byte order mark at their start.
pub fn bytes_without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(MARK.as_bytes()).unwrap_or(bytes)
}

/// Decodes a complete text in UTF-8 or UTF-16, without its byte order mark.
///
/// # Errors
/// If the bytes are invalid in their encoding, or are UTF-32.
pub fn decode(bytes: Vec<u8>) -> Result<String, EncodingError> {
    let detected = DetectedEncoding::of(&bytes)?;
    let rest = bytes.get(detected.mark_bytes..).unwrap_or_default();
    match detected.encoding {
        None if detected.mark_bytes == 0 => String::from_utf8(bytes).map_err(|error| error.utf8_error()),
        None => std::str::from_utf8(rest).map(str::to_owned),
        Some(Encoding(encoding)) => {
            let decoded = encoding.decode_without_bom_handling_and_without_replacement(rest);
            return decoded.map(|text| text.into_owned()).ok_or(EncodingError::Invalid { encoding: encoding.name() });
        }
    }
    .map_err(|error| EncodingError::NotUtf8 { at: detected.mark_bytes + error.valid_up_to() })
}

/// Reads all of `input`, and decodes it as [`decode`] does.
///
/// # Errors
/// If reading fails, or the bytes are invalid in their encoding or are UTF-32 (`InvalidData`).
pub fn read(mut input: impl Read) -> io::Result<String> {
    let mut bytes = Vec::new();
    input.read_to_end(&mut bytes)?;
    decode(bytes).map_err(invalid_data)
}

fn invalid_data(error: EncodingError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// An encoding that the user names.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Encoding(&'static encoding_rs::Encoding);

impl Encoding {
    /// Returns the encoding with a name such as `windows-1252`; `None` if there is none.
    pub fn named(name: &str) -> Option<Encoding> {
        encoding_rs::Encoding::for_label(name.as_bytes()).map(Encoding)
    }
}

impl fmt::Debug for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}

/// The encoding that the first bytes of a text show.
struct DetectedEncoding {
    /// Length of the byte order mark in bytes; 0 without a mark.
    mark_bytes: usize,
    /// `None` for UTF-8.
    encoding: Option<Encoding>,
}

impl DetectedEncoding {
    /// Detects the encoding from the first four bytes. A text without a mark counts as UTF-8, unless its first two
    /// characters are ASCII in UTF-16. Fails for UTF-32.
    fn of(bytes: &[u8]) -> Result<DetectedEncoding, EncodingError> {
        let (mark_bytes, encoding) = match *bytes {
            [0xff, 0xfe, 0, 0, ..] | [0, 0, 0xfe, 0xff, ..] => return Err(EncodingError::Utf32),
            [0xef, 0xbb, 0xbf, ..] => (3, None),
            [0xff, 0xfe, ..] => (2, Some(UTF_16LE)),
            [0xfe, 0xff, ..] => (2, Some(UTF_16BE)),
            // Two ASCII characters, as at the start of JSON and of CSV headers.
            [1..=0x7f, 0, 1..=0x7f, 0, ..] => (0, Some(UTF_16LE)),
            [0, 1..=0x7f, 0, 1..=0x7f, ..] => (0, Some(UTF_16BE)),
            _ => (0, None),
        };
        Ok(DetectedEncoding { mark_bytes, encoding: encoding.map(Encoding) })
    }
}

/// Returns a reader that converts `input` to UTF-8 and skips a byte order mark. Input in UTF-8 is passed through
/// unchecked. `encoding` applies if there is no byte order mark; `None` detects the encoding.
///
/// # Errors
/// If the first bytes cannot be read, or are UTF-32 (`InvalidData`).
pub fn decoding<'a>(mut input: impl Read + 'a, encoding: Option<Encoding>) -> io::Result<Box<dyn Read + 'a>> {
    let mut first = [0; 4];
    let mut count = 0;
    while count < first.len() {
        match input.read(first.get_mut(count..).unwrap_or_default()) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let first = first.get(..count).unwrap_or_default();
    let detected = DetectedEncoding::of(first).map_err(invalid_data)?;
    let encoding = if detected.mark_bytes == 0 { encoding.or(detected.encoding) } else { detected.encoding };
    let rest = io::Cursor::new(first.get(detected.mark_bytes..).unwrap_or_default().to_vec()).chain(input);
    Ok(match encoding.filter(|encoding| encoding.0 != encoding_rs::UTF_8) {
        None => Box::new(rest),
        Some(Encoding(encoding)) => Box::new(DecodingReader {
            input: rest,
            decoder: encoding.new_decoder_without_bom_handling(),
            raw: Vec::new(),
            raw_read: 0,
            text: Vec::new(),
            text_read: 0,
            is_end: false,
        }),
    })
}

/// A reader that converts a text in an encoding other than UTF-8 to UTF-8.
struct DecodingReader<R> {
    input: R,
    decoder: Decoder,
    /// Input that was read.
    raw: Vec<u8>,
    /// Number of bytes of `raw` that are decoded.
    raw_read: usize,
    /// Decoded text, in UTF-8.
    text: Vec<u8>,
    /// Number of bytes of `text` that are returned.
    text_read: usize,
    /// True if all input was read.
    is_end: bool,
}

impl<R: Read> DecodingReader<R> {
    /// Decodes the next chunk of the input into `text`. Fails if the input is invalid in its encoding.
    fn fill(&mut self) -> io::Result<()> {
        if self.raw_read == self.raw.len() {
            self.raw.resize(CHUNK_BYTES, 0);
            let count = self.input.read(&mut self.raw);
            self.raw.truncate(*count.as_ref().unwrap_or(&0));
            self.raw_read = 0;
            self.is_end = count? == 0;
        }
        self.text.resize(CHUNK_BYTES, 0);
        let raw = self.raw.get(self.raw_read..).unwrap_or_default();
        let (outcome, read, written) =
            self.decoder.decode_to_utf8_without_replacement(raw, &mut self.text, self.is_end);
        self.raw_read += read;
        self.text.truncate(written);
        self.text_read = 0;
        match outcome {
            DecoderResult::Malformed(..) => {
                Err(invalid_data(EncodingError::Invalid { encoding: self.decoder.encoding().name() }))
            }
            DecoderResult::InputEmpty | DecoderResult::OutputFull => Ok(()),
        }
    }
}

impl<R: Read> Read for DecodingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.text_read == self.text.len() && !self.is_end {
            self.fill()?;
        }
        let unreturned = self.text.get(self.text_read..).unwrap_or_default();
        let count = unreturned.len().min(buffer.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..count), unreturned.get(..count)) {
            to.copy_from_slice(from);
        }
        self.text_read += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utf16(text: &str, unit: fn(u16) -> [u8; 2]) -> Vec<u8> {
        text.encode_utf16().flat_map(unit).collect()
    }

    /// Decodes bytes at once and as a stream, and checks that the results are equal.
    fn both(bytes: &[u8]) -> Result<String, String> {
        let whole = decode(bytes.to_vec()).map_err(|error| error.to_string());
        let mut streamed = Vec::new();
        let read = decoding(bytes, None).and_then(|mut input| input.read_to_end(&mut streamed));
        let streamed = read.map_err(|error| error.to_string()).map(|_| streamed);
        match (&whole, streamed) {
            (Ok(text), Ok(streamed)) => assert_eq!(text.as_bytes(), streamed),
            // A stream of UTF-8 is not checked.
            (Err(error), streamed) => assert!(streamed.is_ok() == error.contains("not UTF-8"), "{error}"),
            (Ok(_), Err(error)) => panic!("{error}"),
        }
        whole
    }

    #[test]
    fn a_text_is_the_same_in_every_encoding() {
        let text = format!("userId,näme\r\n{}😀", "x".repeat(2 * CHUNK_BYTES));
        let marked = format!("{MARK}{text}");
        for bytes in [
            text.clone().into_bytes(),
            marked.clone().into_bytes(),
            utf16(&text, u16::to_le_bytes),
            utf16(&text, u16::to_be_bytes),
            utf16(&marked, u16::to_le_bytes),
            utf16(&marked, u16::to_be_bytes),
        ] {
            assert_eq!(both(&bytes).as_deref(), Ok(text.as_str()));
        }
        for short in ["", "a", "ab", "é"] {
            assert_eq!(both(short.as_bytes()).as_deref(), Ok(short));
            assert_eq!(both(format!("{MARK}{short}").as_bytes()).as_deref(), Ok(short));
        }
        assert_eq!(both(format!("a{MARK}b").as_bytes()), Ok(format!("a{MARK}b")), "a mark inside is a character");
    }

    #[test]
    fn invalid_bytes_are_reported() {
        assert!(both(b"ab\xe9c").unwrap_err().contains("byte 2 is not UTF-8"));
        assert!(both(b"\xef\xbb\xbfa\xe9").unwrap_err().contains("byte 4"));
        assert!(both(b"\xff\xfea\x00b").unwrap_err().contains("UTF-16"));
        assert!(both(b"\xff\xfe\x00\xd8a\x00").unwrap_err().contains("UTF-16"));
        assert!(both(b"\xff\xfe\x00\x00a\x00\x00\x00").unwrap_err().contains("UTF-32"));
    }

    #[test]
    fn a_named_encoding_applies_without_a_byte_order_mark() {
        let cp1252 = Encoding::named("windows-1252");
        let read_all = |bytes: &'static [u8]| {
            let mut text = String::new();
            decoding(bytes, cp1252).unwrap().read_to_string(&mut text).map(|_| text)
        };
        assert_eq!(read_all(b"Zo\xeb \x80").unwrap(), "Zoë €");
        assert_eq!(read_all("\u{feff}Zoë".as_bytes()).unwrap(), "Zoë");
        let mut text = String::new();
        let shift_jis = decoding(&b"a\xff"[..], Encoding::named("shift_jis")).unwrap().read_to_string(&mut text);
        assert!(shift_jis.unwrap_err().to_string().contains("not valid Shift_JIS"));
        assert_eq!(Encoding::named("no-such-encoding"), None);
    }
}
