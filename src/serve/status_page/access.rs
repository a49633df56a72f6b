//! Decides who may see the status page: everybody who has the token or, if no token is configured, everybody on this
//! machine. The `Host` header keeps out pages of other sites whose name resolves to this machine (DNS rebinding).

use std::{
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::http::{HeaderMap, header};
use ring::hmac;
use subtle::ConstantTimeEq as _;
use xxhash_rust::xxh3::xxh3_64;

use super::super::changing_secret::ChangingSecret;
use crate::redact::{ApiKey, bare_secret};

/// The begin of the name of the cookie of a browser that has sent the token.
const COOKIE: &str = "studysync_status";
/// How long the cookie is valid.
const COOKIE_SECS: u32 = 30 * 24 * 3600;
/// The text that is signed with the token to make the cookie's value.
const COOKIE_CONTEXT: &[u8] = b"studysync status page, cookie 1";
/// Maximum wrong tokens within a minute. After that no token is compared until the minute is over.
const WRONG_MAX: u32 = 10;
const MINUTE: Duration = Duration::from_secs(60);

/// Why a request may not see the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessDenied {
    /// No token is configured, and the request is not for a name of this machine.
    OtherHost,
    /// The request has no token, or a wrong one.
    NoToken,
    /// There were too many wrong tokens. For another `secs` seconds every token is refused, the correct one too.
    TooManyGuesses { secs: u64 },
}

/// Checks who may see the page.
#[derive(Debug)]
pub struct Access {
    token: Option<ChangingSecret>,
    /// The name of the cookie.
    cookie: String,
    guesses: Mutex<Guesses>,
}

/// The wrong tokens of the current minute.
#[derive(Debug)]
struct Guesses {
    since: Instant,
    wrong: u32,
}

impl Access {
    pub fn new(token: Option<ChangingSecret>) -> Access {
        let guesses = Mutex::new(Guesses { since: Instant::now(), wrong: 0 });
        Access { token, cookie: COOKIE.to_owned(), guesses }
    }

    /// Gives the cookie a name of its own. A browser sends the cookies of a host to every port of the host, so another
    /// server on this host must not have the same name. `installation` is what only this installation has: behind
    /// containers or a proxy, two servers may have the same port.
    #[must_use]
    pub fn with_cookie_of(mut self, port: u16, installation: &str) -> Access {
        self.cookie = format!("{COOKIE}_{port}_{:08x}", xxh3_64(installation.as_bytes()) >> 32);
        self
    }

    /// Returns the token, to follow its changes.
    pub fn secret(&self) -> Option<ChangingSecret> {
        self.token.clone()
    }

    /// Checks whether a request may see the page. If it has another token, the token is read again, because it may have
    /// changed.
    ///
    /// # Errors
    /// The reason why the request may not see the page.
    pub async fn check(&self, headers: &HeaderMap) -> Result<(), AccessDenied> {
        match self.check_known(headers) {
            Err(AccessDenied::NoToken) if headers.contains_key(header::AUTHORIZATION) && self.has_changed().await => {
                self.check_known(headers)
            }
            checked => checked,
        }
    }

    async fn has_changed(&self) -> bool {
        match &self.token {
            Some(token) => token.has_changed().await,
            None => false,
        }
    }

    /// [`Access::check`] with the tokens that are known.
    fn check_known(&self, headers: &HeaderMap) -> Result<(), AccessDenied> {
        let Some(token) = &self.token else {
            return if is_of_this_machine(headers) { Ok(()) } else { Err(AccessDenied::OtherHost) };
        };
        if token.any(|token| self.has_cookie(headers, &cookie_value(token))) {
            return Ok(());
        }
        let sent = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let sent = sent.and_then(|value| value.split_at_checked("Bearer ".len()));
        match sent {
            Some((scheme, sent)) if scheme.eq_ignore_ascii_case("Bearer ") => self.compare(token, sent),
            _ => Err(AccessDenied::NoToken),
        }
    }

    /// Returns the `Set-Cookie` header for a browser that sent this token. `is_secure` means that the browser uses TLS.
    ///
    /// # Errors
    /// The reason if the token is wrong.
    pub async fn sign_in(&self, sent: &str, is_secure: bool) -> Result<String, AccessDenied> {
        let token = self.token.as_ref().ok_or(AccessDenied::NoToken)?;
        match self.compare(token, sent) {
            Err(AccessDenied::NoToken) if token.has_changed().await => self.compare(token, sent)?,
            compared => compared?,
        }
        let secure = if is_secure { "; Secure" } else { "" };
        let value = cookie_value(&token.current());
        let name = &self.cookie;
        Ok(format!("{name}={value}; HttpOnly; SameSite=Strict; Path=/; Max-Age={COOKIE_SECS}{secure}"))
    }

    /// Returns true if the request has the cookie with this value.
    fn has_cookie(&self, headers: &HeaderMap, wanted: &str) -> bool {
        let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
        let cookies = lines.flat_map(|line| line.split(';')).filter_map(|cookie| cookie.trim().split_once('='));
        let mut values = cookies.filter(|(name, _)| *name == self.cookie).map(|(_, value)| value);
        values.any(|value| bool::from(value.as_bytes().ct_eq(wanted.as_bytes())))
    }

    /// Compares the token `sent` with the configured one, and counts wrong tokens. After too many wrong tokens in a
    /// minute, no token is compared. The duration of the comparison reveals at most the token's length.
    fn compare(&self, token: &ChangingSecret, sent: &str) -> Result<(), AccessDenied> {
        let mut guesses = self.guesses.lock().unwrap_or_else(PoisonError::into_inner);
        let elapsed = guesses.since.elapsed();
        if elapsed >= MINUTE {
            *guesses = Guesses { since: Instant::now(), wrong: 0 };
        } else if guesses.wrong >= WRONG_MAX {
            return Err(AccessDenied::TooManyGuesses { secs: (MINUTE - elapsed).as_secs() + 1 });
        }
        let sent = bare_secret(sent).0.as_bytes();
        if token.any(|token| bool::from(sent.ct_eq(token.expose().as_bytes()))) {
            return Ok(());
        }
        guesses.wrong += 1;
        if guesses.wrong == WRONG_MAX {
            tracing::warn!("many wrong tokens for the status page: no token is compared for the rest of the minute");
        }
        Err(AccessDenied::NoToken)
    }
}

/// Returns true if the `Host` of the request is `localhost` or a loopback address. The port is ignored, because a
/// tunnel may have another port.
fn is_of_this_machine(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST).and_then(|host| host.to_str().ok()) else { return false };
    let is_port = |port: &str| port.chars().all(|digit| digit.is_ascii_digit());
    let name = match host.rsplit_once(':') {
        Some((name, port)) if is_port(port) && !name.ends_with(':') => name,
        _ => host,
    };
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Returns the cookie's value. Only with the token can the value be computed, and the value does not reveal the token.
fn cookie_value(token: &ApiKey) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, token.expose().as_bytes());
    hmac::sign(&key, COOKIE_CONTEXT).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SecretSource;

    const TOKEN: &str = "status-t0ken-of-the-tests";

    fn headers(pairs: &[(header::HeaderName, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
    }

    #[test]
    fn without_a_token_only_names_of_this_machine_are_served() {
        let access = Access::new(None);
        let check = |host: &str| access.check_known(&headers(&[(header::HOST, host)]));
        for host in ["localhost", "LocalHost:8788", "127.0.0.1:9", "127.1.2.3", "[::1]:8788", "[::1]", "::1"] {
            assert_eq!(check(host), Ok(()), "{host}");
        }
        for host in
            ["evil.example", "localhost.evil.example:8788", "127.0.0.1.evil.example", "10.0.0.1:8788", "", "[::2]:1"]
        {
            assert_eq!(check(host), Err(AccessDenied::OtherHost), "{host}");
        }
        assert_eq!(access.check_known(&HeaderMap::new()), Err(AccessDenied::OtherHost));
    }

    #[tokio::test]
    async fn p11_token_or_cookie_give_access_and_guesses_are_limited() {
        let source = SecretSource::Variable(String::new());
        let token = ChangingSecret::open(&source, || Ok(ApiKey::new(TOKEN, "a test"))).unwrap();
        let access = Access::new(Some(token));
        let bearer = |token: &str| access.check_known(&headers(&[(header::AUTHORIZATION, &format!("Bearer {token}"))]));
        assert_eq!(bearer(TOKEN), Ok(()));
        assert_eq!(access.check(&headers(&[(header::HOST, "localhost")])).await, Err(AccessDenied::NoToken));
        let cookie = access.sign_in(&format!(" {TOKEN}\n"), true).await.unwrap();
        assert!(
            !cookie.contains(TOKEN) && cookie.ends_with("; Secure") && cookie.contains("HttpOnly; SameSite=Strict")
        );
        let pair = cookie.split(';').next().unwrap();
        let by_cookie = |pair: &str| access.check_known(&headers(&[(header::COOKIE, &format!("a=b; {pair}"))]));
        assert_eq!(by_cookie(pair), Ok(()));
        assert_eq!(by_cookie(&pair.replace('=', "=0")), Err(AccessDenied::NoToken));
        for guess in 0..WRONG_MAX {
            assert_eq!(bearer(&TOKEN[..guess as usize]), Err(AccessDenied::NoToken));
        }
        for refused in [bearer(TOKEN), access.sign_in(TOKEN, false).await.map(drop)] {
            assert!(matches!(refused, Err(AccessDenied::TooManyGuesses { secs: 1..=60 })), "{refused:?}");
        }
        assert_eq!(by_cookie(pair), Ok(()), "the cookie stays valid");
    }

    #[tokio::test]
    async fn servers_on_one_host_have_cookies_of_their_own() {
        let source = SecretSource::Variable(String::new());
        let token = ChangingSecret::open(&source, || Ok(ApiKey::new(TOKEN, "a test"))).unwrap();
        let mut names = std::collections::BTreeSet::new();
        for (port, installation) in [(8788, "a"), (8789, "a"), (8788, "b")] {
            let access = Access::new(Some(token.clone())).with_cookie_of(port, installation);
            let cookie = access.sign_in(TOKEN, false).await.unwrap();
            let pair = cookie.split(';').next().unwrap();
            // The browser sends the other servers' cookies too.
            let sent = headers(&[(header::COOKIE, &format!("studysync_status=00; {pair}; x=y"))]);
            assert_eq!(access.check(&sent).await, Ok(()));
            names.insert(pair.split('=').next().unwrap().to_owned());
        }
        assert_eq!(names.len(), 3, "{names:?}");
    }
}
