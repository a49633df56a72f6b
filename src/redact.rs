//! Types that keep secrets secret (promise P11):
//! a key that cannot be printed, and an address without its user and query.

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

/// Quotes that are pasted with a secret, as they begin and end.
const QUOTES: [(char, char); 6] =
    [('"', '"'), ('\'', '\''), ('`', '`'), ('\u{201c}', '\u{201d}'), ('\u{2018}', '\u{2019}'), ('\u{ab}', '\u{bb}')];
/// Words that stand before a secret in a header. Whoever sends it writes them again.
const SCHEMES: [&str; 2] = ["bearer", "api-key"];

/// A secret without what people paste along with it (blanks, quotes, `Bearer`, the name of the header),
/// and what that was, blanks aside.
pub fn bare_secret(text: &str) -> (&str, Option<&'static str>) {
    let (mut bare, mut left_out) = (text, None);
    loop {
        bare = bare.trim_matches(|letter: char| letter.is_whitespace() || matches!(letter, '\u{feff}' | '\u{200b}'));
        let unquoted = QUOTES.iter().find_map(|(begin, end)| bare.strip_prefix(*begin)?.strip_suffix(*end));
        if let Some(inner) = unquoted {
            (bare, left_out) = (inner, left_out.or(Some("the quotes around it")));
            continue;
        }
        if let Some((name, rest)) = bare.split_once(':')
            && name.trim().eq_ignore_ascii_case("authorization")
        {
            (bare, left_out) = (rest, Some("the name of the header before it"));
            continue;
        }
        let line = bare.strip_prefix("export ").unwrap_or(bare).trim_start();
        if let Some((name, rest)) = line.split_once('=')
            && name.starts_with("STUDYSYNC_")
        {
            (bare, left_out) = (rest, Some("the name of the variable before it"));
            continue;
        }
        let word = bare.split(char::is_whitespace).next().unwrap_or_default();
        if SCHEMES.iter().any(|scheme| word.eq_ignore_ascii_case(scheme)) {
            (bare, left_out) =
                (bare.get(word.len()..).unwrap_or_default(), Some("the word 'Bearer' or 'API-Key' before it"));
            continue;
        }
        return (bare, left_out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_bare_however_it_was_pasted() {
        for pasted in [
            "k",
            " k\r\n",
            "\u{feff}k",
            "\"k\"",
            "'k'",
            "\u{201c}k\u{201d}",
            "Bearer k",
            "bearer  k",
            "BEARER\tk",
            "API-Key k",
            "Bearer Bearer k",
            "\"Bearer k\"",
            "Bearer \"k\"",
            "Authorization: Bearer k",
            "authorization:k",
            "STUDYSYNC_API_KEY=k",
            "export STUDYSYNC_API_KEY=\"k\"",
        ] {
            assert_eq!(bare_secret(pasted).0, "k", "{pasted}");
        }
        for as_it_is in ["Bearerk", "k\"", "\"k", "a:b", "k Bearer", "api-keyk"] {
            assert_eq!(bare_secret(as_it_is), (as_it_is, None));
        }
        assert_eq!(bare_secret(" k "), ("k", None));
        assert_eq!(bare_secret("\"k\"").1, Some("the quotes around it"));
        for empty in ["", " ", "\"\"", "Bearer", "Bearer ''"] {
            assert_eq!(bare_secret(empty).0, "", "{empty}");
        }
        assert_eq!(bare_secret("\"").0, "\"");
    }

    #[test]
    fn p11_a_key_is_never_printed() {
        let key = ApiKey::new("s3cr3t", "environment variable STUDYSYNC_API_KEY");
        assert!(!format!("{key:?} {key}").contains("s3cr3t"));
        assert!(format!("{key}").contains("STUDYSYNC_API_KEY"));
    }
}
