//! The source against a hand-written server of canned replies: whatever can come over a wire.

mod answers;
mod downloads;
mod refusals;
mod waits;
mod walks;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use reqwest::Url;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{backoff::Backoff, *};
use crate::{
    model::{FlagSet, PageRequest, PageToken, Scope, Stream, TimeAccount, Window},
    redact::ApiKey,
};

const KEY: &str = "s3cr3t-s3cr3t";

/// What the server does with one request.
enum Reply {
    /// Sends these bytes and goes on with the connection.
    Whole(Vec<u8>),
    /// Sends these bytes and closes the connection.
    Cut(Vec<u8>),
    /// Sends these bytes and then nothing more.
    Hang(Vec<u8>),
}

/// One request as it came.
#[derive(Clone, Debug)]
struct Seen {
    head: String,
    at: Instant,
}

impl Seen {
    fn target(&self) -> &str {
        self.head.split(' ').nth(1).unwrap()
    }
}

struct Server {
    address: String,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Server {
    /// Answers the request of a number (from 0) and a target (`/v1/...`) with what `reply` says.
    async fn start(reply: impl Fn(usize, &str) -> Reply + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (reply, log) = (Arc::new(reply), Arc::clone(&seen));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&log), Arc::clone(&reply)));
            }
        });
        Server { address, seen }
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    fn targets(&self) -> Vec<String> {
        self.seen().iter().map(|seen| seen.target().to_owned()).collect()
    }

    /// Settings with time-outs and waits that a test can sit through.
    fn settings(&self) -> SourceSettings {
        let mut settings = SourceSettings::new(&self.address, ApiKey::new(KEY, "variable TEST_KEY")).unwrap();
        settings.timeout = Duration::from_secs(5);
        settings.idle_timeout = Duration::from_millis(200);
        settings.backoff = Backoff {
            floor: Duration::from_millis(1),
            first: Duration::from_millis(2),
            longest: Duration::from_millis(5),
        };
        settings
    }

    fn source(&self) -> Source {
        source(self.settings())
    }
}

async fn serve(
    mut stream: TcpStream,
    log: Arc<Mutex<Vec<Seen>>>,
    reply: Arc<impl Fn(usize, &str) -> Reply + Send + Sync + 'static>,
) {
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match stream.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(_) => return,
            }
        }
        let seen = Seen { head: String::from_utf8(head).unwrap(), at: Instant::now() };
        let target = seen.target().to_owned();
        let number = {
            let mut log = log.lock().unwrap();
            log.push(seen);
            log.len() - 1
        };
        // A client that hung up is the point of some tests.
        match reply(number, &target) {
            Reply::Whole(bytes) => _ = stream.write_all(&bytes).await,
            Reply::Cut(bytes) => {
                _ = stream.write_all(&bytes).await;
                return;
            }
            Reply::Hang(bytes) => {
                _ = stream.write_all(&bytes).await;
                std::future::pending::<()>().await;
                return;
            }
        }
    }
}

fn source(settings: SourceSettings) -> Source {
    Source::new(settings, None, TimeAccount::default(), CancellationToken::new()).unwrap()
}

fn answer(status: u16, headers: &[&str], body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let mut head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n", body.len());
    for line in headers {
        head += &format!("{line}\r\n");
    }
    [head.as_bytes(), b"\r\n", body].concat()
}

fn json(status: u16, body: &str) -> Reply {
    Reply::Whole(answer(status, &["content-type: application/json"], body))
}

/// A page of `rows` rows that leads to `next`.
fn page(rows: usize, next: Option<&str>) -> Reply {
    let data = vec!["{}"; rows].join(",");
    let token = next.map_or("null".to_owned(), |next| format!("\"{next}\""));
    json(200, &format!(r#"{{"cursor":{token},"data":[{data}]}}"#))
}

fn responses() -> PageRequest {
    PageRequest {
        scope: Scope::all(Stream::Responses),
        window: Window::new(1_000, 2_000),
        flags: FlagSet::EMPTY,
        page_rows: 1000,
        token: None,
    }
}

fn themes() -> PageRequest {
    PageRequest { scope: Scope::all(Stream::Themes), ..responses() }
}

fn parameter(target: &str, name: &str) -> Option<String> {
    let url = Url::parse(&format!("http://x{target}")).unwrap();
    url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

fn token_of(target: &str) -> Option<String> {
    parameter(target, "cursor")
}

/// Follows a walk to its end; `R` marks a restart.
async fn follow(walk: &mut Walk) -> Result<Vec<String>, SourceError> {
    let mut steps = Vec::new();
    loop {
        match walk.next().await? {
            WalkStep::Page(page) => steps.push(page.rows.to_string()),
            WalkStep::Restarted { .. } => steps.push("R".to_owned()),
            WalkStep::UnprovenEnd => {
                steps.push("?".to_owned());
                walk.resolve_end(false);
            }
            WalkStep::End(end) => {
                steps.push(format!("{end:?}"));
                return Ok(steps);
            }
        }
    }
}

async fn walk_error(source: &Source, request: PageRequest) -> SourceError {
    match follow(&mut source.walk(request)).await {
        Err(error) => error,
        Ok(steps) => panic!("expected an error, got {steps:?}"),
    }
}
