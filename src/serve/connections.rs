//! Accepts connections and limits their number and duration. If there are too many connections, a new connection
//! replaces an old one, so that idle connections cannot keep deliveries out.

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

/// Maximum open connections. Together with the files of a run they stay below 1,024 file handles, a common limit of a
/// process.
const CONNECTIONS_MAX: usize = 512;
/// The longest time for the head of a request, and for an idle connection.
const HEAD_WAIT: Duration = Duration::from_secs(10);
/// The largest head of a request.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Pause after an error of `accept`, most likely because file handles ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long current requests may take after `stop`.
const STOP_WAIT: Duration = Duration::from_secs(5);
/// The answer to a connection if all other connections are storing deliveries.
const BUSY: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// An open connection. `evicted` is cancelled to close the connection; `is_storing` is true while its delivery is being
/// stored.
#[derive(Debug, Default)]
pub(super) struct Connection {
    evicted: CancellationToken,
    is_storing: AtomicBool,
}

/// Protects a connection from eviction until dropped, because its delivery is being stored.
pub(super) struct EvictionGuard<'a>(&'a AtomicBool);

impl Connection {
    /// Protects the connection from eviction until the returned guard is dropped.
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

/// The open connections by number. An older connection has a smaller number.
#[derive(Default)]
struct Connections {
    open: Mutex<BTreeMap<u64, Arc<Connection>>>,
    next_id: AtomicU64,
}

impl Connections {
    /// Adds a connection. If there are too many, evicts the oldest connection that stores no delivery. Returns `None`
    /// if all connections store deliveries.
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

/// Accepts and serves connections until `stop` is cancelled. Then waits for the current requests, at most
/// [`STOP_WAIT`], and returns.
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
            // If the client cannot take this answer, it gets no answer.
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

/// Pauses after an error of `accept`, unless the error concerns only one connection.
async fn pause_after(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    if !matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted) {
        tracing::warn!(%error, "cannot accept a connection");
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

/// Serves one connection until it ends, is evicted, or `stop` is cancelled. After `stop`, the current request may still
/// end within [`STOP_WAIT`].
async fn serve(stream: TcpStream, router: Router, connection: &Arc<Connection>, stop: CancellationToken) {
    // Without this option the connection is only slower.
    let _ = stream.set_nodelay(true);
    let service = TowerToHyperService::new(router.layer(Extension(Arc::clone(connection))));
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_WAIT).max_buf_size(HEAD_BYTES_MAX);
    let mut serving = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        // An error of the connection does not matter: a delivery is answered only after it is stored.
        _ = serving.as_mut() => {}
        () = connection.evicted.cancelled() => {}
        () = stop.cancelled() => {
            serving.as_mut().graceful_shutdown();
            let _ = timeout(STOP_WAIT, serving).await;
        }
    }
}
