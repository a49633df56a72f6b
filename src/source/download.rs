//! Downloads recordings from the links that the service returns. Links usually lead to another host, so requests carry
//! no key. Each request needs a permit of the gate until the status of the answer is known. Answers of other hosts do
//! not change the gate.

use std::time::Duration;

use bytes::Bytes;
use reqwest::{
    Client, Method, Request, StatusCode, Url,
    header::{
        ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_RANGE, ETAG, HeaderMap, HeaderName, HeaderValue, IF_RANGE,
        LAST_MODIFIED, LOCATION, RANGE,
    },
};
use tokio::time::{Instant, timeout};

use super::{
    client,
    error::{Failure, Stop},
    error_cause::cause_of,
    gate::Permit,
    settings::is_loopback,
    transport::Reply,
    wire::{SendOutcome, Tally, Wire, content_type},
};
use crate::model::Activity;

/// A download that is slower than this many bytes per [`MIN_RATE_INTERVAL`] fails, so that it cannot stall the run.
const MIN_RATE_BYTES: u64 = 64 << 10;
const MIN_RATE_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum redirects of one download.
const REDIRECTS_MAX: usize = 5;

/// The status in the failure of a download that cannot resume, because the host has another version of the file. Hosts
/// also answer with this status, to a range that their file does not have.
pub const OTHER_VERSION_STATUS: u16 = 416;

/// A download to start or resume.
#[derive(Clone, Copy, Debug)]
pub struct DownloadRequest<'a> {
    /// The link, as the service sent it.
    pub link: &'a str,
    /// The stored part of the file; `None` downloads the complete file. The download resumes after this part if the
    /// host still has the same version of the file.
    pub partial: Option<PartialDownload<'a>>,
}

/// The stored part of a file.
#[derive(Clone, Copy, Debug)]
pub struct PartialDownload<'a> {
    pub bytes: u64,
    /// The [`DownloadStart::validator`] of the stored part.
    pub validator: &'a str,
}

/// Returns the host and port of a link, to compare hosts. Empty if the text is not a URL.
pub fn host_of(link: &str) -> String {
    let url = Url::parse(link).ok();
    url.map(|url| format!("{}:{:?}", url.host_str().unwrap_or_default(), url.port_or_known_default()))
        .unwrap_or_default()
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

/// Receives the chunks of a file.
pub trait DownloadSink {
    /// The reason why the sink stops the download.
    type Error;

    /// Called before each request, after the wait for the rate limit. The sink can decline the request, because another
    /// download from this host may have failed during the wait.
    fn before_request(&mut self) -> Result<(), Self::Error>;

    /// Called once, before the first chunk.
    fn start(&mut self, start: &DownloadStart) -> Result<(), Self::Error>;

    /// Called for each chunk.
    fn take(&mut self, bytes: &[u8]) -> Result<(), Self::Error>;
}

/// The result of a download.
#[derive(Debug)]
pub enum DownloadOutcome<E> {
    /// The file is complete.
    Complete(DownloadStart),
    /// The host refused the link with this 4xx: the link has expired or is wrong.
    Refused(u16),
    /// The link must not be followed. The text says why, and calls the link "it".
    BadLink(String),
    /// The host answered 429 or 503.
    RateLimited,
    /// A failure that is worth a retry.
    Failed(Failure),
    /// The sink stopped the download.
    Declined(E),
}

/// The answer to a request for a file, before its body.
enum DownloadResponse {
    Replied(Reply),
    Redirect(Url),
    Refused(u16),
    BadLink(String),
    RateLimited,
    Failed(Failure),
}

impl Wire {
    /// Downloads a link into `sink` and follows up to [`REDIRECTS_MAX`] redirects. `base` is the base URL of the
    /// service. `Err` means that the run has to stop.
    pub(super) async fn download<S: DownloadSink>(
        &self,
        base: &Url,
        request: DownloadRequest<'_>,
        sink: &mut S,
    ) -> Result<DownloadOutcome<S::Error>, Stop> {
        let mut url = match checked_link(request.link, base) {
            Ok(url) => url,
            Err(why) => return Ok(DownloadOutcome::BadLink(why)),
        };
        for _ in 0..=REDIRECTS_MAX {
            let permit = self.gate.permit().await?;
            if let Err(declined) = sink.before_request() {
                return Ok(DownloadOutcome::Declined(declined));
            }
            let mut tally = Tally::new(self, false);
            match self.begin_download(permit, base, &url, request.partial, &mut tally).await? {
                DownloadResponse::Replied(reply) => {
                    return self.stream_body(reply, request.partial, sink, &mut tally).await;
                }
                DownloadResponse::Redirect(next) => url = next,
                DownloadResponse::Refused(status) => return Ok(DownloadOutcome::Refused(status)),
                DownloadResponse::BadLink(why) => return Ok(DownloadOutcome::BadLink(why)),
                DownloadResponse::RateLimited => return Ok(DownloadOutcome::RateLimited),
                DownloadResponse::Failed(failure) => return Ok(DownloadOutcome::Failed(failure)),
            }
        }
        Ok(DownloadOutcome::BadLink(format!("it is redirected more than {REDIRECTS_MAX} times")))
    }

    /// Sends the request and classifies the answer by its status. `Err` means that the run has to stop.
    async fn begin_download(
        &self,
        permit: Permit,
        base: &Url,
        url: &Url,
        partial: Option<PartialDownload<'_>>,
        tally: &mut Tally<'_>,
    ) -> Result<DownloadResponse, Stop> {
        let mut request = Request::new(Method::GET, url.clone());
        if let Some(partial) = partial {
            let validator = HeaderValue::try_from(partial.validator);
            let range = HeaderValue::try_from(format!("bytes={}-", partial.bytes));
            if let (Ok(validator), Ok(range)) = (validator, range) {
                request.headers_mut().insert(IF_RANGE, validator);
                request.headers_mut().insert(RANGE, range);
            }
        }
        let _booked = self.gate.account().enter(Activity::Network);
        let is_of_service = base.origin() == url.origin();
        let client = match self.downloads(base.scheme() == "http") {
            Ok(client) => client,
            Err(failure) => return Ok(DownloadResponse::Failed(failure)),
        };
        let permit_to_report = is_of_service.then_some(&permit);
        let sending = timeout(self.timeout, self.send_download(client, request, permit_to_report, tally));
        let outcome = self
            .gate
            .unless_stopped(sending)
            .await?
            .unwrap_or_else(|_| SendOutcome::Failed(Failure::timed_out(self.timeout)));
        drop(permit);
        let reply = match outcome {
            SendOutcome::Replied(reply) => reply,
            SendOutcome::RateLimited => return Ok(DownloadResponse::RateLimited),
            SendOutcome::Failed(failure) => return Ok(DownloadResponse::Failed(failure)),
        };
        let status = reply.status();
        tracing::debug!(status = status.as_u16(), host = url.host_str().unwrap_or_default(), "a recording");
        Ok(match status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => DownloadResponse::RateLimited,
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY => failed_with(status),
            // The stored part is of another version of the file: the caller discards the part and starts from the
            // beginning.
            StatusCode::RANGE_NOT_SATISFIABLE => failed_with(status),
            StatusCode::OK | StatusCode::PARTIAL_CONTENT => DownloadResponse::Replied(reply),
            _ if status.is_redirection() => classify_redirect(&reply, base),
            _ if status.is_client_error() => DownloadResponse::Refused(status.as_u16()),
            _ => failed_with(status),
        })
    }

    /// Sends the request and records its status in `tally`. `permit_to_report` is `Some` if the link is of the service
    /// itself, so that the gate takes note of the answer. `None` for another host: its answers do not change the gate.
    async fn send_download(
        &self,
        client: &Client,
        request: Request,
        permit_to_report: Option<&Permit>,
        tally: &mut Tally<'_>,
    ) -> SendOutcome {
        if let Some(permit) = permit_to_report {
            return self.send_with(client, request, permit, tally).await;
        }
        match self.transmit(client, request).await {
            Ok(reply) => {
                tally.status = Some(reply.status().as_u16());
                SendOutcome::Replied(reply)
            }
            Err(failure) => SendOutcome::Failed(failure),
        }
    }

    /// Passes the body to `sink`. The outcome is `Failed` if the body stalls, is too slow, breaks off or has not the
    /// announced length. `Err` means that the run has to stop.
    async fn stream_body<S: DownloadSink>(
        &self,
        mut reply: Reply,
        partial: Option<PartialDownload<'_>>,
        sink: &mut S,
        tally: &mut Tally<'_>,
    ) -> Result<DownloadOutcome<S::Error>, Stop> {
        let _booked = self.gate.account().enter(Activity::Network);
        let start = match download_start(&reply, partial) {
            Ok(start) => start,
            Err(failure) => return Ok(DownloadOutcome::Failed(failure)),
        };
        if let Err(declined) = sink.start(&start) {
            return Ok(DownloadOutcome::Declined(declined));
        }
        let mut offset = start.offset;
        let (mut interval_start, mut interval_offset) = (Instant::now(), offset);
        loop {
            let chunk = match self.next_chunk(&mut reply, offset).await? {
                Ok(Some(chunk)) => chunk,
                Ok(None) => break,
                Err(failure) => return Ok(DownloadOutcome::Failed(failure)),
            };
            offset += chunk.len() as u64;
            if interval_start.elapsed() >= MIN_RATE_INTERVAL {
                if offset - interval_offset < MIN_RATE_BYTES {
                    return Ok(DownloadOutcome::Failed(Failure::hung(MIN_RATE_INTERVAL, as_size(offset))));
                }
                (interval_start, interval_offset) = (Instant::now(), offset);
            }
            tally.read_bytes += chunk.len();
            if let Err(declined) = sink.take(&chunk) {
                return Ok(DownloadOutcome::Declined(declined));
            }
        }
        match start.length {
            Some(length) if length != offset => Ok(DownloadOutcome::Failed(Failure::Cut {
                bytes: as_size(offset),
                detail: format!("{length} bytes were announced"),
            })),
            _ => Ok(DownloadOutcome::Complete(start)),
        }
    }

    /// Reads the next chunk of a body; `None` at the end of the body. `offset` is the position in the file, for
    /// messages. The outer `Err` means that the run has to stop.
    async fn next_chunk(&self, reply: &mut Reply, offset: u64) -> Result<Result<Option<Bytes>, Failure>, Stop> {
        let (idle, bytes) = (self.body_limits.idle, as_size(offset));
        let chunk = self.gate.unless_stopped(timeout(idle, reply.chunk())).await?;
        Ok(match chunk {
            Err(_) => Err(Failure::hung(idle, bytes)),
            Ok(Err(error)) => Err(Failure::Cut { bytes, detail: cause_of(error) }),
            Ok(Ok(chunk)) => Ok(chunk),
        })
    }

    /// Returns the client for links, which sends no key. The first call builds the client. `is_local`: the service and
    /// the link targets are on this machine.
    fn downloads(&self, is_local: bool) -> Result<&Client, Failure> {
        let build = || client::build_for_links(self.timeout, is_local).map_err(|error| error.to_string());
        let built = self.download_client.get_or_init(build);
        built.as_ref().map_err(|error| Failure::Connect { detail: error.clone() })
    }
}

fn failed_with(status: StatusCode) -> DownloadResponse {
    DownloadResponse::Failed(Failure::Status { status: status.as_u16(), message: String::new() })
}

/// Classifies a redirect: `Redirect` if the link in `Location` may be followed, otherwise `BadLink` with the reason.
/// `base` is the base URL of the service.
fn classify_redirect(reply: &Reply, base: &Url) -> DownloadResponse {
    let location = reply.headers().get(LOCATION).and_then(|location| location.to_str().ok());
    let next = location.and_then(|location| reply.url().join(location).ok());
    match next.map(|next| checked_link(next.as_str(), base)) {
        Some(Ok(next)) => DownloadResponse::Redirect(next),
        Some(Err(why)) => DownloadResponse::BadLink(format!("it is redirected: {why}")),
        None => DownloadResponse::BadLink("it is redirected to nowhere".to_owned()),
    }
}

/// Parses a link that may be followed: https, or http on this machine if the service's address is http too. The error
/// says why the link may not be followed, and calls the link "it".
fn checked_link(link: &str, base: &Url) -> Result<Url, String> {
    let url = Url::parse(link).map_err(|error| format!("it is no address: {error}"))?;
    let host = url.host_str().unwrap_or_default();
    match url.scheme() {
        "https" if !host.is_empty() => Ok(url),
        "http" if is_loopback(host) && base.scheme() == "http" => Ok(url),
        scheme => Err(format!("its scheme is {scheme}, and only https is followed")),
    }
}

/// Reads the headers of an answer with status 200 or 206. Fails if a 206 does not continue the stored part up to the
/// end of the file. Also fails if the body is compressed, because offsets would not be positions in the file.
fn download_start(reply: &Reply, partial: Option<PartialDownload<'_>>) -> Result<DownloadStart, Failure> {
    let headers = reply.headers();
    let media_type = content_type(headers).split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let encoding = text_of(headers, &CONTENT_ENCODING).filter(|encoding| !encoding.eq_ignore_ascii_case("identity"));
    if let Some(encoding) = encoding {
        return Err(Failure::UnknownEncoding { encoding: encoding.chars().take(40).collect() });
    }
    let mut start = DownloadStart {
        offset: 0,
        validator: validator(headers),
        length: reply.content_length(),
        media_type: Some(media_type).filter(|media_type| !media_type.is_empty()),
    };
    if reply.status() == StatusCode::PARTIAL_CONTENT {
        let tail = text_of(headers, &CONTENT_RANGE).and_then(content_range);
        let tail =
            tail.ok_or_else(|| bad_range("the answer names no range, or one that stops before the end of the file"))?;
        let partial = partial.ok_or_else(|| bad_range("a part was sent that was not asked for"))?;
        if tail.first != partial.bytes {
            return Err(bad_range("the answer starts at another byte than requested"));
        }
        if start.validator.as_deref().is_some_and(|validator| validator != partial.validator) {
            let message = "a part of another version was sent".to_owned();
            return Err(Failure::Status { status: OTHER_VERSION_STATUS, message });
        }
        (start.offset, start.length) = (tail.first, Some(tail.length));
    }
    Ok(start)
}

fn as_size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn bad_range(detail: &str) -> Failure {
    Failure::Cut { bytes: 0, detail: detail.to_owned() }
}

/// The last bytes of a file, as a `Content-Range` header announces them.
#[derive(Debug, PartialEq, Eq)]
struct FileTail {
    /// The position of the first byte.
    first: u64,
    /// Size of the complete file in bytes.
    length: u64,
}

/// Parses a `Content-Range` such as `bytes 100-199/200`. `None` if the file's length is unknown, or if the range stops
/// before the end of the file.
fn content_range(text: &str) -> Option<FileTail> {
    let (range, length) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse::<u64>().ok()?);
    let length = length.trim().parse().ok()?;
    (last.checked_add(1)? == length).then_some(FileTail { first, length })
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
    use super::*;

    #[test]
    fn only_https_links_and_local_links_are_followed() {
        let (far, here) = (Url::parse("https://api.example").unwrap(), Url::parse("http://127.0.0.1:1").unwrap());
        assert!(checked_link("https://media.example/x?sig=1", &far).is_ok());
        assert!(checked_link("http://127.0.0.1:9/x", &here).is_ok());
        for link in ["http://media.example/x", "http://127.0.0.1:9/x", "file:///etc/passwd", "ftp://x/y", "x", ""] {
            assert!(checked_link(link, &far).is_err(), "{link}");
        }
        assert!(checked_link("http://media.example/x", &here).is_err());
    }

    #[test]
    fn ranges_are_read() {
        assert_eq!(content_range("bytes 100-199/200"), Some(FileTail { first: 100, length: 200 }));
        for text in ["bytes 0-9/*", "bytes 100-149/200", "bytes */200", "items 1-2/3", "bytes 1-2", ""] {
            assert_eq!(content_range(text), None, "{text}");
        }
    }

    #[test]
    fn a_weak_tag_is_no_validator() {
        let headers = |pairs: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.insert(*name, HeaderValue::from_static(value));
            }
            headers
        };
        assert_eq!(validator(&headers(&[("etag", "\"a\"")])).as_deref(), Some("\"a\""));
        assert_eq!(validator(&headers(&[("etag", "W/\"a\"")])), None);
        let dated = [("etag", "W/\"a\""), ("last-modified", "Thu, 26 Nov 2026 08:00:00 GMT")];
        assert_eq!(validator(&headers(&dated)).as_deref(), Some("Thu, 26 Nov 2026 08:00:00 GMT"));
        assert_eq!(validator(&headers(&[("etag", "\"a\""), ("accept-ranges", "none")])), None);
    }
}
