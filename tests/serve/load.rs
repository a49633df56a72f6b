//! Measures the receiver: deliveries per second with an fsync before each answer, and the same receiver without
//! storage. Another process generates the load. This is no test: run it by hand, on an idle machine.
//!
//! `cargo test --release -- serve::load::measure --ignored --nocapture`

use std::{
    net::SocketAddr,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use studysync::{
    pipeline::Memory,
    redact::ApiKey,
    serve::{Storage, serve_receiver},
    state::Inbox,
};
use tokio_util::sync::CancellationToken;

use super::{Poster, SECRET, answer_body};

const ADDRESS: &str = "STUDYSYNC_LOAD_ADDRESS";
const CONNECTIONS: &str = "STUDYSYNC_LOAD_CONNECTIONS";
const LENGTH: Duration = Duration::from_secs(6);

/// The load generator: posts as fast as it receives answers, and prints the results.
#[test]
#[ignore = "started by `measure`"]
#[expect(clippy::disallowed_methods, reason = "what the measurement tells its client")]
fn client() {
    let Ok(address) = std::env::var(ADDRESS) else { return };
    let address: SocketAddr = address.parse().unwrap();
    let connections: u64 = std::env::var(CONNECTIONS).unwrap().parse().unwrap();
    let next = Arc::new(AtomicU64::new(0));
    let threads: Vec<_> = (0..connections)
        .map(|_| {
            let next = Arc::clone(&next);
            std::thread::spawn(move || {
                let mut poster = Poster::connect(address).unwrap();
                let (begun, mut waits_us, mut refused) = (Instant::now(), Vec::new(), 0u64);
                while begun.elapsed() < LENGTH {
                    let body = answer_body(next.fetch_add(1, Ordering::Relaxed));
                    let sent = Instant::now();
                    match poster.post(SECRET, body.as_bytes()).unwrap() {
                        200 => waits_us.push(sent.elapsed().as_micros() as u64),
                        _ => refused += 1,
                    }
                }
                (waits_us, refused)
            })
        })
        .collect();
    let (mut waits_us, mut refused) = (Vec::new(), 0);
    for thread in threads {
        let (waits, more) = thread.join().unwrap();
        waits_us.extend(waits);
        refused += more;
    }
    waits_us.sort_unstable();
    let at = |share: f64| waits_us[((waits_us.len() - 1) as f64 * share) as usize] as f64 / 1000.0;
    println!(
        "{:>6.0} deliveries/s, p50 {:.2} ms, p99 {:.2} ms, longest {:.1} ms, {refused} refused",
        waits_us.len() as f64 / LENGTH.as_secs_f64(),
        at(0.5),
        at(0.99),
        at(1.0)
    );
}

#[test]
#[ignore = "a measurement: run it by hand"]
fn measure() {
    let folder = tempfile::Builder::new().prefix("serve-load-").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let shares = Memory { received: 64 << 20, ..Memory::default() };
    for connections in [1, 16, 64] {
        for name in ["with an fsync before each answer", "without storage"] {
            let storage = match name {
                "without storage" => Storage::Nothing,
                _ => {
                    let state = folder.path().join(format!("state-{connections}"));
                    Storage::Inbox(Inbox::open(&state, "http://127.0.0.1:1", "load").unwrap())
                }
            };
            let stop = CancellationToken::new();
            let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
            let address = listener.local_addr().unwrap();
            let token = ApiKey::new(SECRET, "the test");
            let serving = runtime.spawn(serve_receiver(listener, token, storage, shares, stop.clone()));
            let mut client = Command::new(std::env::current_exe().unwrap());
            client.args(["serve::load::client", "--exact", "--ignored", "--nocapture"]);
            client.env(ADDRESS, address.to_string()).env(CONNECTIONS, connections.to_string());
            let output = client.output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let said = String::from_utf8_lossy(&output.stdout);
            let line = said.lines().find(|line| line.contains("deliveries/s")).unwrap();
            println!(
                "{connections:>3} connections, {name:<34} {}",
                line.trim_start_matches("test serve::load::client ... ")
            );
            stop.cancel();
            runtime.block_on(serving).unwrap().unwrap();
        }
    }
}
