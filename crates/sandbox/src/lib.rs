//! The sandbox: an independent implementation of the whole contract, for tests, measurements and trying things.
//!
//! It is written from the contract alone, and this crate depends on no other crate of the repository, so it cannot
//! share a mistake with the client. Data is made from a seed, kept in memory and lost at the end. README.md documents
//! the faults and the control interface.
//!
//! ```text
//! settings ──► world (rows) ──► service (contract, faults) ──► HTTP
//!                 ▲                    │
//!                 └──── control ◄── request_log
//! ```

mod clock;
mod control;
mod control_http;
mod faults;
mod filtered_by;
mod json_text;
mod media;
mod random;
mod record_faults;
mod request_log;
mod service;
mod settings;
mod webhooks;
mod world;

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::{DefaultBodyLimit, State},
    http::{Request, Response},
    serve::ListenerExt as _,
};
use tokio::{net::TcpListener, task::JoinHandle};

pub use control::{Control, ListName, Stats};
pub use faults::{
    Auth, BrokenBody, DeadTokens, EndMark, Faults, Latency, Order, Plain, RateLimit, Refusal, RepeatedRows, RetryAfter,
    RetryAfterForm, ServerError, SlowPages, StatusSpelling, SurveysAt, Ties, When,
};
pub use filtered_by::FilteredBy;
pub use media::Media;
pub use record_faults::{BrokenRecords, RecordFault};
pub use request_log::LogEntry;
pub use service::UpsertedUser;
pub use settings::{DAYS_MAX, RESPONSES_MAX, Rough, SURVEYS_MAX, Settings};
pub use webhooks::{Delivered, WebhookTarget, deliver};
pub use world::{ChangeRequest, ChangeSummary, RowKey, StatusChange};

use service::Service;
use world::World;

/// How long `shutdown` waits for answers under way.
const SHUTDOWN_WAIT: Duration = Duration::from_secs(2);
/// The largest body of a control call: a planted row may be large.
const CONTROL_BYTES_MAX: usize = 64 << 20;

/// The embedded service.
#[derive(Debug)]
pub struct Sandbox;

impl Sandbox {
    /// Generates the data and listens. Port 0 takes a free one. Needs a tokio runtime; with a runtime of several
    /// threads the service makes several pages at once.
    ///
    /// Errors: settings that cannot be (`InvalidInput`), or an address that cannot be listened on.
    pub async fn start(settings: Settings, listen: SocketAddr) -> io::Result<Running> {
        settings.validate()?;
        // First the port, so that a taken one is reported before the work.
        let listener = TcpListener::bind(listen).await?;
        let address = listener.local_addr()?;
        let made = tokio::task::spawn_blocking(move || {
            let world = World::generate(&settings);
            Arc::new(Service::new(settings, world))
        });
        let service = made.await.map_err(io::Error::other)?;
        let router = Router::new()
            .nest("/_sandbox", control_http::router())
            .layer(DefaultBodyLimit::max(CONTROL_BYTES_MAX))
            .fallback(service::handle)
            .with_state(service.clone());
        let listener = listener.tap_io(|stream| {
            // Without it the rest of a page may wait for an acknowledgement. A stream that refuses is only slower.
            let _ = stream.set_nodelay(true);
        });
        let stopped = service.stop.clone().cancelled_owned();
        let task = tokio::spawn(async move { axum::serve(listener, router).with_graceful_shutdown(stopped).await });
        Ok(Running { address, control: Control { service }, task })
    }

    /// The service without a socket: requests are handed to it in this process. Time is tokio's, which tests can pause.
    ///
    /// Errors: settings that cannot be (`InvalidInput`).
    pub fn in_process(settings: Settings) -> io::Result<InProcess> {
        settings.validate()?;
        let world = World::generate(&settings);
        Ok(InProcess { control: Control { service: Arc::new(Service::new(settings, world)) } })
    }
}

/// A sandbox without a socket; clones are the same one.
#[derive(Clone, Debug)]
pub struct InProcess {
    control: Control,
}

impl InProcess {
    /// Answers one request of the contract. Dropping the future, or the body of the answer, is a client that hangs up.
    pub async fn answer(&self, request: Request<Body>) -> Response<Body> {
        service::handle(State(Arc::clone(&self.control.service)), request).await
    }

    /// The control operations.
    pub fn control(&self) -> &Control {
        &self.control
    }
}

/// A sandbox that runs; dropping it stops it.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    control: Control,
    task: JoinHandle<io::Result<()>>,
}

impl Running {
    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The base address for clients, without a slash at its end.
    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The control operations.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Stops listening, and waits a moment for answers under way. Bodies that hang are broken off.
    pub async fn shutdown(mut self) {
        self.control.service.stop.cancel();
        if tokio::time::timeout(SHUTDOWN_WAIT, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.control.service.stop.cancel();
    }
}
