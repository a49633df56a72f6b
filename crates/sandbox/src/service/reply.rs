//! The answer to a request, before it becomes an HTTP response.

use std::io::Write as _;

use axum::{
    body::Bytes,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
};
use flate2::{Compression, write::GzEncoder};

use super::super::faults::BrokenBody;

/// The answer to a request, before it becomes an HTTP response.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) content_type: Option<&'static str>,
    pub(crate) body: Bytes,
    pub(crate) rows: u32,
    /// Further headers.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    /// How the body is broken off; `None` if it is sent completely.
    pub(crate) broken: Option<BrokenBody>,
    /// The name of the fault that struck the request; `None` if none did.
    pub(crate) fault: Option<&'static str>,
}

impl Reply {
    /// Creates a reply without a body.
    pub(crate) fn empty(status: StatusCode) -> Self {
        let (content_type, headers, broken, fault) = (None, Vec::new(), None, None);
        Self { status, content_type, body: Bytes::new(), rows: 0, headers, broken, fault }
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

    /// Creates the error reply of a fault. `status` is a setting, which allows only 400 to 599.
    pub(crate) fn fault(fault: &'static str, status: u16, message: &str) -> Self {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self::error(status, message).struck_by(fault)
    }

    pub(crate) fn not_allowed(allow: &'static str) -> Self {
        Self::error(StatusCode::METHOD_NOT_ALLOWED, "method not allowed")
            .with_header(header::ALLOW, Some(HeaderValue::from_static(allow)))
    }

    /// Returns the reply with the name of the fault that caused the reply.
    pub(crate) fn struck_by(self, fault: &'static str) -> Self {
        Self { fault: Some(fault), ..self }
    }

    pub(crate) fn with_header(mut self, name: HeaderName, value: Option<HeaderValue>) -> Self {
        self.headers.extend(value.map(|value| (name, value)));
        self
    }
}

/// Compresses a body.
pub(crate) fn gzip(body: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 6), Compression::fast());
    // Writing to a vector cannot fail.
    let _ = encoder.write_all(body);
    Bytes::from(encoder.finish().unwrap_or_default())
}

/// Returns true if `Accept-Encoding` lists gzip.
pub(crate) fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        name.trim().eq_ignore_ascii_case("gzip") && weight.trim() != "q=0"
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_used_when_asked_for() {
        let accepts =
            |value| accepts_gzip(&HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_static(value))]));
        assert!(accepts("br, gzip;q=0.5"));
        assert!(accepts("GZIP"));
        assert!(!accepts("br, gzip;q=0"));
        assert!(!accepts("identity"));
    }
}
