//! Who may see the status page: with a token, whoever has it; without one, whoever is on this machine. A page of
//! another site that has its own name lead to this machine (DNS rebinding) is kept out by the name that the browser
//! asked for.

use std::{
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::http::{HeaderMap, header};
use ring::hmac;
use subtle::ConstantTimeEq as _;

use crate::redact::{ApiKey, bare_secret};

/// The cookie of a browser that has shown the token.
const COOKIE: &str = "studysync_status";
/// How long a browser need not show it again.
const COOKIE_SECS: u32 = 30 * 24 * 3600;
/// What the cookie's value is made of, beside the token.
const COOKIE_CONTEXT: &[u8] = b"studysync status page, cookie 1";
/// After so many wrong tokens within a minute, none is compared until the minute is over.
const WRONG_MAX: u32 = 10;
const MINUTE: Duration = Duration::from_secs(60);

/// Why somebody may not see the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no token, and the request is for a name that is not this machine's.
    OtherHost,
    /// No token, or a wrong one.
    NoToken,
    /// Too many wrong tokens; none is compared for so many seconds.
    TooManyGuesses { secs: u64 },
}

/// The rule of who may see the page.
#[derive(Debug)]
pub struct Access {
    token: Option<ApiKey>,
    guesses: Mutex<Guesses>,
}

/// Wrong tokens of the minute under way.
#[derive(Debug)]
struct Guesses {
    since: Instant,
    wrong: u32,
}

impl Access {
    pub fn new(token: Option<ApiKey>) -> Access {
        Access { token, guesses: Mutex::new(Guesses { since: Instant::now(), wrong: 0 }) }
    }

    /// Whether a request may see the page.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let Some(token) = &self.token else {
            return if is_of_this_machine(headers) { Ok(()) } else { Err(Refusal::OtherHost) };
        };
        if has_cookie(headers, &cookie_value(token)) {
            return Ok(());
        }
        let sent = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let sent = sent.and_then(|value| value.split_at_checked("Bearer ".len()));
        match sent {
            Some((form, sent)) if form.eq_ignore_ascii_case("Bearer ") => self.compare(token, sent),
            _ => Err(Refusal::NoToken),
        }
    }

    /// The `Set-Cookie` header for a browser that sent this token. `is_secure`: it reached a proxy by TLS.
    ///
    /// # Errors
    /// Why it gets none.
    pub fn sign_in(&self, sent: &str, is_secure: bool) -> Result<String, Refusal> {
        let token = self.token.as_ref().ok_or(Refusal::NoToken)?;
        self.compare(token, sent)?;
        let secure = if is_secure { "; Secure" } else { "" };
        let value = cookie_value(token);
        Ok(format!("{COOKIE}={value}; HttpOnly; SameSite=Strict; Path=/; Max-Age={COOKIE_SECS}{secure}"))
    }

    /// How long the comparison takes tells the token's length at most.
    fn compare(&self, token: &ApiKey, sent: &str) -> Result<(), Refusal> {
        let mut guesses = self.guesses.lock().unwrap_or_else(PoisonError::into_inner);
        let elapsed = guesses.since.elapsed();
        if elapsed >= MINUTE {
            *guesses = Guesses { since: Instant::now(), wrong: 0 };
        } else if guesses.wrong >= WRONG_MAX {
            return Err(Refusal::TooManyGuesses { secs: (MINUTE - elapsed).as_secs() + 1 });
        }
        if bool::from(bare_secret(sent).0.as_bytes().ct_eq(token.expose().as_bytes())) {
            return Ok(());
        }
        guesses.wrong += 1;
        if guesses.wrong == WRONG_MAX {
            tracing::warn!("many wrong tokens for the status page: for the rest of the minute none is compared");
        }
        Err(Refusal::NoToken)
    }
}

/// Whether the request is for this machine's own name or loopback address, on whatever port: a tunnel has another.
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

/// A value that only who has the token can make, and from which it cannot be told.
fn cookie_value(token: &ApiKey) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, token.expose().as_bytes());
    hmac::sign(&key, COOKIE_CONTEXT).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn has_cookie(headers: &HeaderMap, wanted: &str) -> bool {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let cookies = lines.flat_map(|line| line.split(';')).filter_map(|cookie| cookie.trim().split_once('='));
    cookies.filter(|(name, _)| *name == COOKIE).any(|(_, value)| bool::from(value.as_bytes().ct_eq(wanted.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "status-t0ken-of-the-tests";

    fn headers(pairs: &[(header::HeaderName, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
    }

    #[test]
    fn without_a_token_only_names_of_this_machine_are_served() {
        let access = Access::new(None);
        let check = |host: &str| access.check(&headers(&[(header::HOST, host)]));
        for host in ["localhost", "LocalHost:8788", "127.0.0.1:9", "127.1.2.3", "[::1]:8788", "[::1]", "::1"] {
            assert_eq!(check(host), Ok(()), "{host}");
        }
        for host in
            ["evil.example", "localhost.evil.example:8788", "127.0.0.1.evil.example", "10.0.0.1:8788", "", "[::2]:1"]
        {
            assert_eq!(check(host), Err(Refusal::OtherHost), "{host}");
        }
        assert_eq!(access.check(&HeaderMap::new()), Err(Refusal::OtherHost));
    }

    #[test]
    fn p11_the_token_or_its_cookie_opens_and_guesses_are_limited() {
        let access = Access::new(Some(ApiKey::new(TOKEN, "a test")));
        let bearer = |token: &str| access.check(&headers(&[(header::AUTHORIZATION, &format!("Bearer {token}"))]));
        assert_eq!(bearer(TOKEN), Ok(()));
        assert_eq!(access.check(&headers(&[(header::HOST, "localhost")])), Err(Refusal::NoToken));
        let cookie = access.sign_in(&format!(" {TOKEN}\n"), true).unwrap();
        assert!(
            !cookie.contains(TOKEN) && cookie.ends_with("; Secure") && cookie.contains("HttpOnly; SameSite=Strict")
        );
        let pair = cookie.split(';').next().unwrap();
        let by_cookie = |pair: &str| access.check(&headers(&[(header::COOKIE, &format!("a=b; {pair}"))]));
        assert_eq!(by_cookie(pair), Ok(()));
        assert_eq!(by_cookie(&pair.replace('=', "=0")), Err(Refusal::NoToken));
        for guess in 0..WRONG_MAX {
            assert_eq!(bearer(&TOKEN[..guess as usize]), Err(Refusal::NoToken));
        }
        for refused in [bearer(TOKEN), access.sign_in(TOKEN, false).map(drop)] {
            assert!(matches!(refused, Err(Refusal::TooManyGuesses { secs: 1..=60 })), "{refused:?}");
        }
        assert_eq!(by_cookie(pair), Ok(()), "who is in stays in");
    }
}
