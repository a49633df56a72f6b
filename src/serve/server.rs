//! Starts and stops the parts of `serve`: the receiver, the pages and the daemon.

use std::{fs::File, net::SocketAddr, sync::Arc, time::Duration};

use axum::Router;
use tokio::{net::TcpListener, sync::oneshot, time::timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    clock::Clock,
    config::{ConfigError, SecretSource, ServeSettings, Settings},
    pipeline::{Memory, System, identity, proxies, until_stopped},
    redact::ApiKey,
    state::Inbox,
};

use super::{
    Daemon, DeliveryQueue, HealthMonitor, ServeError, ServeState, Storage, WriteReport,
    changing_secret::ChangingSecret,
    connections::serve_connections,
    receiver::{Receiver, router},
    status_page::{self, Access, StatusPage},
};

/// How long the start of `serve` waits for the service's key.
const KEY_WAIT: Duration = Duration::from_secs(2);

/// A `serve` that listens and is ready to run.
pub struct Server {
    listener: TcpListener,
    receiver: Arc<Receiver>,
    monitor: Arc<HealthMonitor>,
    daemon: Daemon,
    /// Who may see the status page; `None` if the page is off.
    access: Option<Access>,
    _lock: File,
}

impl Server {
    /// Opens the inbox and listens. No request is sent to the service yet. `stop` ends the opening, because a file or a
    /// key command may not answer.
    ///
    /// # Errors
    /// The configuration is invalid, the address is taken, or another `serve` uses the same state file.
    pub async fn bind(settings: Settings, system: System, stop: &CancellationToken) -> Result<Server, ServeError> {
        identity(&settings)?;
        settings.require_warehouse()?;
        let has_key = check_api_key(&settings, stop).await?;
        proxies()?;
        let listen = settings.serve.listen;
        let installation = installation(&settings);
        let opened = until_stopped(stop, move || Opened::open(settings, system)).await;
        let Opened { receiver, monitor, daemon, access, lock } = opened??;
        let daemon = if has_key { daemon.with_key_test() } else { daemon };
        let unusable = |source| ServeError::Listen { listen, source };
        let listener = TcpListener::bind(listen).await.map_err(unusable)?;
        let port = listener.local_addr().map_err(unusable)?.port();
        let access = access.map(|access| access.with_cookie_of(port, &installation));
        Ok(Server { listener, receiver, monitor, daemon, access, _lock: lock })
    }

    /// Writes the report of the configuration by its schedule, with `write`.
    ///
    /// # Errors
    /// `ReportSchedule` or `Zone`.
    pub fn with_report(mut self, write: WriteReport) -> Result<Server, ServeError> {
        self.daemon = self.daemon.with_report(write)?;
        Ok(self)
    }

    /// Returns the address that the server listens on.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Returns true if the server has a status page.
    pub fn has_status_page(&self) -> bool {
        self.access.is_some()
    }

    /// Serves until `stop` is cancelled. The current requests are still answered, and the current run ends in order.
    ///
    /// The daemon has a thread and a runtime of its own, so that nothing that a run waits for can delay an answer.
    ///
    /// # Errors
    /// The daemon cannot read the inbox, or no thread can be started.
    pub async fn run(self, stop: CancellationToken) -> Result<(), ServeError> {
        let Server { listener, receiver, monitor, daemon, access, _lock } = self;
        let access_secret = access.as_ref().and_then(Access::secret);
        let page = access.map(|access| StatusPage::new(Arc::clone(&monitor), access, stop.clone()));
        let page_routes = page.map(status_page::router).unwrap_or_default();
        let router = router(Arc::clone(&receiver), Some(monitor), page_routes);
        for secret in receiver.secret().into_iter().chain(access_secret) {
            tokio::spawn(secret.follow());
        }
        let ended = start_daemon(daemon, stop.clone()).map_err(ServeError::Thread)?;
        let connections = serve_connections(listener, router, Arc::clone(receiver.state()), stop.clone());
        let daemon = async {
            let result = ended.await.unwrap_or_else(|_| Err(ServeError::DaemonPanicked));
            // Without the daemon, nothing writes deliveries to the warehouses.
            stop.cancel();
            result
        };
        let ((), result) = tokio::join!(connections, daemon);
        // Deliveries that were stored after the daemon ended are in the inbox; the next start writes them to the
        // warehouses.
        result
    }
}

/// The parts of a [`Server`] that do not listen.
struct Opened {
    receiver: Arc<Receiver>,
    monitor: Arc<HealthMonitor>,
    daemon: Daemon,
    access: Option<Access>,
    lock: File,
}

impl Opened {
    /// Reads the tokens and opens the inbox. Blocks the thread.
    fn open(settings: Settings, system: System) -> Result<Opened, ServeError> {
        let identity = identity(&settings)?;
        let serve = settings.serve.clone();
        let open_token = || ChangingSecret::open(&settings.serve.token_source, move || serve.token());
        let token = settings.serve.webhook.is_some().then(open_token).transpose()?;
        let access = status_page_access(&settings.serve)?;
        let state_path = &settings.state_path;
        let mut inbox = Inbox::open(state_path, &identity.base_url, &identity.environment)?;
        let lock = Inbox::lock(state_path)?;
        let lock = lock.ok_or_else(|| ServeError::AlreadyRunning { inbox: inbox.path().to_owned() })?;
        inbox.set_destinations(&settings.warehouse.names())?;
        let state = Arc::new(ServeState::new(system.clock.now_ms()));
        let daemon = Daemon::new(settings.clone(), system.clone(), Arc::clone(&state))?;
        let queue = DeliveryQueue::start(Storage::Inbox(inbox), Arc::clone(&state)).map_err(ServeError::Thread)?;
        let monitor = HealthMonitor::new(&settings, system.clock.clone(), Arc::clone(&state), queue.clone())?;
        let shares = Memory::of(&settings.warehouse);
        let receiver = Receiver::new(settings.serve.webhook.clone(), token, queue, state, system.clock, shares);
        Ok(Opened { receiver: Arc::new(receiver), monitor: Arc::new(monitor), daemon, access, lock })
    }
}

/// Returns a text that differs between installations, also if they run in containers with the same paths.
fn installation(settings: &Settings) -> String {
    let service = &settings.service;
    let path = std::path::absolute(&settings.state_path).unwrap_or_else(|_| settings.state_path.clone());
    format!("{}\n{}\n{}", service.base_url.as_deref().unwrap_or_default(), service.environment, path.display())
}

/// Reads the service's key, so that a missing key fails here, and not at the first run in the middle of the night. A
/// key that does not come within [`KEY_WAIT`] is left to the runs, because deliveries must not wait for it.
///
/// Returns true if the key came.
async fn check_api_key(settings: &Settings, stop: &CancellationToken) -> Result<bool, ServeError> {
    let settings = settings.clone();
    match timeout(KEY_WAIT, until_stopped(stop, move || settings.api_key())).await {
        Ok(read) => Ok(read?.map(|_| true)?),
        Err(_) => {
            tracing::warn!("the key of the service does not come; serve starts without it, and every run reads it");
            Ok(false)
        }
    }
}

/// Starts the daemon on a thread and a runtime of its own. Returns the receiver of its result.
fn start_daemon(daemon: Daemon, stop: CancellationToken) -> std::io::Result<oneshot::Receiver<Result<(), ServeError>>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (done, ended) = oneshot::channel();
    std::thread::Builder::new().name("daemon".to_owned()).spawn(move || {
        let result = runtime.block_on(daemon.run(stop));
        // A thread that still waits for a file must not delay the end of the program.
        runtime.shutdown_background();
        // The send fails only if the server was dropped.
        let _ = done.send(result);
    })?;
    Ok(ended)
}

/// Checks that `serve` could offer its status page: its token can be read, and the page is not open to everybody.
///
/// # Errors
/// `Config` or `OpenStatusPage`.
pub fn check_status_page(settings: &ServeSettings) -> Result<(), ServeError> {
    status_page_access(settings).map(drop)
}

/// Returns who may see the status page; `None` if the page is off.
fn status_page_access(settings: &ServeSettings) -> Result<Option<Access>, ServeError> {
    if !settings.has_status_page {
        return Ok(None);
    }
    let serve = settings.clone();
    let missing = || ConfigError::NoStatusToken { variable: String::new() };
    let read = move || serve.status_token()?.ok_or_else(missing);
    let has_token = settings.status_token()?.is_some();
    let token = has_token.then(|| ChangingSecret::open(&settings.status_token_source, read));
    let token = token.transpose()?;
    let listen = settings.listen;
    if token.is_none() && !listen.ip().is_loopback() {
        return Err(ServeError::OpenStatusPage { listen });
    }
    Ok(Some(Access::new(token)))
}

/// Serves only the receiver on a listener, with the limits of `serve` and these shares of memory, to measure the
/// receiver. Fails if no thread can be started.
pub async fn serve_receiver(
    listener: TcpListener,
    token: ApiKey,
    storage: Storage,
    shares: Memory,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let clock = Clock::default();
    let state = Arc::new(ServeState::new(clock.now_ms()));
    let queue = DeliveryQueue::start(storage, Arc::clone(&state)).map_err(ServeError::Thread)?;
    let source = SecretSource::Variable(String::new());
    let token = ChangingSecret::open(&source, move || Ok(token.clone()))?;
    let receiver = Receiver::new(Some("/webhook".to_owned()), Some(token), queue, Arc::clone(&state), clock, shares);
    serve_connections(listener, router(Arc::new(receiver), None, Router::new()), state, stop).await;
    Ok(())
}
