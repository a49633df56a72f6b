//! `/events`: the parts of the page that changed, as server-sent events. `parts` carries their markup by name, all of
//! them at first; `tick` says now and then that the page is still up to date.

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

use super::shown::StatusPage;

/// It is looked so often whether something changed.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Something is sent so often at least.
const TICK_EVERY: Duration = Duration::from_secs(10);
/// When a browser comes back that found all places taken.
const RETRY_SECS: &str = "30";

/// A page that listens.
struct Listener {
    page: Arc<StatusPage>,
    /// What was sent of each part.
    sent: HashMap<&'static str, String>,
    last_sent: Option<Instant>,
    _place: OwnedSemaphorePermit,
}

/// The events.
pub(super) async fn events(State(page): State<Arc<StatusPage>>) -> Response {
    let Ok(place) = Arc::clone(&page.listeners).try_acquire_owned() else {
        let retry = [(header::RETRY_AFTER, RETRY_SECS)];
        return (StatusCode::SERVICE_UNAVAILABLE, retry, "too many pages listen already\n").into_response();
    };
    let listener = Listener { page, sent: HashMap::new(), last_sent: None, _place: place };
    let events = stream::unfold(listener, |mut listener| async {
        let event = listener.next().await?;
        Some((Ok::<Event, Infallible>(event), listener))
    });
    Sse::new(events).into_response()
}

impl Listener {
    /// The next event; `None` when `serve` stops.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if self.last_sent.is_some() {
                tokio::select! {
                    () = self.page.stop.cancelled() => return None,
                    () = tokio::time::sleep(LOOK_EVERY) => {}
                }
            }
            let shown = self.page.shown().await;
            let mut changed = BTreeMap::new();
            for part in shown.parts.iter() {
                if self.sent.get(part.name) != Some(&part.html) {
                    self.sent.insert(part.name, part.html.clone());
                    changed.insert(part.name, part.html.as_str());
                }
            }
            let event = match changed.is_empty() {
                false => Event::default().event("parts").data(serde_json::to_string(&changed).unwrap_or_default()),
                true if self.last_sent.is_none_or(|sent| sent.elapsed() >= TICK_EVERY) => {
                    Event::default().event("tick").data(shown.facts.now.rfc3339())
                }
                true => continue,
            };
            self.last_sent = Some(Instant::now());
            return Some(event);
        }
    }
}
