//! Why there is no connection to the service, in words for people. Decides what is worth another attempt:
//! a certificate that has expired is not.

use std::{error::Error, io};

use rustls::{CertificateError, Error as TlsError};

use super::{cause::cause, error::Failure, tls_problem::TlsProblem};

/// The failure of a request for which there was no connection.
pub(super) fn failure_to_connect(error: reqwest::Error) -> Failure {
    let found = find(&error);
    let detail = cause(error);
    match found {
        Some(Found::Tls(problem)) => Failure::Tls { problem, detail },
        Some(Found::Words(words)) => Failure::Connect { detail: format!("{words} ({detail})") },
        None => Failure::Connect { detail },
    }
}

/// The failure of a request whose answer is no HTTP, if it is that.
pub(super) fn not_http(detail: &str) -> Option<Failure> {
    detail.contains("invalid HTTP version").then(|| Failure::NotHttp { detail: detail.to_owned() })
}

enum Found {
    Tls(TlsProblem),
    Words(&'static str),
}

/// Looks through the causes of an error, also inside those of the system.
fn find(error: &(dyn Error + 'static)) -> Option<Found> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(tls) = error.downcast_ref::<TlsError>() {
            return tls_problem(tls).map(Found::Tls);
        }
        if let Some(system) = error.downcast_ref::<io::Error>() {
            if let Some(inner) = system.get_ref() {
                let inner: &(dyn Error + 'static) = inner;
                if let Some(found) = find(inner) {
                    return Some(found);
                }
            }
            match system.kind() {
                io::ErrorKind::ConnectionRefused => return Some(Found::Words("no program listens there")),
                io::ErrorKind::TimedOut => return Some(Found::Words("no answer from there in time")),
                io::ErrorKind::UnexpectedEof => {
                    return Some(Found::Words(
                        "the connection was closed before TLS began: the port may be one for plain http",
                    ));
                }
                _ => {}
            }
        }
        let text = error.to_string();
        if text == "dns error" {
            return Some(Found::Words("the name of the host is not known"));
        }
        if text.contains("tunnel") || text.contains("proxy") {
            return Some(Found::Words("the proxy of HTTPS_PROXY does not let it through"));
        }
        next = error.source();
    }
    None
}

/// `None`: it may go better the next time.
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
        // What signs itself is its own authority.
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            TlsProblem::UnknownAuthority
        }
        _ => TlsProblem::BadCertificate,
    }
}
