//! Pages: every row once in every order, page tokens, and ties.

use std::collections::BTreeSet;

use studysync_sandbox::{Faults, Order, Settings, Ties};

use super::*;

const ORDERS: [Order; 3] = [Order::NewestFirst, Order::OldestFirst, Order::Shuffled];

#[tokio::test]
async fn paging_returns_every_row_once_in_every_order() {
    let service = start(Settings { ties_per_ms: 4, deleted_share: 0.1, ..small() }).await;
    let truth = service.truth("responses").await;
    let (from_ms, to_ms) = (created_ms(&truth[200]), created_ms(&truth[1300]));
    let window: Vec<Value> = truth.iter().filter(|row| (from_ms..=to_ms).contains(&created_ms(row))).cloned().collect();
    for order in ORDERS {
        service.running.control().set_faults(Faults { order, ..Faults::default() }).unwrap();
        for limit in [1, 7, 1000] {
            let path = format!("/v1/responses?start={from_ms}&end={to_ms}&limit={limit}&{ALL_FLAGS}");
            let pages = service.pages(&path).await;
            assert!(pages[..pages.len() - 1].iter().all(|page| page.len() == limit), "only the last page may be short");
            let rows = pages.concat();
            assert_eq!(by_key(&rows), by_key(&window), "{order:?} {limit}");
            let times: Vec<i64> = rows.iter().map(created_ms).collect();
            assert_eq!(times.is_sorted(), order == Order::OldestFirst);
            assert_eq!(times.iter().rev().is_sorted(), order == Order::NewestFirst);
        }
        let visible = service.rows("/v1/responses?limit=100").await;
        assert_eq!(visible.len(), truth.iter().filter(|row| !is_deleted(row)).count());
        assert_eq!(service.rows("/v1/themes?start=0").await.len(), service.truth("themes").await.len());
        assert_eq!(service.rows("/v1/surveys?limit=5").await.len(), 24);
    }
}

#[tokio::test]
async fn a_shuffled_order_is_always_the_same() {
    let service = start_with(Faults { order: Order::Shuffled, ..Faults::default() }).await;
    let rows = service.rows("/v1/responses?limit=100").await;
    assert_eq!(service.rows("/v1/responses?limit=37").await, rows);
}

#[tokio::test]
async fn a_token_keeps_its_position_while_rows_change() {
    for order in ORDERS {
        let service = start_with(Faults { order, ..Faults::default() }).await;
        let path = "/v1/responses?limit=100";
        let first = service.page(path).await;
        let before = service.truth("responses").await;
        let changes = serde_json::json!({"late": 200, "late_hours": 200, "vanish_visitors": 20});
        let vanished = service.control("changes", changes).await["vanished"].as_array().unwrap().len();
        assert!(vanished > 20);
        let after = service.truth("responses").await;
        let rest = service.rows(&format!("{path}&cursor={}", escaped(&first.cursor.unwrap()))).await;
        let seen: BTreeSet<_> = first.rows.iter().chain(&rest).map(key).collect();
        assert_eq!(seen.len(), first.rows.len() + rest.len(), "{order:?}: a row was sent twice");
        let held: BTreeSet<_> = after.iter().filter(|row| !is_deleted(row)).map(key).collect();
        let stayed = before.iter().map(key).filter(|key| held.contains(key));
        assert!(stayed.into_iter().all(|key| seen.contains(&key)), "{order:?}: a row that was always there is missing");
    }
}

#[tokio::test]
async fn a_token_belongs_to_its_query() {
    let service = start(small()).await;
    let cursor = escaped(&service.page("/v1/responses?limit=10").await.cursor.unwrap());
    assert_eq!(
        service.status(&format!("/v1/responses?limit=20&cursor={cursor}")).await,
        200,
        "the page size may change"
    );
    for path in ["/v1/responses?start=1&", "/v1/responses?with_meta=true&", "/v1/responses?sid=4100&", "/v1/themes?"] {
        let (status, error) = service.refusal(&format!("{path}cursor={cursor}")).await;
        assert_eq!((status, error.contains("another query")), (400, true), "{path}");
    }
}

#[tokio::test]
async fn ties_at_page_edges_can_be_kept_repeated_or_lost() {
    let service = start(Settings { ties_per_ms: 6, deleted_share: 0.0, ..small() }).await;
    let truth = service.truth("responses").await;
    assert_eq!(created_ms(&truth[0]), created_ms(&truth[5]));
    assert_ne!(created_ms(&truth[5]), created_ms(&truth[6]));
    for order in ORDERS {
        let rows = async |ties, limit| {
            service.running.control().set_faults(Faults { order, ties, ..Faults::default() }).unwrap();
            let rows = service.rows(&format!("/v1/responses?limit={limit}")).await;
            (rows.len(), rows.iter().map(key).collect::<BTreeSet<_>>().len())
        };
        assert_eq!(rows(Ties::Kept, 10).await, (1500, 1500));
        let (sent, distinct) = rows(Ties::Repeated, 10).await;
        assert!(sent > 1500 && distinct == 1500, "{sent} {distinct}");
        let (sent, distinct) = rows(Ties::Lost, 10).await;
        assert!(sent < 1500 && distinct == sent, "{sent} {distinct}");
        // No row is lost if pages end between two milliseconds.
        assert_eq!(rows(Ties::Lost, 12).await, (1500, 1500));
    }
}

#[tokio::test]
async fn a_full_page_of_one_millisecond_loops_if_ties_repeat() {
    let faults = Faults { ties: Ties::Repeated, ..Faults::default() };
    let service = start(Settings { ties_per_ms: 1001, deleted_share: 0.0, faults, ..small() }).await;
    let first = service.page("/v1/responses?limit=499").await;
    let cursor = first.cursor.clone().unwrap();
    let second = service.page(&format!("/v1/responses?limit=499&cursor={}", escaped(&cursor))).await;
    let third =
        service.page(&format!("/v1/responses?limit=499&cursor={}", escaped(&second.cursor.clone().unwrap()))).await;
    assert_eq!((second.cursor, third.rows), (third.cursor, second.rows));
}

#[tokio::test]
async fn a_list_may_end_with_an_empty_page() {
    let service = start_with(Faults { trailing_empty_page: true, ..Faults::default() }).await;
    let pages = service.pages("/v1/responses?limit=1000").await;
    assert_eq!(pages.iter().map(Vec::len).filter(|rows| *rows == 0).count(), 1);
    assert!(pages.last().unwrap().is_empty());
}
