//! `studysync serve`: receives the service's webhooks and runs `sync` by a schedule. No TLS here:
//! a proxy stands before it.
//!
//! In reading order: [`schedule`] (when), [`agenda`] (what is due next), [`daemon`] (does it, one thing at a time);
//! [`queue`] (a delivery is durable before it is answered), [`receiver`] (what is accepted), [`connections`] (how many,
//! and for how long); [`board`] (what is known of all that), [`watch`] (what the checkpoints know of the runs),
//! [`health`] (both for machines) and [`status_page`] (for people).
//!
//! Nothing here knows how a scan or a flush is done: `pipeline` does them, as for the one-shot commands. A signal only
//! wakes: whatever it would have told is found by the next run too, so that a lost one costs time and nothing else.

mod agenda;
mod board;
mod connections;
mod daemon;
mod error;
mod health;
mod queue;
mod receiver;
mod schedule;
mod status_page;
mod told;
mod watch;

pub use agenda::{Agenda, Ended, Job};
pub use board::{Board, Count};
pub use daemon::Daemon;
pub use error::ServeError;
pub use queue::{Queue, Storage};
pub use schedule::Schedule;
pub use watch::Watch;

use std::{fs::File, net::SocketAddr, sync::Arc};

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{
    config::{ServeSettings, Settings},
    pipeline::{System, identity},
    redact::ApiKey,
    state::Inbox,
};

use connections::serve_connections;
use receiver::{Door, router};
use status_page::{Access, StatusPage};

/// The receiver and the scheduler, ready to run.
pub struct Server {
    listener: TcpListener,
    door: Arc<Door>,
    watch: Arc<Watch>,
    daemon: Daemon,
    /// Who may see the status page; `None`: there is none.
    access: Option<Access>,
    _lock: File,
}

impl Server {
    /// Opens the inbox and listens. Nothing is sent and nothing is due yet.
    ///
    /// # Errors
    /// A configuration that does not work, an address that is taken, or another `serve` at the same state file.
    pub async fn bind(settings: Settings, system: System) -> Result<Server, ServeError> {
        let identity = identity(&settings).map_err(ServeError::Pipeline)?;
        settings.require_warehouse().map_err(ServeError::Config)?;
        // Here and not at the first run in the middle of the night.
        settings.api_key().map_err(ServeError::Config)?;
        let token: Option<ApiKey> =
            settings.serve.webhook.is_some().then(|| settings.serve.token()).transpose().map_err(ServeError::Config)?;
        let access = status_page_access(&settings.serve)?;
        let state = &settings.state_path;
        let open = || Inbox::open(state, &identity.base_url, &identity.environment).map_err(ServeError::State);
        let mut inbox = open()?;
        let lock = Inbox::lock(state).map_err(ServeError::State)?;
        let lock = lock.ok_or_else(|| ServeError::AlreadyRunning { inbox: inbox.path().to_owned() })?;
        inbox.set_destinations(&settings.warehouse.names()).map_err(ServeError::State)?;
        let listen = settings.serve.listen;
        let listener = TcpListener::bind(listen).await.map_err(|source| ServeError::Listen { listen, source })?;
        let board = Arc::new(Board::new(system.clock.now_ms()));
        let daemon = Daemon::new(settings.clone(), system.clone(), Arc::clone(&board))?;
        let queue = Queue::start(Storage::Inbox(inbox), Arc::clone(&board)).map_err(ServeError::Thread)?;
        let watch = Watch::new(&settings, system.clock.clone(), Arc::clone(&board), queue.clone())?;
        let door = Door::new(settings.serve.webhook.clone(), token, queue, board, system.clock);
        Ok(Server { listener, door: Arc::new(door), watch: Arc::new(watch), daemon, access, _lock: lock })
    }

    /// The address it listens on.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Works until it is told to stop; then requests under way are answered, and the run under way ends in order.
    pub async fn run(self, stop: CancellationToken) -> Result<(), ServeError> {
        let Server { listener, door, watch, daemon, access, _lock } = self;
        let page = access.map(|access| StatusPage::new(Arc::clone(&watch), access, stop.clone()));
        let people = page.map(status_page::router);
        let router = router(Arc::clone(&door), Some(watch), people.unwrap_or_default());
        let connections = serve_connections(listener, router, Arc::clone(door.board()), stop.clone());
        let works = async {
            let worked = daemon.run(stop.clone()).await;
            // Nobody would bring on what is received.
            stop.cancel();
            worked
        };
        let ((), worked) = tokio::join!(connections, works);
        // What was answered meanwhile is in the inbox; the next start brings it on.
        worked
    }
}

/// Who may see the status page; `None` if there is none.
fn status_page_access(settings: &ServeSettings) -> Result<Option<Access>, ServeError> {
    if !settings.has_status_page {
        return Ok(None);
    }
    let token = settings.status_token().map_err(ServeError::Config)?;
    let listen = settings.listen;
    if token.is_none() && !listen.ip().is_loopback() {
        return Err(ServeError::OpenStatusPage { listen });
    }
    Ok(Some(Access::new(token)))
}

/// Whether the schedule and its zone can be read.
///
/// # Errors
/// `Schedule` or `Zone`, which name what cannot be read.
pub fn check_schedule(settings: &ServeSettings) -> Result<(), ServeError> {
    // A zone is read also where there is no schedule: it would be missed with the first one.
    Schedule::parse(settings.schedule.as_deref().unwrap_or("@daily"), &settings.timezone).map(drop)
}

/// Serves a router on a listener with the limits of `serve`: for measurements of the receiver alone.
pub async fn serve_receiver(
    listener: TcpListener,
    token: ApiKey,
    storage: Storage,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let clock = crate::clock::Clock::default();
    let board = Arc::new(Board::new(clock.now_ms()));
    let queue = Queue::start(storage, Arc::clone(&board)).map_err(ServeError::Thread)?;
    let door = Door::new(Some("/webhook".to_owned()), Some(token), queue, Arc::clone(&board), clock);
    serve_connections(listener, router(Arc::new(door), None, axum::Router::new()), board, stop).await;
    Ok(())
}
