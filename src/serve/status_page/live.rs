//! Renders the status page once for all readers, and keeps the rendered page for a second.
//!
//! Answers `/events`: sends the changed parts of the page as server-sent events. The event `parts` contains the markup
//! of the changed parts by name; the first event contains all parts. The event `tick` says that the page is still up to
//! date. The event `again` says that the stream ends in order, and that the browser should ask for a new one.
//!
//! If all places are taken, a browser gives its place up after a while, so that a browser that reads nothing cannot
//! keep the others out.

use std::{
    collections::{BTreeMap, HashMap},
    convert::Infallible,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Extension,
    extract::State,
    http::{StatusCode, header},
    response::{
        IntoResponse, Response,
        sse::{Event, Sse},
    },
};
use futures::stream;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    super::{HealthMonitor, connections::Connection},
    access::Access,
    page_data::PageData,
    trust::TrustReader,
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
    trust: TrustReader,
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
        let (rendered, trust) = Default::default();
        StatusPage { monitor, access, listeners, stop, rendered, trust }
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
        let mut data = PageData::new(&self.monitor, &sync_status, self.monitor.clock.now_ms());
        if let Ok(status) = sync_status.as_ref() {
            let known = self.trust.get(&self.monitor.settings, status, data.current_job.is_some()).await;
            data.untrusted.clone_from(&known.rows);
        }
        let parts = parts(&data);
        let page = RenderedPage { rendered: Instant::now(), data: Arc::new(data), parts: Arc::new(parts) };
        *cached = Some(page.clone());
        page
    }
}

/// Interval between two comparisons with the current page.
const COMPARE_EVERY: Duration = Duration::from_secs(1);
/// The longest time without an event.
const TICK_EVERY: Duration = Duration::from_secs(10);
/// `Retry-After` in seconds for a browser if too many browsers follow the page already.
const RETRY_SECS: &str = "30";
/// How long a browser keeps its place while all places are taken.
const PLACE_KEPT: Duration = Duration::from_secs(30);
/// How much longer a browser may take to end its stream, before its connection is closed.
const END_WAIT: Duration = Duration::from_secs(5);

/// A browser that follows the page.
struct Listener {
    page: Arc<StatusPage>,
    /// The markup that was last sent, for each part by its name.
    sent: HashMap<&'static str, String>,
    last_sent: Option<Instant>,
    begun: Instant,
    has_ended: bool,
    _permit: OwnedSemaphorePermit,
    /// Ends the watch over the connection.
    _watch: DropGuard,
}

/// Answers with a stream of events.
pub(super) async fn events(
    State(page): State<Arc<StatusPage>>,
    Extension(connection): Extension<Arc<Connection>>,
) -> Response {
    let Ok(permit) = Arc::clone(&page.listeners).try_acquire_owned() else {
        let retry = [(header::RETRY_AFTER, RETRY_SECS)];
        return (StatusCode::SERVICE_UNAVAILABLE, retry, "too many browsers follow this page already\n")
            .into_response();
    };
    let ended = CancellationToken::new();
    let (begun, watch) = (Instant::now(), ended.clone().drop_guard());
    tokio::spawn(ended.run_until_cancelled_owned(close_if_stuck(Arc::clone(&page), connection, begun)));
    let sent = HashMap::new();
    let listener = Listener { page, sent, last_sent: None, begun, has_ended: false, _permit: permit, _watch: watch };
    let events = stream::unfold(listener, |mut listener| async {
        let event = listener.next().await?;
        Some((Ok::<Event, Infallible>(event), listener))
    });
    // nginx would collect the events before it passes them on.
    ([("x-accel-buffering", "no")], Sse::new(events)).into_response()
}

/// Closes the connection of a browser that keeps its place too long, because it does not read the end of its stream.
async fn close_if_stuck(page: Arc<StatusPage>, connection: Arc<Connection>, begun: Instant) {
    while begun.elapsed() < PLACE_KEPT + END_WAIT || page.has_place() {
        tokio::time::sleep(COMPARE_EVERY).await;
    }
    connection.close();
}

impl Listener {
    /// Waits for the next event. Returns `None` when `serve` stops.
    async fn next(&mut self) -> Option<Event> {
        if self.has_ended {
            return None;
        }
        loop {
            if self.last_sent.is_some() && self.begun.elapsed() >= PLACE_KEPT && !self.page.has_place() {
                self.has_ended = true;
                return Some(Event::default().event("again").data("another browser waits"));
            }
            if self.last_sent.is_some() {
                tokio::select! {
                    () = self.page.stop.cancelled() => return None,
                    () = tokio::time::sleep(COMPARE_EVERY) => {}
                }
            }
            let page = self.page.rendered().await;
            let mut changed = BTreeMap::new();
            for part in page.parts.iter() {
                if self.sent.get(part.name) != Some(&part.html) {
                    self.sent.insert(part.name, part.html.clone());
                    changed.insert(part.name, part.html.as_str());
                }
            }
            let event = match changed.is_empty() {
                false => Event::default().event("parts").data(serde_json::to_string(&changed).unwrap_or_default()),
                true if self.last_sent.is_none_or(|sent| sent.elapsed() >= TICK_EVERY) => {
                    Event::default().event("tick").data(page.data.now.rfc3339())
                }
                true => continue,
            };
            self.last_sent = Some(Instant::now());
            return Some(event);
        }
    }
}
