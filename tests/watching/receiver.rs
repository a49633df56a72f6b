//! A receiver of webhooks that answers as configured, or not at all, and stores the requests.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::Value;

/// The answer to a request.
#[derive(Clone, Copy, Debug)]
pub enum Answer {
    Status(u16),
    /// A status and a text that depend on the body.
    Judged(fn(&Value) -> (u16, String)),
    /// No answer.
    Nothing,
}

#[derive(Default)]
struct Shared {
    posted: Mutex<Vec<(String, Vec<u8>)>>,
    answer: Mutex<Option<Answer>>,
    is_over: AtomicBool,
}

/// The receiver. It stops listening when it is dropped.
pub struct Receiver {
    shared: Arc<Shared>,
    address: SocketAddr,
}

impl Receiver {
    pub fn start() -> Receiver {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if theirs.is_over.load(Ordering::Relaxed) {
                    return;
                }
                let shared = Arc::clone(&theirs);
                std::thread::spawn(move || receive(stream, &shared));
            }
        });
        Receiver { shared, address }
    }

    /// Sets the answer to later requests.
    pub fn answers(&self, answer: Answer) {
        *self.shared.answer.lock().unwrap() = Some(answer);
    }

    pub fn url(&self) -> String {
        format!("http://{}/s3cret-path", self.address)
    }

    /// Returns the bodies since the last call, as JSON.
    pub fn take(&self) -> Vec<Value> {
        let posted = self.take_raw();
        posted.iter().map(|(_, body)| serde_json::from_slice(body).unwrap()).collect()
    }

    /// Returns the raw bodies since the last call, with their paths.
    pub fn take_raw(&self) -> Vec<(String, Vec<u8>)> {
        std::mem::take(&mut *self.shared.posted.lock().unwrap())
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

fn receive(stream: TcpStream, shared: &Shared) {
    let mut reader = BufReader::new(stream);
    let (mut line, mut length, mut path) = (String::new(), 0, String::new());
    loop {
        line.clear();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        if path.is_empty() {
            path = line.split(' ').nth(1).unwrap_or_default().to_owned();
        }
        let header = line.trim().to_ascii_lowercase();
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if header.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let judged = serde_json::from_slice(&body).unwrap_or_default();
    shared.posted.lock().unwrap().push((path, body));
    let answer = shared.answer.lock().unwrap().unwrap_or(Answer::Status(200));
    let mut say = |status: u16, text: &str| {
        let length = text.len();
        let text = format!("HTTP/1.1 {status} Said\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{text}");
        let _ = reader.get_mut().write_all(text.as_bytes());
    };
    match answer {
        Answer::Status(status) => say(status, ""),
        Answer::Judged(judge) => {
            let (status, text) = judge(&judged);
            say(status, &text);
        }
        // Waits until the client gives up.
        Answer::Nothing => {
            let _ = reader.get_mut().set_read_timeout(Some(Duration::from_secs(60)));
            let _ = reader.read(&mut [0]);
        }
    }
}
