//! The sandbox: an independent implementation of the service's contract, which is the documentation of its HTTP
//! interface. Tests, measurements and trial runs use it.
//!
//! The sandbox is written from the contract alone, and depends on no other crate of the repository, so that it shares
//! no mistake with the client. Data is generated from a seed, kept in memory and lost at the end. README.md documents
//! the faults and the control interface.
//!
//! ```text
//! settings ──► world (rows) ──► service (contract, faults) ──► HTTP
//!                 ▲                    │
//!                 └──── control ◄── request_log
//! ```

/// Declares structs of settings: the name, the type and the default of each field. A field that states no default has
/// that of its type.
macro_rules! with_defaults {
    (@value) => { Default::default() };
    (@value $default:expr) => { $default };
    ($($(#[$about:meta])* pub struct $name:ident {
        $($(#[$doc:meta])* $field:ident: $type:ty $(= $default:expr)?,)*
    })*) => {
        $(
            $(#[$about])*
            #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
            #[serde(default, deny_unknown_fields)]
            pub struct $name {
                $($(#[$doc])* pub $field: $type,)*
            }

            impl Default for $name {
                fn default() -> Self {
                    Self { $($field: with_defaults!(@value $($default)?),)* }
                }
            }
        )*
    };
}

mod clock;
mod control;
mod faults;
mod json_text;
mod media;
mod random;
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

pub use control::{Control, Stats};
pub use faults::{
    Auth, BrokenBody, BrokenRecords, DeadTokens, EndMark, Faults, FilteredBy, Latency, Order, Plain, RateLimit,
    RecordFault, Refusal, RepeatedRows, RetryAfter, RetryAfterForm, ServerError, SlowPages, StatusSpelling, SurveysAt,
    Ties, When,
};
pub use media::{Media, RangeAnswer};
pub use request_log::LogEntry;
pub use service::UpsertedUser;
pub use settings::{DAYS_MAX, RESPONSES_MAX, Rough, SURVEYS_MAX, Settings};
pub use webhooks::{Delivered, WebhookTarget, deliver};
pub use world::{ChangeRequest, ChangeSummary, ListName, RowKey, StatusChange};

use service::Service;
use world::World;

/// How long `shutdown` waits for answers that are being sent.
const SHUTDOWN_WAIT: Duration = Duration::from_secs(2);
/// Maximum bytes of the body of a control call. A planted record may be large.
const CONTROL_BYTES_MAX: usize = 64 << 20;

/// Starts a sandbox.
#[derive(Debug)]
pub struct Sandbox;

impl Sandbox {
    /// Generates the data, and listens at `listen`; port 0 takes a free port. Needs a tokio runtime. A runtime with
    /// several threads can render several pages at once.
    ///
    /// # Errors
    /// `InvalidInput` if the settings are invalid; another error if the sandbox cannot listen at the address.
    pub async fn start(settings: Settings, listen: SocketAddr) -> io::Result<Running> {
        settings.validate()?;
        // The port is bound first, so that a port in use is reported before the data is generated.
        let listener = TcpListener::bind(listen).await?;
        let address = listener.local_addr()?;
        let made = tokio::task::spawn_blocking(move || {
            let world = World::generate(&settings);
            Arc::new(Service::new(settings, world))
        });
        let service = made.await.map_err(io::Error::other)?;
        let router = Router::new()
            .nest("/_sandbox", control::router(Control { service: service.clone() }))
            .layer(DefaultBodyLimit::max(CONTROL_BYTES_MAX))
            .fallback(service::handle)
            .with_state(service.clone());
        let listener = listener.tap_io(|stream| {
            // Without `nodelay` the rest of a page may wait for an acknowledgement. If `set_nodelay` fails, the stream
            // is only slower.
            let _ = stream.set_nodelay(true);
        });
        let stopped = service.stop.clone().cancelled_owned();
        let task = tokio::spawn(async move { axum::serve(listener, router).with_graceful_shutdown(stopped).await });
        Ok(Running { address, control: Control { service }, task })
    }

    /// Generates the data of a service without a socket, which answers requests in this process. The service waits by
    /// tokio's clock, which tests can pause.
    ///
    /// # Errors
    /// `InvalidInput` if the settings are invalid.
    pub fn in_process(settings: Settings) -> io::Result<InProcess> {
        settings.validate()?;
        let world = World::generate(&settings);
        Ok(InProcess { control: Control { service: Arc::new(Service::new(settings, world)) } })
    }
}

/// A sandbox without a socket. Clones share one service.
#[derive(Clone, Debug)]
pub struct InProcess {
    control: Control,
}

impl InProcess {
    /// Answers one request to the service; control calls are not served. A caller that drops the future or the body of
    /// the answer acts as a client that hangs up.
    pub async fn answer(&self, request: Request<Body>) -> Response<Body> {
        service::handle(State(Arc::clone(&self.control.service)), request).await
    }

    /// Returns the control operations.
    pub fn control(&self) -> &Control {
        &self.control
    }
}

/// A running sandbox. Dropping the value stops the sandbox, and does not wait for answers that are being sent.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    control: Control,
    task: JoinHandle<io::Result<()>>,
}

impl Running {
    /// Returns the address that the sandbox listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the base URL for clients, without a trailing slash.
    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the control operations.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Stops listening, and waits up to two seconds for answers that are being sent. Then returns, even if an answer is
    /// still being sent. Delays by faults end at once.
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
