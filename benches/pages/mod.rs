//! The pages that the benchmarks read: the answers of the sandbox for a fixed seed, the same bytes on every machine.
//!
//! It opens no socket and measures nothing.

use std::collections::BTreeMap;

use axum::{
    body::{Body, to_bytes},
    http::Request,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use studysync::model::{Flag, FlagSet};
use studysync_sandbox::{InProcess, Sandbox, Settings};

/// Records per page: the maximum that the service sends.
pub const PAGE_ROWS: usize = 1000;
/// Responses in the sandbox: enough for every question type to occur.
const RESPONSES: u64 = 20_000;
/// The largest body that the client accepts, in bytes.
const BODY_BYTES_MAX: usize = 64 << 20;

/// A service with a fixed seed, and the runtime for requests to it.
pub struct Pages {
    service: InProcess,
    runtime: tokio::runtime::Runtime,
}

impl Pages {
    /// Generates the data.
    pub fn new() -> Self {
        let settings = Settings { responses: RESPONSES, frozen_clock: true, ..Settings::default() };
        let service = Sandbox::in_process(settings).expect("the settings are valid");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        Self { service, runtime }
    }

    /// The first page of responses, of [`PAGE_ROWS`] records.
    pub fn responses(&self, flags: FlagSet) -> Vec<u8> {
        self.page(&format!("/v1/responses?limit={PAGE_ROWS}{}", query_of(flags)))
    }

    /// The first page of another list, `surveys` or `themes`.
    pub fn list(&self, name: &str) -> Vec<u8> {
        self.page(&format!("/v1/{name}"))
    }

    /// For each question type, by name, a page of [`PAGE_ROWS`] records of that type only. Records of rare types
    /// repeat.
    pub fn by_question_type(&self, flags: FlagSet) -> BTreeMap<String, Vec<u8>> {
        let mut records: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut token = String::new();
        loop {
            let body = self.page(&format!("/v1/responses?limit={PAGE_ROWS}{}{token}", query_of(flags)));
            let page: Page = serde_json::from_slice(&body).expect("the sandbox sends pages");
            for record in page.data {
                let head: Head = serde_json::from_str(record.get()).expect("a record");
                records.entry(head.question_type).or_default().push(record.get().to_owned());
            }
            match page.cursor {
                Some(next) => token = format!("&cursor={next}"),
                None => break,
            }
        }
        records.into_iter().map(|(kind, records)| (kind, page_of(&records))).collect()
    }

    fn page(&self, address: &str) -> Vec<u8> {
        let key = format!("Bearer {}", Settings::default().api_key);
        let request = Request::get(address).header("Authorization", key).body(Body::empty()).expect("a request");
        self.runtime.block_on(async {
            let reply = self.service.answer(request).await;
            assert!(reply.status().is_success(), "{address}: {}", reply.status());
            to_bytes(reply.into_body(), BODY_BYTES_MAX).await.expect("a body").to_vec()
        })
    }
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    data: Vec<&'a RawValue>,
    cursor: Option<String>,
}

#[derive(Deserialize)]
struct Head {
    #[serde(rename = "questionType")]
    question_type: String,
}

fn query_of(flags: FlagSet) -> String {
    flags.iter().map(|flag: Flag| format!("&{}=true", flag.name())).collect()
}

fn page_of(records: &[String]) -> Vec<u8> {
    let records: Vec<&str> = records.iter().map(String::as_str).cycle().take(PAGE_ROWS).collect();
    format!("{{\"data\":[{}],\"cursor\":null}}", records.join(",")).into_bytes()
}
