//! The settings of a source, and the checks that need no network. This module reads no file and no environment
//! variable.

use std::{fmt, sync::Arc, time::Duration};

use reqwest::Url;
use tokio::time::Instant;

use super::{
    address::is_loopback, backoff::Backoff, error::SourceError, lists::NotFoundEnd, proxies::Proxies,
    settings_error::SettingsError, transport::Transport,
};
use crate::{
    clock::Clock,
    model::{Rng, Stream},
    redact::ApiKey,
};

/// Maximum attempts for one page at one size. A 429 does not count as an attempt (promise P5).
pub const ATTEMPTS_MAX: u32 = 6;
/// The default for [`SourceSettings::timeout`].
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);
/// The default for [`SourceSettings::idle_timeout`].
pub const IDLE_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
/// The default for [`SourceSettings::patience`].
pub const PATIENCE_DEFAULT: Duration = Duration::from_secs(3600);
/// The default for [`SourceSettings::in_flight_max`].
pub const IN_FLIGHT_MAX_DEFAULT: usize = 4;
/// The largest allowed [`SourceSettings::in_flight_max`].
pub const IN_FLIGHT_MAX_LIMIT: usize = 64;
/// The default for [`SourceSettings::body_bytes_max`]. It does not follow the memory limit, because a longer record
/// could never be loaded. So a body that needs more than all memory for bodies is read alone.
pub const BODY_BYTES_MAX_DEFAULT: usize = 64 << 20;

/// The default for [`SourceSettings::user_agent`].
pub(super) const USER_AGENT: &str = concat!("studysync/", env!("CARGO_PKG_VERSION"));

/// The scheme of the `Authorization` header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthForm {
    /// `Bearer KEY`: lists and purges by the contract.
    #[default]
    Bearer,
    /// `API-Key KEY`: users by the contract.
    ApiKey,
}

impl AuthForm {
    /// Returns the word before the key.
    pub(super) fn scheme(self) -> &'static str {
        match self {
            AuthForm::Bearer => "Bearer",
            AuthForm::ApiKey => "API-Key",
        }
    }
}

/// Reads the key from its file or command. Blocks the thread.
#[derive(Clone)]
pub struct KeyReader(Arc<dyn Fn() -> Option<ApiKey> + Send + Sync>);

impl KeyReader {
    /// Creates a reader. `read` returns `None` if the key cannot be read.
    pub fn new(read: impl Fn() -> Option<ApiKey> + Send + Sync + 'static) -> KeyReader {
        KeyReader(Arc::new(read))
    }

    /// Returns the key; `None` if it cannot be read.
    pub(super) fn read(&self) -> Option<ApiKey> {
        (self.0)()
    }
}

impl fmt::Debug for KeyReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyReader")
    }
}

/// What earlier runs know about the lists of the service.
#[derive(Clone, Debug, Default)]
pub struct KnownLists {
    /// Lists that answered every request with 404, and never with a page.
    pub empty: Vec<Stream>,
    /// Lists of which the warehouses have rows. Such a list is never taken as empty because of a 404 alone.
    pub with_rows: Vec<Stream>,
    /// What is proven about the 404 at the end of lists.
    pub ends: Vec<(Stream, NotFoundEnd)>,
}

/// The settings of a source. [`SourceSettings::new`] fills in the defaults.
#[derive(Clone, Debug)]
pub struct SourceSettings {
    /// The service's base URL without a trailing slash; the paths of the contract (`/v1/...`) are appended.
    /// [`SourceSettings::new`] and [`super::Source::new`] check it.
    pub base_url: String,
    /// The key.
    pub key: ApiKey,
    /// Reads the key once more after the service has refused it; `None` if the key cannot change during the run.
    pub key_reader: Option<KeyReader>,
    /// The form of the key in list calls.
    pub auth: AuthForm,
    /// The form of the key in requests about users.
    pub user_auth: AuthForm,
    /// Time-out of one request, from sending it to the last byte of the answer.
    pub timeout: Duration,
    /// The longest pause inside a body.
    pub idle_timeout: Duration,
    /// Maximum concurrent requests over all clones of the source: 1 to [`IN_FLIGHT_MAX_LIMIT`].
    pub in_flight_max: usize,
    /// Maximum request rate. `None`: only the learned rate applies.
    pub requests_per_sec_max: Option<f64>,
    /// Number of processes that share the service's limit: each begins with its share of the learned rate.
    pub workers: u32,
    /// The longest wait because of rate limiting, counted from the first of several consecutive refusals. A longer wait
    /// stops the run with [`super::Stop::Patience`] immediately.
    pub patience: Duration,
    /// Maximum bytes of one decompressed body; reading stops there.
    pub body_bytes_max: usize,
    /// Memory for the decompressed bodies of pages in flight, in bytes. A page that needs all of it is requested alone,
    /// with as few rows as fit.
    pub page_bytes_max: usize,
    /// The rest of a `Retry-After` that an earlier process received: no request is sent during this time. `None`: no
    /// wait.
    pub not_before: Option<Duration>,
    /// The time after which the run sends nothing and waits for nothing; `None`: no limit.
    pub deadline: Option<Instant>,
    /// Maximum requests of the run, retries included; `None`: no limit.
    pub requests_max: Option<u64>,
    /// Maximum attempts for one page at one size; interactive commands use few.
    pub attempts_max: u32,
    /// The `User-Agent` header.
    pub user_agent: String,
    /// True if an earlier run found the list of surveys at `/v1/studies` only.
    pub surveys_are_studies: bool,
    /// True if a list that had rows may answer 404 to every request: the user accepts that all its rows are gone.
    pub accepts_gone_lists: bool,
    /// What earlier runs know about the lists.
    pub known_lists: KnownLists,
    /// The proxies of requests to other machines.
    pub proxies: Proxies,
    /// Sends the requests: the network, or the handler of a test.
    pub transport: Transport,
    /// This machine's clock.
    pub clock: Clock,
    /// Random numbers for the jitter of waits.
    pub rng: Rng,
    /// The waits between attempts. No setting changes them; tests shorten them.
    pub(super) backoff: Backoff,
}

impl SourceSettings {
    /// Creates settings with the defaults for a service and a key. The base URL must be `https`, or `http` on loopback
    /// (promise P11), without user, query and fragment. A path before `/v1` is allowed.
    pub fn new(base_url: &str, key: ApiKey) -> Result<Self, SourceError> {
        Ok(Self {
            base_url: checked_address(base_url)?,
            key,
            key_reader: None,
            auth: AuthForm::default(),
            user_auth: AuthForm::ApiKey,
            timeout: TIMEOUT_DEFAULT,
            idle_timeout: IDLE_TIMEOUT_DEFAULT,
            in_flight_max: IN_FLIGHT_MAX_DEFAULT,
            requests_per_sec_max: None,
            workers: 1,
            patience: PATIENCE_DEFAULT,
            body_bytes_max: BODY_BYTES_MAX_DEFAULT,
            page_bytes_max: BODY_BYTES_MAX_DEFAULT,
            not_before: None,
            deadline: None,
            requests_max: None,
            attempts_max: ATTEMPTS_MAX,
            user_agent: USER_AGENT.to_owned(),
            surveys_are_studies: false,
            accepts_gone_lists: false,
            known_lists: KnownLists::default(),
            proxies: Proxies::default(),
            transport: Transport::default(),
            clock: Clock::default(),
            rng: Rng::default(),
            backoff: Backoff::default(),
        })
    }

    /// Checks the base URL and the ranges of the numbers. Returns the base URL.
    pub(super) fn check(&self) -> Result<Url, SettingsError> {
        let base_url = checked_address(&self.base_url)?;
        if base_url != self.base_url {
            return Err(SettingsError::NotAnAddress { reason: "it ends with a slash".to_owned() });
        }
        if !(1..=IN_FLIGHT_MAX_LIMIT).contains(&self.in_flight_max) {
            return Err(out_of_range("in_flight_max", "1 to 64"));
        }
        if self.requests_per_sec_max.is_some_and(|rate| !(rate.is_finite() && rate > 0.0)) {
            return Err(out_of_range("requests_per_sec_max", "more than 0"));
        }
        if self.timeout.is_zero() || self.idle_timeout.is_zero() {
            return Err(out_of_range("the time-out", "more than 0"));
        }
        if self.body_bytes_max == 0 {
            return Err(out_of_range("body_bytes_max", "more than 0"));
        }
        parsed(&base_url)
    }

    /// Returns true if the base URL is plain http, which is allowed on loopback only.
    pub(super) fn is_plain_http(&self) -> bool {
        self.base_url.starts_with("http://")
    }
}

fn out_of_range(name: &'static str, requirement: &'static str) -> SettingsError {
    SettingsError::OutOfRange { name, requirement }
}

fn parsed(address: &str) -> Result<Url, SettingsError> {
    Url::parse(address).map_err(|error| SettingsError::NotAnAddress { reason: error.to_string() })
}

/// Checks the service's address and returns it without trailing slashes. Errors do not repeat the address, because it
/// may contain a password.
pub fn checked_address(text: &str) -> Result<String, SettingsError> {
    let url = parsed(text.trim())?;
    let surplus = |what| Err(SettingsError::Surplus { what });
    if !url.username().is_empty() || url.password().is_some() {
        return surplus("a user or a password");
    }
    if url.query().is_some() {
        return surplus("a query");
    }
    if url.fragment().is_some() {
        return surplus("a fragment");
    }
    let host = url.host_str().unwrap_or_default();
    match url.scheme() {
        "https" if !host.is_empty() => {}
        "http" if is_loopback(host) => {}
        scheme => {
            return Err(SettingsError::Unencrypted { scheme: scheme.to_owned(), host: host.to_owned() });
        }
    }
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base_url(text: &str) -> Result<String, String> {
        checked_address(text).map_err(|error| error.to_string())
    }

    #[test]
    fn p11_only_https_or_loopback_is_an_address() {
        assert_eq!(base_url("https://api.example.com/"), Ok("https://api.example.com".into()));
        assert_eq!(base_url(" https://api.example.com/tenant/ "), Ok("https://api.example.com/tenant".into()));
        assert_eq!(base_url("http://127.0.0.1:8080"), Ok("http://127.0.0.1:8080".into()));
        assert_eq!(base_url("http://[::1]:8080"), Ok("http://[::1]:8080".into()));
        assert_eq!(base_url("http://localhost"), Ok("http://localhost".into()));
        for refused in ["http://api.example.com", "http://localhost.example.com", "http://10.0.0.1", "ftp://127.0.0.1"]
        {
            assert!(base_url(refused).unwrap_err().contains("must be https"), "{refused}");
        }
        assert!(base_url("api.example.com").unwrap_err().contains("not an address"));
    }

    #[test]
    fn p11_an_address_with_a_password_is_refused_without_repeating_it() {
        let error = base_url("https://user:hunter2@api.example.com").unwrap_err();
        assert!(error.contains("a user or a password") && !error.contains("hunter2"), "{error}");
        assert!(base_url("https://api.example.com/?key=1").unwrap_err().contains("a query"));
        assert!(base_url("https://api.example.com/#top").unwrap_err().contains("a fragment"));
    }

    #[test]
    fn limits_that_allow_nothing_are_refused() {
        let settings = SourceSettings::new("http://localhost", ApiKey::new("k", "test")).unwrap();
        assert_eq!(settings.check().map(drop), Ok(()));
        let refused = |change: fn(&mut SourceSettings)| {
            let mut changed = settings.clone();
            change(&mut changed);
            changed.check().unwrap_err().to_string()
        };
        assert!(refused(|settings| settings.in_flight_max = 0).contains("in_flight_max"));
        assert!(refused(|settings| settings.in_flight_max = 65).contains("in_flight_max"));
        assert!(refused(|settings| settings.requests_per_sec_max = Some(0.0)).contains("requests_per_sec_max"));
        assert!(refused(|settings| settings.requests_per_sec_max = Some(f64::NAN)).contains("requests_per_sec_max"));
        assert!(refused(|settings| settings.body_bytes_max = 0).contains("body_bytes_max"));
        assert!(refused(|settings| settings.timeout = Duration::ZERO).contains("time-out"));
        assert!(refused(|settings| settings.base_url = "http://example.com".into()).contains("https"));
    }
}
