//! The answer to a request, before it becomes an HTTP response.

use std::io::Write as _;

use axum::{
    body::Bytes,
    http::{HeaderName, HeaderValue, StatusCode},
};
use flate2::{Compression, write::GzEncoder};

/// Compresses a body.
pub(crate) fn gzip(body: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 6), Compression::fast());
    // Writing to a vector cannot fail.
    let _ = encoder.write_all(body);
    Bytes::from(encoder.finish().unwrap_or_default())
}

/// How the body is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Delivery {
    #[default]
    Whole,
    /// A share of the body is sent, and the connection closes.
    Cut { sent_share: f64 },
    /// A share of the body is sent. The connection closes after `silent_ms` milliseconds without data.
    Hung { sent_share: f64, silent_ms: u64 },
}

/// The answer to a request, before it becomes an HTTP response.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) content_type: Option<&'static str>,
    pub(crate) body: Bytes,
    pub(crate) rows: u32,
    pub(crate) retry_after: Option<HeaderValue>,
    pub(crate) allow: Option<&'static str>,
    /// Further headers.
    pub(crate) extra: Vec<(HeaderName, HeaderValue)>,
    pub(crate) delivery: Delivery,
    /// The name of the fault that struck the request; `None` if none did.
    pub(crate) fault: Option<&'static str>,
}

impl Reply {
    /// Creates a reply without a body.
    pub(crate) fn empty(status: StatusCode) -> Self {
        Self {
            status,
            content_type: None,
            body: Bytes::new(),
            rows: 0,
            retry_after: None,
            allow: None,
            extra: Vec::new(),
            delivery: Delivery::Whole,
            fault: None,
        }
    }

    pub(crate) fn json(status: StatusCode, body: impl Into<Bytes>) -> Self {
        Self { content_type: Some("application/json"), body: body.into(), ..Self::empty(status) }
    }

    /// Creates an error reply with the body that the contract defines.
    pub(crate) fn error(status: StatusCode, message: &str) -> Self {
        Self::json(status, serde_json::json!({ "error": message }).to_string())
    }

    pub(crate) fn bad_request(message: &str) -> Self {
        Self::error(StatusCode::BAD_REQUEST, message)
    }

    pub(crate) fn not_allowed(allow: &'static str) -> Self {
        Self { allow: Some(allow), ..Self::error(StatusCode::METHOD_NOT_ALLOWED, "method not allowed") }
    }

    /// Returns the reply with the name of the fault that caused the reply.
    pub(crate) fn struck_by(self, fault: &'static str) -> Self {
        Self { fault: Some(fault), ..self }
    }
}
