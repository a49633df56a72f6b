//! One answer at a time: what is taken, what is asked for again, and what is said of the rest.

use std::io::Write;

use flate2::{Compression, write::GzEncoder};

use super::*;

/// Answers every request in the same way and returns the error of a walk, and how many requests it took.
async fn error_of(reply: impl Fn() -> Reply + Send + Sync + 'static) -> (SourceError, usize) {
    let server = Server::start(move |_, _| reply()).await;
    let error = walk_error(&server.source(), themes()).await;
    (error, server.seen().len())
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn a_request_names_the_program_and_its_encodings() {
    let server = Server::start(|_, _| page(0, None)).await;
    let mut settings = server.settings();
    settings.user_agent = "studysync/test".into();
    follow(&mut source(settings.clone()).walk(responses())).await.unwrap();
    settings.auth = AuthForm::ApiKey;
    source(settings).probe().await.unwrap();
    let [walked, probed] = &server.seen()[..] else { panic!("two requests") };
    assert!(walked.head.starts_with("GET /v1/responses?start=999&end=2000&limit=1000 HTTP/1.1\r\n"), "{}", walked.head);
    for line in ["authorization: Bearer s3cr3t-s3cr3t", "accept-encoding: gzip", "user-agent: studysync/test"] {
        assert!(walked.head.contains(&format!("{line}\r\n")), "{line} in {}", walked.head);
    }
    assert!(probed.head.starts_with("GET /v1/surveys?limit=1 HTTP/1.1\r\n"), "{}", probed.head);
    assert!(probed.head.contains("authorization: API-Key s3cr3t-s3cr3t\r\n"), "{}", probed.head);
}

#[tokio::test]
async fn a_compressed_page_is_decompressed() {
    let body = r#"{"cursor":null,"data":[{"a":"é"}]}"#;
    let halves = [&body.as_bytes()[..20], &body.as_bytes()[20..]];
    let members = [gzip(halves[0]), gzip(b""), gzip(halves[1])].concat();
    let cases: [(&'static [&'static str], Vec<u8>); 6] = [
        (&["content-encoding: gzip"], gzip(body.as_bytes())),
        (&["content-encoding: GZIP"], gzip(body.as_bytes())),
        (&["content-encoding: x-gzip"], members.clone()),
        (&["content-encoding: identity", "content-encoding: gzip"], members),
        (&["content-encoding: identity"], body.into()),
        (&["content-encoding:"], body.into()),
    ];
    for (headers, packed) in cases {
        let server = Server::start(move |_, _| Reply::Whole(answer(200, headers, &packed))).await;
        let source = server.source();
        let WalkStep::Page(page) = source.walk(responses()).next().await.unwrap() else { panic!("a page") };
        assert_eq!(page.body, body.as_bytes(), "{headers:?}");
        assert_eq!(source.request_stats().bytes, body.len() as u64);
    }
}

#[tokio::test]
async fn an_unsupported_encoding_is_an_error_without_a_retry() {
    for (sent, named) in [("br", "'br'"), ("deflate", "'deflate'"), ("gzip, gzip", "'gzip, gzip'"), (KEY, "'[key]'")] {
        let header = format!("content-encoding: {sent}");
        let (error, requests) = error_of(move || Reply::Whole(answer(200, &[&header], "\x0b"))).await;
        assert!(matches!(error, SourceError::BadAnswer { attempts: 1, .. }), "{error}");
        assert!(error.to_string().contains(named), "{error}");
        assert_eq!(requests, 1, "{sent}");
    }
}

#[tokio::test]
async fn a_truncated_gzip_stream_is_an_error() {
    let whole = gzip(br#"{"cursor":null,"data":[{}]}"#);
    let mut trailed = whole.clone();
    trailed.extend_from_slice(&gzip(b"more")[..8]);
    for packed in [whole[..whole.len() - 1].to_vec(), trailed, b"{}".to_vec()] {
        let (error, _) = error_of(move || Reply::Whole(answer(200, &["content-encoding: gzip"], &packed))).await;
        assert!(error.to_string().contains("gzip stream is incomplete"), "{error}");
    }
}

#[tokio::test]
async fn p8_decompression_stops_at_the_body_limit() {
    let bomb = gzip(&vec![b' '; 64 << 20]);
    assert!(bomb.len() < 100_000, "small on the wire");
    let server = Server::start(move |_, _| Reply::Whole(answer(200, &["content-encoding: gzip"], &bomb))).await;
    let mut settings = server.settings();
    settings.body_bytes_max = 1 << 20;
    let source = source(settings);
    let error = walk_error(&source, themes()).await;
    assert!(
        matches!(&error, SourceError::TooLarge { last: Failure::BodyTooLarge { limit_bytes: 1_048_576 }, .. }),
        "{error}"
    );
    assert_eq!(server.seen().len(), 1, "themes have no smaller page, and the same page stays as large");
    assert!(source.request_stats().bytes < 2 << 20, "{:?}", source.request_stats());
}

#[tokio::test]
async fn p8_a_body_with_a_too_large_length_is_not_read() {
    let server =
        Server::start(|_, _| Reply::Hang(b"HTTP/1.1 200 X\r\ncontent-length: 99999999999\r\n\r\n".into())).await;
    let error = walk_error(&server.source(), themes()).await;
    assert!(matches!(error, SourceError::TooLarge { .. }), "{error}");
}

#[tokio::test]
async fn a_truncated_body_is_retried() {
    let whole = r#"{"cursor":null,"data":[{}]}"#;
    let server = Server::start(move |number, _| match number {
        0 => Reply::Cut(answer(200, &[], whole)[..60].into()),
        1 => Reply::Cut(format!("HTTP/1.1 200 X\r\n\r\n{}", &whole[..20]).into()),
        2 => {
            let packed = gzip(whole.as_bytes());
            Reply::Whole(answer(200, &["content-encoding: gzip"], &packed[..packed.len() - 9]))
        }
        3 => Reply::Cut(b"HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\n10\r\n{\"cursor\"".into()),
        _ => page(1, None),
    })
    .await;
    let source = server.source();
    assert_eq!(follow(&mut source.walk(themes())).await.unwrap(), ["1", "Null"]);
    assert_eq!(server.seen().len(), 5);
}

#[tokio::test]
async fn a_stalled_body_is_retried() {
    let server = Server::start(|number, _| match number {
        0 => Reply::Hang(answer(200, &[], r#"{"cursor":null,"data":[{}]}"#)[..60].into()),
        _ => page(1, None),
    })
    .await;
    assert_eq!(follow(&mut server.source().walk(themes())).await.unwrap(), ["1", "Null"]);
}

#[tokio::test]
async fn a_silent_service_times_out() {
    let server = Server::start(|number, _| match number {
        0..6 => Reply::Hang(Vec::new()),
        _ => page(0, None),
    })
    .await;
    let mut settings = server.settings();
    settings.timeout = Duration::from_millis(100);
    let error = walk_error(&source(settings), themes()).await;
    // It answers a small question, so the page is to blame.
    assert!(matches!(&error, SourceError::TooLarge { last: Failure::TimedOut { after_ms: 100 }, .. }), "{error}");
    assert_eq!(server.seen().len(), 7, "six attempts and the small question");
}

#[tokio::test]
async fn a_service_that_is_down_is_unreachable_and_not_too_large() {
    let (error, requests) = error_of(|| json(500, r#"{"error":"oops"}"#)).await;
    let status = Failure::Status { status: 500, message: "oops".into() };
    assert!(matches!(&error, SourceError::Unreachable { attempts: 6, last, .. } if *last == status), "{error}");
    assert_eq!(requests, 10, "six attempts for the page, two for each of two small questions");
}

#[tokio::test]
async fn a_closed_port_is_unreachable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let server = Server { address, seen: Arc::default() };
    let source = server.source();
    let error = source.probe().await.unwrap_err();
    assert!(matches!(&error, SourceError::Unreachable { attempts: 6, last: Failure::Connect { .. }, .. }), "{error}");
    assert_eq!(source.request_stats().by_status[&0], 6);
}

#[tokio::test]
async fn p3_a_200_without_a_page_is_an_error_with_an_excerpt() {
    let bodies: [(&str, &str, &[u8]); 6] = [
        ("a web page instead of JSON", "text/html", b"<html>Sign in\x1b</html>"),
        ("the body is not UTF-8", "application/json", b"{\"data\":[\"\xff\"]}"),
        ("has no 'data'", "application/json", br#"{"cursor":null,"items":[]}"#),
        ("'data' is not a list", "application/json", br#"{"cursor":null,"data":{}}"#),
        ("neither null nor a text", "application/json", br#"{"cursor":{"at":1},"data":[]}"#),
        ("the body is not JSON", "", b""),
    ];
    for (problem, kind, body) in bodies {
        let content_type = format!("content-type: {kind}");
        let (error, requests) = error_of(move || Reply::Whole(answer(200, &[&content_type], body))).await;
        assert!(matches!(error, SourceError::BadAnswer { attempts: 6, .. }), "{error}");
        // What may be a matter of one record is followed by the small questions.
        assert_eq!(requests, if problem.starts_with("a web page") { 6 } else { 10 }, "{problem}");
        let text = error.to_string();
        assert!(text.contains(problem) && text.contains(kind) && !text.contains('\x1b'), "{text}");
    }
}

#[tokio::test]
async fn p8_too_many_headers_are_an_error() {
    let (error, _) = error_of(|| {
        let lines: Vec<String> = (0..5_000).map(|at| format!("x-{at}: {}", "y".repeat(100))).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        Reply::Cut(answer(200, &lines, r#"{"cursor":null,"data":[]}"#))
    })
    .await;
    assert!(matches!(error, SourceError::BadAnswer { last: Failure::Cut { .. }, .. }), "{error}");
}

#[tokio::test]
async fn every_form_of_a_400_is_shown_and_not_retried() {
    let forms =
        [(r#"{"error":"bad limit"}"#, "bad limit"), (r#"["one","two"]"#, "one; two"), ("bare text", "bare text")];
    for (body, said) in forms {
        let (error, requests) = error_of(move || Reply::Whole(answer(400, &[], body))).await;
        assert!(matches!(&error, SourceError::Refused { status: 400, message, .. } if message == said), "{error}");
        assert_eq!(requests, 1);
    }
}

#[tokio::test]
async fn p11_an_echoed_key_and_the_page_token_are_in_no_error() {
    let echo = || Reply::Whole(answer(200, &["content-type: text/plain"], format!("Bearer {KEY}")));
    let server = Server::start(move |_, _| echo()).await;
    let token = "c2VjcmV0IHBvc2l0aW9u";
    let request = PageRequest { token: Some(PageToken(token.into())), ..themes() };
    let source = server.source();
    let error = walk_error(&source, request).await;
    let text = format!("{error} {error:?} {source:?}");
    assert!(text.contains("[key]") && !text.contains(KEY) && !text.contains(token), "{text}");
}

/// What is logged, at the most talkative level of every crate involved.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn p11_logs_contain_no_key_page_token_or_body() {
    let log = Log::default();
    let listener = || {
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_ansi(false);
        tracing::Dispatch::new(subscriber.with_writer(move || writer.clone()).finish())
    };
    // With a single listener tracing asks the thread that comes by first, which may be another test's, whether anybody
    // listens, and remembers the answer for all.
    let (_second, first) = (listener(), listener());
    let _guard = tracing::dispatcher::set_default(&first);
    let server = Server::start(|number, _| match number {
        0 => json(200, r#"{"cursor":"c2VjcmV0IHBvc2l0aW9u","data":[{"response":"private"}]}"#),
        1 => json(429, ""),
        2 => json(410, "private"),
        3 => json(500, "private"),
        4 => json(200, r#"{"private":1}"#),
        _ => json(200, r#"{"cursor":null,"data":[{"response":"private"},{}]}"#),
    })
    .await;
    follow(&mut server.source().walk(responses())).await.unwrap();
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let ours: Vec<&str> = text.lines().filter(|line| line.contains(" studysync::source")).collect();
    for status in ["status=200", "status=429", "status=410", "status=500", "rows=2", "no_page"] {
        assert!(ours.iter().any(|line| line.contains(status)), "{status} in {ours:#?}");
    }
    assert!(ours.iter().any(|line| line.contains("backing off")), "{ours:#?}");
    assert!(!ours.iter().any(|line| line.contains("WARN") && line.contains("429")), "a line for each 429: {ours:#?}");
    for secret in [KEY, "c2VjcmV0"] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
    assert!(!text.contains("private"), "{ours:#?}");
}

#[tokio::test]
async fn p11_a_redirect_is_not_followed() {
    let elsewhere = Server::start(|_, _| page(1, None)).await;
    let location = format!("location: {}/v1/themes?key=1", elsewhere.address);
    let (error, requests) = error_of(move || Reply::Whole(answer(307, &[&location], ""))).await;
    assert!(
        matches!(&error, SourceError::Redirected { status: 307, location, .. } if location.ends_with("/v1/themes")),
        "{error}"
    );
    assert_eq!((requests, elsewhere.seen().len()), (1, 0));
}

#[tokio::test]
async fn p11_an_unusable_key_is_refused_before_anything_is_sent() {
    for (key, problem) in [("", "is empty"), (" ", "is empty"), ("a\nb", "characters"), ("a\0", "characters")] {
        let settings = SourceSettings::new("http://127.0.0.1:1", ApiKey::new(key, "file key.txt")).unwrap();
        let made = Source::new(settings, None, TimeAccount::default(), CancellationToken::new());
        let text = made.unwrap_err().to_string();
        assert!(text.contains(problem) && text.contains("file key.txt"), "{text}");
    }
}

#[tokio::test]
async fn a_client_for_https_can_be_built() {
    let settings = SourceSettings::new("https://127.0.0.1:1", ApiKey::new(KEY, "a test")).unwrap();
    let mut settings = SourceSettings { timeout: Duration::from_secs(2), ..settings };
    settings.backoff.floor = Duration::from_millis(1);
    settings.backoff.first = Duration::from_millis(1);
    settings.backoff.longest = Duration::from_millis(1);
    let error = source(settings).probe().await.unwrap_err();
    assert!(matches!(error, SourceError::Unreachable { .. }), "nobody listens there: {error}");
}

#[tokio::test]
async fn requests_are_counted_by_status() {
    let server = Server::start(|number, _| match number {
        0 => json(500, ""),
        1 => json(408, ""),
        2 => Reply::Cut(Vec::new()),
        3 => page(1, Some("next")),
        _ => json(404, ""),
    })
    .await;
    let source = server.source();
    let mut walk = source.walk(themes());
    assert!(matches!(walk.next().await, Ok(WalkStep::Page(_))));
    assert!(matches!(walk.next().await, Ok(WalkStep::UnprovenEnd)));
    let stats = source.request_stats();
    assert_eq!((stats.total, stats.by_status), (5, [(0, 1), (200, 1), (404, 1), (408, 1), (500, 1)].into()));
    assert_eq!(serde_json::to_value(source.request_stats()).unwrap()["by_status"]["404"], 1);
}

#[tokio::test]
async fn the_services_clock_comes_from_its_answers() {
    let server = Server::start(|number, _| {
        let date = ["date: Sun, 06 Nov 1994 08:49:37 GMT", "x: y"][number.min(1)];
        Reply::Whole(answer(200, &[date], r#"{"data":[],"cursor":""}"#))
    })
    .await;
    let source = server.source();
    assert_eq!(source.service_now_ms(), None);
    let probe = source.probe().await.unwrap();
    assert_eq!(probe.service_now_ms, Some(784_111_777_000));
    let WalkStep::Page(page) = source.walk(responses()).next().await.unwrap() else { panic!("a page") };
    assert_eq!(page.service_now_ms, None);
    let now_ms = source.service_now_ms().unwrap();
    assert!((784_111_777_000..784_111_787_000).contains(&now_ms), "{now_ms}");
}
