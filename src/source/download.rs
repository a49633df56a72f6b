//! Downloads recordings from the links that the service returns. Links usually lead to another host, so requests carry
//! no key. Each request needs a permit of the gate until the status of the answer is known. Answers of other hosts do
//! not change the gate.

use std::{
    io::{self, Write as _},
    time::Duration,
};

use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use reqwest::{
    Client, Method, Request, StatusCode, Url,
    header::{HeaderValue, IF_RANGE, LOCATION, RANGE},
};
use tokio::time::{Instant, timeout};

use super::{
    address::is_loopback,
    client,
    download_start::{DownloadStart, PartialDownload, UnusableBody, download_start},
    error::{Failure, Stop},
    error_cause::cause_of,
    gate::Permit,
    transport::Reply,
    wire::{SendOutcome, Tally, Wire},
};
use crate::model::Activity;

/// A download that is slower than this many bytes per [`MIN_RATE_INTERVAL`] fails, so that it cannot stall the run.
const MIN_RATE_BYTES: u64 = 64 << 10;
const MIN_RATE_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum redirects of one download.
const REDIRECTS_MAX: usize = 5;

/// Compressed bytes that are unpacked at a time, to limit the memory: they become at most a thousand times as many.
const GZIP_BYTES_AT_ONCE: usize = 1024;

/// A download to start or resume.
#[derive(Clone, Copy, Debug)]
pub struct DownloadRequest<'a> {
    /// The link, as the service sent it.
    pub link: &'a str,
    /// The stored part of the file; `None` downloads the complete file. The download resumes after this part if the
    /// host still has the same version of the file.
    pub partial: Option<PartialDownload<'a>>,
}

/// Returns the host and port of a link, to compare hosts. Empty if the text is not a URL.
pub fn host_of(link: &str) -> String {
    let url = Url::parse(link).ok();
    url.map(|url| format!("{}:{:?}", url.host_str().unwrap_or_default(), url.port_or_known_default()))
        .unwrap_or_default()
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
    /// The host did not continue the stored part, or sent something else than it announced. A retry must request the
    /// whole file.
    UnusablePart(Failure),
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
    UnusablePart(Failure),
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
                DownloadResponse::UnusablePart(failure) => return Ok(DownloadOutcome::UnusablePart(failure)),
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
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY => DownloadResponse::Failed(failure_of(status)),
            // The host has another version of the file, or cannot send a part of it.
            StatusCode::RANGE_NOT_SATISFIABLE | StatusCode::BAD_REQUEST | StatusCode::PRECONDITION_FAILED
                if partial.is_some() =>
            {
                DownloadResponse::UnusablePart(failure_of(status))
            }
            StatusCode::OK | StatusCode::PARTIAL_CONTENT => DownloadResponse::Replied(reply),
            _ if status.is_redirection() => classify_redirect(&reply, base),
            _ if status.is_client_error() => DownloadResponse::Refused(status.as_u16()),
            _ => DownloadResponse::Failed(failure_of(status)),
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

    /// Passes the body to `sink`, unpacked. The outcome is `Failed` if the body stalls, is too slow or breaks off, and
    /// `UnusablePart` if it has not the announced length or is another part of the file than requested. `Err` means
    /// that the run has to stop.
    async fn stream_body<S: DownloadSink>(
        &self,
        mut reply: Reply,
        partial: Option<PartialDownload<'_>>,
        sink: &mut S,
        tally: &mut Tally<'_>,
    ) -> Result<DownloadOutcome<S::Error>, Stop> {
        let _booked = self.gate.account().enter(Activity::Network);
        let announced = download_start(reply.status(), reply.headers(), reply.content_length(), partial);
        let (start, is_gzip) = match announced {
            Ok(start) => start,
            Err(UnusableBody::Part(failure)) => return Ok(DownloadOutcome::UnusablePart(failure)),
            Err(UnusableBody::Encoding(failure)) => return Ok(DownloadOutcome::Failed(failure)),
        };
        if let Err(declined) = sink.start(&start) {
            return Ok(DownloadOutcome::Declined(declined));
        }
        let mut unpacked = is_gzip.then(|| MultiGzDecoder::new(Vec::new()));
        let mut offset = start.offset;
        let (mut interval_start, mut interval_offset) = (Instant::now(), offset);
        loop {
            let chunk = match self.next_chunk(&mut reply, offset).await? {
                Ok(Some(chunk)) => chunk,
                Ok(None) => break,
                // A host that sends nothing of a part may send the whole file.
                Err(failure) if start.offset > 0 && offset == start.offset => {
                    return Ok(DownloadOutcome::UnusablePart(failure));
                }
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
            let taken = match &mut unpacked {
                None => sink.take(&chunk).map_err(DownloadOutcome::Declined),
                Some(decoder) => unpack(decoder, &chunk, offset, sink),
            };
            if let Err(outcome) = taken {
                return Ok(outcome);
            }
        }
        if let Some(decoder) = unpacked.as_mut().filter(|_| offset > 0)
            && let Err(outcome) = finish_unpacking(decoder, offset, sink)
        {
            return Ok(outcome);
        }
        match start.length {
            Some(length) if length != offset => Ok(DownloadOutcome::UnusablePart(Failure::Cut {
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
        let build =
            || client::build_for_links(self.timeout, &self.proxies, is_local).map_err(|error| error.to_string());
        let built = self.download_client.get_or_init(build);
        built.as_ref().map_err(|error| Failure::Connect { detail: error.clone() })
    }
}

fn failure_of(status: StatusCode) -> Failure {
    Failure::Status { status: status.as_u16(), message: String::new() }
}

/// Passes the unpacked bytes of a chunk to `sink`. `offset` is the number of bytes before the end of the chunk.
fn unpack<S: DownloadSink>(
    decoder: &mut MultiGzDecoder<Vec<u8>>,
    chunk: &[u8],
    offset: u64,
    sink: &mut S,
) -> Result<(), DownloadOutcome<S::Error>> {
    for part in chunk.chunks(GZIP_BYTES_AT_ONCE) {
        decoder.write_all(part).map_err(|error| DownloadOutcome::Failed(bad_gzip(offset, &error)))?;
        take_unpacked(decoder, sink)?;
    }
    Ok(())
}

/// Passes the last unpacked bytes to `sink`. Fails if the gzip stream is incomplete.
fn finish_unpacking<S: DownloadSink>(
    decoder: &mut MultiGzDecoder<Vec<u8>>,
    offset: u64,
    sink: &mut S,
) -> Result<(), DownloadOutcome<S::Error>> {
    decoder.try_finish().map_err(|error| DownloadOutcome::Failed(bad_gzip(offset, &error)))?;
    take_unpacked(decoder, sink)
}

fn take_unpacked<S: DownloadSink>(
    decoder: &mut MultiGzDecoder<Vec<u8>>,
    sink: &mut S,
) -> Result<(), DownloadOutcome<S::Error>> {
    let bytes = std::mem::take(decoder.get_mut());
    if bytes.is_empty() { Ok(()) } else { sink.take(&bytes).map_err(DownloadOutcome::Declined) }
}

fn bad_gzip(offset: u64, error: &io::Error) -> Failure {
    Failure::Cut { bytes: as_size(offset), detail: format!("the gzip stream is incomplete: {error}") }
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

fn as_size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
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
}
