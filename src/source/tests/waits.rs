//! Refusals, deadlines and cancellations, over a real connection and in real time.

use super::*;

/// Longer than a busy machine takes, and shorter than any wait that must not be begun. The tests of the gate, whose
/// clock is simulated, check the exact moments.
const LONG: Duration = Duration::from_secs(60);

fn refusal(retry_after: &str) -> Reply {
    Reply::Whole(answer(429, &[&format!("retry-after: {retry_after}"), "date: Sun, 06 Nov 1994 08:49:37 GMT"], ""))
}

#[tokio::test]
async fn p5_no_request_before_the_end_of_retry_after_in_any_form() {
    // The date is 1 s after the answer's own, and decades before this machine's clock.
    for header in ["1", "1.0", "Sun, 06 Nov 1994 08:49:38 GMT", "Sun Nov  6 08:49:38 1994"] {
        let server = Server::start(move |number, _| if number == 0 { refusal(header) } else { page(1, None) }).await;
        let account = TimeAccount::default();
        let source = Source::new(server.settings(), None, account.clone(), CancellationToken::new()).unwrap();
        assert_eq!(follow(&mut source.walk(themes())).await.unwrap(), ["1", "Null"]);
        let [refused, admitted] = &server.seen()[..] else { panic!("two requests") };
        let waited = admitted.at - refused.at;
        assert!((Duration::from_secs(1)..LONG).contains(&waited), "{header}: {waited:?}");
        let parts = account.parts();
        assert!((990..LONG.as_millis()).contains(&parts.told_to_wait.into()), "{header}: {parts:?}");
    }
}

#[tokio::test]
async fn p5_an_unusable_retry_after_leads_to_backoff() {
    for header in ["0", "-1", "soon", "Sun, 06 Nov 1994 08:49:36 GMT"] {
        let server = Server::start(move |number, _| if number == 0 { refusal(header) } else { page(1, None) }).await;
        let mut settings = server.settings();
        settings.backoff = Backoff::default();
        follow(&mut source(settings).walk(themes())).await.unwrap();
        let seen = server.seen();
        assert!(seen[1].at - seen[0].at >= backoff::FLOOR, "{header}");
    }
}

#[tokio::test]
async fn p5_a_429_counts_as_no_attempt() {
    let server = Server::start(|number, _| if number < 30 { refusal("0") } else { page(1, None) }).await;
    let source = server.source();
    assert_eq!(follow(&mut source.walk(themes())).await.unwrap(), ["1", "Null"]);
    assert_eq!(source.request_stats().by_status[&429], 30);
}

#[tokio::test]
async fn p5_a_429_blocks_all_workers_until_one_probe_succeeds() {
    let server = Server::start(|number, _| if number == 0 { refusal("1") } else { page(1, None) }).await;
    let source = server.source();
    let walks = (0..8).map(|at| {
        let source = source.clone();
        async move {
            // The first is refused before the others come.
            tokio::time::sleep(Duration::from_millis(if at == 0 { 0 } else { 200 })).await;
            follow(&mut source.walk(themes())).await.unwrap()
        }
    });
    assert_eq!(futures::future::join_all(walks).await.len(), 8);
    let seen = server.seen();
    assert_eq!(seen.len(), 9);
    assert!(seen[1..].iter().all(|later| later.at - seen[0].at >= Duration::from_secs(1)));
}

#[tokio::test]
async fn p5_a_503_closes_the_gate_only_with_retry_after() {
    for (headers, waits) in [(&["retry-after: 1"][..], true), (&[], false)] {
        let refusal = answer(503, headers, "");
        let reply = move |number, _: &_| if number == 0 { Reply::Whole(refusal.clone()) } else { page(1, None) };
        let server = Server::start(reply).await;
        let account = TimeAccount::default();
        let source = Source::new(server.settings(), None, account.clone(), CancellationToken::new()).unwrap();
        follow(&mut source.walk(themes())).await.unwrap();
        let parts = account.parts();
        // The second counts from the answer, and a busy machine begins to wait a little later.
        assert_eq!(parts.told_to_wait + parts.network >= 1000, waits, "{headers:?}: {parts:?}");
        assert_eq!(parts.told_to_wait > 0, waits, "{headers:?}: {parts:?}");
        assert_eq!(source.learned_rate(), LearnedRate::default(), "a closed service has taught no rate");
    }
}

#[tokio::test]
async fn p5_a_wait_past_patience_or_deadline_ends_the_run() {
    for header in ["3601", "86400", "99999999999999999999"] {
        let server = Server::start(move |_, _| refusal(header)).await;
        let started = Instant::now();
        let error = walk_error(&server.source(), themes()).await;
        assert!(matches!(error, SourceError::Stopped(Stop::Patience { is_retry_after: true, .. })), "{error}");
        assert!(started.elapsed() < LONG);
        assert_eq!(server.seen().len(), 1, "it is not asked again");
    }
    let server = Server::start(|_, _| refusal("600")).await;
    let mut settings = server.settings();
    settings.deadline = Some(Instant::now() + Duration::from_secs(300));
    let error = walk_error(&source(settings), themes()).await;
    assert!(matches!(error, SourceError::Stopped(Stop::Deadline { .. })), "{error}");
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn p5_the_request_budget_ends_the_run() {
    let server = Server::start(|number, _| page(1, Some(&format!("page {number}")))).await;
    let mut settings = server.settings();
    settings.requests_max = Some(3);
    let error = walk_error(&source(settings), themes()).await;
    assert!(matches!(error, SourceError::Stopped(Stop::Budget { requests: 3 })), "{error}");
    assert_eq!(server.seen().len(), 3);
}

#[tokio::test]
async fn p5_a_cancellation_ends_a_request_and_a_wait_at_once() {
    for hangs in [true, false] {
        let server = Server::start(move |_, _| if hangs { Reply::Hang(Vec::new()) } else { refusal("600") }).await;
        let stop = CancellationToken::new();
        let settings = SourceSettings { timeout: 10 * LONG, idle_timeout: 10 * LONG, ..server.settings() };
        let source = Source::new(settings, None, TimeAccount::default(), stop.clone()).unwrap();
        let cancelling = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            if !hangs {
                let waiting = source.current_wait().expect("the gate is closed");
                assert_eq!(waiting.reason, WaitReason::RateLimited);
            }
            stop.cancel();
            Instant::now()
        };
        let walking = async { (walk_error(&source, themes()).await, Instant::now()) };
        let (cancelled_at, (error, ended_at)) = tokio::join!(cancelling, walking);
        assert!(matches!(error, SourceError::Stopped(Stop::Cancelled)), "{error}");
        assert!(ended_at.saturating_duration_since(cancelled_at) < LONG);
        assert_eq!(source.request_stats().total, 1, "a cancelled request is counted too");
    }
}

#[tokio::test]
async fn p5_a_rate_learned_in_one_run_paces_the_next() {
    let server = Server::start(|number, _| page(1, (number < 5).then_some(&format!("page {number}")))).await;
    let learned = LearnedRate { requests_per_sec: Some(10.0), measured_ms: crate::clock::now_ms() };
    let account = TimeAccount::default();
    let source = Source::new(server.settings(), Some(learned), account.clone(), CancellationToken::new()).unwrap();
    let started = Instant::now();
    follow(&mut source.walk(themes())).await.unwrap();
    assert!(started.elapsed() >= Duration::from_millis(440), "{:?}", started.elapsed());
    assert!(account.parts().chose_to_wait >= 300, "{:?}", account.parts());
    let kept: LearnedRate = serde_json::from_str(&serde_json::to_string(&source.learned_rate()).unwrap()).unwrap();
    assert!(kept.requests_per_sec.is_some_and(|rate| (9.5..11.0).contains(&rate)), "{kept:?}");
    let old = LearnedRate { measured_ms: crate::clock::now_ms() - 31 * 24 * 3_600_000, ..learned };
    assert_eq!(old.valid(crate::clock::now_ms()), None);
}
