//! Several workers obey the `Retry-After` that one of them received. They share it in a small file of their warehouse.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use crate::{
    clock::Clock,
    load::{KeptFiles, LoadError},
    source::Source,
};

use super::{
    assemble::{opening, places},
    error::chain,
    limits::{RetryAfterWait, SAME_WAIT_MS, STORED_AT_ONCE_MS},
    session::Session,
    threads::blocking,
};

/// Name of the file with the latest `Retry-After`, as [`SharedWait`].
const FILE: &str = "retry_after.json";
/// The service's clock counts seconds: by so much may two machines differ in how far it is ahead.
const CLOCK_STEP_MS: i64 = 1000;
/// How often a worker reads the file.
const READ_EVERY: Duration = Duration::from_secs(3);

/// The `Retry-After` that the workers share. An error is only logged: the service tells each worker itself.
#[derive(Clone)]
pub(super) struct WorkersWait {
    file: Arc<Mutex<SharedFile>>,
    source: Source,
    clock: Clock,
}

/// A `Retry-After` by the clock of the machine that received it, and the milliseconds by which the service's clock was
/// ahead of that, if an answer has told.
#[derive(Deserialize, Serialize)]
struct SharedWait(RetryAfterWait, Option<i64>);

struct SharedFile {
    files: KeptFiles,
    /// The content that this worker has obeyed.
    obeyed: Option<Vec<u8>>,
}

impl WorkersWait {
    /// Opens the shared file. Returns `None` for a run that is not one of several workers, for one that ignores a
    /// stored `Retry-After`, and for a warehouse that only one process can have open. Blocks the thread.
    pub fn open(session: &Session, source: &Source) -> Option<Self> {
        let settings = &session.settings;
        if settings.shard.is_none() || settings.throttle.ignores_stored_retry_after {
            return None;
        }
        let opening = opening(settings, &session.identity, &session.system);
        let opened = places(&settings.warehouse).iter().find_map(|place| place.files_of_workers(&opening).transpose());
        let files = opened?.inspect_err(warn).ok()?;
        let file = Arc::new(Mutex::new(SharedFile { files, obeyed: None }));
        Some(Self { file, source: source.clone(), clock: session.system.clock.clone() })
    }

    /// Runs `work`, which sends no request before the end of the `Retry-After` that another worker received. Meanwhile
    /// exchanges each new one.
    pub async fn sharing<T>(&self, work: impl Future<Output = T>) -> T {
        self.exchange().await;
        tokio::select! {
            biased;
            done = work => done,
            never = self.keep_exchanging() => match never {},
        }
    }

    async fn keep_exchanging(&self) -> Infallible {
        let mut waits = self.source.watch_retry_after();
        loop {
            tokio::select! {
                _ = waits.changed() => {}
                () = sleep(READ_EVERY) => {}
            }
            waits.mark_unchanged();
            self.exchange().await;
        }
    }

    async fn exchange(&self) {
        let this = self.clone();
        // A panic is logged already.
        let _ = blocking(move || this.exchange_now().inspect_err(warn)).await;
    }

    fn exchange_now(&self) -> Result<(), LoadError> {
        let SharedFile { files, obeyed } = &mut *self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let content = files.read(FILE)?;
        let shared = content.as_deref().and_then(|text| serde_json::from_slice::<SharedWait>(text).ok());
        let here_ms = self.clock.now_ms();
        let ahead_ms = self.source.service_now_ms().map(|service_ms| service_ms - here_ms);
        let shared = shared.map(|SharedWait(wait, their_ahead_ms)| {
            let between_ms =
                their_ahead_ms.zip(ahead_ms).map_or(0, |(theirs, ours)| theirs.saturating_sub(ours) + CLOCK_STEP_MS);
            RetryAfterWait {
                until_ms: wait.until_ms.saturating_add(between_ms),
                received_ms: wait.received_ms + between_ms,
            }
        });
        if let Some(wait) = shared.filter(|_| *obeyed != content) {
            // If a clock is wrong, the wait is not longer than it was.
            let longest_ms = wait.until_ms.saturating_sub(wait.received_ms);
            self.source.block_until_ms(wait.until_ms.min(here_ms.saturating_add(longest_ms)));
        }
        *obeyed = content;
        let own_ms = self.source.retry_after_until_ms().filter(|own_ms| own_ms - here_ms >= STORED_AT_ONCE_MS);
        match own_ms.map(|own_ms| RetryAfterWait::new(here_ms, own_ms)) {
            Some(own) if shared.is_none_or(|shared| own.until_ms - shared.until_ms >= SAME_WAIT_MS) => {
                let content = serde_json::to_vec(&SharedWait(own, ahead_ms)).unwrap_or_default();
                files.write(FILE, &content)?;
                *obeyed = Some(content);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

fn warn(error: &LoadError) {
    tracing::warn!(why = chain(error), "the Retry-After of other workers is not known");
}
