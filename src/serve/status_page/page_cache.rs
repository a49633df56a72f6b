//! Renders the status page once for all readers, and keeps the rendered page for a second.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::{Mutex, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::sync_status::RunSummary;

use super::{
    super::{HealthMonitor, timely_read::TimelyRead},
    access::Access,
    checkpoint_data::CheckpointData,
    page_data::PageData,
    view::{Part, parts},
};

/// The page is rendered again after this time, however many readers there are.
const PAGE_MAX_AGE: Duration = Duration::from_secs(1);
/// The checkpoints are read again after this time, and whenever a run begins or ends.
const CHECKPOINTS_MAX_AGE: Duration = Duration::from_secs(5);
/// Maximum browsers that follow `/events`. Further browsers get a complete page and try again later.
const LISTENERS_MAX: usize = 16;

/// The status page and who may see it.
pub struct StatusPage {
    monitor: Arc<HealthMonitor>,
    pub access: Access,
    /// A permit for each browser that may follow `/events`.
    pub listeners: Arc<Semaphore>,
    /// Ends `/events`.
    pub stop: CancellationToken,
    checkpoints: TimelyRead<CachedCheckpoints>,
    rendered: Mutex<Option<RenderedPage>>,
}

/// The values that were last read from the checkpoints.
#[derive(Default)]
struct CachedCheckpoints {
    /// The newest run when the checkpoints were read.
    last_run: Option<RunSummary>,
    data: CheckpointData,
}

/// The page as it was last rendered.
#[derive(Clone)]
pub(super) struct RenderedPage {
    rendered: Instant,
    pub data: Arc<PageData>,
    pub parts: Arc<Vec<Part>>,
}

impl StatusPage {
    /// Returns a page that has read nothing yet. `stop` ends `/events`.
    pub fn new(monitor: Arc<HealthMonitor>, access: Access, stop: CancellationToken) -> StatusPage {
        let listeners = Arc::new(Semaphore::new(LISTENERS_MAX));
        StatusPage { monitor, access, listeners, stop, checkpoints: TimelyRead::default(), rendered: Mutex::default() }
    }

    /// Returns true if another browser may follow the page.
    pub fn has_place(&self) -> bool {
        self.listeners.available_permits() > 0
    }

    /// Returns the page, at most a second old.
    pub(super) async fn rendered(&self) -> RenderedPage {
        let mut cached = self.rendered.lock().await;
        if let Some(page) = cached.as_ref().filter(|page| page.rendered.elapsed() < PAGE_MAX_AGE) {
            return page.clone();
        }
        let sync_status = self.monitor.sync_status().await;
        let last_run = sync_status.as_ref().as_ref().ok().and_then(|status| status.last_run.clone());
        let checkpoints = self.checkpoints(last_run).await;
        let data = PageData::new(&self.monitor, &sync_status, &checkpoints.data, self.monitor.clock.now_ms());
        let parts = parts(&data);
        let page = RenderedPage { rendered: Instant::now(), data: Arc::new(data), parts: Arc::new(parts) };
        *cached = Some(page.clone());
        page
    }

    /// Returns the values of the checkpoints. If they cannot be read, the values are empty, and the health shows the
    /// error. `last_run` is the newest run; a new one makes the cached values stale.
    async fn checkpoints(&self, last_run: Option<RunSummary>) -> Arc<CachedCheckpoints> {
        let (settings, now_ms) = (self.monitor.settings.clone(), self.monitor.clock.now_ms());
        let of_run = last_run.clone();
        let is_fresh = move |cached: &CachedCheckpoints, age| age < CHECKPOINTS_MAX_AGE && cached.last_run == last_run;
        let read = move || {
            let data = CheckpointData::read(&settings, now_ms).unwrap_or_default();
            CachedCheckpoints { last_run: of_run, data }
        };
        self.checkpoints.get(is_fresh, read, CachedCheckpoints::default).await
    }
}
