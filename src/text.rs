//! One rule for every reader of text. A byte order mark (BOM) at the beginning names the encoding and is no part of the
//! text. Without one a text is UTF-8, or UTF-16 where its first two letters show it.
//! Bytes that are no text are an error, never replaced.

use std::{
    fmt,
    io::{self, Read},
};

use encoding_rs::{Decoder, DecoderResult, UTF_16BE, UTF_16LE};

/// Bytes that are decoded together.
const PIECE_BYTES: usize = 16 << 10;
const MARK: &str = "\u{feff}";

/// Why bytes are no text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotText {
    #[error("byte {at} is not UTF-8: save the file as UTF-8")]
    NotUtf8 { at: usize },
    #[error("half of a character of UTF-16 is missing: save the file as UTF-8")]
    NotUtf16,
    #[error("it is UTF-32: save the file as UTF-8")]
    Utf32,
}

/// The text without a byte order mark before it.
pub fn without_mark(text: &str) -> &str {
    text.strip_prefix(MARK).unwrap_or(text)
}

/// The UTF-8 bytes without a byte order mark before them.
pub fn bytes_without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(MARK.as_bytes()).unwrap_or(bytes)
}

/// A whole text.
///
/// # Errors
/// If the bytes are no text in the encoding that they begin with.
pub fn decode(bytes: Vec<u8>) -> Result<String, NotText> {
    let begins = Beginning::of(&bytes)?;
    let rest = bytes.get(begins.mark_bytes..).unwrap_or_default();
    match begins.encoding {
        None if begins.mark_bytes == 0 => String::from_utf8(bytes).map_err(|error| error.utf8_error()),
        None => std::str::from_utf8(rest).map(str::to_owned),
        Some(Encoding(encoding)) => {
            let decoded = encoding.decode_without_bom_handling_and_without_replacement(rest);
            return decoded.map(|text| text.into_owned()).ok_or(NotText::NotUtf16);
        }
    }
    .map_err(|error| NotText::NotUtf8 { at: begins.mark_bytes + error.valid_up_to() })
}

/// Reads a text file to its end.
///
/// # Errors
/// If it cannot be read, or is no text (`InvalidData`).
pub fn read(mut input: impl Read) -> io::Result<String> {
    let mut bytes = Vec::new();
    input.read_to_end(&mut bytes)?;
    decode(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// An encoding that somebody names.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Encoding(&'static encoding_rs::Encoding);

impl Encoding {
    /// The encoding of a name such as `windows-1252`.
    pub fn named(name: &str) -> Option<Encoding> {
        encoding_rs::Encoding::for_label(name.as_bytes()).map(Encoding)
    }
}

impl fmt::Debug for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}

/// How bytes begin.
struct Beginning {
    mark_bytes: usize,
    /// `None` for UTF-8.
    encoding: Option<Encoding>,
}

impl Beginning {
    fn of(bytes: &[u8]) -> Result<Beginning, NotText> {
        let (mark_bytes, encoding) = match *bytes {
            [0xff, 0xfe, 0, 0, ..] | [0, 0, 0xfe, 0xff, ..] => return Err(NotText::Utf32),
            [0xef, 0xbb, 0xbf, ..] => (3, None),
            [0xff, 0xfe, ..] => (2, Some(UTF_16LE)),
            [0xfe, 0xff, ..] => (2, Some(UTF_16BE)),
            // Two letters of ASCII: what JSON, and the names of columns, begin with.
            [1..=0x7f, 0, 1..=0x7f, 0, ..] => (0, Some(UTF_16LE)),
            [0, 1..=0x7f, 0, 1..=0x7f, ..] => (0, Some(UTF_16BE)),
            _ => (0, None),
        };
        Ok(Beginning { mark_bytes, encoding: encoding.map(Encoding) })
    }
}

/// The bytes as UTF-8 without a mark. UTF-8 is handed on unchecked.
/// `encoding` counts where the bytes begin without a mark.
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
    let begins = Beginning::of(first).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    let encoding = match begins.mark_bytes {
        0 => encoding.or(begins.encoding),
        _ => begins.encoding,
    };
    let rest = io::Cursor::new(first.get(begins.mark_bytes..).unwrap_or_default().to_vec()).chain(input);
    Ok(match encoding.filter(|encoding| encoding.0 != encoding_rs::UTF_8) {
        None => Box::new(rest),
        Some(Encoding(encoding)) => Box::new(Decoding {
            input: rest,
            decoder: encoding.new_decoder_without_bom_handling(),
            raw: Vec::new(),
            raw_at: 0,
            text: Vec::new(),
            text_at: 0,
            is_over: false,
        }),
    })
}

/// Another encoding on its way to UTF-8.
struct Decoding<R> {
    input: R,
    decoder: Decoder,
    raw: Vec<u8>,
    raw_at: usize,
    text: Vec<u8>,
    text_at: usize,
    is_over: bool,
}

impl<R: Read> Decoding<R> {
    fn fill(&mut self) -> io::Result<()> {
        if self.raw_at == self.raw.len() {
            self.raw.resize(PIECE_BYTES, 0);
            let count = self.input.read(&mut self.raw);
            self.raw.truncate(*count.as_ref().unwrap_or(&0));
            self.raw_at = 0;
            self.is_over = count? == 0;
        }
        self.text.resize(PIECE_BYTES, 0);
        let raw = self.raw.get(self.raw_at..).unwrap_or_default();
        let decoded = self.decoder.decode_to_utf8_without_replacement(raw, &mut self.text, self.is_over);
        let (outcome, read, written) = decoded;
        self.raw_at += read;
        self.text.truncate(written);
        self.text_at = 0;
        match outcome {
            DecoderResult::Malformed(..) => Err(io::Error::new(io::ErrorKind::InvalidData, NotText::NotUtf16)),
            DecoderResult::InputEmpty | DecoderResult::OutputFull => Ok(()),
        }
    }
}

impl<R: Read> Read for Decoding<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.text_at == self.text.len() && !self.is_over {
            self.fill()?;
        }
        let left = self.text.get(self.text_at..).unwrap_or_default();
        let count = left.len().min(buffer.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..count), left.get(..count)) {
            to.copy_from_slice(from);
        }
        self.text_at += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utf16(text: &str, unit: fn(u16) -> [u8; 2]) -> Vec<u8> {
        text.encode_utf16().flat_map(unit).collect()
    }

    /// The same bytes read whole, and piece by piece.
    fn both(bytes: &[u8]) -> Result<String, String> {
        let whole = decode(bytes.to_vec()).map_err(|error| error.to_string());
        let mut streamed = Vec::new();
        let read = decoding(bytes, None).and_then(|mut input| input.read_to_end(&mut streamed));
        let streamed = read.map_err(|error| error.to_string()).map(|_| streamed);
        match (&whole, streamed) {
            (Ok(text), Ok(streamed)) => assert_eq!(text.as_bytes(), streamed),
            // UTF-8 is checked by whoever takes the rows apart.
            (Err(error), streamed) => assert!(streamed.is_ok() == error.contains("not UTF-8"), "{error}"),
            (Ok(_), Err(error)) => panic!("{error}"),
        }
        whole
    }

    #[test]
    fn a_text_is_the_same_in_every_encoding() {
        let text = format!("userId,näme\r\n{}😀", "x".repeat(2 * PIECE_BYTES));
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
        assert_eq!(both(format!("a{MARK}b").as_bytes()), Ok(format!("a{MARK}b")), "a mark inside is a letter");
    }

    #[test]
    fn what_is_no_text_is_named() {
        assert!(both(b"ab\xe9c").unwrap_err().contains("byte 2 is not UTF-8"));
        assert!(both(b"\xef\xbb\xbfa\xe9").unwrap_err().contains("byte 4"));
        assert!(both(b"\xff\xfea\x00b").unwrap_err().contains("UTF-16"));
        assert!(both(b"\xff\xfe\x00\xd8a\x00").unwrap_err().contains("UTF-16"));
        assert!(both(b"\xff\xfe\x00\x00a\x00\x00\x00").unwrap_err().contains("UTF-32"));
    }

    #[test]
    fn an_encoding_that_is_named_counts_where_there_is_no_mark() {
        let cp1252 = Encoding::named("windows-1252");
        let read_all = |bytes: &'static [u8]| {
            let mut text = String::new();
            decoding(bytes, cp1252).unwrap().read_to_string(&mut text).map(|_| text)
        };
        assert_eq!(read_all(b"Zo\xeb \x80").unwrap(), "Zoë €");
        assert_eq!(read_all("\u{feff}Zoë".as_bytes()).unwrap(), "Zoë");
        assert_eq!(Encoding::named("no-such-encoding"), None);
    }
}
