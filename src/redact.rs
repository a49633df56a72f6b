//! Secrets, which are never printed (promise P11), and the cleaning of pasted secrets.

use std::fmt;

use secrecy::{ExposeSecret, SecretString};

/// A secret and its origin: the service's API key, a token of `serve`, or the URL of notifications. Errors name the
/// origin.
///
/// `Debug` and `Display` do not show the secret. Only [`ApiKey::expose`] does.
#[derive(Clone)]
pub struct ApiKey {
    secret: SecretString,
    origin: String,
    /// The keys that this one has replaced.
    former: Vec<SecretString>,
}

impl ApiKey {
    /// Creates a secret. `origin` is for messages: "environment variable STUDYSYNC_API_KEY" or "file /etc/key".
    pub fn new(secret: impl Into<String>, origin: impl Into<String>) -> Self {
        Self { secret: SecretString::from(secret.into()), origin: origin.into(), former: Vec::new() }
    }

    /// Returns this key as the successor of another one, which [`ApiKey::removed_from`] then removes too.
    #[must_use]
    pub fn replacing(mut self, former: &ApiKey) -> Self {
        self.former = former.former.clone();
        self.former.push(former.secret.clone());
        self
    }

    /// Returns true if both have the same secret.
    pub fn is_same(&self, other: &ApiKey) -> bool {
        self.expose() == other.expose()
    }

    /// Returns a text with `[key]` in place of the secret and of every secret that it has replaced.
    pub fn removed_from(&self, text: &str) -> String {
        let secrets = self.former.iter().chain([&self.secret]).map(ExposeSecret::expose_secret);
        secrets.filter(|secret| !secret.is_empty()).fold(text.to_owned(), |text, secret| text.replace(secret, "[key]"))
    }

    /// Returns the secret itself, for a request or a comparison. The result must never be printed.
    pub fn expose(&self) -> &str {
        self.secret.expose_secret()
    }

    /// Returns the origin of the secret.
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

/// Pairs of quotes that people paste with a secret.
const QUOTES: [(char, char); 6] =
    [('"', '"'), ('\'', '\''), ('`', '`'), ('\u{201c}', '\u{201d}'), ('\u{2018}', '\u{2019}'), ('\u{ab}', '\u{bb}')];
/// Words before a secret in an `Authorization` header.
const SCHEMES: [&str; 2] = ["bearer", "api-key"];

/// Removes from a secret what people paste with it: blanks, quotes, the words `Bearer` or `API-Key`, and the name of
/// the `Authorization` header or of a `STUDYSYNC_` variable. Returns the secret, and a description of what was removed;
/// `None` if at most blanks were removed. The description names quotes only if nothing else was removed.
pub fn bare_secret(text: &str) -> (&str, Option<&'static str>) {
    let is_blank = |letter: char| letter.is_whitespace() || matches!(letter, '\u{feff}' | '\u{200b}');
    let (mut bare, mut removed) = (text.trim_matches(is_blank), None);
    loop {
        if let Some(inner) = QUOTES.iter().find_map(|(begin, end)| bare.strip_prefix(*begin)?.strip_suffix(*end)) {
            (bare, removed) = (inner, removed.or(Some("the quotes around it")));
        } else if let Some((rest, prefix)) = without_prefix(bare) {
            (bare, removed) = (rest, Some(prefix));
        } else {
            return (bare, removed);
        }
        bare = bare.trim_matches(is_blank);
    }
}

/// Returns the text after one prefix that people paste with a secret, and a description of the prefix; `None` if there
/// is no prefix.
fn without_prefix(text: &str) -> Option<(&str, &'static str)> {
    if let Some((name, rest)) = text.split_once(':')
        && name.trim().eq_ignore_ascii_case("authorization")
    {
        return Some((rest, "the name of the header before it"));
    }
    let line = text.strip_prefix("export ").unwrap_or(text).trim_start();
    if let Some((name, rest)) = line.split_once('=')
        && name.starts_with("STUDYSYNC_")
    {
        return Some((rest, "the name of the variable before it"));
    }
    let word = text.split(char::is_whitespace).next().unwrap_or_default();
    let is_scheme = SCHEMES.iter().any(|scheme| word.eq_ignore_ascii_case(scheme));
    is_scheme.then(|| (text.get(word.len()..).unwrap_or_default(), "the word 'Bearer' or 'API-Key' before it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pasted_secret_is_cleaned() {
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
        for unchanged in ["Bearerk", "k\"", "\"k", "a:b", "k Bearer", "api-keyk"] {
            assert_eq!(bare_secret(unchanged), (unchanged, None));
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
        let next = ApiKey::new("an0ther", "a test").replacing(&key);
        assert_eq!(next.removed_from("s3cr3t an0ther other"), "[key] [key] other");
    }
}
