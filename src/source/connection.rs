//! Explains a failed connection to people. Separates permanent TLS problems, such as an expired certificate, from
//! failures that are worth a retry.

use std::{error::Error, io};

use rustls::{CertificateError, Error as TlsError};

use super::{error::Failure, error_cause::cause_of, tls_problem::TlsProblem};

/// Builds the failure of a request that got no connection. A `Tls` failure is permanent; a `Connect` failure is
/// retried.
pub(super) fn failure_to_connect(error: reqwest::Error) -> Failure {
    let problem = find_problem(&error);
    let detail = cause_of(error);
    match problem {
        Some(ConnectProblem::Tls(problem)) => Failure::Tls { problem, detail },
        Some(ConnectProblem::Explained(text)) => Failure::Connect { detail: format!("{text} ({detail})") },
        None => Failure::Connect { detail },
    }
}

/// Builds the failure of a request whose answer is not HTTP; `None` for other errors.
pub(super) fn not_http(detail: &str) -> Option<Failure> {
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

/// Classifies a certificate that rustls refused.
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
