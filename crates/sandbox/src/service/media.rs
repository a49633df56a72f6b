//! Serves recordings as another host would: without a key, with range requests, and only for links that have not
//! expired.

use axum::{
    body::Bytes,
    http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header},
};

use memchr::memmem::find;

use super::{
    super::{
        media::{Media, RangeAnswer},
        random::Random,
    },
    reply::{Reply, gzip},
};

/// The host of links in generated rows.
pub(super) const HOST: &str = "media.example.com";
/// The beginning of links to recordings in generated rows.
const GENERATED: &[u8] = b"https://media.example.com/";
/// The path below which the sandbox serves recordings.
const PATH: &str = "/media/";
/// The end of links to recordings in generated rows.
const ENDS: &[u8] = b"/download\"";

/// Replaces the links to recordings in a page by links that lead to the sandbox. `request_host` is the host of the list
/// request, with its port. A set `media.host` replaces the host and keeps the port.
pub(crate) fn with_links(body: &Bytes, media: &Media, request_host: &str) -> Bytes {
    let port = request_host.rsplit_once(':').map(|(_, port)| format!(":{port}")).unwrap_or_default();
    let host = if media.host.is_empty() { request_host.to_owned() } else { format!("{}{port}", media.host) };
    let begin = format!("http://{host}{PATH}");
    let end = format!("/download?g={}\"", media.generation);
    let mut linked = Vec::with_capacity(body.len());
    let mut rest: &[u8] = body;
    while let Some(at) = find(rest, GENERATED) {
        let (before, link) = rest.split_at(at);
        linked.extend_from_slice(before);
        let link = link.get(GENERATED.len()..).unwrap_or_default();
        linked.extend_from_slice(begin.as_bytes());
        // A recording also has a link to a playlist, which ends in another way. Of this link only the host changes.
        let quote = find(link, b"\"").unwrap_or(link.len());
        rest = match find(link, ENDS).filter(|ends| *ends < quote) {
            Some(ends) => {
                linked.extend_from_slice(link.get(..ends).unwrap_or_default());
                linked.extend_from_slice(end.as_bytes());
                link.get(ends + ENDS.len()..).unwrap_or_default()
            }
            None => link,
        };
    }
    linked.extend_from_slice(rest);
    Bytes::from(linked)
}

/// Generates the bytes of an upload's recording. The same upload always has the same bytes.
fn content(upload: &str, media: &Media) -> Bytes {
    let seed = upload.bytes().fold(7_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
    let mut random = Random::new(seed, 3);
    let usual = media.bytes + random.below(media.bytes / 2 + 1);
    let bytes = if upload == media.large_upload { media.large_bytes } else { usual };
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    let mut content = Vec::with_capacity(bytes + 32);
    // The first bytes of an MP4 file.
    content.extend_from_slice(b"\0\0\0\x18ftypmp42");
    while content.len() < bytes {
        content.extend_from_slice(&random.next().to_le_bytes());
    }
    content.truncate(bytes);
    Bytes::from(content)
}

/// Returns the id of the upload whose recording is at this path; `None` if the path is not of a recording.
pub(super) fn upload_at(path: &str) -> Option<&str> {
    path.strip_prefix(PATH)?.strip_suffix("/download")
}

/// Answers a request for the recording of an upload. Refuses a request with a key, with another method than GET, or to
/// an expired link. By the settings, a recording may also be lost (404), or a web page may replace it.
pub(super) fn answer(upload: &str, method: &Method, uri: &Uri, headers: &HeaderMap, media: &Media) -> Reply {
    if headers.contains_key(header::AUTHORIZATION) {
        return Reply::error(StatusCode::BAD_REQUEST, "no key belongs into a request for a recording");
    }
    if method != Method::GET {
        return Reply::not_allowed("GET");
    }
    if uri.query() != Some(&format!("g={}", media.generation)) {
        return Reply::error(StatusCode::FORBIDDEN, "the link has aged");
    }
    if upload.bytes().map(u64::from).sum::<u64>() % 100 < media.lost_percent {
        return Reply::error(StatusCode::NOT_FOUND, "no such recording");
    }
    if media.is_web_page {
        let page = Reply::json(StatusCode::OK, "<!doctype html><title>Sign in</title>");
        return Reply { content_type: Some("text/html; charset=utf-8"), ..page };
    }
    complete_or_part(upload, headers, media)
}

/// Replies with the recording, or with the bytes that `Range` requests. `If-Range` with another `ETag` gets the
/// complete recording, and so does a range in another form than `bytes=N-`.
fn complete_or_part(upload: &str, headers: &HeaderMap, media: &Media) -> Reply {
    let content = content(upload, media);
    let content_type =
        if upload.ends_with(|last: char| last.is_ascii_digit()) { "video/mp4" } else { "audio/mpeg; codecs=mp3" };
    let reply = Reply { content_type: Some(content_type), ..Reply::json(StatusCode::OK, content.clone()) };
    if media.is_gzip {
        return Reply { body: gzip(&content), ..reply }
            .with_header(header::CONTENT_ENCODING, Some(HeaderValue::from_static("gzip")));
    }
    if media.has_no_ranges {
        return reply;
    }
    let tag = format!("\"{upload}-{}\"", content.len());
    let value = |name: header::HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let from =
        value(header::RANGE).and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse::<usize>().ok());
    let from = from.filter(|_| value(header::IF_RANGE).is_none_or(|wanted| wanted == tag));
    // An id from a path has no characters that a header does not allow.
    let header_value = |text: String| HeaderValue::try_from(text).ok();
    let named = reply
        .with_header(header::ETAG, header_value(tag.clone()))
        .with_header(header::ACCEPT_RANGES, header_value("bytes".to_owned()));
    let Some(from) = from else { return named };
    if from >= content.len() {
        return Reply::error(StatusCode::RANGE_NOT_SATISFIABLE, "no such range");
    }
    let complete = content.len();
    let (from, to) = match media.range_answer {
        RangeAnswer::Status400 => return Reply::bad_request("no range, please"),
        RangeAnswer::Status500 => return Reply::error(StatusCode::INTERNAL_SERVER_ERROR, "internal error"),
        RangeAnswer::Whole => (0, complete),
        RangeAnswer::Earlier => (from.saturating_sub(1), complete),
        RangeAnswer::Fewer => (from, complete - 1),
        _ => (from, complete),
    };
    let range = match media.range_answer {
        RangeAnswer::Unnamed => None,
        RangeAnswer::UnknownLength => Some(format!("bytes {from}-{}/*", to.saturating_sub(1))),
        _ => Some(format!("bytes {from}-{}/{complete}", to.saturating_sub(1))),
    };
    let status = match media.range_answer {
        RangeAnswer::Status200 => StatusCode::OK,
        _ => StatusCode::PARTIAL_CONTENT,
    };
    Reply { status, body: content.slice(from..to.max(from)), ..named }
        .with_header(header::CONTENT_RANGE, range.and_then(header_value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_here_and_other_texts_stay() {
        let media = Media { generation: 7, ..Media::default() };
        let body = br#"{"downloadUrl":"https://media.example.com/u-1/download","x":"https://media.example.com/u-1.m3u8","y":"/download"}"#;
        let made = with_links(&Bytes::from_static(body), &media, "127.0.0.1:9");
        let wanted = r#"{"downloadUrl":"http://127.0.0.1:9/media/u-1/download?g=7","x":"http://127.0.0.1:9/media/u-1.m3u8","y":"/download"}"#;
        assert_eq!(std::str::from_utf8(&made).unwrap(), wanted);
        let media = Media { host: "localhost".to_owned(), ..media };
        let made = with_links(&Bytes::from_static(body), &media, "127.0.0.1:9");
        assert!(std::str::from_utf8(&made).unwrap().contains("\"http://localhost:9/media/u-1/download?g=7\""));
        assert_eq!(with_links(&Bytes::from_static(b"{}"), &media, ""), b"{}"[..]);
    }
}
