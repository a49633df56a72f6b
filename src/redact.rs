//! Types that keep secrets secret (promise P11): a key that cannot be printed, and an address without its user and query.

use std::fmt;

use secrecy::{ExposeSecret, SecretString};

/// The service's API key, and where it came from so that an error can say which one was refused.
///
/// `Debug` and `Display` never show the key; only [`ApiKey::expose`] does, and only `source` calls it.
#[derive(Clone)]
pub struct ApiKey {
    secret: SecretString,
    origin: String,
}

impl ApiKey {
    /// `origin` is shown to people: "environment variable STUDYSYNC_API_KEY" or "file /etc/key".
    pub fn new(secret: impl Into<String>, origin: impl Into<String>) -> Self {
        Self { secret: SecretString::from(secret.into()), origin: origin.into() }
    }

    /// The key itself, for the `Authorization` header.
    pub fn expose(&self) -> &str {
        self.secret.expose_secret()
    }

    /// Where the key came from.
    pub fn origin(&self) -> &str {
        &self.origin
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiKey(from {})", self.origin)
    }
}

impl fmt::Display for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the key from {}", self.origin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p11_a_key_is_never_printed() {
        let key = ApiKey::new("s3cr3t", "environment variable STUDYSYNC_API_KEY");
        assert!(!format!("{key:?} {key}").contains("s3cr3t"));
        assert!(format!("{key}").contains("STUDYSYNC_API_KEY"));
    }
}
