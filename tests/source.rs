//! `source` through its public interface, against a service with a rate limit.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use studysync::{
    model::{FlagSet, PageRequest, Scope, Stream, TimeAccount, Window},
    redact::ApiKey,
    source::{Source, SourceSettings, Walk, WalkStep},
};
use tokio_util::sync::CancellationToken;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate, matchers::path};

const PAGES: usize = 20;

/// A token bucket that sends `Retry-After: 1` to refused clients, and records whether they obey.
struct Limited {
    per_sec: f64,
    burst: f64,
    state: Arc<Mutex<Bucket>>,
}

struct Bucket {
    tokens: f64,
    filled_at: Instant,
    closed_until: Option<Instant>,
    too_early: Vec<Duration>,
    admitted: u32,
    refused: u32,
}

impl Respond for Limited {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let now = Instant::now();
        let mut bucket = self.state.lock().unwrap();
        if let Some(early) = bucket.closed_until.and_then(|until| until.checked_duration_since(now)) {
            bucket.too_early.push(early);
        }
        let since = now.duration_since(bucket.filled_at).as_secs_f64();
        bucket.filled_at = now;
        bucket.tokens = (bucket.tokens + since * self.per_sec).min(self.burst);
        if bucket.tokens < 1.0 {
            bucket.refused += 1;
            // Requests that were in flight when this answer was sent could not obey it.
            bucket.closed_until = Some(now + Duration::from_secs(1));
            return ResponseTemplate::new(429).insert_header("retry-after", "1");
        }
        bucket.tokens -= 1.0;
        bucket.admitted += 1;
        let cursor = request.url.query_pairs().find(|(name, _)| name == "cursor");
        let at: usize = cursor.map_or(0, |(_, value)| value.parse().unwrap());
        let next = if at + 1 < PAGES { format!("\"{}\"", at + 1) } else { "null".to_owned() };
        ResponseTemplate::new(200)
            .set_body_raw(format!(r#"{{"cursor":{next},"data":[{{"page":{at}}}]}}"#), "application/json")
            .set_delay(Duration::from_millis(20))
    }
}

async fn rows_of(mut walk: Walk) -> usize {
    let mut rows = 0;
    loop {
        match walk.next().await.expect("a walk that waits when told so comes to its end") {
            WalkStep::Page(page) => rows += page.rows,
            WalkStep::Restarted { reason } => panic!("restarted: {reason}"),
            WalkStep::End(_) => return rows,
            WalkStep::UnprovenEnd => walk.resolve_end(false),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p5_eight_parallel_windows_obey_one_limit_and_lose_nothing() {
    let server = MockServer::start().await;
    let bucket = Bucket {
        tokens: 10.0,
        filled_at: Instant::now(),
        closed_until: None,
        too_early: Vec::new(),
        admitted: 0,
        refused: 0,
    };
    let state = Arc::new(Mutex::new(bucket));
    let limited = Limited { per_sec: 20.0, burst: 10.0, state: Arc::clone(&state) };
    Mock::given(path("/v1/responses")).respond_with(limited).mount(&server).await;

    let settings = SourceSettings::new(&server.uri(), ApiKey::new("key", "a test")).unwrap();
    let account = TimeAccount::default();
    let source = Source::new(settings, None, account.clone(), CancellationToken::new()).unwrap();
    let started = Instant::now();
    let walks = (0..8).map(|day| {
        let window = Window::new(day * 86_400_000, (day + 1) * 86_400_000);
        let request = PageRequest {
            scope: Scope::all(Stream::Responses),
            window,
            flags: FlagSet::EMPTY,
            page_rows: 1000,
            token: None,
        };
        tokio::spawn(rows_of(source.walk(request)))
    });
    for rows in futures::future::join_all(walks).await {
        assert_eq!(rows.unwrap(), PAGES);
    }

    let bucket = state.lock().unwrap();
    let stats = source.request_stats();
    assert_eq!(bucket.admitted, 160);
    assert_eq!(stats.total, u64::from(bucket.admitted + bucket.refused));
    assert_eq!(stats.by_status.get(&429).copied().unwrap_or(0), u64::from(bucket.refused));
    assert!(bucket.refused >= 1, "the limit was never met, so this proves nothing");
    assert!(bucket.refused <= 16, "{} of {} refused", bucket.refused, stats.total);
    // At a refusal at most three other requests are in flight, on a busy machine for a long time. Requests near the end
    // of the second disobey.
    let disobedient = bucket.too_early.iter().filter(|early| **early < Duration::from_millis(200)).count();
    assert_eq!(disobedient, 0, "{:?}", bucket.too_early);
    // 150 requests beyond the burst at 20 per second take at least 7.5 s.
    assert!(started.elapsed() < Duration::from_secs(120), "{:?}", started.elapsed());
    let rate = source.learned_rate().requests_per_sec.expect("a refusal teaches a rate");
    assert!((1.0..30.0).contains(&rate), "{rate}/s learned of 20/s");
    assert!(account.parts().told_to_wait > 500, "{:?}", account.parts());
}
