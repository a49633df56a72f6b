//! The key of the requests to the service. If the service refuses the key, its file or command is read once more,
//! because the key may have been changed during the run.

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use reqwest::header::HeaderValue;
use tokio::{sync::Mutex, time::Instant};

use super::{
    client,
    error::SettingsError,
    settings::{AuthForm, KeyReader, SourceSettings},
};
use crate::redact::ApiKey;

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
        let auth = client::authorization(&key, forms.lists)?;
        let user_auth = client::authorization(&key, forms.users)?;
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
