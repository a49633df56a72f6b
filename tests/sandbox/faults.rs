//! Each fault has the effect that it is named for.

use std::time::{Duration, Instant};

use serde_json::json;

use super::*;

async fn with(patch: Value) -> Service {
    let service = start(small()).await;
    service.control("faults", patch).await;
    service
}

const PATH: &str = "/v1/responses?limit=100";

#[tokio::test]
async fn faults_trigger_by_count_interval_and_probability() {
    let service = with(json!({"server_error": {"when": {"count": 2, "skip": 1}}})).await;
    let statuses = async |count: usize| {
        let mut statuses = Vec::new();
        for _ in 0..count {
            statuses.push(service.status(PATH).await);
        }
        statuses
    };
    assert_eq!(statuses(5).await, [200, 500, 500, 200, 200]);
    service.control("faults", json!({"server_error": {"when": {"every": 3}, "status": 502}})).await;
    assert_eq!(statuses(7).await, [200, 200, 502, 200, 200, 502, 200]);
    service.control("faults", json!({"server_error": {"when": {"every": 0, "probability": 0.3}}})).await;
    let first = statuses(200).await;
    let struck = first.iter().filter(|status| **status == 502).count();
    assert!((30..90).contains(&struck), "{struck}");
    service.control("faults", json!({"server_error": {"when": {"probability": 1.0, "path": "/v1/themes"}}})).await;
    assert_eq!((service.status(PATH).await, service.status("/v1/themes").await), (200, 502));
    assert_eq!(service.running.control().log_since(0).last().unwrap().fault.as_deref(), Some("server_error"));
}

#[tokio::test]
async fn p5_retry_after_is_sent_in_every_form() {
    for (form, expected) in [
        ("absent", None),
        ("seconds", Some("3")),
        ("fraction", Some("2.500")),
        ("http_date", Some("Sat, 31 Jan 2026 08:00:03 GMT")),
        ("zero", Some("0")),
        ("negative", Some("-5")),
        ("past_date", Some("Sat, 31 Jan 2026 07:00:00 GMT")),
        ("garbage", Some("soon")),
    ] {
        let refusal = json!({"when": {"count": 1}, "retry_after": {"form": form, "wait_ms": 2500}});
        let service = with(json!({"too_many_requests": refusal, "unavailable": refusal})).await;
        for status in [429, 503] {
            let response = service.get(PATH).await;
            assert_eq!(response.status(), status, "{form}");
            let value = response.headers().get("retry-after").map(|value| value.to_str().unwrap());
            assert_eq!(value, expected, "{form}");
        }
        assert_eq!(service.status(PATH).await, 200);
        let early = service.running.control().log_since(0)[2].early_us;
        let tells = ["seconds", "fraction", "http_date"].contains(&form);
        assert_eq!(early.is_some(), tells, "{form}: the log knows who came too early");
        assert!(early.is_none_or(|early_us| early_us <= 3_000_000));
    }
}

#[tokio::test]
async fn p5_the_rate_limit_admits_its_promised_rate() {
    let service = with(json!({"rate_limit": {"per_second": 20.0, "burst": 5, "form": "fraction"}})).await;
    let began = Instant::now();
    let mut served = 0;
    while began.elapsed() < Duration::from_millis(500) {
        let response = service.get("/v1/surveys?limit=1").await;
        match response.status().as_u16() {
            200 => served += 1,
            status => {
                let told: f64 = response.headers()["retry-after"].to_str().unwrap().parse().unwrap();
                assert!(status == 429 && told > 0.0 && told <= 0.051, "{status} {told}");
            }
        }
    }
    let elapsed_secs = began.elapsed().as_secs_f64();
    let allowed = 5.0 + elapsed_secs * 20.0;
    assert!(f64::from(served) <= allowed + 1.0 && served >= 10, "{served} of {allowed}");
    let log = service.running.control().log_since(0);
    assert!(log.iter().any(|entry| entry.early_us.is_some()), "this client did not wait");
    assert!(log.iter().filter(|entry| entry.status == 429).all(|entry| entry.fault.as_deref() == Some("rate_limit")));
}

#[tokio::test]
async fn p5_too_many_concurrent_requests_are_refused() {
    let service = with(json!({"rate_limit": {"in_flight_max": 2, "form": "absent"}, "latency": {"ms": 300}})).await;
    let statuses = futures::future::join_all((0..5).map(|_| service.status(PATH))).await;
    assert!(statuses.contains(&429), "{statuses:?}");
    assert_eq!(service.status(PATH).await, 200);
    assert!(service.running.control().stats().in_flight_max > 2);
}

#[tokio::test]
async fn cut_and_hung_bodies_fail_the_client() {
    let service = with(json!({"cut_body": {"when": {"count": 1}}})).await;
    let response = service.get(PATH).await;
    assert_eq!(response.status(), 200);
    assert!(response.headers()["content-length"].to_str().unwrap().parse::<usize>().unwrap() > 20_000);
    assert!(response.bytes().await.is_err(), "less came than was promised");
    assert_eq!(service.page(PATH).await.rows.len(), 100);

    service.control("faults", json!({"hung_body": {"when": {"count": 1}, "silent_ms": 200}})).await;
    let began = Instant::now();
    assert!(service.get(PATH).await.bytes().await.is_err());
    assert!(began.elapsed() >= Duration::from_millis(200), "the connection stayed open in silence");
    service.control("faults", json!({"hung_body": {"when": {"count": 1}, "silent_ms": 600_000}})).await;
    let hung = service.get(PATH).await;
    let began = Instant::now();
    service.running.shutdown().await;
    assert!(hung.bytes().await.is_err());
    assert!(began.elapsed() < Duration::from_secs(60), "a hung body does not keep the sandbox alive");
}

#[tokio::test]
async fn a_success_status_can_carry_wrong_content() {
    let service = with(json!({"html": {"when": {"count": 1}}, "no_data": {"when": {"count": 1, "skip": 1}}})).await;
    let html = service.get(PATH).await;
    assert_eq!((html.status().as_u16(), html.headers()["content-type"].to_str().unwrap()), (200, "text/html"));
    assert!(html.text().await.unwrap().starts_with("<!doctype"));
    service.control("faults", json!({"no_data": {"when": {"skip": 0}}})).await;
    assert_eq!(service.get(PATH).await.text().await.unwrap(), r#"{"cursor":null}"#);
}

#[tokio::test]
async fn page_tokens_expire_by_age_by_pages_and_by_chance() {
    for (rule, status) in [
        (json!({"after_ms": 1}), 400),
        (json!({"after_pages": 1, "status": 404}), 404),
        (json!({"when": {"count": 1, "skip": 1}, "status": 403}), 403),
    ] {
        let service = with(json!({"dead_tokens": rule})).await;
        let first = service.page(PATH).await.cursor.unwrap();
        let second = format!("{PATH}&cursor={}", escaped(&first));
        let mut path = second.clone();
        if status == 400 {
            let issued = Instant::now();
            while issued.elapsed() < Duration::from_millis(3) {}
        } else {
            path = format!("{PATH}&cursor={}", escaped(&service.page(&second).await.cursor.unwrap()));
        }
        assert_eq!(service.status(&path).await, status);
        assert_eq!(service.status(PATH).await, 200, "without a token the list begins anew");
    }
}

#[tokio::test]
async fn pages_can_repeat_rows_or_come_empty() {
    let service = with(json!({"repeated_rows": {"when": {"every": 1}, "rows": 4}})).await;
    let pages = service.pages(PATH).await;
    assert_eq!(pages[0][96..], pages[1][..4]);
    let distinct: std::collections::BTreeSet<_> = pages.concat().iter().map(key).collect();
    assert_eq!(distinct.len(), service.truth("responses").await.iter().filter(|row| !is_deleted(row)).count());

    let service = with(json!({"empty_page": {"when": {"count": 2, "skip": 1}}})).await;
    let pages = service.pages(PATH).await;
    let lengths: Vec<usize> = pages.iter().map(Vec::len).collect();
    assert_eq!(lengths[..4], [100, 0, 0, 100]);
    by_key(&pages.concat());

    let service = with(json!({"looping_cursor": {"when": {"count": 1, "skip": 1}}})).await;
    let first = service.page(PATH).await.cursor.unwrap();
    let path = format!("{PATH}&cursor={}", escaped(&first));
    assert_eq!(service.page(&path).await.cursor, Some(first.clone()));
    assert_ne!(service.page(&path).await.cursor, Some(first));
}

#[tokio::test]
async fn requests_take_the_configured_time() {
    let service = with(json!({"latency": {"ms": 60, "per_row_us": 500}})).await;
    let began = Instant::now();
    service.page(PATH).await;
    assert!(began.elapsed() >= Duration::from_millis(110));
    service
        .control(
            "faults",
            json!({"latency": {"ms": 0, "per_row_us": 0}, "slow_pages": {"above_rows": 50, "wait_ms": 40}}),
        )
        .await;
    let began = Instant::now();
    assert_eq!(service.refusal(PATH).await.0, 504);
    assert!(began.elapsed() >= Duration::from_millis(40));
    assert_eq!(service.page("/v1/responses?limit=50").await.rows.len(), 50);
    service.control("faults", json!({"slow_pages": {"status": 0}})).await;
    assert_eq!(service.page(PATH).await.rows.len(), 100);
}

#[tokio::test]
async fn unknown_faults_are_refused_without_effect() {
    let service = start(small()).await;
    let before = service.running.control().faults();
    let url = service.url("/_sandbox/faults");
    for patch in [json!({"servererror": {}}), json!({"server_error": {"status": 200}}), json!({"order": "random"})] {
        let response = service.client.post(&url).json(&patch).send().await.unwrap();
        assert_eq!(response.status(), 400, "{patch}");
    }
    assert_eq!(service.running.control().faults(), before);
}
