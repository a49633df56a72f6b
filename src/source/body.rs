//! Reads and decompresses a body in chunks, up to a limit on the decompressed size: a small gzip stream can expand to
//! any size.

use std::{
    io::{self, Write},
    time::Duration,
};

use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use reqwest::{
    Response,
    header::{CONTENT_ENCODING, HeaderMap},
};
use tokio::time::timeout;

use super::{error::Failure, error_cause::cause_of, excerpt::presentable};
use crate::redact::ApiKey;

/// Maximum characters shown of an unknown encoding.
const ENCODING_CHARS_MAX: usize = 60;

/// Bounds of one body.
#[derive(Clone, Copy, Debug)]
pub(super) struct BodyLimits {
    /// Maximum decompressed bytes.
    pub bytes_max: usize,
    /// The longest pause between two chunks.
    pub idle: Duration,
}

/// Reads and decompresses the complete body. `read_bytes` is increased with each chunk, so that the count is right even
/// if the caller cancels. Fails if the body has an unknown encoding, is too large, stalls, or breaks off. `key` is
/// removed from messages.
pub(super) async fn read(
    response: &mut Response,
    limits: BodyLimits,
    key: &ApiKey,
    read_bytes: &mut usize,
) -> Result<Bytes, Failure> {
    let is_gzip = is_gzip(response.headers()).map_err(|encoding| {
        let encoding = presentable(&encoding, key, ENCODING_CHARS_MAX);
        Failure::UnknownEncoding { encoding }
    })?;
    let too_large = Failure::BodyTooLarge { limit_bytes: limits.bytes_max };
    let announced = response.content_length().map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    if announced.is_some_and(|bytes| bytes > limits.bytes_max) {
        return Err(too_large);
    }
    let sink = Sink { bytes: Vec::with_capacity(announced.unwrap_or(0)), bytes_max: limits.bytes_max, is_full: false };
    let mut body =
        if is_gzip { BodyDecoder::Gzip(Box::new(MultiGzDecoder::new(sink))) } else { BodyDecoder::Plain(sink) };
    let mut is_empty = true;
    loop {
        let before = body.sink().bytes.len();
        let chunk = match timeout(limits.idle, response.chunk()).await {
            Err(_) => return Err(Failure::hung(limits.idle, before)),
            Ok(Err(error)) => return Err(Failure::Cut { bytes: before, detail: cause_of(error) }),
            Ok(Ok(chunk)) => chunk,
        };
        let written = match &chunk {
            Some(chunk) => body.write(chunk),
            // The body has ended. An empty body is valid even if the headers announce gzip.
            None if is_empty => Ok(()),
            None => body.finish(),
        };
        is_empty &= chunk.as_ref().is_none_or(Bytes::is_empty);
        let sink = body.sink();
        *read_bytes += sink.bytes.len() - before;
        match written {
            Err(_) if sink.is_full => return Err(too_large),
            Err(error) => {
                let detail = format!("the gzip stream is incomplete: {error}");
                return Err(Failure::Cut { bytes: sink.bytes.len(), detail });
            }
            Ok(()) if chunk.is_none() => return Ok(Bytes::from(body.into_bytes())),
            Ok(()) => {}
        }
    }
}

/// Returns true if the headers announce gzip, and false for a body without compression. `Err` lists all encodings if
/// they are not supported.
pub(super) fn is_gzip(headers: &HeaderMap) -> Result<bool, String> {
    let values = headers.get_all(CONTENT_ENCODING).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
    let listed = values.collect::<Vec<_>>().join(", ").to_ascii_lowercase();
    let codings: Vec<&str> =
        listed.split(',').map(str::trim).filter(|coding| !matches!(*coding, "" | "identity")).collect();
    match codings.as_slice() {
        [] => Ok(false),
        ["gzip" | "x-gzip"] => Ok(true),
        others => Err(others.join(", ")),
    }
}

/// Collects decompressed bytes up to a limit.
struct Sink {
    bytes: Vec<u8>,
    bytes_max: usize,
    /// True if a chunk was refused because it exceeds the limit.
    is_full: bool,
}

impl Write for Sink {
    fn write(&mut self, chunk: &[u8]) -> io::Result<usize> {
        if chunk.len() > self.bytes_max.saturating_sub(self.bytes.len()) {
            self.is_full = true;
            return Err(io::Error::other("too large"));
        }
        self.bytes.extend_from_slice(chunk);
        Ok(chunk.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Decompresses chunks into a [`Sink`].
enum BodyDecoder {
    Plain(Sink),
    Gzip(Box<MultiGzDecoder<Sink>>),
}

impl BodyDecoder {
    fn write(&mut self, chunk: &[u8]) -> io::Result<()> {
        match self {
            BodyDecoder::Plain(sink) => sink.write_all(chunk),
            BodyDecoder::Gzip(decoder) => decoder.write_all(chunk),
        }
    }

    /// Ends the stream. Fails if a gzip stream is incomplete.
    fn finish(&mut self) -> io::Result<()> {
        match self {
            BodyDecoder::Plain(_) => Ok(()),
            BodyDecoder::Gzip(decoder) => decoder.try_finish(),
        }
    }

    fn sink(&self) -> &Sink {
        match self {
            BodyDecoder::Plain(sink) => sink,
            BodyDecoder::Gzip(decoder) => decoder.get_ref(),
        }
    }

    /// Returns the decompressed bytes.
    fn into_bytes(mut self) -> Vec<u8> {
        match &mut self {
            BodyDecoder::Plain(sink) => std::mem::take(&mut sink.bytes),
            BodyDecoder::Gzip(decoder) => std::mem::take(&mut decoder.get_mut().bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    fn read_as(values: &[&'static str]) -> Result<bool, String> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(CONTENT_ENCODING, HeaderValue::from_static(value));
        }
        is_gzip(&headers)
    }

    #[test]
    fn every_legal_spelling_of_gzip_is_read() {
        for spelled in ["gzip", "GZIP", "x-gzip", " X-GZip ", "identity, gzip", "gzip,", "gzip , IDENTITY"] {
            assert_eq!(read_as(&[spelled]), Ok(true), "{spelled}");
        }
        assert_eq!(read_as(&["identity", "gzip"]), Ok(true));
        for plain in [&[][..], &[""], &["identity"], &["Identity, identity"]] {
            assert_eq!(read_as(plain), Ok(false), "{plain:?}");
        }
    }

    #[test]
    fn an_encoding_that_cannot_be_read_is_named() {
        assert_eq!(read_as(&["BR"]), Err("br".to_owned()));
        assert_eq!(read_as(&["deflate, identity"]), Err("deflate".to_owned()));
        assert_eq!(read_as(&["gzip", "gzip"]), Err("gzip, gzip".to_owned()));
    }
}
