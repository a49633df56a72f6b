//! Builds the HTTP clients. The clients do not follow redirects, do not retry, and send the key only to the service. If
//! the service refuses the key, its file or command is read once more, because the key may have been changed during the
//! run.

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use reqwest::{
    Client, ClientBuilder,
    header::{ACCEPT, ACCEPT_ENCODING, HeaderMap, HeaderValue},
    redirect,
};
use tokio::{sync::Mutex, time::Instant};

use super::{
    proxies::Proxies,
    settings::{AuthForm, KeyReader, SourceSettings, USER_AGENT},
    settings_error::SettingsError,
    transport::cause_of,
};
use crate::{redact::ApiKey, tls::install_crypto};

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
    finish(builder)
}

/// Builds the client for links that the service returns. This client sends no key and decompresses nothing. `is_local`:
/// the service and the link targets are on this machine.
pub(super) fn build_for_links(timeout: Duration, proxies: &Proxies, is_local: bool) -> Result<Client, SettingsError> {
    let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static("identity"))]);
    let builder = base_builder(USER_AGENT, headers, timeout);
    let builder = if is_local { builder.no_proxy() } else { proxies.apply(builder).https_only(true) };
    finish(builder)
}

fn finish(builder: ClientBuilder) -> Result<Client, SettingsError> {
    builder.build().map_err(|error| SettingsError::Client { reason: cause_of(error) })
}

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

fn headers() -> HeaderMap {
    let json = HeaderValue::from_static("application/json");
    HeaderMap::from_iter([(ACCEPT, json), (ACCEPT_ENCODING, HeaderValue::from_static("gzip"))])
}

fn authorization(key: &ApiKey, form: AuthForm) -> Result<HeaderValue, SettingsError> {
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

/// How long a key that was read once more and was the same is not read again. Lists that a key may not read are refused
/// again and again.
const SAME_KEY_KEPT: Duration = Duration::from_secs(10);

/// The forms of the key.
#[derive(Clone, Copy, Debug)]
struct AuthForms {
    /// In requests for lists.
    lists: AuthForm,
    /// In requests about users.
    users: AuthForm,
}

/// A key and its header values.
#[derive(Debug)]
pub(super) struct SentKey {
    /// The key. It knows the earlier keys of the run too, to keep them out of messages.
    pub key: ApiKey,
    /// The `Authorization` header of requests for lists.
    pub auth: HeaderValue,
    /// The `Authorization` header of requests about users.
    pub user_auth: HeaderValue,
}

impl SentKey {
    fn new(key: ApiKey, forms: AuthForms) -> Result<SentKey, SettingsError> {
        let auth = authorization(&key, forms.lists)?;
        let user_auth = authorization(&key, forms.users)?;
        Ok(SentKey { key, auth, user_auth })
    }
}

/// The current key of a run.
#[derive(Debug)]
pub(super) struct Credentials {
    current: RwLock<Arc<SentKey>>,
    forms: AuthForms,
    /// `None` if the key cannot change during the run, because it comes from an environment variable.
    reader: Option<KeyReader>,
    /// When the same key was read once more; locked while the key is read.
    read_again: Mutex<Option<Instant>>,
}

impl Credentials {
    /// Fails if the key cannot be sent in a header.
    pub fn new(settings: &SourceSettings) -> Result<Credentials, SettingsError> {
        let forms = AuthForms { lists: settings.auth, users: settings.user_auth };
        let current = RwLock::new(Arc::new(SentKey::new(settings.key.clone(), forms)?));
        Ok(Credentials { current, forms, reader: settings.key_reader.clone(), read_again: Mutex::default() })
    }

    pub fn current(&self) -> Arc<SentKey> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Called when the service has refused a request with this key. Reads the key once more. Returns true if another
    /// key is in use now, with which the request can be sent again.
    pub async fn has_changed_since(&self, refused: &SentKey) -> bool {
        let Some(reader) = &self.reader else { return false };
        // Requests that were refused meanwhile wait for this reading.
        let mut read_again = self.read_again.lock().await;
        let current = self.current();
        if !current.key.is_same(&refused.key) {
            return true;
        }
        if read_again.is_some_and(|at| at.elapsed() < SAME_KEY_KEPT) {
            return false;
        }
        let reader = reader.clone();
        let key = tokio::task::spawn_blocking(move || reader.read()).await.ok().flatten();
        let other = key.filter(|key| !key.is_same(&refused.key));
        let sent = other.and_then(|key| SentKey::new(key.replacing(&current.key), self.forms).ok());
        let Some(sent) = sent else {
            *read_again = Some(Instant::now());
            return false;
        };
        tracing::info!(
            origin = sent.key.origin(),
            "the service refused the key, and another one was found; going on with it"
        );
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(sent);
        *read_again = None;
        true
    }
}
