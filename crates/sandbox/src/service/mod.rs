//! The service: answers one request with one reply.

mod lists;
mod media;
mod page_token;
mod purge;
mod query;
mod reply;
mod state;
mod strikes;
mod users;

use std::{convert::Infallible, io, sync::Arc};

use axum::{
    body::{Body, Bytes, to_bytes},
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header},
    response::Response,
};
use futures::{StreamExt as _, stream};

pub(crate) use self::state::Service;
pub use self::state::UpsertedUser;
use self::{
    reply::{Reply, accepts_gzip, gzip},
    state::lock,
};
use super::{
    clock::date_header,
    faults::{Auth, BrokenBody, Faults, SurveysAt},
    world::ListName,
};

/// Smaller bodies are not compressed.
const GZIP_BYTES_MIN: usize = 512;

/// Maximum bytes of a request's body.
const REQUEST_BYTES_MAX: usize = 4 << 20;

/// A request that is being answered. Dropping the value completes the log entry, however the answer ended.
#[derive(Debug)]
pub(crate) struct Visit {
    pub(crate) service: Arc<Service>,
    pub(crate) seq: u64,
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.service.log.complete(self.seq, self.service.clock.elapsed_us());
    }
}

impl Service {
    /// Returns true if the request has the key, in a form that is accepted for the path.
    fn is_authorised(&self, headers: &HeaderMap, path: &str, auth: Auth) -> bool {
        let Some(value) = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()) else {
            return false;
        };
        let Some((form, key)) = value.split_once(' ') else { return false };
        let is_user_path = path.starts_with("/v2/users");
        let is_form_right = match (form.to_ascii_lowercase().as_str(), auth) {
            ("bearer" | "api-key", Auth::Both) => true,
            ("bearer", Auth::Strict) => !is_user_path,
            ("api-key", Auth::Strict) => is_user_path,
            _ => false,
        };
        is_form_right && key.trim() == *lock(&self.api_key)
    }

    /// Makes the reply to a request. Applies in this order: latency, due purges, authorization, rate limit, scheduled
    /// faults, and the contract. Requests for recordings skip authorization and rate limit.
    async fn answer(&self, method: &Method, uri: &Uri, headers: &HeaderMap, body: Body) -> Reply {
        let faults = self.faults();
        let wait_ms = lock(&self.strikes).latency_ms(&faults);
        self.pause(wait_ms).await;
        self.run_due_purges();
        if let Some(upload) = media::upload_at(uri.path()).filter(|_| faults.media.is_served) {
            let struck = self.strike(&faults, uri.path());
            let reply = struck.unwrap_or_else(|| media::answer(upload, method, uri, headers, &faults.media));
            return self.spoil(reply, uri.path(), &faults);
        }
        if !self.is_authorised(headers, uri.path(), faults.auth) {
            return Reply::empty(StatusCode::FORBIDDEN);
        }
        let refusal = self.limit_rate(&faults.rate_limit).or_else(|| self.strike(&faults, uri.path()));
        if let Some(refusal) = refusal {
            return refusal;
        }
        let Ok(body) = to_bytes(body, REQUEST_BYTES_MAX).await else {
            return Reply::error(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large");
        };
        self.route(method, uri, body, &faults).await
    }

    /// Answers a request by its path and method.
    async fn route(&self, method: &Method, uri: &Uri, body: Bytes, faults: &Faults) -> Reply {
        let list = match uri.path() {
            "/v1/responses" => Some(ListName::Responses),
            "/v1/surveys" if faults.surveys_at != SurveysAt::Studies => Some(ListName::Surveys),
            "/v1/studies" if faults.surveys_at != SurveysAt::Surveys => Some(ListName::Surveys),
            "/v1/themes" => Some(ListName::Themes),
            _ => None,
        };
        let is_read = matches!(*method, Method::GET | Method::HEAD);
        match (list, uri.path()) {
            (Some(list), _) if is_read => self.list(list, uri, faults).await,
            (Some(_), _) => Reply::not_allowed("GET, HEAD"),
            (None, "/v2/users") if method == Method::POST => self.upsert_user(&body, faults),
            (None, "/v2/users") => Reply::not_allowed("POST"),
            (None, "/v2/purge/visitors") if method == Method::POST => self.request_purge(&body, faults),
            (None, "/v2/purge/visitors") => Reply::not_allowed("POST"),
            (None, path) => match path.strip_prefix("/v2/users/").filter(|id| !id.is_empty()) {
                Some(id) if is_read => self.read_user(id, faults),
                Some(_) => Reply::not_allowed("GET, HEAD"),
                None => Reply::error(StatusCode::NOT_FOUND, "no such path"),
            },
        }
    }
}

/// Answers and logs a request to the service. If recordings are served, the links in responses lead to the sandbox.
pub(crate) async fn handle(State(service): State<Arc<Service>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
    let seq = service.log.arrive(parts.method.as_str(), target, service.clock.elapsed_us());
    // Created before the reply, so that the log entry is completed even if the client hangs up meanwhile.
    let visit = Visit { service: service.clone(), seq };
    let mut reply = service.answer(&parts.method, &parts.uri, &parts.headers, body).await;
    let media = &service.faults().media;
    if media.is_served && media.host != media::HOST && parts.uri.path() == "/v1/responses" {
        let host = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
        reply.body = media::with_links(&reply.body, media, host.or(parts.uri.host()).unwrap_or_default());
    }
    respond(reply, visit, &parts.method, &parts.headers)
}

/// Makes the HTTP response and logs its status. When the body was sent or dropped, `visit` is dropped, and the log
/// entry is completed.
fn respond(mut reply: Reply, visit: Visit, method: &Method, headers: &HeaderMap) -> Response {
    let service = &visit.service;
    let faults = service.faults();
    if faults.byte_order_mark && !reply.body.is_empty() {
        reply.body = Bytes::from([b"\xef\xbb\xbf", reply.body.as_ref()].concat());
    }
    let is_gzip = accepts_gzip(headers) && faults.gzip && reply.body.len() >= GZIP_BYTES_MIN;
    let body = if is_gzip { gzip(&reply.body) } else { reply.body };
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
    for (name, value) in reply.headers {
        head.insert(name, value);
    }
    if method != Method::HEAD {
        *response.body_mut() = match reply.broken {
            None => whole(body, visit),
            Some(fault) => broken(body, &fault, visit),
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

/// Builds a body that sends only a share of its bytes, pauses, and closes the connection with an error.
fn broken(body: Bytes, fault: &BrokenBody, visit: Visit) -> Body {
    let silent_ms = fault.silent_ms;
    // At least one byte is missing, so that the body is shorter than `Content-Length` says.
    let sent = ((body.len() as f64 * fault.sent_share.clamp(0.0, 1.0)) as usize).min(body.len().saturating_sub(1));
    let part = body.slice(..sent);
    let first = stream::iter((!part.is_empty()).then_some(Ok(part)));
    let rest = stream::once(async move {
        visit.service.pause(silent_ms).await;
        Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the sandbox breaks this body on purpose"))
    });
    Body::from_stream(first.chain(rest))
}
