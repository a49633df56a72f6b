//! The problems of TLS that no retry ends.

use thiserror::Error;

/// A TLS problem that persists until somebody fixes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TlsProblem {
    #[error("its certificate has expired")]
    Expired,
    #[error("its certificate is not valid yet: this machine's clock may be wrong")]
    NotYetValid,
    #[error("its certificate is signed by an authority that this machine does not know")]
    UnknownAuthority,
    #[error("its certificate is for another name")]
    OtherName,
    #[error("its certificate cannot be used")]
    BadCertificate,
    #[error("it does not speak TLS: the port may be one for plain http")]
    NotTls,
    #[error("it refuses this program's TLS")]
    Refused,
}

impl TlsProblem {
    /// Returns true if the service's certificate is the problem.
    pub fn is_certificate(self) -> bool {
        !matches!(self, TlsProblem::NotTls | TlsProblem::Refused)
    }
}
