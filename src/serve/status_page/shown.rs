//! What is shown is made once for all who look at the page, and kept for a moment.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::{Mutex, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::sync_status::RunSummary;

use super::{
    super::Watch,
    access::Access,
    facts::StatusFacts,
    stored::StoredFacts,
    view::{Part, parts},
};

/// What is shown is made anew after this time, however many look at it.
const FRESH: Duration = Duration::from_secs(1);
/// What the checkpoints hold is read again after this time, at most; and at once when a run begins or ends.
const STORED_FRESH: Duration = Duration::from_secs(5);
/// Pages that listen at once. Others are whole too, and ask again by themselves.
const LISTENERS_MAX: usize = 16;
/// The status page and who may see it.
pub struct StatusPage {
    watch: Arc<Watch>,
    pub access: Access,
    /// Places for pages that listen.
    pub listeners: Arc<Semaphore>,
    /// Ends what listens.
    pub stop: CancellationToken,
    stored: Mutex<Option<Stored>>,
    shown: Mutex<Option<Shown>>,
}

/// What was read of the checkpoints.
struct Stored {
    read: Instant,
    /// The newest run as it was then.
    last_run: Option<RunSummary>,
    facts: Arc<StoredFacts>,
}

/// What was shown last.
#[derive(Clone)]
pub(super) struct Shown {
    made: Instant,
    pub facts: Arc<StatusFacts>,
    pub parts: Arc<Vec<Part>>,
}

impl StatusPage {
    /// Nothing is read yet. `stop` ends the pages that listen.
    pub fn new(watch: Arc<Watch>, access: Access, stop: CancellationToken) -> StatusPage {
        let listeners = Arc::new(Semaphore::new(LISTENERS_MAX));
        StatusPage { watch, access, listeners, stop, stored: Mutex::new(None), shown: Mutex::new(None) }
    }

    /// What is shown now, a second old at most.
    pub(super) async fn shown(&self) -> Shown {
        let mut shown = self.shown.lock().await;
        if let Some(shown) = shown.as_ref().filter(|shown| shown.made.elapsed() < FRESH) {
            return shown.clone();
        }
        let sync_status = self.watch.sync_status().await;
        let last_run = sync_status.as_ref().as_ref().ok().and_then(|sync_status| sync_status.last_run.clone());
        let stored = self.stored(last_run).await;
        let facts = StatusFacts::of(&self.watch, &sync_status, &stored, self.watch.now_ms());
        let parts = parts(&facts);
        let fresh = Shown { made: Instant::now(), facts: Arc::new(facts), parts: Arc::new(parts) };
        *shown = Some(fresh.clone());
        fresh
    }

    /// What the checkpoints hold. If they cannot be read, nothing is shown of them: the health says why.
    async fn stored(&self, last_run: Option<RunSummary>) -> Arc<StoredFacts> {
        let mut stored = self.stored.lock().await;
        let is_fresh = |stored: &&Stored| stored.read.elapsed() < STORED_FRESH && stored.last_run == last_run;
        if let Some(stored) = stored.as_ref().filter(is_fresh) {
            return Arc::clone(&stored.facts);
        }
        let (settings, now_ms) = (self.watch.settings().clone(), self.watch.now_ms());
        let read = tokio::task::spawn_blocking(move || StoredFacts::read(&settings, now_ms)).await;
        let facts = Arc::new(read.ok().and_then(Result::ok).unwrap_or_default());
        *stored = Some(Stored { read: Instant::now(), last_run, facts: Arc::clone(&facts) });
        facts
    }
}
