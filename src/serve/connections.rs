//! Connections: how many, and for how long. One that brings nothing gives way to a new one, so that idle connections,
//! however many, keep no delivery out.

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

use super::{Board, Count};

/// Connections at once: with the files of a run, below the 1,024 that systems let a process open.
const CONNECTIONS_MAX: usize = 512;
/// How long the head of a request may take, and how long a connection may be idle.
const HEAD_WAIT: Duration = Duration::from_secs(10);
/// The most memory for the head of a request.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// After a failure to accept, most likely for want of file handles.
const ACCEPT_REST: Duration = Duration::from_millis(100);
/// How long requests under way are waited for at the end.
const GRACE: Duration = Duration::from_secs(5);
/// Said to a connection when all others are busy.
const BUSY: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// One connection.
#[derive(Debug, Default)]
pub(super) struct Connection {
    evicted: CancellationToken,
    is_committing: AtomicBool,
}

/// While it lives, the connection does not give way: its delivery is being written.
pub(super) struct Committing<'a>(&'a AtomicBool);

impl Connection {
    pub fn commits(&self) -> Committing<'_> {
        self.is_committing.store(true, Ordering::Release);
        Committing(&self.is_committing)
    }
}

impl Drop for Committing<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Those that are open, oldest first.
#[derive(Default)]
struct Connections {
    open: Mutex<BTreeMap<u64, Arc<Connection>>>,
    next: AtomicU64,
}

impl Connections {
    /// A place for a new connection, if need be that of the oldest one that brings nothing; `None` if all are busy.
    fn admit(&self, board: &Board) -> Option<(u64, Arc<Connection>)> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= CONNECTIONS_MAX {
            let idle = open.iter().find(|(_, connection)| !connection.is_committing.load(Ordering::Acquire));
            let id = idle.map(|(id, _)| *id)?;
            if let Some(connection) = open.remove(&id) {
                connection.evicted.cancel();
                board.count(Count::Evicted, 1);
            }
        }
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let connection = Arc::new(Connection::default());
        open.insert(id, Arc::clone(&connection));
        Some((id, connection))
    }

    fn leave(&self, id: u64) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }
}

/// Accepts until it is told to stop; then requests under way are answered.
pub(super) async fn serve_connections(
    listener: TcpListener,
    router: Router,
    board: Arc<Board>,
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
                rest_after(&error).await;
                continue;
            }
        };
        board.count(Count::Connections, 1);
        let Some((id, connection)) = connections.admit(&board) else {
            board.count(Count::Overloaded, 1);
            // Whoever cannot even take this much hears nothing.
            let _ = stream.try_write(BUSY);
            continue;
        };
        let (router, stop, connections) = (router.clone(), stop.clone(), Arc::clone(&connections));
        tasks.spawn(async move {
            serve(stream, router, &connection, stop).await;
            connections.leave(id);
        });
    }
    drop(listener);
    // Each ends by its own grace.
    while tasks.join_next().await.is_some() {}
}

async fn rest_after(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    if !matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted) {
        tracing::warn!(%error, "cannot accept a connection");
        tokio::time::sleep(ACCEPT_REST).await;
    }
}

async fn serve(stream: TcpStream, router: Router, connection: &Arc<Connection>, stop: CancellationToken) {
    // A stream that refuses is only slower.
    let _ = stream.set_nodelay(true);
    let service = TowerToHyperService::new(router.layer(Extension(Arc::clone(connection))));
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_WAIT).max_buf_size(HEAD_BYTES_MAX);
    let mut serving = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        // How a connection ends is its own affair: whatever was answered is stored.
        _ = serving.as_mut() => {}
        () = connection.evicted.cancelled() => {}
        () = stop.cancelled() => {
            serving.as_mut().graceful_shutdown();
            let _ = timeout(GRACE, serving).await;
        }
    }
}
