//! Answers `/events`: sends the changed parts of the page as server-sent events. The event `parts` contains the markup
//! of the changed parts by name; the first event contains all parts. The event `tick` says that the page is still up to
//! date.

use std::{
    collections::{BTreeMap, HashMap},
    convert::Infallible,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    extract::State,
    http::{StatusCode, header},
    response::{
        IntoResponse, Response,
        sse::{Event, Sse},
    },
};
use futures::stream;
use tokio::sync::OwnedSemaphorePermit;

use super::page_cache::StatusPage;

/// Interval between two comparisons with the current page.
const COMPARE_EVERY: Duration = Duration::from_secs(1);
/// The longest time without an event.
const TICK_EVERY: Duration = Duration::from_secs(10);
/// `Retry-After` in seconds for a browser if too many browsers follow the page already.
const RETRY_SECS: &str = "30";

/// A browser that follows the page.
struct Listener {
    page: Arc<StatusPage>,
    /// The markup that was last sent, for each part by its name.
    sent: HashMap<&'static str, String>,
    last_sent: Option<Instant>,
    _permit: OwnedSemaphorePermit,
}

/// Answers with a stream of events.
pub(super) async fn events(State(page): State<Arc<StatusPage>>) -> Response {
    let Ok(permit) = Arc::clone(&page.listeners).try_acquire_owned() else {
        let retry = [(header::RETRY_AFTER, RETRY_SECS)];
        return (StatusCode::SERVICE_UNAVAILABLE, retry, "too many browsers follow this page already\n")
            .into_response();
    };
    let listener = Listener { page, sent: HashMap::new(), last_sent: None, _permit: permit };
    let events = stream::unfold(listener, |mut listener| async {
        let event = listener.next().await?;
        Some((Ok::<Event, Infallible>(event), listener))
    });
    Sse::new(events).into_response()
}

impl Listener {
    /// Waits for the next event. Returns `None` when `serve` stops.
    async fn next(&mut self) -> Option<Event> {
        loop {
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
