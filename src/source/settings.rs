//! What a source needs to know before its first request. Checks what can be checked without the network;
//! reads no file and no environment.

use std::{net::IpAddr, time::Duration};

use reqwest::Url;
use tokio::time::Instant;

use super::{
    backoff::Backoff,
    error::{SettingsError, SourceError},
    transport::Transport,
};
use crate::{clock::Clock, model::Chance, redact::ApiKey};

/// The most attempts for one page at one size, refusals not counted (a 429 is no attempt, promise P5).
pub const ATTEMPTS_MAX: u32 = 6;
/// The default for [`SourceSettings::timeout`].
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);
/// The default for [`SourceSettings::idle_timeout`].
pub const IDLE_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
/// The default for [`SourceSettings::patience`].
pub const PATIENCE_DEFAULT: Duration = Duration::from_secs(3600);
/// The default for [`SourceSettings::in_flight_max`].
pub const IN_FLIGHT_MAX_DEFAULT: usize = 4;
/// The most that [`SourceSettings::in_flight_max`] may be.
pub const IN_FLIGHT_MAX_LIMIT: usize = 64;
/// The default for [`SourceSettings::body_bytes_max`].
pub const BODY_BYTES_MAX_DEFAULT: usize = 64 << 20;

/// The default for [`SourceSettings::user_agent`].
pub(super) const USER_AGENT: &str = concat!("studysync/", env!("CARGO_PKG_VERSION"));

/// How the key stands in the `Authorization` header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthForm {
    /// `Bearer KEY`: what the contract says for lists and purges.
    #[default]
    Bearer,
    /// `API-Key KEY`: what the contract says for users.
    ApiKey,
}

impl AuthForm {
    /// The word before the key.
    pub(super) fn scheme(self) -> &'static str {
        match self {
            AuthForm::Bearer => "Bearer",
            AuthForm::ApiKey => "API-Key",
        }
    }
}

/// Everything a source is told. [`SourceSettings::new`] fills in the defaults.
#[derive(Clone, Debug)]
pub struct SourceSettings {
    /// The service's address without a slash at its end; the paths of the contract (`/v1/...`) are appended. Set it
    /// through [`SourceSettings::new`], which checks it; [`super::Source::new`] checks again.
    pub base_url: String,
    /// The key.
    pub key: ApiKey,
    /// How the key is sent with list calls.
    pub auth: AuthForm,
    /// How the key is sent with requests about users.
    pub user_auth: AuthForm,
    /// The whole of one request, from sending it to the last byte of the answer.
    pub timeout: Duration,
    /// The longest silence inside a body.
    pub idle_timeout: Duration,
    /// Requests under way at the same time, over all clones of the source. 1 to [`IN_FLIGHT_MAX_LIMIT`].
    pub in_flight_max: usize,
    /// A ceiling for the rate, whatever the service would allow. `None`: only the learned rate counts.
    pub requests_per_sec_max: Option<f64>,
    /// The longest wait for a closed gate, both one by one and over consecutive refusals without a success between. A
    /// longer one ends the run with [`super::Stop::Patience`] at once.
    pub patience: Duration,
    /// The most bytes of one decompressed body; a longer one is not read on.
    pub body_bytes_max: usize,
    /// Nothing is sent before so long from now: an earlier process was told so.
    pub not_before: Option<Duration>,
    /// When the run must be over: nothing is sent or waited for past it.
    pub deadline: Option<Instant>,
    /// The most requests of the run, retries included.
    pub requests_max: Option<u64>,
    /// The most attempts for one page at one size; whoever waits before a screen wants few.
    pub attempts_max: u32,
    /// The `User-Agent` header.
    pub user_agent: String,
    /// Whether an earlier run found the list of surveys under the name of studies alone.
    pub surveys_are_studies: bool,
    /// Who carries requests to the service: the network, unless a test stands in for it.
    pub transport: Transport,
    /// This machine's clock.
    pub clock: Clock,
    /// Where the jitter of waits comes from.
    pub chance: Chance,
    /// How long to wait between attempts. Not a setting for people: tests make it short.
    pub(super) backoff: Backoff,
}

impl SourceSettings {
    /// The defaults for a service and a key. The address must be `https`, or `http` on loopback (promise P11), without
    /// user, query and fragment; a path before `/v1` is allowed.
    pub fn new(base_url: &str, key: ApiKey) -> Result<Self, SourceError> {
        Ok(Self {
            base_url: checked_address(base_url)?,
            key,
            auth: AuthForm::default(),
            user_auth: AuthForm::ApiKey,
            timeout: TIMEOUT_DEFAULT,
            idle_timeout: IDLE_TIMEOUT_DEFAULT,
            in_flight_max: IN_FLIGHT_MAX_DEFAULT,
            requests_per_sec_max: None,
            patience: PATIENCE_DEFAULT,
            body_bytes_max: BODY_BYTES_MAX_DEFAULT,
            not_before: None,
            deadline: None,
            requests_max: None,
            attempts_max: ATTEMPTS_MAX,
            user_agent: USER_AGENT.to_owned(),
            surveys_are_studies: false,
            transport: Transport::default(),
            clock: Clock::default(),
            chance: Chance::default(),
            backoff: Backoff::default(),
        })
    }

    /// What only a program can get wrong, and the address once more.
    pub(super) fn check(&self) -> Result<(), SettingsError> {
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
        Ok(())
    }

    /// Whether the address is plain http, which only loopback may be.
    pub(super) fn is_plain_http(&self) -> bool {
        self.base_url.starts_with("http://")
    }
}

fn out_of_range(name: &'static str, requirement: &'static str) -> SettingsError {
    SettingsError::OutOfRange { name, requirement }
}

/// The service's address as it is used and stored: without slashes at its end. Errors never repeat it whole:
/// it could carry a password.
pub fn checked_address(text: &str) -> Result<String, SettingsError> {
    let url = Url::parse(text.trim()).map_err(|error| SettingsError::NotAnAddress { reason: error.to_string() })?;
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

/// Whether the host can only be this machine. By name only `localhost` counts.
pub(super) fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
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
        assert_eq!(settings.check(), Ok(()));
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
