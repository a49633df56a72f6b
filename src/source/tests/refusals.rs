//! What a 403 or a 404 proves: by itself neither that the key is bad nor that there is nothing.

use super::*;

const BLOCKED: &str = "<html><h1>Request blocked</h1></html>";

fn is_probe(target: &str) -> bool {
    !target.contains("start=")
}

fn is_nonsense(target: &str) -> bool {
    parameter(target, "start").as_deref() == Some("none")
}

fn web_page(status: u16, body: &str) -> Reply {
    Reply::Whole(answer(status, &["content-type: text/html"], body))
}

#[tokio::test]
async fn p3_a_404_is_an_empty_result_where_the_list_has_answered() {
    let server = Server::start(|_, target| match is_probe(target) {
        true => page(1, None),
        false => json(404, r#"{"error":"nothing matches this query"}"#),
    })
    .await;
    let source = server.source();
    for _ in 0..3 {
        assert_eq!(follow(&mut source.walk(responses())).await.unwrap(), ["NotFound"]);
    }
    assert_eq!(server.seen().len(), 4, "the list is asked once whether it is there");
}

#[tokio::test]
async fn p3_a_404_from_every_list_is_no_empty_result() {
    let server = Server::start(|_, _| json(404, r#"{"error":"not found"}"#)).await;
    let source = server.source();
    assert!(matches!(source.probe().await, Err(SourceError::NotFound { .. })));
    for request in [responses(), themes()] {
        let error = walk_error(&source, request).await;
        assert!(matches!(&error, SourceError::NotFound { url } if url.contains("/v1/")), "{error}");
    }
    assert!(matches!(source.try_list(Stream::Themes).await, Err(SourceError::NotFound { .. })));
}

#[tokio::test]
async fn p3_a_404_from_one_list_is_empty_unless_it_had_rows() {
    let server = Server::start(|_, target| match target.starts_with("/v1/themes") {
        true => json(404, ""),
        false => page(1, None),
    })
    .await;
    let with_rows = |with_rows: &[Stream]| {
        let known_lists = KnownLists { with_rows: with_rows.to_vec(), ..KnownLists::default() };
        source(SourceSettings { known_lists, ..server.settings() })
    };
    let source = with_rows(&[Stream::Responses]);
    source.probe().await.unwrap();
    assert_eq!(follow(&mut source.walk(responses())).await.unwrap(), ["1", "Null"]);
    assert_eq!(follow(&mut source.walk(themes())).await.unwrap(), ["NotFound"]);
    assert!(source.is_taken_as_empty(Stream::Themes) && !source.is_taken_as_empty(Stream::Responses));
    let source = with_rows(&[Stream::Themes]);
    let error = walk_error(&source, themes()).await;
    assert!(matches!(&error, SourceError::ListGone { url } if url.contains("/v1/themes")), "{error}");
    assert!(!source.is_taken_as_empty(Stream::Themes));
    // One request without a range settles it, and one that is invalid.
    assert_eq!(server.targets().iter().filter(|target| target.starts_with("/v1/themes")).count(), 6);
    // No other list answers, and none refuses an invalid request: the address may be wrong.
    let nothing = Server::start(|_, _| json(404, "")).await;
    let error = walk_error(&nothing.source(), themes()).await;
    assert!(matches!(error, SourceError::NotFound { .. }), "{error}");
}

#[tokio::test]
async fn p3_an_empty_list_exists_if_it_refuses_an_invalid_request() {
    let server = Server::start(|_, target| match target.starts_with("/v1/themes") {
        true if is_nonsense(target) => json(400, r#"{"error":"start must be an integer"}"#),
        true => json(404, ""),
        false => page(1, None),
    })
    .await;
    let source = server.source();
    assert_eq!(follow(&mut source.walk(themes())).await.unwrap(), ["NotFound"]);
    source.try_list(Stream::Themes).await.unwrap();
}

#[tokio::test]
async fn p3_a_web_page_with_404_proves_nothing() {
    let server = Server::start(|_, _| web_page(404, "<h1>no such site")).await;
    let error = walk_error(&server.source(), responses()).await;
    assert!(matches!(error, SourceError::Refused { status: 404, .. }), "{error}");
    assert!(server.source().probe().await.is_err());
}

#[tokio::test]
async fn p11_a_refused_key_is_named_and_not_shown() {
    for status in [401, 403] {
        let server = Server::start(move |_, _| json(status, &format!(r#"{{"error":"bad key {KEY}"}}"#))).await;
        let error = walk_error(&server.source(), themes()).await;
        assert!(matches!(error, SourceError::KeyRefused { .. }), "{error}");
        let text = format!("{error} {error:?}");
        assert!(text.contains("variable TEST_KEY") && !text.contains(KEY), "{text}");
        assert_eq!(server.seen().len(), 4, "the request, and each list");
    }
}

#[tokio::test]
async fn a_single_403_is_retried() {
    for status in [401, 403, 421, 423, 499] {
        let server = Server::start(move |number, _| if number == 0 { json(status, "") } else { page(1, None) }).await;
        assert_eq!(follow(&mut server.source().walk(responses())).await.unwrap(), ["1", "Null"], "{status}");
        let server = Server::start(move |number, _| if number == 0 { json(status, "") } else { page(1, None) }).await;
        server.source().probe().await.unwrap();
    }
}

#[tokio::test]
async fn a_403_for_one_request_does_not_blame_the_key() {
    for (reply, words) in [(json as fn(u16, &str) -> Reply, ""), (web_page, BLOCKED)] {
        let server = Server::start(move |_, target| match is_probe(target) {
            true => page(1, None),
            false => reply(403, words),
        })
        .await;
        let error = walk_error(&server.source(), responses()).await;
        assert!(
            matches!(&error, SourceError::Forbidden { url, .. } if url.contains("/v1/responses?start=")),
            "{error}"
        );
        assert_eq!(error.to_string().contains("proxy or firewall"), !words.is_empty(), "{error}");
        assert_eq!(server.seen().len(), 3, "the request twice, and the key");
    }
}

#[tokio::test]
async fn a_list_that_is_forbidden_alone_does_not_hide_the_others() {
    for list in ["/v1/surveys", "/v1/responses"] {
        let server = Server::start(move |_, target| match target.starts_with(list) {
            true => json(403, ""),
            false => page(1, None),
        })
        .await;
        let source = server.source();
        source.probe().await.unwrap();
        assert_eq!(follow(&mut source.walk(themes())).await.unwrap(), ["1", "Null"], "{list}");
    }
}

#[tokio::test]
async fn a_firewall_before_everything_is_not_the_key() {
    let server = Server::start(|_, _| web_page(403, BLOCKED)).await;
    let error = server.source().probe().await.unwrap_err();
    assert!(matches!(error, SourceError::Blocked { status: 403, .. }), "{error}");
    assert!(error.to_string().contains("proxy or firewall"), "{error}");
}

#[tokio::test]
async fn p6_a_403_on_a_token_is_an_expired_token_if_the_key_is_valid() {
    for status in [401, 403] {
        let server = Server::start(move |number, target| match (number, token_of(target)) {
            (1, _) => json(status, ""),
            _ if target.starts_with("/v1/surveys") => page(0, None),
            (_, None) => page(2, Some("page 1")),
            _ => page(2, None),
        })
        .await;
        let steps = follow(&mut server.source().walk(responses())).await.unwrap();
        assert_eq!(steps, ["2", "R", "2", "2", "Null"]);
        assert_eq!(server.targets()[2], "/v1/surveys?limit=1", "the key was tried without a page token");
    }
}

#[tokio::test]
async fn a_403_on_a_token_blames_the_key_if_the_key_is_invalid() {
    let server = Server::start(|number, _| if number == 0 { page(2, Some("page 1")) } else { json(403, "") }).await;
    let error = walk_error(&server.source(), responses()).await;
    assert!(matches!(error, SourceError::KeyRefused { status: 403, .. }), "{error}");
    assert_eq!(server.seen().len(), 2 + 3);
}

#[tokio::test]
async fn a_413_is_retried_with_a_smaller_page() {
    let server = Server::start(|_, target| match parameter(target, "limit").unwrap().parse::<u32>().unwrap() {
        0..=300 => page(1, None),
        _ => json(413, "too large"),
    })
    .await;
    assert_eq!(follow(&mut server.source().walk(responses())).await.unwrap(), ["1", "Null"]);
    assert_eq!(server.seen().len(), 3);
}

#[tokio::test]
async fn a_403_for_a_user_is_retried_and_its_error_names_nobody() {
    let server = Server::start(|number, target| match (number, target) {
        (0, "/v2/users/once") => json(403, ""),
        (_, "/v2/users/never") => web_page(403, "no /v2/users/never here"),
        _ => page(1, None),
    })
    .await;
    let source = server.source();
    assert!(matches!(source.user("once").await, Ok(UserAnswer::Found { .. })));
    let error = source.user("never").await.unwrap_err();
    assert!(matches!(error, SourceError::Forbidden { status: 403, .. }), "{error}");
    assert!(!error.to_string().contains("never"), "the error names the user (P9): {error}");
}

#[tokio::test]
async fn a_404_to_a_purge_is_checked_against_the_lists() {
    for is_service in [true, false] {
        let server = Server::start(move |_, target| match is_service && target.starts_with("/v1/") {
            true => page(1, None),
            false => json(404, ""),
        })
        .await;
        let request = PurgeRequest { user_ids: vec!["u".into()], ..PurgeRequest::default() };
        let purged = server.source().purge(&request).await;
        assert_eq!(matches!(purged, Ok(PurgeAnswer::Refused { status: 404, .. })), is_service, "{purged:?}");
        assert_eq!(matches!(purged, Err(SourceError::NotFound { .. })), !is_service, "{purged:?}");
    }
}
