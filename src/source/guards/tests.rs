//! The guards against lists that go round in circles.

use super::*;
use crate::model::EndStyle;

fn page(rows: usize, next: &str) -> Envelope {
    Envelope { rows, next: Some(PageToken(next.to_owned())), end: None, list: 0..0, broken: 0 }
}

/// Pages that make `count` steps from a fresh start.
fn walk(guards: &mut Guards, count: usize) {
    for at in 0..count {
        guards.record_page(&page(10, &format!("token {at}"))).unwrap();
    }
}

#[test]
fn p3_a_repeated_token_restarts_once() {
    let mut guards = Guards::default();
    walk(&mut guards, 3);
    let cause = guards.record_page(&page(10, "token 1")).unwrap_err();
    assert!(cause.to_string().starts_with("the page token #"), "{cause}");
    assert!(!cause.to_string().contains("token 1"), "tokens are not shown: {cause}");
    guards.restart_after_loop(cause).unwrap();
    walk(&mut guards, 3);
    let cause = guards.record_page(&page(10, "token 1")).unwrap_err();
    assert!(matches!(guards.restart_after_loop(cause), Err(SourceError::Looping { pages: 3, .. })));
}

#[test]
fn p3_the_token_that_a_walk_resumed_at_counts_as_seen() {
    let token = PageToken("token 0".into());
    let mut guards = Guards::new(Some(&token));
    assert!(matches!(guards.record_page(&page(10, "token 0")), Err(LoopCause::RepeatedToken { .. })));
}

#[test]
fn p3_empty_pages_are_followed_but_not_for_ever() {
    let mut guards = Guards::default();
    for at in 0..5 {
        guards.record_page(&page(0, &format!("empty {at}"))).unwrap();
    }
    guards.record_page(&page(1, "a row between")).unwrap();
    for at in 5..10 {
        guards.record_page(&page(0, &format!("empty {at}"))).unwrap();
    }
    let cause = guards.record_page(&page(0, "one too many")).unwrap_err();
    assert_eq!(cause, LoopCause::EmptyPages { in_a_row: 6 });
    guards.restart_after_loop(cause).unwrap();
    for at in 0..5 {
        guards.record_page(&page(0, &format!("empty again {at}"))).unwrap();
    }
    let cause = guards.record_page(&page(0, "one too many again")).unwrap_err();
    assert!(guards.restart_after_loop(cause).is_err(), "one restart");
}

#[test]
fn p3_an_empty_last_page_is_the_end_after_any_number_of_empty_ones() {
    let mut guards = Guards::default();
    for at in 0..5 {
        guards.record_page(&page(0, &format!("empty {at}"))).unwrap();
    }
    guards.record_page(&Envelope { rows: 0, next: None, end: Some(EndStyle::Null), list: 0..0, broken: 0 }).unwrap();
}

#[test]
fn p8_a_window_has_a_largest_number_of_pages() {
    let mut guards = Guards { pages: PAGES_MAX - 1, ..Guards::default() };
    assert_eq!(guards.record_page(&page(10, "token")), Err(LoopCause::TooManyPages));
    let mut guards = Guards { pages: PAGES_MAX - 1, ..Guards::default() };
    guards
        .record_page(&Envelope { rows: 1, next: None, end: Some(EndStyle::Null), list: 0..0, broken: 0 })
        .expect("the end may be that far away");
}

#[test]
fn p6_restarts_continue_while_they_make_progress() {
    let mut guards = Guards::default();
    for pages in 1..=20 {
        walk(&mut guards, pages);
        guards.restart_after_dead_token("gone").unwrap_or_else(|error| panic!("{pages}: {error}"));
    }
}

#[test]
fn p6_restarts_without_progress_end() {
    let mut guards = Guards::default();
    for _ in 0..4 {
        walk(&mut guards, 5);
        guards.restart_after_dead_token("gone").unwrap();
    }
    walk(&mut guards, 5);
    let error = guards.restart_after_dead_token("status 410").unwrap_err();
    assert!(
        matches!(&error, SourceError::TokensDie { restarts: 4, pages: 5, last } if last == "status 410"),
        "{error}"
    );
}

#[test]
fn p8_the_number_of_restarts_is_limited() {
    let mut guards = Guards::default();
    let restarts = (1..).take_while(|pages| {
        walk(&mut guards, *pages);
        guards.restart_after_dead_token("gone").is_ok()
    });
    assert_eq!(restarts.count(), 50);
}
