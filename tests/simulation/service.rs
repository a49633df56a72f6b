//! The service of a script, called in this process. It answers requests, changes its data meanwhile, and records each
//! version of each record.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
};

use axum::{
    body::Body,
    http::{Request, header},
};
use futures::FutureExt as _;
use studysync::{
    model::DAY_MS,
    source::{Failure, Reply, Transport},
};
use studysync_sandbox::{ChangeRequest, Control, InProcess, ListName, LogEntry, Sandbox};
use tokio_util::sync::CancellationToken;

use super::{
    dice::Dice,
    script::{Script, Weather},
};
use crate::harness::KEY;

/// The service's address in the configuration; nothing listens there.
pub const BASE_URL: &str = "http://127.0.0.1:9";

pub const LISTS: [ListName; 3] = [ListName::Responses, ListName::Themes, ListName::Surveys];

/// The events of a run.
#[derive(Default)]
struct During {
    requests: u64,
    changes: Vec<(u64, ChangeRequest)>,
    cancel: Option<(u64, CancellationToken)>,
}

/// Every record text that the service ever had, and the new ones that the oracle has not processed yet, by list.
#[derive(Default)]
struct Past {
    known: HashSet<String>,
    new: Vec<(ListName, String)>,
    /// Responses that vanished.
    gone: Vec<String>,
    /// Responses that fit no table.
    unplaceable: Vec<String>,
}

impl Past {
    /// Returns whether a response fits no table: it was planted for this, or the world is rough and its question has no
    /// id.
    fn is_unplaceable(&self, record: &str) -> bool {
        record.contains("\"questionId\":null,") || self.unplaceable.iter().any(|planted| planted == record)
    }
}

struct Shared {
    sandbox: InProcess,
    unconnected_percent: u64,
    dice: Dice,
    during: During,
    past: Past,
}

/// The service. Clones share one service.
#[derive(Clone)]
pub struct ScriptedService(Arc<Mutex<Shared>>);

impl ScriptedService {
    pub fn start(script: &Script) -> ScriptedService {
        let sandbox = Sandbox::in_process(script.service.clone()).unwrap();
        let (during, past) = (During::default(), Past::default());
        let dice = Dice::new(script.seed, 2);
        let service =
            ScriptedService(Arc::new(Mutex::new(Shared { sandbox, unconnected_percent: 0, dice, during, past })));
        service.0.lock().unwrap().plant(script);
        service.0.lock().unwrap().remember();
        service
    }

    /// Returns the planted records that fit no table, as they were planted, without those that vanished.
    pub fn unplaceable(&self) -> Vec<String> {
        let shared = self.0.lock().unwrap();
        let mut present = Vec::new();
        shared.sandbox.control().truth(ListName::Responses, |record| {
            if shared.past.is_unplaceable(record) {
                present.push(record.to_owned());
            }
        });
        present
    }

    pub fn control(&self) -> Control {
        self.0.lock().unwrap().sandbox.control().clone()
    }

    pub fn set_weather(&self, weather: &Weather) {
        self.control().set_faults(weather.faults.clone()).unwrap();
        self.0.lock().unwrap().unconnected_percent = weather.unconnected_percent;
    }

    pub fn change(&self, change: &ChangeRequest) {
        self.0.lock().unwrap().change(change);
    }

    /// Lists some of the vanished responses again, unchanged.
    pub fn restore(&self, rows: u64) {
        let mut shared = self.0.lock().unwrap();
        for _ in 0..rows {
            let count = shared.past.gone.len() as u64;
            if count == 0 {
                return;
            }
            let at = shared.dice.below(count) as usize;
            let record = shared.past.gone.swap_remove(at);
            shared.sandbox.control().plant(ListName::Responses, &record, None).unwrap();
        }
        shared.remember();
    }

    /// Sets the events of a run: what happens at which request.
    pub fn expect_run(&self, changes: &[(u64, ChangeRequest)], cancel: Option<(u64, CancellationToken)>) {
        self.0.lock().unwrap().during = During { requests: 0, changes: changes.to_vec(), cancel };
    }

    /// Returns the present records of a list.
    pub fn truth(&self, list: ListName) -> Vec<String> {
        self.0.lock().unwrap().truth(list)
    }

    /// Returns the records that this function has not returned before.
    pub fn new_records(&self) -> Vec<(ListName, String)> {
        std::mem::take(&mut self.0.lock().unwrap().past.new)
    }

    pub fn log(&self) -> Vec<LogEntry> {
        self.control().log_since(0)
    }

    /// Returns a transport that calls the service without a socket.
    pub fn transport(&self) -> Transport {
        let service = self.clone();
        Transport::from_handler(move |request| {
            let service = service.clone();
            async move {
                let sandbox = service.0.lock().unwrap().sent()?;
                // The transport does not pass headers on.
                let asked = match request.url().as_str().strip_prefix(BASE_URL) {
                    Some(target) => Request::get(target).header(header::AUTHORIZATION, format!("Bearer {KEY}")),
                    None => Request::get(format!("/media{}?g=0", request.url().path())),
                };
                let (head, body) = sandbox.answer(asked.body(Body::empty()).unwrap()).await.into_parts();
                let body = reqwest::Body::wrap_stream(body.into_data_stream());
                Ok(Reply::from(axum::http::Response::from_parts(head, body)))
            }
            .boxed()
        })
    }
}

impl Shared {
    /// Counts a request and executes its events.
    fn sent(&mut self) -> Result<InProcess, Failure> {
        self.during.requests += 1;
        let now = self.during.requests;
        let due: Vec<ChangeRequest> =
            self.during.changes.iter().filter(|(at, _)| *at == now).map(|(_, change)| change.clone()).collect();
        due.iter().for_each(|change| self.change(change));
        if let Some((at, stop)) = &self.during.cancel
            && *at == now
        {
            stop.cancel();
        }
        if self.unconnected_percent > 0 && self.dice.percent(self.unconnected_percent) {
            return Err(Failure::Connect { detail: "the simulated network is down".into() });
        }
        Ok(self.sandbox.clone())
    }

    fn change(&mut self, change: &ChangeRequest) {
        let before = if change.vanish_visitors > 0 || change.vanish_window_ms.is_some() {
            self.truth(ListName::Responses)
        } else {
            Vec::new()
        };
        let summary = self.sandbox.control().apply_changes(change);
        let is_gone = |record: &String| {
            summary.vanished.iter().any(|key| {
                record.contains(&format!("\"responseGroupUid\":\"{}\"", key.group))
                    && record.contains(&format!("\"questionId\":{},", key.question))
            })
        };
        self.past.gone.extend(before.into_iter().filter(is_gone));
        self.remember();
    }

    /// Returns the records of a list that fit a table.
    fn truth(&self, list: ListName) -> Vec<String> {
        let mut records = Vec::new();
        self.sandbox.control().truth(list, |record| records.push(record.to_owned()));
        records.retain(|record| !self.past.is_unplaceable(record));
        records
    }

    /// Plants records on both sides of the boundaries of windows, and records that fit no table.
    fn plant(&mut self, script: &Script) {
        // serde_json cannot parse every hostile text as a value.
        let readable = |record: String| Some((serde_json::from_str::<serde_json::Value>(&record).ok()?, record));
        let mut open = self.truth(ListName::Responses).into_iter().filter(|record| record.contains("\"OPEN\""));
        let Some((value, record)) = open.find_map(readable) else { return };
        let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        let last_midnight_ms = script.service.now_ms.div_euclid(DAY_MS) * DAY_MS;
        let days = if script.plants_edges { i64::from(script.service.days) } else { 0 };
        for (day, (before_ms, side)) in (0..days).flat_map(|day| [(1, "before"), (0, "at")].map(|side| (day, side))) {
            let at = chrono::DateTime::from_timestamp_millis(last_midnight_ms - day * DAY_MS - before_ms).unwrap();
            let at = at.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string();
            let planted = record.replace(&text("responseGroupUid"), &format!("edge-{side}-{day:02}"));
            let planted = planted.replacen(&text("createdAt"), &at, 1);
            self.sandbox.control().plant(ListName::Responses, &planted, None).unwrap();
        }
        for nth in 0..script.unplaceable {
            let planted =
                format!(r#"{{"createdAt":"2026-01-20T10:00:00.000Z","questionId":{nth},"response":"no session"}}"#);
            let created_ms = script.service.now_ms - (nth as i64 + 1) * DAY_MS / 2;
            self.sandbox.control().plant(ListName::Responses, &planted, Some(created_ms)).unwrap();
            self.past.unplaceable.push(planted);
        }
    }

    fn remember(&mut self) {
        for list in LISTS {
            for record in self.truth(list) {
                if self.past.known.insert(record.clone()) {
                    self.past.new.push((list, record));
                }
            }
        }
    }
}
