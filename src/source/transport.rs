//! Sends a request and returns the answer, by the HTTP client or by the handler of a test. The caller has passed the
//! gate. Explains a failed connection to people, and separates permanent TLS problems, such as an expired certificate,
//! from failures that are worth a retry.

use std::{error::Error, fmt, io, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use reqwest::{Client, Request};
use rustls::{CertificateError, Error as TlsError};

use super::{error::Failure, tls_problem::TlsProblem};

/// An answer whose body has not been read yet.
pub type Reply = reqwest::Response;

type Handler = dyn Fn(Request) -> BoxFuture<'static, Result<Reply, Failure>> + Send + Sync;

/// Sends requests; by default over the network. Cheap to clone.
#[derive(Clone, Default)]
pub struct Transport(Option<Arc<Handler>>);

impl Transport {
    /// Passes each request to `answer` instead of the network. The request has no headers, because the client adds
    /// them, and the key with them. As with the network, the body of the answer is not decompressed here.
    pub fn from_handler(
        answer: impl Fn(Request) -> BoxFuture<'static, Result<Reply, Failure>> + Send + Sync + 'static,
    ) -> Transport {
        Transport(Some(Arc::new(answer)))
    }

    /// Sends the request with this client, or passes its method, address and body to the handler.
    pub(super) async fn send(&self, client: &Client, request: Request, timeout: Duration) -> Result<Reply, Failure> {
        match &self.0 {
            None => client.execute(request).await.map_err(|error| failure_to_send(error, timeout)),
            Some(answer) => {
                let mut bare = Request::new(request.method().clone(), request.url().clone());
                *bare.body_mut() = request.body().and_then(reqwest::Body::as_bytes).map(|body| body.to_vec().into());
                answer(bare).await
            }
        }
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Transport(handler)" } else { "Transport" })
    }
}

fn failure_to_send(error: reqwest::Error, timeout: Duration) -> Failure {
    if error.is_connect() {
        failure_to_connect(error)
    } else if error.is_timeout() {
        Failure::timed_out(timeout)
    } else {
        let detail = cause_of(error);
        not_http(&detail).unwrap_or(Failure::Cut { bytes: 0, detail })
    }
}

/// Builds the failure of a request that got no connection. A `Tls` failure is permanent; a `Connect` failure is
/// retried.
fn failure_to_connect(error: reqwest::Error) -> Failure {
    let problem = find_problem(&error);
    let detail = cause_of(error);
    match problem {
        Some(ConnectProblem::Tls(problem)) => Failure::Tls { problem, detail },
        Some(ConnectProblem::Explained(text)) => Failure::Connect { detail: format!("{text} ({detail})") },
        None => Failure::Connect { detail },
    }
}

fn not_http(detail: &str) -> Option<Failure> {
    detail.contains("invalid HTTP version").then(|| Failure::NotHttp { detail: detail.to_owned() })
}

/// Why a request got no connection.
enum ConnectProblem {
    Tls(TlsProblem),
    /// An explanation for people.
    Explained(&'static str),
}

/// Finds the first known problem in the chain of causes of an error, also in errors that an `io::Error` wraps. `None`
/// if no problem is known, or if a TLS error may be transient.
fn find_problem(error: &(dyn Error + 'static)) -> Option<ConnectProblem> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(tls) = error.downcast_ref::<TlsError>() {
            return tls_problem(tls).map(ConnectProblem::Tls);
        }
        if let Some(system) = error.downcast_ref::<io::Error>() {
            if let Some(inner) = system.get_ref() {
                let inner: &(dyn Error + 'static) = inner;
                if let Some(found) = find_problem(inner) {
                    return Some(found);
                }
            }
            match system.kind() {
                io::ErrorKind::ConnectionRefused => return Some(ConnectProblem::Explained("no program listens there")),
                io::ErrorKind::TimedOut => return Some(ConnectProblem::Explained("the host did not answer in time")),
                io::ErrorKind::UnexpectedEof => {
                    return Some(ConnectProblem::Explained(
                        "the connection was closed before TLS began: the port may be one for plain http",
                    ));
                }
                _ => {}
            }
        }
        let text = error.to_string();
        if text == "dns error" {
            return Some(ConnectProblem::Explained("the name of the host is not known"));
        }
        if text.contains("tunnel") || text.contains("proxy") {
            return Some(ConnectProblem::Explained("the proxy refuses the connection"));
        }
        next = error.source();
    }
    None
}

/// Returns the permanent TLS problem that an error shows; `None` if a retry may succeed.
fn tls_problem(error: &TlsError) -> Option<TlsProblem> {
    match error {
        TlsError::InvalidCertificate(certificate) => Some(certificate_problem(certificate)),
        TlsError::InvalidMessage(_) => Some(TlsProblem::NotTls),
        TlsError::AlertReceived(_) | TlsError::PeerIncompatible(_) => Some(TlsProblem::Refused),
        _ => None,
    }
}

fn certificate_problem(error: &CertificateError) -> TlsProblem {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => TlsProblem::Expired,
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => TlsProblem::NotYetValid,
        CertificateError::UnknownIssuer => TlsProblem::UnknownAuthority,
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => TlsProblem::OtherName,
        // A self-signed certificate is its own authority.
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            TlsProblem::UnknownAuthority
        }
        _ => TlsProblem::BadCertificate,
    }
}

/// Joins the texts of all causes of an HTTP client error. Uses the text of the error itself only if it has no cause.
/// Removes the address, because it contains the page token.
pub(super) fn cause_of(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut texts = Vec::new();
    let mut source = error.source();
    while let Some(inner) = source {
        texts.push(inner.to_string());
        source = inner.source();
    }
    if texts.is_empty() { error.to_string() } else { texts.join(": ") }
}
