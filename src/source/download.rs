//! Files behind links that the service hands out: recordings. Such a link leads to another host as a rule, so it is
//! followed without the key. The request goes through the gate like any other, and holds its place there until its
//! answer begins. What another host answers says nothing about the service's limits.

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
    cause::cause,
    client,
    error::{Failure, Stop},
    gate::Permit,
    settings::is_loopback,
    transport::Reply,
    wire::{Heard, Tally, Wire, content_type},
};
use crate::model::Activity;

/// A host that sends less than so many bytes in so long is given up: what drips holds the run.
const SLOWEST_BYTES: u64 = 64 << 10;
const SLOWEST_TIME: Duration = Duration::from_secs(60);
/// The most redirects that are followed.
const REDIRECTS_MAX: usize = 5;

/// The status that says of a part that the host has another version:
/// what is there does not fit (416, as a host itself says it).
pub const OTHER_VERSION: u16 = 416;

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct DownloadRequest<'a> {
    /// The link, as the service sent it.
    pub link: &'a str,
    /// What is there already: it is gone on with if the host still has the same version.
    pub from: Option<DownloadFrom<'a>>,
}

/// A part of a file that is there.
#[derive(Clone, Copy, Debug)]
pub struct DownloadFrom<'a> {
    pub bytes: u64,
    /// What [`DownloadStart::validator`] said of it.
    pub validator: &'a str,
}

/// The host of a link and its port, to tell hosts apart; empty for what is no link.
pub fn host_of(link: &str) -> String {
    let url = Url::parse(link).ok();
    url.map(|url| format!("{}:{:?}", url.host_str().unwrap_or_default(), url.port_or_known_default()))
        .unwrap_or_default()
}

/// How an answer begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DownloadStart {
    /// The bytes that are left out, because they are there already.
    pub offset: u64,
    /// What tells this version of the file from another; `None` if the host says nothing by which a download can go on.
    pub validator: Option<String>,
    /// The whole file's bytes, if the host says so.
    pub length: Option<u64>,
    /// Its media type, without parameters, in lower case.
    pub media_type: Option<String>,
}

/// Takes a file as it comes.
pub trait DownloadSink {
    /// Why it takes no more.
    type Error;

    /// The answer begins.
    fn start(&mut self, start: &DownloadStart) -> Result<(), Self::Error>;

    /// The bytes that follow.
    fn take(&mut self, bytes: &[u8]) -> Result<(), Self::Error>;
}

/// What came of a download.
#[derive(Debug)]
pub enum Downloaded<E> {
    /// All of it came.
    Whole(DownloadStart),
    /// The link was refused with this 4xx: it has aged, or leads nowhere.
    Refused(u16),
    /// It is none that may be followed.
    BadLink(String),
    /// The host sends nothing for now: 429 or 503.
    Later,
    /// Worth another attempt.
    Failed(Failure),
    /// The sink took no more.
    Declined(E),
}

/// What a request for a file was answered with.
enum Begun {
    Answer(Reply),
    Redirect(Url),
    Refused(u16),
    BadLink(String),
    Later,
    Failed(Failure),
}

impl Wire {
    /// Follows a link and hands over what is behind it. An error: the run is to end.
    pub(super) async fn download<S: DownloadSink>(
        &self,
        base: &Url,
        request: DownloadRequest<'_>,
        sink: &mut S,
    ) -> Result<Downloaded<S::Error>, Stop> {
        let mut url = match checked_link(request.link, base) {
            Ok(url) => url,
            Err(why) => return Ok(Downloaded::BadLink(why)),
        };
        for _ in 0..=REDIRECTS_MAX {
            let mut tally = Tally::new(self, false);
            match self.begin_download(base, &url, request.from, &mut tally).await? {
                Begun::Answer(reply) => return self.hand_over(reply, request.from, sink, &mut tally).await,
                Begun::Redirect(next) => url = next,
                Begun::Refused(status) => return Ok(Downloaded::Refused(status)),
                Begun::BadLink(why) => return Ok(Downloaded::BadLink(why)),
                Begun::Later => return Ok(Downloaded::Later),
                Begun::Failed(failure) => return Ok(Downloaded::Failed(failure)),
            }
        }
        Ok(Downloaded::BadLink(format!("it is redirected more than {REDIRECTS_MAX} times")))
    }

    async fn begin_download(
        &self,
        base: &Url,
        url: &Url,
        from: Option<DownloadFrom<'_>>,
        tally: &mut Tally<'_>,
    ) -> Result<Begun, Stop> {
        let mut request = Request::new(Method::GET, url.clone());
        if let Some(from) = from {
            let validator = HeaderValue::try_from(from.validator);
            let range = HeaderValue::try_from(format!("bytes={}-", from.bytes));
            if let (Ok(validator), Ok(range)) = (validator, range) {
                request.headers_mut().insert(IF_RANGE, validator);
                request.headers_mut().insert(RANGE, range);
            }
        }
        let permit = self.gate.permit().await?;
        let _booked = self.gate.account().enter(Activity::Network);
        let is_of_service = base.origin() == url.origin();
        let client = match self.downloads(base.scheme() == "http") {
            Ok(client) => client,
            Err(failure) => return Ok(Begun::Failed(failure)),
        };
        let asked = timeout(self.timeout, self.ask_host(client, request, is_of_service.then_some(&permit), tally));
        let heard =
            self.gate.unless_stopped(asked).await?.unwrap_or_else(|_| Heard::Nothing(Failure::timed_out(self.timeout)));
        drop(permit);
        let reply = match heard {
            Heard::Answer(reply) => reply,
            Heard::Later => return Ok(Begun::Later),
            Heard::Nothing(failure) => return Ok(Begun::Failed(failure)),
        };
        let status = reply.status();
        tracing::debug!(status = status.as_u16(), host = url.host_str().unwrap_or_default(), "a recording");
        Ok(match status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => Begun::Later,
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY => failed_with(status),
            // The part that is there is not of what the host has: without it, it is sent from its beginning.
            StatusCode::RANGE_NOT_SATISFIABLE => failed_with(status),
            StatusCode::OK | StatusCode::PARTIAL_CONTENT => Begun::Answer(reply),
            _ if status.is_redirection() => redirect(&reply, base),
            _ if status.is_client_error() => Begun::Refused(status.as_u16()),
            _ => failed_with(status),
        })
    }

    /// Asks with the gate's permit where the service itself answers, so that its refusals count.
    async fn ask_host(
        &self,
        client: &Client,
        request: Request,
        permit: Option<&Permit>,
        tally: &mut Tally<'_>,
    ) -> Heard {
        if let Some(permit) = permit {
            return self.hear_with(client, request, permit, tally).await;
        }
        match self.send_with(client, request).await {
            Ok(reply) => {
                tally.status = Some(reply.status().as_u16());
                Heard::Answer(reply)
            }
            Err(failure) => Heard::Nothing(failure),
        }
    }

    async fn hand_over<S: DownloadSink>(
        &self,
        mut reply: Reply,
        from: Option<DownloadFrom<'_>>,
        sink: &mut S,
        tally: &mut Tally<'_>,
    ) -> Result<Downloaded<S::Error>, Stop> {
        let _booked = self.gate.account().enter(Activity::Network);
        let start = match start_of(&reply, from) {
            Ok(start) => start,
            Err(failure) => return Ok(Downloaded::Failed(failure)),
        };
        if let Err(declined) = sink.start(&start) {
            return Ok(Downloaded::Declined(declined));
        }
        let mut at = start.offset;
        let (mut slow_from, mut slow_at) = (Instant::now(), at);
        loop {
            let piece = match self.next_piece(&mut reply, at).await? {
                Ok(Some(piece)) => piece,
                Ok(None) => break,
                Err(failure) => return Ok(Downloaded::Failed(failure)),
            };
            at += piece.len() as u64;
            if slow_from.elapsed() >= SLOWEST_TIME {
                if at - slow_at < SLOWEST_BYTES {
                    return Ok(Downloaded::Failed(Failure::hung(SLOWEST_TIME, as_size(at))));
                }
                (slow_from, slow_at) = (Instant::now(), at);
            }
            tally.read_bytes += piece.len();
            if let Err(declined) = sink.take(&piece) {
                return Ok(Downloaded::Declined(declined));
            }
        }
        match start.length {
            Some(length) if length != at => {
                Ok(Downloaded::Failed(Failure::Cut { bytes: as_size(at), detail: format!("{length} bytes were told") }))
            }
            _ => Ok(Downloaded::Whole(start)),
        }
    }

    async fn next_piece(&self, reply: &mut Reply, at: u64) -> Result<Result<Option<Bytes>, Failure>, Stop> {
        let (idle, bytes) = (self.body_limits.idle, as_size(at));
        let piece = self.gate.unless_stopped(timeout(idle, reply.chunk())).await?;
        Ok(match piece {
            Err(_) => Err(Failure::hung(idle, bytes)),
            Ok(Err(error)) => Err(Failure::Cut { bytes, detail: cause(error) }),
            Ok(Ok(piece)) => Ok(piece),
        })
    }

    /// The client for links: without the key.
    fn downloads(&self, is_local: bool) -> Result<&Client, Failure> {
        let build = || client::build_for_links(self.timeout, is_local).map_err(|error| error.to_string());
        let built = self.download_client.get_or_init(build);
        built.as_ref().map_err(|error| Failure::Connect { detail: error.clone() })
    }
}

fn failed_with(status: StatusCode) -> Begun {
    Begun::Failed(Failure::Status { status: status.as_u16(), message: String::new() })
}

fn redirect(reply: &Reply, base: &Url) -> Begun {
    let location = reply.headers().get(LOCATION).and_then(|location| location.to_str().ok());
    let next = location.and_then(|location| reply.url().join(location).ok());
    match next.map(|next| checked_link(next.as_str(), base)) {
        Some(Ok(next)) => Begun::Redirect(next),
        Some(Err(why)) => Begun::BadLink(format!("it is redirected: {why}")),
        None => Begun::BadLink("it is redirected to nowhere".to_owned()),
    }
}

/// The address of a link that may be followed: https, or http on this machine where the service is there too.
fn checked_link(link: &str, base: &Url) -> Result<Url, String> {
    let url = Url::parse(link).map_err(|error| format!("it is no address: {error}"))?;
    let host = url.host_str().unwrap_or_default();
    match url.scheme() {
        "https" if !host.is_empty() => Ok(url),
        "http" if is_loopback(host) && base.scheme() == "http" => Ok(url),
        scheme => Err(format!("its scheme is {scheme}, and only https is followed")),
    }
}

fn start_of(reply: &Reply, from: Option<DownloadFrom<'_>>) -> Result<DownloadStart, Failure> {
    let headers = reply.headers();
    let media_type = content_type(headers).split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let packed = text_of(headers, &CONTENT_ENCODING).filter(|packed| !packed.eq_ignore_ascii_case("identity"));
    if let Some(packed) = packed {
        return Err(Failure::UnknownEncoding { encoding: packed.chars().take(40).collect() });
    }
    let mut start = DownloadStart {
        offset: 0,
        validator: validator(headers),
        length: reply.content_length(),
        media_type: Some(media_type).filter(|media_type| !media_type.is_empty()),
    };
    if reply.status() == StatusCode::PARTIAL_CONTENT {
        let sent = text_of(headers, &CONTENT_RANGE).and_then(content_range);
        let sent = sent.ok_or_else(|| unfit("the range that was sent is not told, or not to the end of the file"))?;
        let held = from.ok_or_else(|| unfit("a part was sent that was not asked for"))?;
        if sent.first != held.bytes {
            return Err(unfit("another part was sent than was asked for"));
        }
        if start.validator.as_deref().is_some_and(|validator| validator != held.validator) {
            let message = "a part of another version was sent".to_owned();
            return Err(Failure::Status { status: OTHER_VERSION, message });
        }
        (start.offset, start.length) = (sent.first, Some(sent.length));
    }
    Ok(start)
}

fn as_size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn unfit(detail: &str) -> Failure {
    Failure::Cut { bytes: 0, detail: detail.to_owned() }
}

/// The rest of a file.
#[derive(Debug, PartialEq, Eq)]
struct Rest {
    first: u64,
    /// The whole file's bytes.
    length: u64,
}

/// `bytes 100-199/200`. A part that does not reach to the end of the file, or does not tell where that is,
/// is none that was asked for.
fn content_range(text: &str) -> Option<Rest> {
    let (range, length) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse::<u64>().ok()?);
    let length = length.trim().parse().ok()?;
    (last.checked_add(1)? == length).then_some(Rest { first, length })
}

/// A strong entity tag, or else the date of the last change; `None` also where parts are not sent.
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
    fn only_https_links_and_links_of_a_local_service_are_followed() {
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
        assert_eq!(content_range("bytes 100-199/200"), Some(Rest { first: 100, length: 200 }));
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
