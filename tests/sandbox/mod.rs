//! The sandbox compared with the contract, over real HTTP only.

mod contract;
mod control;
mod faults;
mod paging;
mod people;
mod restart;

use std::collections::BTreeMap;

use reqwest::{Client, Response, StatusCode};
use serde_json::Value;
use studysync_sandbox::{Faults, Running, Sandbox, Settings};

/// 2026-01-31T08:00:00Z
const NOW_MS: i64 = 1_769_846_400_000;
const KEY: &str = "sandbox-key";
const ALL_FLAGS: &str =
    "with_snapshots=true&with_urls=true&with_meta=true&with_custom_metadata=true&with_deleted_responses=true";

/// A small service with a frozen clock.
fn small() -> Settings {
    Settings { now_ms: NOW_MS, frozen_clock: true, responses: 1500, days: 10, ..Settings::default() }
}

async fn start(settings: Settings) -> Service {
    // reqwest is built without a default provider; a second installation changes nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let running = Sandbox::start(settings, ([127, 0, 0, 1], 0).into()).await.unwrap();
    Service { running, client: Client::builder().no_proxy().build().unwrap() }
}

async fn start_with(faults: Faults) -> Service {
    start(Settings { faults, ..small() }).await
}

/// A running sandbox and a client for it.
struct Service {
    running: Running,
    client: Client,
}

/// A parsed page.
struct Page {
    rows: Vec<Value>,
    cursor: Option<String>,
}

impl Service {
    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.running.base_url())
    }

    async fn get(&self, path: &str) -> Response {
        self.client.get(self.url(path)).bearer_auth(KEY).send().await.unwrap()
    }

    async fn status(&self, path: &str) -> u16 {
        self.get(path).await.status().as_u16()
    }

    async fn json(&self, path: &str) -> Value {
        let response = self.get(path).await;
        let status = response.status();
        let text = response.text().await.unwrap();
        assert_eq!(status, StatusCode::OK, "{path}: {text}");
        serde_json::from_str(&text).unwrap()
    }

    /// Returns the status and the contract's error message.
    async fn refusal(&self, path: &str) -> (u16, String) {
        let response = self.get(path).await;
        let status = response.status().as_u16();
        let body: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
        (status, body["error"].as_str().unwrap().to_owned())
    }

    async fn page(&self, path: &str) -> Page {
        let mut body = self.json(path).await;
        let Value::Array(rows) = body["data"].take() else { panic!("{path}: data is no array") };
        let cursor = body["cursor"].as_str().filter(|cursor| !cursor.is_empty()).map(str::to_owned);
        Page { rows, cursor }
    }

    /// Returns every page up to the end of results; `path` has a query.
    async fn pages(&self, path: &str) -> Vec<Vec<Value>> {
        const PAGES_MAX: usize = 10_000;
        let mut pages = Vec::new();
        let mut next = path.to_owned();
        while pages.len() < PAGES_MAX {
            let page = self.page(&next).await;
            pages.push(page.rows);
            let Some(cursor) = page.cursor else { return pages };
            let base = path.split("&cursor=").next().unwrap();
            next = format!("{base}&cursor={}", escaped(&cursor));
        }
        panic!("{path}: no end after {PAGES_MAX} pages");
    }

    async fn rows(&self, path: &str) -> Vec<Value> {
        self.pages(path).await.concat()
    }

    /// Returns all rows of the service, from its control interface.
    async fn truth(&self, list: &str) -> Vec<Value> {
        let text = self.client.get(self.url(&format!("/_sandbox/truth/{list}"))).send().await.unwrap();
        let text = text.text().await.unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    async fn control(&self, path: &str, body: Value) -> Value {
        let response = self.client.post(self.url(&format!("/_sandbox/{path}"))).json(&body).send().await.unwrap();
        let status = response.status();
        let text = response.text().await.unwrap();
        assert_eq!(status, StatusCode::OK, "{path}: {text}");
        serde_json::from_str(&text).unwrap()
    }
}

/// Escapes a cursor for a query: the three characters of Base64 that have another meaning there.
fn escaped(cursor: &str) -> String {
    cursor.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D")
}

/// The key of a response.
fn key(row: &Value) -> (String, String) {
    (row["responseGroupUid"].as_str().unwrap().to_owned(), row["questionId"].to_string())
}

fn created_ms(row: &Value) -> i64 {
    let text = row["createdAt"].as_str().unwrap();
    chrono::DateTime::parse_from_rfc3339(text).unwrap().timestamp_millis()
}

/// Returns rows by key, and asserts that keys are unique.
fn by_key(rows: &[Value]) -> BTreeMap<(String, String), &Value> {
    let map: BTreeMap<_, _> = rows.iter().map(|row| (key(row), row)).collect();
    assert_eq!(map.len(), rows.len(), "a row was sent twice");
    map
}

fn is_deleted(row: &Value) -> bool {
    !row["deletedAt"].is_null()
}
