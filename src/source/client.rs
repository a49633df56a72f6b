//! Builds the HTTP clients. The clients do not follow redirects, do not retry, and send the key only to the service.

use std::{sync::Once, time::Duration};

use reqwest::{
    Client, ClientBuilder, Url,
    header::{ACCEPT, ACCEPT_ENCODING, HeaderMap, HeaderValue},
    redirect,
};

use super::{
    error::SettingsError,
    proxies::Proxies,
    settings::{AuthForm, SourceSettings, USER_AGENT},
    transport::cause_of,
};
use crate::redact::ApiKey;

/// The time to establish a connection, including TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Idle connections are closed after this time, before most servers and proxies close them.
const POOL_IDLE: Duration = Duration::from_secs(50);
/// Maximum header lines of an answer. hyper's read buffer bounds their size (about 400 KiB).
const HEADERS_MAX: usize = 100;

/// Builds the client for the configured address. The key is not in its default headers, because it may change.
pub(super) fn build(settings: &SourceSettings) -> Result<Client, SettingsError> {
    let builder =
        base_builder(&settings.user_agent, headers(), settings.timeout).pool_max_idle_per_host(settings.in_flight_max);
    let builder = if settings.is_plain_http() {
        // A proxy would send plain http, and the key with it, off this machine. Plain http needs no certificates, and
        // loading the system's certificates is slow.
        builder.no_proxy().tls_certs_only([])
    } else {
        settings.proxies.apply(builder).https_only(true)
    };
    builder.build().map_err(|error| SettingsError::Client { reason: cause_of(error) })
}

/// Builds the client for links that the service returns. This client sends no key and decompresses nothing. `is_local`:
/// the service and the link targets are on this machine.
pub(super) fn build_for_links(timeout: Duration, proxies: &Proxies, is_local: bool) -> Result<Client, SettingsError> {
    let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static("identity"))]);
    let builder = base_builder(USER_AGENT, headers, timeout);
    let builder = if is_local { builder.no_proxy() } else { proxies.apply(builder).https_only(true) };
    builder.build().map_err(|error| SettingsError::Client { reason: cause_of(error) })
}

/// Returns a client builder with the settings that all clients have.
fn base_builder(user_agent: &str, headers: HeaderMap, timeout: Duration) -> ClientBuilder {
    install_crypto();
    Client::builder()
        .user_agent(user_agent)
        .default_headers(headers)
        .redirect(redirect::Policy::none())
        .referer(false)
        // Every retry goes through the gate.
        .retry(reqwest::retry::never())
        .http1_only()
        .http1_max_headers(HEADERS_MAX)
        // The client does not decompress bodies: the module `body` does, up to a limit on the size.
        .connect_timeout(CONNECT_TIMEOUT.min(timeout))
        .pool_idle_timeout(POOL_IDLE)
}

/// Builds the default headers of every request to the service.
fn headers() -> HeaderMap {
    let json = HeaderValue::from_static("application/json");
    HeaderMap::from_iter([(ACCEPT, json), (ACCEPT_ENCODING, HeaderValue::from_static("gzip"))])
}

/// Builds the value of the `Authorization` header. Fails if the key is empty or not valid in a header.
pub(super) fn authorization(key: &ApiKey, form: AuthForm) -> Result<HeaderValue, SettingsError> {
    let unusable = |problem| SettingsError::UnusableKey { origin: key.origin().to_owned(), problem };
    let key = key.expose();
    if key.trim().is_empty() {
        return Err(unusable("is empty"));
    }
    let mut value = HeaderValue::try_from(format!("{} {key}", form.scheme()))
        .map_err(|_| unusable("holds characters that a header cannot carry"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Installs the cryptography provider of rustls, once per process.
pub fn install_crypto() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        // An error means that an embedding program has installed a provider already.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}

/// Parses the base URL.
pub(super) fn base_url(settings: &SourceSettings) -> Result<Url, SettingsError> {
    Url::parse(&settings.base_url).map_err(|error| SettingsError::NotAnAddress { reason: error.to_string() })
}
