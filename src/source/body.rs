//! Reads a body piece by piece and unpacks it, up to a limit on what comes out: a small answer can unpack to any size.

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

use super::{cause::cause, error::Failure, excerpt::presentable};
use crate::redact::ApiKey;

/// The most characters shown of an encoding that cannot be read.
const ENCODING_CHARS_MAX: usize = 60;

/// Bounds of one body.
#[derive(Clone, Copy, Debug)]
pub(super) struct BodyLimits {
    /// The most unpacked bytes.
    pub bytes_max: usize,
    /// The longest silence.
    pub idle: Duration,
}

/// The whole body. `read_bytes` is kept up to date so that a caller that gives up knows how far it came.
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
    let mut body = if is_gzip { Unpacked::Gzip(Box::new(MultiGzDecoder::new(sink))) } else { Unpacked::Plain(sink) };
    let mut is_empty = true;
    loop {
        let before = body.sink().bytes.len();
        let piece = match timeout(limits.idle, response.chunk()).await {
            Err(_) => return Err(Failure::hung(limits.idle, before)),
            Ok(Err(error)) => return Err(Failure::Cut { bytes: before, detail: cause(error) }),
            Ok(Ok(piece)) => piece,
        };
        let written = match &piece {
            Some(piece) => body.write(piece),
            // An empty body has nothing to unpack.
            None if is_empty => Ok(()),
            None => body.finish(),
        };
        is_empty &= piece.as_ref().is_none_or(Bytes::is_empty);
        let sink = body.sink();
        *read_bytes += sink.bytes.len() - before;
        match written {
            Err(_) if sink.is_full => return Err(too_large),
            Err(error) => {
                let detail = format!("it is no whole gzip: {error}");
                return Err(Failure::Cut { bytes: sink.bytes.len(), detail });
            }
            Ok(()) if piece.is_none() => return Ok(Bytes::from(body.into_bytes())),
            Ok(()) => {}
        }
    }
}

/// Whether a body is packed with gzip. An error: the encodings, if they cannot be read.
fn is_gzip(headers: &HeaderMap) -> Result<bool, String> {
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

/// What is unpacked, up to a limit.
struct Sink {
    bytes: Vec<u8>,
    bytes_max: usize,
    is_full: bool,
}

impl Write for Sink {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if piece.len() > self.bytes_max.saturating_sub(self.bytes.len()) {
            self.is_full = true;
            return Err(io::Error::other("too large"));
        }
        self.bytes.extend_from_slice(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

enum Unpacked {
    Plain(Sink),
    Gzip(Box<MultiGzDecoder<Sink>>),
}

impl Unpacked {
    fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        match self {
            Unpacked::Plain(sink) => sink.write_all(piece),
            Unpacked::Gzip(decoder) => decoder.write_all(piece),
        }
    }

    /// Nothing more comes.
    fn finish(&mut self) -> io::Result<()> {
        match self {
            Unpacked::Plain(_) => Ok(()),
            Unpacked::Gzip(decoder) => decoder.try_finish(),
        }
    }

    fn sink(&self) -> &Sink {
        match self {
            Unpacked::Plain(sink) => sink,
            Unpacked::Gzip(decoder) => decoder.get_ref(),
        }
    }

    fn into_bytes(mut self) -> Vec<u8> {
        match &mut self {
            Unpacked::Plain(sink) => std::mem::take(&mut sink.bytes),
            Unpacked::Gzip(decoder) => std::mem::take(&mut decoder.get_mut().bytes),
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
