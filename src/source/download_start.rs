//! Reads the headers of a download: which bytes of the file the body has, and how it is compressed.
//!
//! Hosts answer a range in many ways: with the whole file, an earlier byte, fewer bytes, or without saying what they
//! send. Only a body that certainly continues the stored part, or certainly is the whole file, is used.

use reqwest::{
    StatusCode,
    header::{ACCEPT_RANGES, CONTENT_RANGE, ETAG, HeaderMap, HeaderName, LAST_MODIFIED},
};

use super::{
    body::{content_type, is_gzip},
    error::Failure,
};

/// Maximum characters shown of an unknown encoding.
const ENCODING_CHARS_MAX: usize = 40;

/// The stored part of a file.
#[derive(Clone, Copy, Debug)]
pub struct PartialDownload<'a> {
    pub bytes: u64,
    /// The [`DownloadStart::validator`] of the stored part.
    pub validator: &'a str,
}

/// What the headers of a download state about the file and its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DownloadStart {
    /// The position in the file at which the body starts. The bytes before are stored already.
    pub offset: u64,
    /// Identifies this version of the file; `None` if the host does not support resuming.
    pub validator: Option<String>,
    /// Size of the complete file in bytes, if known.
    pub length: Option<u64>,
    /// Media type in lower case, without parameters.
    pub media_type: Option<String>,
}

/// Why the body of an answer cannot be used.
#[derive(Debug)]
pub(super) enum UnusableBody {
    /// The body is another part of the file than requested, or the answer contradicts itself. Without a range, the host
    /// may send the whole file.
    Part(Failure),
    /// The body cannot be read.
    Encoding(Failure),
}

/// Reads the headers of an answer with status 200 or 206. `body_bytes` is the announced length of the body. The second
/// value is true if the body is a gzip stream. Of a compressed body, neither length nor positions in the file are
/// known, so the download cannot be resumed.
pub(super) fn download_start(
    status: StatusCode,
    headers: &HeaderMap,
    body_bytes: Option<u64>,
    partial: Option<PartialDownload<'_>>,
) -> Result<(DownloadStart, bool), UnusableBody> {
    let is_gzip = is_gzip(headers).map_err(|encoding| {
        UnusableBody::Encoding(Failure::UnknownEncoding {
            encoding: encoding.chars().take(ENCODING_CHARS_MAX).collect(),
        })
    })?;
    let media_type = content_type(headers).split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let whole = DownloadStart {
        offset: 0,
        validator: validator(headers).filter(|_| !is_gzip),
        length: body_bytes.filter(|_| !is_gzip),
        media_type: Some(media_type).filter(|media_type| !media_type.is_empty()),
    };
    let range = headers.get(CONTENT_RANGE);
    // Some hosts name a range with status 200.
    if status != StatusCode::PARTIAL_CONTENT && range.is_none() {
        return Ok((whole, is_gzip));
    }
    let range = range.and_then(|range| range.to_str().ok()).and_then(content_range);
    let tail = range.ok_or_else(|| unusable("it names no range, or one that stops before the end of the file"))?;
    if body_bytes.is_some_and(|bytes| bytes != tail.length - tail.first) {
        return Err(unusable("its range and its length differ"));
    }
    if tail.first == 0 {
        let length = Some(tail.length).filter(|_| !is_gzip);
        return Ok((DownloadStart { length, ..whole }, is_gzip));
    }
    let is_part = status == StatusCode::PARTIAL_CONTENT && !is_gzip;
    let Some(partial) = partial.filter(|partial| is_part && partial.bytes == tail.first) else {
        return Err(unusable("it starts at another byte than requested"));
    };
    if whole.validator.as_deref().is_some_and(|validator| validator != partial.validator) {
        return Err(unusable("it is of another version of the file"));
    }
    Ok((DownloadStart { offset: tail.first, length: Some(tail.length), ..whole }, false))
}

fn unusable(detail: &str) -> UnusableBody {
    UnusableBody::Part(Failure::Cut { bytes: 0, detail: format!("the answer is not the requested part: {detail}") })
}

/// The last bytes of a file, as a `Content-Range` header announces them.
#[derive(Debug, PartialEq, Eq)]
struct FileTail {
    /// The position of the first byte.
    first: u64,
    /// Size of the complete file in bytes; more than `first`.
    length: u64,
}

/// Parses a `Content-Range` such as `bytes 100-199/200`. `None` if the file's length is unknown, if the range is empty,
/// or if it stops before the end of the file.
fn content_range(text: &str) -> Option<FileTail> {
    let (unit, range) = text.trim().split_once(' ')?;
    let (range, length) = range.split_once('/').filter(|_| unit.eq_ignore_ascii_case("bytes"))?;
    let (first, last) = range.split_once('-')?;
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse::<u64>().ok()?);
    let length = length.trim().parse().ok()?;
    (first <= last && last.checked_add(1)? == length).then_some(FileTail { first, length })
}

/// Returns a text that identifies the version of the file: its strong entity tag, or else the date of its last change.
/// `None` if the headers have neither, or if the host does not send ranges.
fn validator(headers: &HeaderMap) -> Option<String> {
    if text_of(headers, &ACCEPT_RANGES).is_some_and(|units| units.trim().eq_ignore_ascii_case("none")) {
        return None;
    }
    let tag = text_of(headers, &ETAG).filter(|tag| !tag.starts_with("W/"));
    tag.or_else(|| text_of(headers, &LAST_MODIFIED)).map(str::to_owned)
}

fn text_of<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    }

    /// The offset and the length of a body of ten bytes; the name of the error otherwise.
    fn start(
        status: u16,
        pairs: &[(&'static str, &'static str)],
        stored: u64,
    ) -> Result<(u64, Option<u64>), &'static str> {
        let partial = (stored > 0).then_some(PartialDownload { bytes: stored, validator: "\"a\"" });
        match download_start(StatusCode::from_u16(status).unwrap(), &headers(pairs), Some(10), partial) {
            Ok((start, _)) => Ok((start.offset, start.length)),
            Err(UnusableBody::Part(_)) => Err("part"),
            Err(UnusableBody::Encoding(_)) => Err("encoding"),
        }
    }

    #[test]
    fn p2_only_the_requested_part_continues_a_file() {
        let range = |range: &'static str| start(206, &[("content-range", range)], 5);
        assert_eq!(range("bytes 5-14/15"), Ok((5, Some(15))));
        assert_eq!(range("Bytes 5-14/15"), Ok((5, Some(15))));
        assert_eq!(range("bytes 0-9/10"), Ok((0, Some(10))), "the whole file");
        for other in
            ["bytes 4-13/14", "bytes 6-15/16", "bytes 5-14/20", "bytes 5-14/*", "bytes */15", "bytes 5-11/12", "x", ""]
        {
            assert_eq!(range(other), Err("part"), "{other}");
        }
        // A last byte before the first one, and a body that is longer than its range.
        assert_eq!((range("bytes 5-1/2"), range("bytes 0-4/5")), (Err("part"), Err("part")));
        assert_eq!(start(206, &[], 5), Err("part"));
        assert_eq!(start(206, &[], 0), Err("part"));
        assert_eq!(start(206, &[("content-range", "bytes 5-14/15")], 0), Err("part"), "nothing is stored");
        let other_version = [("content-range", "bytes 5-14/15"), ("etag", "\"b\"")];
        assert_eq!(start(206, &other_version, 5), Err("part"));
        let parts = [("content-type", "multipart/byteranges; boundary=x")];
        assert_eq!(start(206, &parts, 5), Err("part"));
    }

    #[test]
    fn p2_a_200_that_names_a_range_is_no_whole_file() {
        assert_eq!(start(200, &[], 5), Ok((0, Some(10))));
        assert_eq!(start(200, &[("content-range", "bytes 0-9/10")], 5), Ok((0, Some(10))));
        for range in ["bytes 5-14/15", "bytes 0-9/20", "bytes 0-9/*", "bytes */10"] {
            assert_eq!(start(200, &[("content-range", range)], 5), Err("part"), "{range}");
            assert_eq!(start(200, &[("content-range", range)], 0), Err("part"), "{range}");
        }
    }

    #[test]
    fn p2_a_compressed_file_has_no_positions() {
        let gzip = ("content-encoding", "gzip");
        assert_eq!(start(200, &[gzip], 0), Ok((0, None)));
        assert_eq!(start(206, &[gzip, ("content-range", "bytes 5-14/15")], 5), Err("part"));
        assert_eq!(start(200, &[("content-encoding", "br")], 0), Err("encoding"));
        let tagged = headers(&[gzip, ("etag", "\"a\"")]);
        let (start, is_gzip) = download_start(StatusCode::OK, &tagged, Some(10), None).unwrap();
        assert!(is_gzip && start.validator.is_none());
    }

    #[test]
    fn a_weak_tag_is_no_validator() {
        assert_eq!(validator(&headers(&[("etag", "\"a\"")])).as_deref(), Some("\"a\""));
        assert_eq!(validator(&headers(&[("etag", "W/\"a\"")])), None);
        let dated = [("etag", "W/\"a\""), ("last-modified", "Thu, 26 Nov 2026 08:00:00 GMT")];
        assert_eq!(validator(&headers(&dated)).as_deref(), Some("Thu, 26 Nov 2026 08:00:00 GMT"));
        assert_eq!(validator(&headers(&[("etag", "\"a\""), ("accept-ranges", "none")])), None);
    }
}
