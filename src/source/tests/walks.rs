//! Windows, page by page: what is an end, what is a new start, and what goes on for ever.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::Duration,
};

use super::*;
use crate::model::EndStyle;

/// Pages `0..count` of two rows each, one token after the other.
fn numbered(target: &str, count: usize) -> Reply {
    let at: usize = token_of(target).map_or(0, |token| token.trim_start_matches("page ").parse().unwrap());
    let next = format!("page {}", at + 1);
    page(2, (at + 1 < count).then_some(next.as_str()))
}

#[tokio::test]
async fn p3_a_walk_ends_at_each_kind_of_end() {
    let kinds = [
        (r#"{"cursor":null,"data":[{}]}"#, "Null"),
        (r#"{"data":[{}]}"#, "Missing"),
        (r#"{"cursor":"","data":[{}]}"#, "EmptyText"),
    ];
    for (body, end) in kinds {
        let server = Server::start(move |_, _| json(200, body)).await;
        let mut walk = server.source().walk(responses());
        let WalkStep::Page(page) = walk.next().await.unwrap() else { panic!("a page") };
        assert_eq!((page.rows, page.next.clone(), format!("{:?}", page.end.unwrap())), (1, None, end.to_owned()));
        assert_eq!(follow(&mut walk).await.unwrap(), [end]);
        assert_eq!(follow(&mut walk).await.unwrap(), [end], "as often as asked");
        assert_eq!(server.seen().len(), 1, "the end is not asked for again");
    }
}

/// A list of so many rows whose tokens say how many went before, and whose last page has one too. Tokens are answered
/// with 404 at the end, and behind `dead_pages` pages.
fn ends_with_404(target: &str, rows: usize, dead_pages: usize) -> Reply {
    let limit: usize = parameter(target, "limit").map_or(4, |limit| limit.parse().unwrap());
    let at: usize = token_of(target).map_or(0, |token| token.parse().unwrap());
    if at > 0 && (at == rows || at >= dead_pages * limit) {
        return json(404, r#"{"error":"not found"}"#);
    }
    let count = limit.min(rows - at);
    page(count, Some(&(at + count).to_string()))
}

#[tokio::test]
async fn p3_a_404_at_the_last_token_is_the_end_when_two_walks_agree() {
    for (rows, limit, steps) in [
        (7, 1000, vec!["7", "?", "R", "7", "R", "6", "1", "NotFound"]),
        (7, 3, vec!["3", "3", "1", "?", "R", "3", "3", "1", "R", "2", "2", "2", "1", "NotFound"]),
        (6, 3, vec!["3", "3", "?", "R", "3", "3", "R", "4", "2", "NotFound"]),
        (2, 1000, vec!["2", "?", "R", "2", "R", "1", "1", "NotFound"]),
    ] {
        let server = Server::start(move |_, target| ends_with_404(target, rows, usize::MAX / 4096)).await;
        let request = PageRequest { page_rows: limit, ..responses() };
        assert_eq!(follow(&mut server.source().walk(request)).await.unwrap(), steps);
    }
}

#[tokio::test]
async fn p3_a_full_page_of_one_millisecond_is_enlarged() {
    // The service loses the rest of the millisecond after a page, so that every token is answered with 404.
    let loses_the_rest = |_, target: &str| {
        let limit: usize = parameter(target, "limit").map_or(4, |limit| limit.parse().unwrap());
        match token_of(target) {
            Some(_) => json(404, r#"{"error":"not found"}"#),
            None if limit < 25 => page(limit, Some("1")),
            None => page(25, None),
        }
    };
    let server = Server::start(loses_the_rest).await;
    let request = PageRequest { page_rows: 18, ..responses() };
    assert_eq!(
        follow(&mut server.source().walk(request)).await.unwrap(),
        ["18", "?", "R", "18", "R", "17", "R", "25", "Null"]
    );
}

#[tokio::test]
async fn p3_a_404_on_an_expired_token_is_not_the_end() {
    for (rows, limit, dead_pages) in [(100, 10, 3), (100, 10, 1), (1, 10, 9)] {
        let server = Server::start(move |_, target| ends_with_404(target, rows, dead_pages)).await;
        let error = walk_error(&server.source(), PageRequest { page_rows: limit, ..responses() }).await;
        assert!(matches!(error, SourceError::TokensDie { .. }), "{error}");
    }
    let server = Server::start(|_, target| ends_with_404(target, 7, 1000)).await;
    let error = walk_error(&server.source(), themes()).await;
    assert!(
        matches!(error, SourceError::TokensDie { .. }),
        "no page size can be asked for, so nothing is proven: {error}"
    );
    let mut walk = server.source().walk(themes());
    assert!(matches!(walk.next().await, Ok(WalkStep::Page(_))) && matches!(walk.next().await, Ok(WalkStep::Page(_))));
    assert!(matches!(walk.next().await, Ok(WalkStep::UnprovenEnd)));
    walk.resolve_end(true);
    assert!(matches!(walk.next().await, Ok(WalkStep::End(EndStyle::NotFound))), "the caller knows");
    let resumed = PageRequest { token: Some(PageToken("3".into())), page_rows: 3, ..responses() };
    let steps = follow(&mut server.source().walk(resumed)).await.unwrap();
    assert_eq!(
        steps,
        ["3", "1", "R", "3", "3", "1", "?", "R", "3", "3", "1", "R", "2", "2", "2", "1", "NotFound"],
        "only whole walks are compared"
    );
}

#[tokio::test]
async fn p3_a_404_on_a_valid_token_is_the_end() {
    let rows = Arc::new(AtomicUsize::new(7));
    let (listed, dies_once) = (Arc::clone(&rows), Arc::new(AtomicBool::new(false)));
    let (dies, is_fast) = (Arc::clone(&dies_once), AtomicBool::new(false));
    let server = Server::start(move |_, target| {
        // One page that takes longer than all that follow shows how old tokens can be, however busy this machine is.
        if token_of(target).is_some() && !is_fast.swap(true, Ordering::Relaxed) {
            std::thread::sleep(Duration::from_secs(2));
        }
        match token_of(target) {
            Some(_) if dies.swap(false, Ordering::Relaxed) => json(404, r#"{"error":"not found"}"#),
            _ => ends_with_404(target, listed.load(Ordering::Relaxed), usize::MAX / 4096),
        }
    })
    .await;
    let (source, request) = (server.source(), PageRequest { page_rows: 3, ..responses() });
    let steps = follow(&mut source.walk(request.clone())).await.unwrap();
    assert_eq!(steps, ["3", "3", "1", "?", "R", "3", "3", "1", "R", "2", "2", "2", "1", "NotFound"]);
    let asked = server.seen().len();
    assert_eq!(follow(&mut source.walk(request.clone())).await.unwrap(), ["3", "3", "1", "NotFound"]);
    assert_eq!(server.seen().len() - asked, 5, "the last token is requested twice");
    // A token that fails once is valid at the next request.
    dies_once.store(true, Ordering::Relaxed);
    assert_eq!(follow(&mut source.walk(request.clone())).await.unwrap(), ["3", "3", "1", "NotFound"]);
    // For a longer list, or a resumed one, the lifetime of tokens is unknown.
    rows.store(14, Ordering::Relaxed);
    assert!(follow(&mut source.walk(request.clone())).await.unwrap().contains(&"R".to_owned()));
    let resumed = PageRequest { token: Some(PageToken("13".into())), ..request };
    assert!(follow(&mut source.walk(resumed)).await.unwrap().contains(&"R".to_owned()));
}

#[tokio::test]
async fn p3_a_web_page_with_404_proves_nothing() {
    let server =
        Server::start(|_, _| Reply::Whole(answer(404, &["content-type: text/html"], "<h1>no such site"))).await;
    let error = walk_error(&server.source(), responses()).await;
    assert!(matches!(error, SourceError::Refused { status: 404, .. }), "{error}");
    assert!(server.source().probe().await.is_err());
}

#[tokio::test]
async fn p3_empty_pages_are_followed() {
    let server = Server::start(|number, _| match number {
        0..5 => page(0, Some(&format!("empty {number}"))),
        _ => page(3, None),
    })
    .await;
    let steps = follow(&mut server.source().walk(responses())).await.unwrap();
    assert_eq!(steps, ["0", "0", "0", "0", "0", "3", "Null"]);
}

#[tokio::test]
async fn p3_empty_pages_are_not_followed_for_ever() {
    let server = Server::start(|number, _| page(0, Some(&format!("empty {number}")))).await;
    let error = walk_error(&server.source(), responses()).await;
    assert!(matches!(error, SourceError::Looping { cause: LoopCause::EmptyPages { in_a_row: 6 }, .. }), "{error}");
    assert_eq!(server.seen().len(), 12, "one restart");
}

#[tokio::test]
async fn p3_a_list_of_empty_pages_is_read_once_more() {
    let server = Server::start(|number, target| match number {
        0..6 => page(0, Some(&format!("empty {number}"))),
        _ => numbered(target, 2),
    })
    .await;
    let steps = follow(&mut server.source().walk(responses())).await.unwrap();
    assert_eq!(steps, ["0", "0", "0", "0", "0", "R", "2", "2", "Null"]);
}

#[tokio::test]
async fn every_request_of_a_walk_carries_the_same_parameters() {
    let server = Server::start(|_, target| numbered(target, 3)).await;
    let request = PageRequest {
        scope: Scope { stream: Stream::Responses, survey_id: Some(7) },
        flags: FlagSet::ALL,
        page_rows: 100,
        ..responses()
    };
    let mut walk = server.source().walk(request);
    let mut tokens = Vec::new();
    while let WalkStep::Page(page) = walk.next().await.unwrap() {
        tokens.push(page.request_token.map(|token| token.0));
    }
    assert_eq!(tokens, [None, Some("page 1".into()), Some("page 2".into())]);
    let targets = server.targets();
    let first = targets[0].clone();
    assert_eq!(parameter(&first, "sid").as_deref(), Some("7"));
    assert_eq!(targets, [first.clone(), format!("{first}&cursor=page+1"), format!("{first}&cursor=page+2")]);
}

#[tokio::test]
async fn p6_a_walk_resumes_at_a_page_token() {
    let server = Server::start(|_, target| numbered(target, 5)).await;
    let request = PageRequest { token: Some(PageToken("page 3".into())), ..responses() };
    assert_eq!(follow(&mut server.source().walk(request)).await.unwrap(), ["2", "2", "Null"]);
    assert_eq!(token_of(&server.targets()[0]).as_deref(), Some("page 3"));
}

#[tokio::test]
async fn p6_an_expired_token_restarts_the_window() {
    for status in [400, 404, 409, 410, 422] {
        let server = Server::start(move |number, target| match number {
            2 => json(status, r#"{"error":"cursor expired"}"#),
            _ => numbered(target, 3),
        })
        .await;
        let mut steps = follow(&mut server.source().walk(responses())).await.unwrap();
        steps.retain(|step| step != "?");
        assert_eq!(steps, ["2", "2", "R", "2", "2", "2", "Null"], "{status}");
        assert_eq!(token_of(&server.targets()[3]), None, "from its first page");
    }
}

#[tokio::test]
async fn p6_tokens_that_always_expire_end_the_walk() {
    let server = Server::start(|_, target| match token_of(target).as_deref() {
        Some("page 2") => json(410, r#"{"error":"cursor expired"}"#),
        _ => numbered(target, 9),
    })
    .await;
    let error = walk_error(&server.source(), responses()).await;
    assert!(
        matches!(&error, SourceError::TokensDie { restarts: 4, pages: 2, last } if last.contains("expired")),
        "{error}"
    );
    assert_eq!(server.seen().len(), 5 * 3);
}

#[tokio::test]
async fn p3_a_loop_restarts_once_with_the_largest_pages() {
    let server = Server::start(|number, target| match (number, token_of(target)) {
        (1, _) => page(2, Some("page 1")),
        _ => numbered(target, 3),
    })
    .await;
    let mut walk = server.source().walk(PageRequest { page_rows: 300, ..responses() });
    assert_eq!(follow(&mut walk).await.unwrap(), ["2", "R", "2", "2", "2", "Null"]);
    let limits: Vec<Option<String>> = server.targets().iter().map(|target| parameter(target, "limit")).collect();
    assert_eq!(limits[1].as_deref(), Some("300"));
    assert_eq!(limits[2].as_deref(), Some("1000"));
}

#[tokio::test]
async fn p3_a_loop_that_stays_is_an_error() {
    // The second page leads back to itself, as a page full of one millisecond does.
    let server = Server::start(|_, _| page(2, Some("same millisecond"))).await;
    let error = walk_error(&server.source(), responses()).await;
    let text = error.to_string();
    assert!(matches!(error, SourceError::Looping { cause: LoopCause::RepeatedToken { .. }, pages: 1 }), "{text}");
    assert!(text.contains('#') && !text.contains("same millisecond"), "{text}");
    assert_eq!(server.seen().len(), 4);
}

#[tokio::test]
async fn a_page_too_large_for_the_service_is_split() {
    let server = Server::start(|_, target| {
        let limit: u32 = parameter(target, "limit").unwrap().parse().unwrap();
        let has_token = token_of(target).is_some();
        match limit {
            0..=125 => numbered(target, 3),
            _ if has_token => json(504, ""),
            _ => numbered(target, 3),
        }
    })
    .await;
    let mut walk = server.source().walk(responses());
    assert_eq!(walk.page_rows(), 1000);
    assert_eq!(follow(&mut walk).await.unwrap(), ["2", "2", "2", "Null"]);
    assert_eq!(walk.page_rows(), 125);
    let asked: Vec<(String, Option<String>)> =
        server.targets().iter().map(|target| (parameter(target, "limit").unwrap(), token_of(target))).collect();
    let second = |limit: &str| (limit.to_owned(), Some("page 1".to_owned()));
    assert_eq!(
        asked[1..],
        [
            second("1000"),
            second("1000"),
            second("500"),
            second("500"),
            second("250"),
            second("250"),
            second("125"),
            ("125".to_owned(), Some("page 2".to_owned())),
        ]
    );
}

#[tokio::test]
async fn a_body_over_the_limit_is_requested_in_smaller_pages() {
    let server = Server::start(|_, target| {
        let limit: usize = parameter(target, "limit").unwrap().parse().unwrap();
        page(limit, None)
    })
    .await;
    let mut settings = server.settings();
    settings.body_bytes_max = 1_000;
    let source = source(settings);
    assert_eq!(follow(&mut source.walk(responses())).await.unwrap(), ["250", "Null"]);
    assert_eq!(server.seen().len(), 3);
}

#[tokio::test]
async fn p8_wide_records_are_requested_in_smaller_pages() {
    const RECORD_BYTES: usize = 10_000;
    let server = Server::start(|_, target| {
        let limit: usize = parameter(target, "limit").unwrap().parse().unwrap();
        let record = format!(r#"{{"x":"{}"}}"#, "y".repeat(RECORD_BYTES));
        json(200, &format!(r#"{{"cursor":null,"data":[{}]}}"#, vec![record; limit].join(",")))
    })
    .await;
    let limits = || {
        let limit = |seen: &Seen| parameter(seen.target(), "limit").unwrap().parse::<usize>().unwrap();
        server.seen().iter().map(limit).collect::<Vec<_>>()
    };
    let mut settings = server.settings();
    settings.page_bytes_max = 1 << 20;
    let source = source(settings);
    follow(&mut source.walk(responses())).await.unwrap();
    let first = limits();
    let fitting = *first.last().unwrap();
    assert!(fitting * RECORD_BYTES <= 1 << 20 && first.len() <= 8, "{first:?}");
    follow(&mut source.walk(responses())).await.unwrap();
    let [next] = limits()[first.len()..] else { panic!("{:?}", limits()) };
    assert!(next >= fitting / 2 && next * RECORD_BYTES <= 1 << 20, "{:?}", limits());
}

#[tokio::test]
async fn p8_a_long_user_is_requested_again_with_more_memory() {
    const USER_BYTES: usize = 400_000;
    let server = Server::start(|_, target| match target.ends_with("long") {
        true => json(200, &format!(r#"{{"x":"{}"}}"#, "y".repeat(USER_BYTES))),
        false => json(200, r#"{"x":"y"}"#),
    })
    .await;
    let mut settings = server.settings();
    settings.page_bytes_max = 1 << 20;
    let source = source(settings);
    for (id, requests) in [("short", 1), ("long", 2), ("long", 1), ("short", 1)] {
        let before = server.seen().len();
        let Ok(UserAnswer::Found { body }) = source.user(id).await else { panic!("{id}") };
        assert_eq!((body.len() > USER_BYTES, server.seen().len() - before), (id == "long", requests), "{id}");
    }
}

#[tokio::test]
async fn p8_short_records_elsewhere_enlarge_no_page_of_wide_ones() {
    let server = Server::start(|_, target| {
        let limit: usize = parameter(target, "limit").unwrap().parse().unwrap();
        let is_wide = token_of(target).is_some();
        let record = format!(r#"{{"x":"{}"}}"#, "y".repeat(if is_wide { 100_000 } else { 10 }));
        json(200, &format!(r#"{{"cursor":"page {limit}","data":[{}]}}"#, vec![record; limit].join(",")))
    })
    .await;
    let mut settings = server.settings();
    settings.page_bytes_max = 1 << 20;
    let source = source(settings);
    let mut wide = source.walk(responses());
    wide.next().await.unwrap();
    wide.next().await.unwrap();
    let searched = server.seen().len();
    for _ in 0..3 {
        source.walk(responses()).next().await.unwrap();
    }
    wide.next().await.unwrap();
    assert_eq!(server.seen().len(), searched + 4, "the size is not searched again");
}

#[tokio::test]
async fn a_page_that_fails_at_every_size_needs_a_smaller_window() {
    let server = Server::start(|_, target| match parameter(target, "limit").as_deref() {
        Some("1") => page(0, None),
        _ => json(500, ""),
    })
    .await;
    let error = walk_error(&server.source(), responses()).await;
    assert!(matches!(error, SourceError::TooLarge { page_rows: 10, .. }), "{error}");
    assert_eq!(server.seen().len(), 7 * 2 + 6 + 1, "seven sizes twice, the smallest six times, one small question");
    let least = server.targets().pop().unwrap();
    assert!(least.starts_with("/v1/responses?"), "the same list is asked: {least}");
}

#[tokio::test]
async fn a_list_that_is_down_is_not_too_large() {
    let server = Server::start(|_, target| match target.starts_with("/v1/surveys") {
        true => page(0, None),
        false => json(500, ""),
    })
    .await;
    let error = walk_error(&server.source(), responses()).await;
    assert!(matches!(error, SourceError::Unreachable { .. }), "{error}");
}

#[tokio::test]
async fn a_dropped_wait_repeats_the_same_page() {
    let server = Server::start(|number, target| match number {
        1 => Reply::Hang(Vec::new()),
        _ => numbered(target, 2),
    })
    .await;
    let mut walk = server.source().walk(responses());
    assert!(matches!(walk.next().await, Ok(WalkStep::Page(_))));
    let cut_short = tokio::time::timeout(Duration::from_millis(100), walk.next()).await;
    assert!(cut_short.is_err());
    assert_eq!(follow(&mut walk).await.unwrap(), ["2", "Null"]);
    let targets = server.targets();
    assert_eq!(targets[1], targets[2]);
}
