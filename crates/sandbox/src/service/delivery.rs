//! Turns a reply into an HTTP response: headers, compression, and bodies that a fault breaks off.

use std::{convert::Infallible, io};

use axum::{
    body::{Body, Bytes},
    http::{HeaderMap, HeaderValue, Method, Response, header},
};
use futures::{StreamExt as _, stream};

use super::{
    super::{clock::date_header, request_log::Visit},
    reply::{Delivery, Reply, gzip},
};

/// Smaller bodies are not compressed.
const GZIP_BYTES_MIN: usize = 512;

/// Milliseconds between the last byte of a cut body and the end of the connection, so that the client receives the
/// bytes.
const CUT_FLUSH_MS: u64 = 20;

/// Makes the HTTP response and logs its status. When the body was sent or dropped, `visit` is dropped, and the log
/// entry is completed.
pub(crate) fn respond(mut reply: Reply, visit: Visit, method: &Method, headers: &HeaderMap) -> Response<Body> {
    let service = &visit.service;
    if service.faults().byte_order_mark && !reply.body.is_empty() {
        reply.body = Bytes::from([b"\xef\xbb\xbf", reply.body.as_ref()].concat());
    }
    let wants_gzip =
        (headers.get_all(header::ACCEPT_ENCODING).iter()).any(|value| accepts_gzip(value.to_str().unwrap_or("")));
    let compressed =
        (wants_gzip && service.faults().gzip && reply.body.len() >= GZIP_BYTES_MIN).then(|| gzip(&reply.body));
    let is_gzip = compressed.is_some();
    let body = compressed.unwrap_or_else(|| reply.body.clone());
    service.log.answer(visit.seq, reply.status.as_u16(), reply.rows, body.len() as u64, reply.fault);

    let mut response = Response::new(Body::empty());
    *response.status_mut() = reply.status;
    let head = response.headers_mut();
    head.insert(header::DATE, date_header(service.clock.now_ms()));
    head.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    if let Some(content_type) = reply.content_type {
        head.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    if is_gzip {
        head.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    if let Some(allow) = reply.allow {
        head.insert(header::ALLOW, HeaderValue::from_static(allow));
    }
    for (name, value) in reply.extra {
        head.insert(name, value);
    }
    if let Some(retry_after) = reply.retry_after {
        head.insert(header::RETRY_AFTER, retry_after);
    }
    if method != Method::HEAD {
        *response.body_mut() = match reply.delivery {
            Delivery::Whole => whole(body, visit),
            Delivery::Cut { sent_share } => broken(body, sent_share, CUT_FLUSH_MS, visit),
            Delivery::Hung { sent_share, silent_ms } => broken(body, sent_share, silent_ms, visit),
        };
    }
    response
}

/// Builds a body that is sent in one piece. `visit` is dropped with the body.
fn whole(body: Bytes, visit: Visit) -> Body {
    let pieces = stream::iter((!body.is_empty()).then_some(Ok::<_, Infallible>(body)));
    Body::from_stream(pieces.map(move |piece| {
        let _kept_until_the_body_is_dropped = &visit;
        piece
    }))
}

/// Builds a body that sends only a share of its bytes, pauses for `silent_ms`, and closes the connection with an error.
fn broken(body: Bytes, sent_share: f64, silent_ms: u64, visit: Visit) -> Body {
    // At least one byte is missing, so that the body is shorter than `Content-Length` says.
    let sent = ((body.len() as f64 * sent_share.clamp(0.0, 1.0)) as usize).min(body.len().saturating_sub(1));
    let part = body.slice(..sent);
    let first = stream::iter((!part.is_empty()).then_some(Ok(part)));
    let rest = stream::once(async move {
        visit.service.pause(silent_ms).await;
        Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the sandbox breaks this body on purpose"))
    });
    Body::from_stream(first.chain(rest))
}

/// Returns true if an `Accept-Encoding` value lists gzip.
fn accepts_gzip(value: &str) -> bool {
    value.split(',').any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        name.trim().eq_ignore_ascii_case("gzip") && weight.trim() != "q=0"
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_used_when_asked_for() {
        assert!(accepts_gzip("br, gzip;q=0.5"));
        assert!(accepts_gzip("GZIP"));
        assert!(!accepts_gzip("br, gzip;q=0"));
        assert!(!accepts_gzip("identity"));
    }
}
