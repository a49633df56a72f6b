//! A token of `serve` that may change while `serve` runs: the secret of webhooks, and the token of the status page. Its
//! file or command is read again at intervals, and when a request has another token. After a change, the old token
//! stays valid for [`OLD_VALID`], so that nobody is refused while both sides change.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::{
    config::{ConfigError, SecretSource},
    pipeline::chain,
    redact::ApiKey,
};

use super::timely_read::TimelyRead;

/// How long an old token is valid after a new one was read. The documentation names it as an hour.
const OLD_VALID: Duration = Duration::from_secs(3600);
/// Maximum old tokens that are valid. A file that is not replaced at once may be read half written.
const OLD_MAX: usize = 4;

/// Reads the token. Blocks the thread.
type Read = dyn Fn() -> Result<ApiKey, ConfigError> + Send + Sync;

/// A token that may change. Clones share the token.
#[derive(Clone)]
pub(super) struct ChangingSecret(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    /// `None` if the token cannot change.
    rhythm: Option<Rhythm>,
    read: Arc<Read>,
    last_read: TimelyRead<Result<ApiKey, String>>,
}

/// How often the source is read again.
#[derive(Clone, Copy)]
struct Rhythm {
    every: Duration,
    /// The shortest time between two readings because of requests with another token.
    after_other: Duration,
}

struct State {
    current: ApiKey,
    /// The earlier tokens, and when each was replaced.
    old: Vec<(ApiKey, Instant)>,
    /// True if the last reading failed, which was logged.
    has_failed: bool,
}

impl ChangingSecret {
    /// Reads the token for the first time. Blocks the thread.
    ///
    /// # Errors
    /// The token cannot be read.
    pub fn open(
        source: &SecretSource,
        read: impl Fn() -> Result<ApiKey, ConfigError> + Send + Sync + 'static,
    ) -> Result<ChangingSecret, ConfigError> {
        let rhythm = |every_secs, after_other_secs| Rhythm {
            every: Duration::from_secs(every_secs),
            after_other: Duration::from_secs(after_other_secs),
        };
        let rhythm = match source {
            SecretSource::Variable(_) => None,
            SecretSource::File(_) => Some(rhythm(60, 1)),
            // A command may be slow, or ask a service.
            SecretSource::Command(_) => Some(rhythm(900, 60)),
        };
        let state = Mutex::new(State { current: read()?, old: Vec::new(), has_failed: false });
        let inner = Inner { state, rhythm, read: Arc::new(read), last_read: TimelyRead::default() };
        Ok(ChangingSecret(Arc::new(inner)))
    }

    /// Returns true if a comparison with a token that is valid now returns true.
    pub fn any(&self, mut is_sent: impl FnMut(&ApiKey) -> bool) -> bool {
        let state = self.0.state();
        let old = state.old.iter().filter(|(_, since)| since.elapsed() < OLD_VALID).map(|(old, _)| old);
        // Every token is compared, so that the duration reveals nothing.
        [&state.current].into_iter().chain(old).fold(false, |found, token| is_sent(token) | found)
    }

    /// Returns the current token.
    pub fn current(&self) -> ApiKey {
        self.0.state().current.clone()
    }

    /// Reads the source again after a request with another token, unless it was read a moment ago. Returns true if
    /// there is a new token.
    pub async fn has_changed(&self) -> bool {
        match self.0.rhythm {
            Some(rhythm) => self.0.refresh(rhythm.after_other).await,
            None => false,
        }
    }

    /// Reads the source again at intervals, until the token is dropped everywhere else.
    pub async fn follow(self) {
        let Some(rhythm) = self.0.rhythm else { return };
        let inner = Arc::downgrade(&self.0);
        drop(self);
        loop {
            tokio::time::sleep(rhythm.every).await;
            let Some(inner) = inner.upgrade() else { return };
            inner.refresh(rhythm.every / 2).await;
        }
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the source, unless it was read less than `at_most_every` ago. Returns true if the token has changed. A
    /// failure keeps the current token.
    async fn refresh(&self, at_most_every: Duration) -> bool {
        let read = Arc::clone(&self.read);
        let read = move || read().map_err(|error| chain(&error));
        let late = || Err("its source does not answer".to_owned());
        let token = self.last_read.get(|_, age| age < at_most_every, read, late).await;
        let mut state = self.state();
        match &*token {
            Ok(token) => {
                state.has_failed = false;
                if token.is_same(&state.current) {
                    return false;
                }
                let minutes = OLD_VALID.as_secs() / 60;
                tracing::info!(
                    from = token.origin(),
                    "a token has changed; the old one is valid for {minutes} minutes more"
                );
                let old = std::mem::replace(&mut state.current, token.clone());
                state.old.retain(|(old, since)| since.elapsed() < OLD_VALID && !old.is_same(token));
                state.old.push((old, Instant::now()));
                let too_many = state.old.len().saturating_sub(OLD_MAX);
                state.old.drain(..too_many);
                true
            }
            Err(why) => {
                if !std::mem::replace(&mut state.has_failed, true) {
                    tracing::warn!(why, "cannot read a token again; the current one stays valid");
                }
                false
            }
        }
    }
}

impl fmt::Debug for ChangingSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ChangingSecret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn p11_old_and_new_token_are_valid_after_a_change() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let write = |token: &str| std::fs::write(&path, token).unwrap();
        write("first");
        let source = SecretSource::File(path.clone());
        let file = path.clone();
        let secret = ChangingSecret::open(&source, move || {
            let read = std::fs::read_to_string(&file);
            read.map(|text| ApiKey::new(text, "a test"))
                .map_err(|error| crate::files::FileError::of("read the key file", &file)(error).into())
        });
        let secret = secret.unwrap();
        let is_valid = |token: &str| secret.any(|known| known.expose() == token);
        assert!(is_valid("first") && !secret.has_changed().await);
        write("second");
        assert!(!secret.has_changed().await, "it was read a moment ago");
        tokio::time::sleep(Duration::from_millis(1100)).await;
        assert!(secret.has_changed().await);
        assert!(is_valid("first") && is_valid("second") && !is_valid("third"));
        assert_eq!(secret.current().expose(), "second");
        std::fs::remove_file(&path).unwrap();
        tokio::time::sleep(Duration::from_millis(1100)).await;
        assert!(!secret.has_changed().await && is_valid("second"), "a file that is away changes nothing");
        assert!(!format!("{secret:?}").contains("second"));
    }
}
