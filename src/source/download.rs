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
    Client, Method, Request, Url,
    header::{HeaderValue, IF_RANGE, LOCATION, RANGE},
};
use tokio::time::{Instant, timeout};

use super::{
    address::is_loopback,
    client,
    download_start::{DownloadStart, PartialDownload, UnusableBody, download_start},
    error::{Failure, Stop, Trouble},
    gate::Permit,
    service::Source,
    transport::{Reply, cause_of},
    wire::{Tally, Wire},
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
    /// The run has to stop.
    Stopped(Stop),
}

impl<E> From<Stop> for DownloadOutcome<E> {
    fn from(stop: Stop) -> Self {
        DownloadOutcome::Stopped(stop)
    }
}

impl<E> From<Failure> for DownloadOutcome<E> {
    fn from(failure: Failure) -> Self {
        DownloadOutcome::Failed(failure)
    }
}

/// The answer to a request for a file, before its body.
enum Begun {
    Replied(Reply),
    Redirect(Url),
}

impl Source {
    /// Downloads a link that the service returned into `sink`, without sending the key. Follows a few redirects.
    pub async fn download<S: DownloadSink>(
        &self,
        request: DownloadRequest<'_>,
        sink: &mut S,
    ) -> DownloadOutcome<S::Error> {
        let downloaded = self.inner.wire.download(&self.inner.base_url, request, sink).await;
        downloaded.map_or_else(|outcome| outcome, DownloadOutcome::Complete)
    }
}

impl Wire {
    async fn download<S: DownloadSink>(
        &self,
        base: &Url,
        request: DownloadRequest<'_>,
        sink: &mut S,
    ) -> Result<DownloadStart, DownloadOutcome<S::Error>> {
        let mut url = checked_link(request.link, base).map_err(DownloadOutcome::BadLink)?;
        for _ in 0..=REDIRECTS_MAX {
            let permit = self.gate.permit().await?;
            sink.before_request().map_err(DownloadOutcome::Declined)?;
            let mut tally = Tally::new(self, false);
            match self.begin_download(permit, base, &url, request.partial, &mut tally).await? {
                Begun::Replied(reply) => return self.stream_body(reply, request.partial, sink, &mut tally).await,
                Begun::Redirect(next) => url = next,
            }
        }
        Err(DownloadOutcome::BadLink(format!("it is redirected more than {REDIRECTS_MAX} times")))
    }

    async fn begin_download<E>(
        &self,
        permit: Permit,
        base: &Url,
        url: &Url,
        partial: Option<PartialDownload<'_>>,
        tally: &mut Tally<'_>,
    ) -> Result<Begun, DownloadOutcome<E>> {
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
        let client = self.downloads(base.scheme() == "http")?;
        let permit_to_report = Some(&permit).filter(|_| base.origin() == url.origin());
        let sending = timeout(self.timeout, self.send_download(client, request, permit_to_report, tally));
        let sent = self.gate.unless_stopped(sending).await?;
        drop(permit);
        let reply = match sent.unwrap_or_else(|_| Err(Failure::timed_out(self.timeout).into())) {
            Ok(reply) => reply,
            Err(Trouble::Failed { last, .. }) => return Err(last.into()),
            // `send_with` fails only with these two.
            Err(_) => return Err(DownloadOutcome::RateLimited),
        };
        let status = reply.status();
        tracing::debug!(status = status.as_u16(), host = url.host_str().unwrap_or_default(), "a recording");
        let failure = Failure::Status { status: status.as_u16(), message: String::new() };
        match status.as_u16() {
            429 | 503 => Err(DownloadOutcome::RateLimited),
            // The host has another version of the file, or cannot send a part of it.
            400 | 412 | 416 if partial.is_some() => Err(DownloadOutcome::UnusablePart(failure)),
            200 | 206 => Ok(Begun::Replied(reply)),
            300..400 => redirect_target(&reply, base).map(Begun::Redirect).map_err(DownloadOutcome::BadLink),
            408 | 425 => Err(failure.into()),
            status @ 400..500 => Err(DownloadOutcome::Refused(status)),
            _ => Err(failure.into()),
        }
    }

    /// Sends the request and records its status in `tally`. `permit_to_report` is `Some` if the link is of the service
    /// itself, so that the gate takes note of the answer. `None` for another host: its answers do not change the gate.
    async fn send_download(
        &self,
        client: &Client,
        request: Request,
        permit_to_report: Option<&Permit>,
        tally: &mut Tally<'_>,
    ) -> Result<Reply, Trouble> {
        if let Some(permit) = permit_to_report {
            return self.send_with(client, request, permit, tally).await;
        }
        let reply = self.transmit(client, request).await?;
        tally.status = Some(reply.status().as_u16());
        Ok(reply)
    }

    /// Passes the body to `sink`, unpacked. Fails with `Failed` if the body stalls, is too slow or breaks off, and with
    /// `UnusablePart` if it has not the announced length or is another part of the file than requested.
    async fn stream_body<S: DownloadSink>(
        &self,
        mut reply: Reply,
        partial: Option<PartialDownload<'_>>,
        sink: &mut S,
        tally: &mut Tally<'_>,
    ) -> Result<DownloadStart, DownloadOutcome<S::Error>> {
        let _booked = self.gate.account().enter(Activity::Network);
        let announced = download_start(reply.status(), reply.headers(), reply.content_length(), partial);
        let (start, is_gzip) = announced.map_err(|unusable| match unusable {
            UnusableBody::Part(failure) => DownloadOutcome::UnusablePart(failure),
            UnusableBody::Encoding(failure) => failure.into(),
        })?;
        sink.start(&start).map_err(DownloadOutcome::Declined)?;
        let mut unpacked = is_gzip.then(|| MultiGzDecoder::new(Vec::new()));
        let mut offset = start.offset;
        let (mut interval_start, mut interval_offset) = (Instant::now(), offset);
        loop {
            let chunk = match self.next_chunk(&mut reply, offset).await? {
                Ok(Some(chunk)) => chunk,
                Ok(None) => break,
                // A host that sends nothing of a part may send the whole file.
                Err(failure) if start.offset > 0 && offset == start.offset => {
                    return Err(DownloadOutcome::UnusablePart(failure));
                }
                Err(failure) => return Err(failure.into()),
            };
            offset += chunk.len() as u64;
            if interval_start.elapsed() >= MIN_RATE_INTERVAL {
                if offset - interval_offset < MIN_RATE_BYTES {
                    return Err(Failure::hung(MIN_RATE_INTERVAL, as_size(offset)).into());
                }
                (interval_start, interval_offset) = (Instant::now(), offset);
            }
            tally.read_bytes += chunk.len();
            match &mut unpacked {
                None => sink.take(&chunk).map_err(DownloadOutcome::Declined)?,
                Some(decoder) => {
                    for part in chunk.chunks(GZIP_BYTES_AT_ONCE) {
                        decoder.write_all(part).map_err(|error| bad_gzip(offset, &error))?;
                        take_unpacked(decoder, sink)?;
                    }
                }
            }
        }
        if let Some(decoder) = unpacked.as_mut().filter(|_| offset > 0) {
            decoder.try_finish().map_err(|error| bad_gzip(offset, &error))?;
            take_unpacked(decoder, sink)?;
        }
        match start.length {
            Some(length) if length != offset => Err(DownloadOutcome::UnusablePart(Failure::Cut {
                bytes: as_size(offset),
                detail: format!("{length} bytes were announced"),
            })),
            _ => Ok(start),
        }
    }

    /// Reads the next chunk of a body; `None` at the end of the body. `offset` is the position in the file, for
    /// messages. The outer `Err` means that the run has to stop.
    async fn next_chunk(&self, reply: &mut Reply, offset: u64) -> Result<Result<Option<Bytes>, Failure>, Stop> {
        let (idle, bytes) = (self.body_limits.idle, as_size(offset));
        let chunk = self.gate.unless_stopped(timeout(idle, reply.chunk())).await?;
        Ok(match chunk {
            Err(_) => Err(Failure::hung(idle, bytes)),
            Ok(chunk) => chunk.map_err(|error| Failure::Cut { bytes, detail: cause_of(error) }),
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

/// Returns the link in `Location`, or why it may not be followed. `base` is the base URL of the service.
fn redirect_target(reply: &Reply, base: &Url) -> Result<Url, String> {
    let location = reply.headers().get(LOCATION).and_then(|location| location.to_str().ok());
    let next = location.and_then(|location| reply.url().join(location).ok()).ok_or("it is redirected to nowhere")?;
    checked_link(next.as_str(), base).map_err(|why| format!("it is redirected: {why}"))
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
