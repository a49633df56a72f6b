//! `serve` as the service and hostile clients see it: the real binary on a real socket. The tests of nights run in
//! simulated time (`nights`).

mod changed_secrets;
mod deliveries;
mod few_files;
mod health;
mod hostile;
mod kills;
mod load;
mod nights;
mod rates;
pub mod schedules;
mod status_page;
mod waits;
mod watching;

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::harness::{Place, Tables};

pub const SECRET: &str = "webhook-5ecret-of-the-tests";
/// No schedule, so a failed run is not retried and the first failure counts.
pub const IDLE: &str = "schedule = \"off\"\nwake_secs = 0\nflush_secs = 1\n";
/// An upper bound of all waits in these tests. A schedule of each minute alone takes up to one.
const WAIT_MAX: Duration = Duration::from_secs(150);

/// A place with these lines in `[serve]` of its configuration.
pub fn place_for(service: &crate::harness::Service, serve: &str) -> Place {
    Place::new(service)
        .with_config(&format!(
            "{}[serve]\nlisten = \"127.0.0.1:0\"\njitter_secs = 0\n{serve}",
            crate::harness::ALL_FLAGS
        ))
        .with_env("STUDYSYNC_WEBHOOK_SECRET", SECRET)
}

/// A running `serve`; dropping it kills the process.
pub struct Serving {
    child: Child,
    pub address: SocketAddr,
}

impl Serving {
    /// Starts `serve` and waits until it listens.
    pub fn start(place: &Place) -> Serving {
        Serving::of(place.command(&["serve"]))
    }

    /// Starts `serve` by this command and waits until it listens.
    pub fn of(command: std::process::Command) -> Serving {
        Serving::spawn(command, Stdio::inherit())
    }

    /// Starts `serve` by this command with its log in a new file, and waits until it listens.
    pub fn logging_to(command: std::process::Command, log: &std::path::Path) -> Serving {
        Serving::spawn(command, std::fs::File::create(log).unwrap().into())
    }

    fn spawn(mut command: std::process::Command, log: Stdio) -> Serving {
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on http://").unwrap_or_else(|| panic!("it said {line:?}"));
        Serving { address: address.parse().unwrap(), child }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends SIGTERM and returns the exit code.
    pub fn stop(mut self) -> i32 {
        let pid = rustix::process::Pid::from_raw(self.child.id() as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.child.wait().unwrap().code().unwrap_or(-1)
    }

    pub fn url(&self) -> String {
        format!("http://{}/webhook", self.address)
    }

    /// Posts a body with the secret, and returns the status.
    pub fn post(&self, body: &[u8]) -> u16 {
        Poster::connect(self.address).and_then(|mut poster| poster.post(SECRET, body)).unwrap_or(0)
    }

    /// Returns the status and the body of a GET.
    pub fn get(&self, path: &str) -> (u16, String) {
        let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", self.address);
        let answer = raw(self.address, request.as_bytes());
        let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default();
        (status_of(&answer), body)
    }

    pub fn health(&self) -> Value {
        serde_json::from_str(&self.get("/healthz").1).unwrap()
    }

    /// Returns the value of a counter without labels.
    pub fn metric(&self, name: &str) -> i64 {
        let text = self.get("/metrics").1;
        crate::harness::sample(&text, name).unwrap_or_else(|| panic!("{name} is not in {text}")) as i64
    }

    /// Waits until the inbox is empty and no flush is active.
    pub fn wait_until_flushed(&self) {
        let begun = Instant::now();
        loop {
            let health = self.health();
            if health["waiting_deliveries"] == 0 && health["running"].is_null() {
                break;
            }
            assert!(begun.elapsed() < WAIT_MAX, "the inbox is not emptied: {health:#}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until a condition is true, and panics if it never is.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < WAIT_MAX, "it did not come: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Sends exactly these bytes and returns the complete answer.
pub fn raw(address: SocketAddr, bytes: &[u8]) -> String {
    let mut answer = Vec::new();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(WAIT_MAX)).unwrap();
    // The server may close the connection before it has received everything.
    let _ = stream.write_all(bytes);
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// Returns the status of an answer; 0 if there is none.
pub fn status_of(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}

/// A persistent connection.
pub struct Poster(BufReader<TcpStream>);

impl Poster {
    pub fn connect(address: SocketAddr) -> std::io::Result<Poster> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(WAIT_MAX))?;
        stream.set_nodelay(true)?;
        Ok(Poster(BufReader::new(stream)))
    }

    /// Posts a body and returns the status. After a connection error it is unknown whether the body was stored.
    pub fn post(&mut self, secret: &str, body: &[u8]) -> std::io::Result<u16> {
        let head = format!(
            "POST /webhook HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {secret}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        self.0.get_mut().write_all(&[head.as_bytes(), body].concat())?;
        let (mut status, mut length) = (0, 0);
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            let line = line.trim_end().to_ascii_lowercase();
            if line.starts_with("http/1.1 ") {
                status = status_of(&line);
            } else if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.parse().unwrap();
            } else if line.is_empty() {
                break;
            }
        }
        self.0.read_exact(&mut vec![0; length])?;
        Ok(status)
    }
}

/// Returns the body of an answer event that this number makes unique.
pub fn answer_body(number: u64) -> String {
    format!(
        r#"{{"id":{number},"environmentId":"e","createdAt":"2026-01-31T08:00:00.000Z","responseGroupUid":"group-{number}","response":"answer {number}","surveyId":4100,"question":"Why?","questionType":"open","timestamp":{},"eventType":"survey_response","eventName":"surveyResponse"}}"#,
        1_769_846_400_000 + number
    )
}

/// Calls `check` with the tables of each warehouse.
pub fn in_each(place: &Place, check: impl Fn(&str, &Tables)) {
    for (name, tables) in place.warehouses() {
        check(name, &tables);
    }
}
