//! A server that writes answers byte by byte, as no HTTP library would. It forwards the requests that a test does not
//! answer to the sandbox.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

/// Handles a request; returns `true` if it has answered, validly or not.
pub type Answer = dyn Fn(&Request, &mut TcpStream) -> bool + Send + Sync;
/// Changes the sandbox's answer.
pub type Rewrite = dyn Fn(Vec<u8>) -> Vec<u8> + Send + Sync;

/// A received request.
pub struct Request {
    /// Path and query.
    pub target: String,
    head: String,
}

impl Request {
    pub fn is_for(&self, path: &str) -> bool {
        self.target.starts_with(path)
    }
}

/// The server. It stops when it is dropped.
pub struct RawServer {
    address: SocketAddr,
    requests: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
}

impl RawServer {
    /// Answers with `answer`; if that declines, forwards to the sandbox at `behind` and rewrites its answer.
    pub fn start(behind: &str, answer: Box<Answer>, rewrite: Box<Rewrite>) -> RawServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let behind: SocketAddr = behind.trim_start_matches("http://").parse().unwrap();
        let (requests, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, over) = (Arc::clone(&requests), Arc::clone(&is_over));
        let (answer, rewrite): (Arc<Answer>, Arc<Rewrite>) = (answer.into(), rewrite.into());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let (answer, rewrite, count) = (Arc::clone(&answer), Arc::clone(&rewrite), Arc::clone(&count));
                std::thread::spawn(move || serve(stream, behind, &*answer, &*rewrite, &count));
            }
        });
        RawServer { address, requests, is_over }
    }

    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }
}

impl Drop for RawServer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // Wakes the listener.
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(mut stream: TcpStream, behind: SocketAddr, answer: &Answer, rewrite: &Rewrite, count: &AtomicU64) {
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let Some(head) = read_head(&mut stream) else { return };
    count.fetch_add(1, Ordering::Relaxed);
    let target = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let request = Request { target, head };
    if !answer(&request, &mut stream) {
        let _ = stream.write_all(&rewrite(ask(behind, &request.head)));
    }
    // Does not wait for further bytes from the client.
    let _ = stream.shutdown(std::net::Shutdown::Both);
}

/// Reads up to the empty line; the requests of these tests have no bodies.
fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return None,
        }
    }
    String::from_utf8(head).ok()
}

/// Returns the sandbox's complete answer, on a new connection.
fn ask(behind: SocketAddr, head: &str) -> Vec<u8> {
    let mut upstream = TcpStream::connect(behind).unwrap();
    let closing = head.replacen("\r\n", "\r\nconnection: close\r\n", 1);
    upstream.write_all(closing.as_bytes()).unwrap();
    let mut answer = Vec::new();
    upstream.read_to_end(&mut answer).unwrap();
    answer
}

/// Writes an answer with its length, and closes the connection.
pub fn respond(stream: &mut TcpStream, status: &str, headers: &str, body: &[u8]) {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n"
    );
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
}
