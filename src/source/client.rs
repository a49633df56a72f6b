//! Builds the HTTP client: what it never does is decided here. Sends nothing.

use std::{sync::Once, time::Duration};

use reqwest::{
    Client, ClientBuilder, Url,
    header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, HeaderMap, HeaderValue},
    redirect,
};

use super::{
    cause::cause,
    error::SettingsError,
    settings::{AuthForm, SourceSettings, USER_AGENT},
};

/// Establishing a connection, encryption included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// An idle connection is closed after this long, before most servers and proxies do so unasked.
const POOL_IDLE: Duration = Duration::from_secs(50);
/// The most header lines of an answer. Their size is bounded too, by hyper's read buffer (about 400 KiB).
const HEADERS_MAX: usize = 100;

/// A client that speaks to the configured address alone, and never twice without being told.
pub(super) fn build(settings: &SourceSettings) -> Result<Client, SettingsError> {
    let builder = begin(&settings.user_agent, headers(settings)?, settings.timeout)
        .pool_max_idle_per_host(settings.in_flight_max);
    // A proxy would carry plain http, and the key with it, off this machine.
    // It needs no certificates either, and reading those of the system takes longer than all else here.
    let builder = match settings.is_plain_http() {
        true => builder.no_proxy().tls_certs_only([]),
        false => builder.https_only(true),
    };
    builder.build().map_err(|error| SettingsError::Client { reason: cause(error) })
}

/// A client for links that the service hands out: it knows no key, and unpacks nothing.
/// `is_local`: the service is on this machine, and what it leads to as well.
pub(super) fn build_for_links(timeout: Duration, is_local: bool) -> Result<Client, SettingsError> {
    let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static("identity"))]);
    let builder = begin(USER_AGENT, headers, timeout);
    let builder = if is_local { builder.no_proxy() } else { builder.https_only(true) };
    builder.build().map_err(|error| SettingsError::Client { reason: cause(error) })
}

/// What every client has in common.
fn begin(user_agent: &str, headers: HeaderMap, timeout: Duration) -> ClientBuilder {
    install_crypto();
    Client::builder()
        .user_agent(user_agent)
        .default_headers(headers)
        .redirect(redirect::Policy::none())
        .referer(false)
        // Every repetition goes through the gate.
        .retry(reqwest::retry::never())
        .http1_only()
        .http1_max_headers(HEADERS_MAX)
        // Bodies are unpacked where they are bounded.
        .connect_timeout(CONNECT_TIMEOUT.min(timeout))
        .pool_idle_timeout(POOL_IDLE)
}

fn headers(settings: &SourceSettings) -> Result<HeaderMap, SettingsError> {
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, authorization(settings, settings.auth)?);
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
    Ok(headers)
}

/// The key as it stands in the `Authorization` header.
pub(super) fn authorization(settings: &SourceSettings, form: AuthForm) -> Result<HeaderValue, SettingsError> {
    let unusable = |problem| SettingsError::UnusableKey { origin: settings.key.origin().to_owned(), problem };
    let key = settings.key.expose();
    if key.trim().is_empty() {
        return Err(unusable("is empty"));
    }
    let mut value = HeaderValue::try_from(format!("{} {key}", form.scheme()))
        .map_err(|_| unusable("holds characters that a header cannot carry"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// rustls wants to be told once which cryptography to use.
/// Says which cryptography TLS is made with, once for the process.
pub fn install_crypto() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        // An error means that an embedding program has chosen already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}

/// The configured address as a base for others. It has been checked before.
pub(super) fn base_url(settings: &SourceSettings) -> Result<Url, SettingsError> {
    Url::parse(&settings.base_url).map_err(|error| SettingsError::NotAnAddress { reason: error.to_string() })
}
