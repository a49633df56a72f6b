//! An answer before it becomes HTTP.

use axum::{
    body::Bytes,
    http::{HeaderName, HeaderValue, StatusCode},
};

/// How the body travels.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Delivery {
    #[default]
    Whole,
    /// A part is sent, then the connection closes.
    Cut { sent_share: f64 },
    /// A part is sent, then nothing for a while, then the connection closes.
    Hung { sent_share: f64, silent_ms: u64 },
}

/// An answer before it becomes HTTP.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) content_type: Option<&'static str>,
    pub(crate) body: Bytes,
    pub(crate) rows: u32,
    pub(crate) retry_after: Option<HeaderValue>,
    pub(crate) allow: Option<&'static str>,
    pub(crate) extra: Vec<(HeaderName, HeaderValue)>,
    pub(crate) delivery: Delivery,
    /// The fault that struck.
    pub(crate) fault: Option<&'static str>,
}

impl Reply {
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

    /// The contract's error body.
    pub(crate) fn error(status: StatusCode, message: &str) -> Self {
        Self::json(status, serde_json::json!({ "error": message }).to_string())
    }

    pub(crate) fn bad_request(message: &str) -> Self {
        Self::error(StatusCode::BAD_REQUEST, message)
    }

    pub(crate) fn not_allowed(allow: &'static str) -> Self {
        Self { allow: Some(allow), ..Self::error(StatusCode::METHOD_NOT_ALLOWED, "method not allowed") }
    }

    pub(crate) fn struck_by(self, fault: &'static str) -> Self {
        Self { fault: Some(fault), ..self }
    }
}
