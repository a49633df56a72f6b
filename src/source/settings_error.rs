//! The errors of settings with which no request can be sent.

use thiserror::Error;

/// An invalid setting of a source.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SettingsError {
    /// The address is not a URL. The message does not repeat the address, because it may contain a password.
    #[error("the service's address is not an address: {reason}")]
    NotAnAddress { reason: String },
    /// The key would be sent unencrypted.
    #[error("the service's address must be https (http is allowed on loopback only), not {scheme}://{host}")]
    Unencrypted { scheme: String, host: String },
    /// The address contains a user, a query or a fragment.
    #[error("the service's address must not carry {what}")]
    Surplus { what: &'static str },
    /// The key is empty or not valid in a header.
    #[error("the key from {origin} {problem}")]
    UnusableKey { origin: String, problem: &'static str },
    /// A variable names a proxy that cannot be used. The message does not repeat the value, because it may contain a
    /// password.
    #[error("the environment variable {variable} {problem}")]
    UnusableProxy { variable: String, problem: &'static str },
    /// A number is out of its allowed range.
    #[error("{name} must be {requirement}")]
    OutOfRange { name: &'static str, requirement: &'static str },
    /// The HTTP client cannot be built.
    #[error("cannot set up the HTTP client: {reason}")]
    Client { reason: String },
}
