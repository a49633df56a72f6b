//! Renders the status page once for all readers, and keeps the rendered page for a second.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::{Mutex, Semaphore};
use tokio_util::sync::CancellationToken;

use super::{
    super::HealthMonitor,
    access::Access,
    page_data::PageData,
    view::{Part, parts},
};

/// The page is rendered again after this time, however many readers there are.
const PAGE_MAX_AGE: Duration = Duration::from_secs(1);
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
    rendered: Mutex<Option<RenderedPage>>,
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
        StatusPage { monitor, access, listeners, stop, rendered: Mutex::default() }
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
        let data = PageData::new(&self.monitor, &sync_status, self.monitor.clock.now_ms());
        let parts = parts(&data);
        let page = RenderedPage { rendered: Instant::now(), data: Arc::new(data), parts: Arc::new(parts) };
        *cached = Some(page.clone());
        page
    }
}
