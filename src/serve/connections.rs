//! Accepts connections and limits their number and duration. If there are too many connections, a new connection
//! replaces an old one, so that idle connections cannot keep deliveries out.
//!
//! Every connection is an open file. Connections leave enough open files to the runs, because DuckDB's engine aborts
//! the process if it cannot open a file at the wrong moment.

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
use rustix::process::{Resource, getrlimit};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{Counter, ServeState};

/// Maximum open connections if the process may open many files.
const CONNECTIONS_MAX: usize = 512;
/// Minimum open connections, however few files the process may open.
const CONNECTIONS_MIN: usize = 16;
/// Open files that connections leave to the rest of the process. A run with both warehouses opens about 30, and more
/// while it merges files.
const OPEN_FILES_RESERVED: u64 = 128;
/// Below this limit of open files, connections take files that a run may need.
const OPEN_FILES_MIN: u64 = OPEN_FILES_RESERVED + CONNECTIONS_MIN as u64;
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
    /// Closes the connection, also while an answer is sent.
    pub fn close(&self) {
        self.evicted.cancel();
    }

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

/// How many connections `serve` accepts at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimit {
    pub connections: usize,
    /// The limit of open files of the process; `None` without a limit.
    pub open_files: Option<u64>,
}

impl ConnectionLimit {
    /// Returns what the limit of open files of this process leaves.
    pub fn of_process() -> ConnectionLimit {
        ConnectionLimit::new(getrlimit(Resource::Nofile).current)
    }

    fn new(open_files: Option<u64>) -> ConnectionLimit {
        let left = open_files.map(|files| files.saturating_sub(OPEN_FILES_RESERVED));
        let left = left.map_or(CONNECTIONS_MAX, |left| usize::try_from(left).unwrap_or(usize::MAX));
        ConnectionLimit { connections: left.clamp(CONNECTIONS_MIN, CONNECTIONS_MAX), open_files }
    }

    /// Returns true if connections and a run together may need more open files than the limit.
    pub fn is_too_low(&self) -> bool {
        self.open_files.is_some_and(|files| files < OPEN_FILES_MIN)
    }

    /// Returns true if the limit of open files leaves fewer connections than usual.
    pub fn is_reduced(&self) -> bool {
        self.connections < CONNECTIONS_MAX
    }
}

/// The open connections by number. An older connection has a smaller number.
struct Connections {
    max: usize,
    open: Mutex<BTreeMap<u64, Arc<Connection>>>,
    next_id: AtomicU64,
}

impl Connections {
    /// Adds a connection. If there are too many, evicts the oldest connection that stores no delivery. Returns `None`
    /// if all connections store deliveries.
    fn admit(&self, state: &ServeState) -> Option<(u64, Arc<Connection>)> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= self.max {
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
    let limit = ConnectionLimit::of_process();
    if limit.is_reduced() {
        let (open_files, connections) = (limit.open_files, limit.connections);
        tracing::warn!(open_files, connections, "the limit of open files is low: fewer connections at the same time");
    }
    let connections =
        Arc::new(Connections { max: limit.connections, open: Mutex::default(), next_id: AtomicU64::new(0) });
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_take_what_the_limit_of_open_files_leaves() {
        let limit = |files| ConnectionLimit::new(Some(files));
        for (files, connections) in [(64, 16), (144, 16), (256, 128), (639, 511), (640, 512), (1 << 20, 512)] {
            assert_eq!(limit(files).connections, connections, "{files}");
        }
        assert_eq!(ConnectionLimit::new(None).connections, 512);
        assert!(limit(143).is_too_low() && !limit(144).is_too_low() && limit(144).is_reduced());
        assert!(!limit(640).is_reduced() && !ConnectionLimit::new(None).is_too_low());
    }
}
