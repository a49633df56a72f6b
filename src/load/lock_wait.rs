//! Waits for a limited time while another process has a warehouse open, or after another writer was first. DuckDB
//! cannot wait for the lock of a file, so opening is retried.

use std::{
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::LoadError;

/// Delay between two tries to open a warehouse.
const RETRY_DELAY: Duration = Duration::from_millis(50);

/// How long to wait for a warehouse that another process has open.
#[derive(Clone, Debug, Default)]
pub struct LockPatience {
    /// Longest wait; zero means one try without waiting.
    pub wait: Duration,
    /// Cancels the wait.
    pub stop: CancellationToken,
}

/// How often in succession a transaction may fail because another writer was first.
const CONFLICTS_MAX: u32 = 20;
/// Half of the longest wait after the first conflict, in milliseconds. The longest wait doubles five times.
const CONFLICT_DELAY_MS: u64 = 50;

/// How often in succession another writer was first.
#[derive(Debug, Default)]
pub(super) struct Conflicts(u32);

impl Conflicts {
    /// Waits for a random time, so that writers which met once do not meet again. Returns false after too many
    /// conflicts.
    pub fn wait(&mut self) -> bool {
        self.0 += 1;
        if self.0 > CONFLICTS_MAX {
            return false;
        }
        let longest_ms = CONFLICT_DELAY_MS << self.0.min(6);
        thread::sleep(Duration::from_millis(Uuid::new_v4().as_u128() as u64 % longest_ms));
        true
    }
}

/// What a reader does while another process writes the DuckDB file.
#[derive(Clone, Debug, Default)]
pub struct WhileLocked {
    /// The copy for readers, which is read in place of the file if the copy exists.
    pub copy: Option<PathBuf>,
    /// How long to wait if there is no copy.
    pub patience: LockPatience,
}

impl LockPatience {
    /// Calls `open`, and calls it again while it fails with `Locked`, until the wait is over or cancelled. Returns the
    /// last result. Blocks the thread.
    pub(super) fn until_free<T>(&self, mut open: impl FnMut() -> Result<T, LoadError>) -> Result<T, LoadError> {
        let started = Instant::now();
        let mut is_reported = false;
        loop {
            let error = match open() {
                Err(error @ LoadError::Locked { .. }) => error,
                opened => return opened,
            };
            if self.stop.is_cancelled() || started.elapsed() >= self.wait {
                return Err(error);
            }
            if !is_reported {
                tracing::warn!("{error}; waiting up to {} s for it", self.wait.as_secs());
                is_reported = true;
            }
            thread::sleep(RETRY_DELAY.min(self.wait.saturating_sub(started.elapsed())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locked() -> LoadError {
        LoadError::Locked { path: "w.duckdb".into(), holder: None }
    }

    #[test]
    fn only_a_lock_is_waited_for_and_only_for_a_time() {
        let patience = |ms| LockPatience { wait: Duration::from_millis(ms), stop: CancellationToken::new() };
        let mut tries = 0;
        let opened = patience(60_000).until_free(|| {
            tries += 1;
            if tries < 3 { Err(locked()) } else { Ok(tries) }
        });
        assert_eq!(opened.unwrap(), 3);
        assert!(patience(300).until_free(|| Err::<(), _>(locked())).is_err());
        let broken = patience(60_000).until_free(|| Err::<(), _>(LoadError::Bug("other".into())));
        assert!(matches!(broken, Err(LoadError::Bug(_))));
        let stopped = patience(60_000);
        stopped.stop.cancel();
        assert!(stopped.until_free(|| Err::<(), _>(locked())).is_err());
    }
}
