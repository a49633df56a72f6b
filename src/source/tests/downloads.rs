//! Links that the service hands out: followed without the key, in parts, and never to where nobody should go.

use std::io::Write as _;

use flate2::{Compression, write::GzEncoder};

use super::*;

/// What came.
#[derive(Debug, Default)]
struct Sink {
    starts: Vec<DownloadStart>,
    bytes: Vec<u8>,
    refuses_requests: bool,
}

impl DownloadSink for Sink {
    type Error = &'static str;

    fn before_request(&mut self) -> Result<(), &'static str> {
        if self.refuses_requests { Err("the host is closed") } else { Ok(()) }
    }

    fn start(&mut self, start: &DownloadStart) -> Result<(), &'static str> {
        self.bytes.truncate(usize::try_from(start.offset).unwrap());
        self.starts.push(start.clone());
        Ok(())
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), &'static str> {
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }
}

async fn download(
    server: &Server,
    link: &str,
    sink: &mut Sink,
    validator: Option<&str>,
) -> DownloadOutcome<&'static str> {
    let from = validator.map(|validator| PartialDownload { bytes: sink.bytes.len() as u64, validator });
    let link = if link.starts_with('/') { format!("{}{link}", server.address) } else { link.to_owned() };
    server.source().download(DownloadRequest { link: &link, partial: from }, sink).await
}

/// The link to the same server under another name: another host.
fn elsewhere(server: &Server, path: &str) -> String {
    format!("{}{path}", server.address.replace("127.0.0.1", "localhost"))
}

#[tokio::test]
async fn p11_a_link_is_followed_without_the_key_also_through_redirects() {
    let server = Server::start(|_, target| match target {
        "/a" => Reply::Whole(answer(302, &["location: /b"], "")),
        "/b" => Reply::Whole(answer(307, &["location: /c?sig=1"], "")),
        _ => Reply::Whole(answer(200, &["content-type: video/mp4", "etag: \"1\""], "abc")),
    })
    .await;
    for link in ["/a".to_owned(), elsewhere(&server, "/a")] {
        let mut sink = Sink::default();
        let downloaded = download(&server, &link, &mut sink, None).await;
        let DownloadOutcome::Complete(start) = downloaded else { panic!("{downloaded:?}") };
        assert_eq!((sink.bytes.as_slice(), start.media_type.as_deref()), (&b"abc"[..], Some("video/mp4")));
        assert_eq!((start.length, start.validator.as_deref(), start.offset), (Some(3), Some("\"1\""), 0));
    }
    assert_eq!(server.targets().len(), 6);
    for seen in server.seen() {
        let head = seen.head.to_lowercase();
        assert!(!head.contains(KEY) && !head.contains("authorization") && !head.contains("referer"), "{head}");
        assert!(head.contains("accept-encoding: identity"), "{head}");
    }
}

#[tokio::test]
async fn p5_the_sink_can_stop_a_download_before_its_request() {
    let server = Server::start(|_, _| Reply::Whole(answer(200, &["content-type: video/mp4"], "abc"))).await;
    let mut sink = Sink { refuses_requests: true, ..Sink::default() };
    let downloaded = download(&server, "/a", &mut sink, None).await;
    assert!(matches!(downloaded, DownloadOutcome::Declined("the host is closed")), "{downloaded:?}");
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn a_link_to_a_forbidden_address_is_not_followed() {
    let server = Server::start(|_, target| match target {
        "/file" => Reply::Whole(answer(302, &["location: file:///etc/passwd"], "")),
        "/plain" => Reply::Whole(answer(302, &["location: http://media.example/x"], "")),
        "/nowhere" => Reply::Whole(answer(302, &[], "")),
        _ => Reply::Whole(answer(302, &["location: /for-ever"], "")),
    })
    .await;
    for link in ["/file", "/plain", "/nowhere", "/for-ever", "http://media.example/x", "file:///etc/passwd", "x", ""] {
        let downloaded = download(&server, link, &mut Sink::default(), None).await;
        assert!(matches!(downloaded, DownloadOutcome::BadLink(_)), "{link}: {downloaded:?}");
    }
}

#[tokio::test]
async fn p2_a_partial_file_is_resumed_only_if_the_range_fits() {
    let part = |range: &'static str, body: &'static str| {
        Server::start(move |_, _| Reply::Whole(answer(206, &[range, "etag: \"1\""], body)))
    };
    let partial = || Sink { bytes: b"ab".to_vec(), ..Sink::default() };
    let server = part("content-range: bytes 2-3/4", "cd").await;
    let mut sink = partial();
    assert!(matches!(download(&server, "/x", &mut sink, Some("\"1\"")).await, DownloadOutcome::Complete(_)));
    assert_eq!(sink.bytes, b"abcd");
    let head = server.seen()[0].head.to_lowercase();
    assert!(head.contains("range: bytes=2-") && head.contains("if-range: \"1\""), "{head}");
    // Another range than was requested, no range, and a range without a request for one.
    for (range, body) in [
        ("content-range: bytes 1-3/4", "bcd"),
        ("content-range: bytes 2-3/*", "cd"),
        ("content-range: bytes 2-2/4", "c"),
        ("x-range: none", "cd"),
    ] {
        let mut sink = partial();
        let downloaded = download(&part(range, body).await, "/x", &mut sink, Some("\"1\"")).await;
        assert!(
            matches!(downloaded, DownloadOutcome::UnusablePart(_)) && sink.bytes == b"ab",
            "{range}: {downloaded:?}"
        );
    }
    let unasked = download(&part("content-range: bytes 0-1/4", "ab").await, "/x", &mut Sink::default(), None).await;
    assert!(matches!(unasked, DownloadOutcome::UnusablePart(_)), "{unasked:?}");
    // A host that sends a part of another version all the same, and one that packs.
    let other = part("content-range: bytes 2-3/4", "cd").await;
    let downloaded = download(&other, "/x", &mut partial(), Some("\"0\"")).await;
    assert!(matches!(downloaded, DownloadOutcome::UnusablePart(_)), "{downloaded:?}");
    let packed = Server::start(|_, _| Reply::Whole(answer(200, &["content-encoding: br"], "abc"))).await;
    let downloaded = download(&packed, "/x", &mut Sink::default(), None).await;
    assert!(matches!(downloaded, DownloadOutcome::Failed(Failure::UnknownEncoding { .. })), "{downloaded:?}");
    // Another version: the whole of it.
    let server = Server::start(|_, _| Reply::Whole(answer(200, &["etag: \"2\""], "xyz"))).await;
    let mut sink = partial();
    assert!(matches!(download(&server, "/x", &mut sink, Some("\"1\"")).await, DownloadOutcome::Complete(_)));
    assert_eq!(sink.bytes, b"xyz");
}

#[tokio::test]
async fn p1_a_compressed_file_is_unpacked() {
    let content: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&content).unwrap();
    let packed = encoder.finish().unwrap();
    let reply = |bytes: &[u8]| {
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\netag: \"1\"\r\ncontent-length: {}\r\n\r\n",
            bytes.len()
        );
        [head.as_bytes(), bytes].concat()
    };
    let whole = reply(&packed);
    let server = Server::start(move |_, _| Reply::Whole(whole.clone())).await;
    let mut sink = Sink { bytes: b"ab".to_vec(), ..Sink::default() };
    let downloaded = download(&server, "/x", &mut sink, Some("\"1\"")).await;
    let DownloadOutcome::Complete(start) = downloaded else { panic!("{downloaded:?}") };
    assert!(sink.bytes == content && start.validator.is_none() && start.length.is_none(), "{start:?}");
    // A stream that ends early is not complete, and neither is one with a wrong checksum.
    let mut spoiled = packed.clone();
    *spoiled.iter_mut().nth_back(6).unwrap() ^= 1;
    for bytes in [&packed[..packed.len() / 2], &packed[..packed.len() - 1], &spoiled] {
        let bytes = reply(bytes);
        let server = Server::start(move |_, _| Reply::Whole(bytes.clone())).await;
        let downloaded = download(&server, "/x", &mut Sink::default(), None).await;
        assert!(matches!(downloaded, DownloadOutcome::Failed(Failure::Cut { .. })), "{downloaded:?}");
    }
}

#[tokio::test]
async fn p1_a_truncated_or_stalled_download_is_not_complete() {
    let cut = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc".to_vec();
    let chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n".to_vec();
    for bytes in [cut.clone(), chunked] {
        let sent = bytes.clone();
        let server = Server::start(move |_, _| Reply::Cut(sent.clone())).await;
        let mut sink = Sink::default();
        let downloaded = download(&server, "/x", &mut sink, None).await;
        assert!(matches!(downloaded, DownloadOutcome::Failed(Failure::Cut { .. })), "{downloaded:?}");
        assert_eq!(sink.bytes, b"abc");
    }
    let server = Server::start(move |_, _| Reply::Hang(cut.clone())).await;
    let downloaded = download(&server, "/x", &mut Sink::default(), None).await;
    assert!(matches!(downloaded, DownloadOutcome::Failed(Failure::Hung { .. })), "{downloaded:?}");
}

#[tokio::test]
async fn answers_of_a_host_are_classified() {
    for (status, wanted) in
        [(403, "Refused(403)"), (404, "Refused(404)"), (429, "RateLimited"), (503, "RateLimited"), (500, "Failed")]
    {
        let server = Server::start(move |_, _| Reply::Whole(answer(status, &["retry-after: 3600"], ""))).await;
        let downloaded = download(&server, &elsewhere(&server, "/x"), &mut Sink::default(), None).await;
        assert!(format!("{downloaded:?}").starts_with(wanted), "{status}: {downloaded:?}");
    }
}

#[tokio::test]
async fn p5_only_the_services_rate_limit_closes_the_gate() {
    for is_of_service in [false, true] {
        let server = Server::start(|_, _| Reply::Whole(answer(429, &["retry-after: 3600"], ""))).await;
        let source = server.source();
        let link = if is_of_service { format!("{}/x", server.address) } else { elsewhere(&server, "/x") };
        let request = DownloadRequest { link: &link, partial: None };
        let downloaded = source.download(request, &mut Sink::default()).await;
        assert!(matches!(downloaded, DownloadOutcome::RateLimited), "{downloaded:?}");
        assert_eq!(source.retry_after_until_ms().is_some(), is_of_service);
        // Every request counts, wherever it goes.
        assert_eq!(source.request_stats().total, 1);
    }
}
