//! Minutes of requests through real gates, on paused time, to a service with a token bucket: how much of its limit is
//! used, how many requests get a 429, and that no process sends before its `Retry-After` has passed.

use tokio::time::sleep;

use super::*;

/// A service with a rate limit. Counts accepted and rate-limited requests.
#[derive(Debug)]
struct Service {
    rate: f64,
    burst: f64,
    tokens: f64,
    filled_at: Instant,
    retry_after: Option<Duration>,
    /// The time before which each process must not send.
    blocked_until: Vec<Instant>,
    accepted: Vec<f64>,
    rate_limited: f64,
}

type Shared = Arc<Mutex<Service>>;

fn service(rate: f64, burst: f64, retry_after: Option<Duration>, processes: usize) -> Shared {
    let now = Instant::now();
    let (blocked_until, accepted) = (vec![now; processes], vec![0.0; processes]);
    let (tokens, filled_at, rate_limited) = (burst, now, 0.0);
    Arc::new(Mutex::new(Service { rate, burst, tokens, filled_at, retry_after, blocked_until, accepted, rate_limited }))
}

/// Lets four workers of each process send for `secs` seconds. Without the gates, each process would send at least twice
/// the limit. Returns the used share of the limit, and the rate that the first process learned.
async fn run(service: &Shared, stored: Option<f64>, secs: f64) -> (f64, Option<f64>) {
    let (rate, processes) = {
        let mut service = service.lock().unwrap();
        (service.rate_limited, service.accepted) = (0.0, vec![0.0; service.accepted.len()]);
        (service.rate, service.accepted.len())
    };
    let gates: Vec<Gate> = (0..processes).map(|_| gate(state(limits(), stored, None)).0).collect();
    let mut tasks = tokio::task::JoinSet::new();
    for (process, gate) in gates.iter().enumerate() {
        (0..4).for_each(|_| drop(tasks.spawn(work(gate.clone(), Arc::clone(service), process, (2.0 / rate).min(0.2)))));
    }
    sleep(Duration::from_secs_f64(secs)).await;
    assert!(tasks.try_join_next().is_none(), "a worker failed");
    let accepted: f64 = service.lock().unwrap().accepted.iter().sum();
    (accepted / secs / service.lock().unwrap().rate, gates[0].learned().0)
}

async fn work(gate: Gate, service: Shared, process: usize, latency: f64) {
    let travel = || sleep(Duration::from_secs_f64(latency * (0.25 + gate.rng().fraction() / 2.0)));
    while let Ok(permit) = gate.permit().await {
        assert!(Instant::now() >= service.lock().unwrap().blocked_until[process], "sent before Retry-After had passed");
        travel().await;
        let refused = service.lock().unwrap().refuses(process);
        travel().await;
        let Some(retry_after) = refused else {
            permit.accepted();
            continue;
        };
        service.lock().unwrap().blocked_until[process] = Instant::now() + retry_after.unwrap_or_default();
        permit.rate_limited(429, retry_after);
    }
}

impl Service {
    /// Takes a token. Returns the 429's `Retry-After` if there is none.
    fn refuses(&mut self, process: usize) -> Option<Option<Duration>> {
        let now = Instant::now();
        self.tokens = (self.tokens + (now - self.filled_at).as_secs_f64() * self.rate).min(self.burst);
        self.filled_at = now;
        if self.tokens < 1.0 {
            self.rate_limited += 1.0;
            return Some(self.retry_after);
        }
        self.tokens -= 1.0;
        self.accepted[process] += 1.0;
        None
    }
}

#[tokio::test(start_paused = true)]
async fn p5_a_limit_is_found_and_the_second_run_uses_it() {
    let slow = [(1.0, 1.0, 0.8), (1.0, 2.0, 0.95), (10.0, 2.0, 0.9)];
    let fast = [(10.0, 10.0, 0.95), (50.0, 10.0, 0.95), (99.0, 99.0, 0.95)];
    for (rate, burst, used_min) in slow.into_iter().chain(fast) {
        for retry_after in [None, Some(secs(1))] {
            let service = service(rate, burst, retry_after, 1);
            run(&service, None, 20.0).await;
            assert!(service.lock().unwrap().rate_limited <= 25.0, "{service:?}");
            let (_, stored) = run(&service, None, 120.0).await;
            let (used, _) = run(&service, stored, 300.0).await;
            let limited = service.lock().unwrap().rate_limited / rate / 300.0;
            let limited_max = if rate > 5.0 { 0.01 } else { 0.1 };
            assert!(used >= used_min && limited <= limited_max, "{used:.3} used, {limited:.4} limited, {service:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn p5_a_wrong_rate_is_corrected_and_processes_share_a_limit() {
    // Some stored rates are far too low or too high, as after the service has raised or lowered its limit.
    for (rate, burst, stored, processes) in
        [(50.0, 50.0, 0.1, 1), (50.0, 10.0, 5_000.0, 1), (5.0, 10.0, 50.0, 1), (30.0, 10.0, 30.0, 3)]
    {
        for retry_after in [None, Some(secs(1))] {
            let service = service(rate, burst, retry_after, processes);
            let (used, learned) = run(&service, Some(stored), 500.0).await;
            let ratio = learned.unwrap() * processes as f64 / rate;
            let accepted = service.lock().unwrap().accepted.clone();
            let least = accepted.into_iter().fold(f64::MAX, f64::min) / used / rate / 500.0;
            assert!(used >= 0.7 && (0.6..1.6).contains(&ratio), "{used:.3} used, {learned:?}, {service:?}");
            assert!(least >= 0.7 / processes as f64, "{least:.2}, {service:?}");
        }
    }
}
