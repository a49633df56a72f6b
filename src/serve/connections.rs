//! Accepts connections and limits their number and duration. A new connection replaces an idle one, so that idle
//! connections, however many, keep no delivery out.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{Counter, ServeState};

/// Open connections at most. Together with the files of a run they stay below 1,024, a common limit of a process.
const CONNECTIONS_MAX: usize = 512;
/// The longest time for the head of a request, and for an idle connection.
const HEAD_WAIT: Duration = Duration::from_secs(10);
/// The largest head of a request.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Pause after an error of `accept`, most likely because file handles ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long current requests may take after `stop`.
const STOP_WAIT: Duration = Duration::from_secs(5);
/// The answer to a connection when all others are busy.
const BUSY: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// One open connection.
#[derive(Debug, Default)]
pub(super) struct Connection {
    evicted: CancellationToken,
    is_storing: AtomicBool,
}

/// Protects a connection from eviction until dropped, because its delivery is being stored.
pub(super) struct EvictionGuard<'a>(&'a AtomicBool);

impl Connection {
    pub fn protect(&self) -> EvictionGuard<'_> {
        self.is_storing.store(true, Ordering::Release);
        EvictionGuard(&self.is_storing)
    }
}

impl Drop for EvictionGuard<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// The open connections by number; older ones have smaller numbers.
#[derive(Default)]
struct Connections {
    open: Mutex<BTreeMap<u64, Arc<Connection>>>,
    next_id: AtomicU64,
}

impl Connections {
    /// Adds a connection. If there are too many, evicts the oldest one that stores no delivery; returns `None` if all
    /// do.
    fn admit(&self, state: &ServeState) -> Option<(u64, Arc<Connection>)> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= CONNECTIONS_MAX {
            let idle = open.iter().find(|(_, connection)| !connection.is_storing.load(Ordering::Acquire));
            let id = idle.map(|(id, _)| *id)?;
            if let Some(connection) = open.remove(&id) {
                connection.evicted.cancel();
                state.count(Counter::Evicted, 1);
            }
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let connection = Arc::new(Connection::default());
        open.insert(id, Arc::clone(&connection));
        Some((id, connection))
    }

    fn remove(&self, id: u64) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }
}

/// Accepts connections until `stop`. Then it waits for the current requests.
pub(super) async fn serve_connections(
    listener: TcpListener,
    router: Router,
    state: Arc<ServeState>,
    stop: CancellationToken,
) {
    let connections = Arc::new(Connections::default());
    let mut tasks = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
            Some(_) = tasks.join_next(), if !tasks.is_empty() => continue,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                pause_after(&error).await;
                continue;
            }
        };
        state.count(Counter::Connections, 1);
        let Some((id, connection)) = connections.admit(&state) else {
            state.count(Counter::Overloaded, 1);
            // A client that cannot take this answer gets none.
            let _ = stream.try_write(BUSY);
            continue;
        };
        let (router, stop, connections) = (router.clone(), stop.clone(), Arc::clone(&connections));
        tasks.spawn(async move {
            serve(stream, router, &connection, stop).await;
            connections.remove(id);
        });
    }
    drop(listener);
    while tasks.join_next().await.is_some() {}
}

/// Pauses after an error that concerns more than one connection.
async fn pause_after(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    if !matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted) {
        tracing::warn!(%error, "cannot accept a connection");
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

/// Serves one connection until it ends, is evicted, or `stop`.
async fn serve(stream: TcpStream, router: Router, connection: &Arc<Connection>, stop: CancellationToken) {
    // Without this option the connection is only slower.
    let _ = stream.set_nodelay(true);
    let service = TowerToHyperService::new(router.layer(Extension(Arc::clone(connection))));
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_WAIT).max_buf_size(HEAD_BYTES_MAX);
    let mut serving = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        // An error of the connection does not matter: every answered delivery is stored.
        _ = serving.as_mut() => {}
        () = connection.evicted.cancelled() => {}
        () = stop.cancelled() => {
            serving.as_mut().graceful_shutdown();
            let _ = timeout(STOP_WAIT, serving).await;
        }
    }
}
