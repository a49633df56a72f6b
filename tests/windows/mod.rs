//! Windows at services with rare behaviour: unreadable records, unusual ends of lists, nonstandard filters. The program
//! runs in this process, against the sandbox without a socket, in simulated time, so waits take no time.

mod broken;
mod ends;
mod habits;
mod resumed;

use std::{collections::BTreeMap, fs, sync::Arc};

use axum::{
    body::Body,
    http::{Request as HttpRequest, header},
};
use futures::FutureExt as _;
use serde_json::Value;
use studysync::{
    clock::Clock,
    config::{ArchiveChoice, Overrides, resolve},
    model::{Failpoints, Rng, WarehouseKind, Window},
    pipeline::{PeopleSelection, PipelineError, Progress, Request, Run, RunReport, System},
    source::{Reply, Transport},
};
use studysync_sandbox::{Control, InProcess, ListName, LogEntry, Sandbox, Settings};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::harness::{DAY_MS, KEY, NOW_MS, Tables};

const BASE_URL: &str = "http://127.0.0.1:9";

/// A service, and a warehouse that is filled from it.
struct Lab {
    sandbox: InProcess,
    folder: TempDir,
    rng: Rng,
    config: &'static str,
    failpoints: Failpoints,
}

/// The result of a run, and its requests.
struct Ended {
    report: RunReport,
    error: Option<PipelineError>,
    log: Vec<LogEntry>,
}

impl Lab {
    fn new(settings: Settings) -> Lab {
        let (sandbox, folder) = (Sandbox::in_process(settings).unwrap(), TempDir::new().unwrap());
        Lab { sandbox, folder, rng: Rng::seeded(1), config: "", failpoints: Failpoints::default() }
    }

    /// Sets the configuration file.
    fn with_config(self, config: &'static str) -> Lab {
        Lab { config, ..self }
    }

    fn control(&self) -> &Control {
        self.sandbox.control()
    }

    /// Changes how the service answers.
    fn faults(&self, patch: Value) {
        self.control().merge_faults(patch).unwrap();
    }

    fn truth(&self, list: ListName) -> Vec<Value> {
        let mut records = Vec::new();
        self.control().truth(list, |record| records.push(serde_json::from_str(record).unwrap()));
        records
    }

    fn transport(&self) -> Transport {
        let sandbox = self.sandbox.clone();
        Transport::from_handler(move |request| {
            let sandbox = sandbox.clone();
            async move {
                let target = request.url().as_str().strip_prefix(BASE_URL).unwrap();
                let asked = HttpRequest::get(target).header(header::AUTHORIZATION, format!("Bearer {KEY}"));
                let (head, body) = sandbox.answer(asked.body(Body::empty()).unwrap()).await.into_parts();
                let body = reqwest::Body::wrap_stream(body.into_data_stream());
                Ok(Reply::from(axum::http::Response::from_parts(head, body)))
            }
            .boxed()
        })
    }

    fn sync(&self) -> Ended {
        self.run(None)
    }

    /// Runs a backfill that begins this many days before the service's initial time.
    fn backfill(&self, days: i64) -> Ended {
        self.run(Some(Window::new(NOW_MS - days * DAY_MS, self.control().now_ms())))
    }

    fn run(&self, backfill: Option<Window>) -> Ended {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(self.run_in_simulated_time(backfill))
    }

    async fn run_in_simulated_time(&self, backfill: Option<Window>) -> Ended {
        let beside = |name: &str| self.folder.path().join(name);
        fs::write(beside("key"), KEY).unwrap();
        fs::write(beside("studysync.toml"), self.config).unwrap();
        let settings = resolve(Overrides {
            config: Some(beside("studysync.toml")),
            base_url: Some(BASE_URL.into()),
            api_key_file: Some(beside("key")),
            warehouses: [(WarehouseKind::DuckDb, beside("warehouse.duckdb"))].into(),
            state: Some(beside("state.sqlite")),
            archive: Some(ArchiveChoice::Folder(beside("archive"))),
            ..Overrides::default()
        });
        let control = self.control().clone();
        let system = System {
            clock: Clock::simulated(move || control.now_ms()),
            rng: self.rng.clone(),
            transport: self.transport(),
            failpoints: self.failpoints.clone(),
            engine_threads: Some(1),
            last_warehouse_first: false,
        };
        let command = if backfill.is_some() { "backfill" } else { "sync" };
        let request = Request { command, backfill, accept_vanished: false, people: PeopleSelection::AfterLists };
        self.control().clear_log();
        let (stop, progress) = (CancellationToken::new(), Arc::new(Progress::default()));
        let run = Run::open_in(settings.unwrap(), request, stop, progress, system).await.unwrap();
        let (report, outcome) = run.execute().await;
        Ended { report, error: outcome.err(), log: self.control().log_since(0) }
    }

    fn tables(&self) -> Tables {
        Tables::duckdb(&self.folder.path().join("warehouse.duckdb"))
    }

    fn count(&self, sql: &str) -> i64 {
        self.tables().count(sql)
    }
}

impl Ended {
    /// Asserts the exit code.
    fn expect(self, exit_code: u8) -> Ended {
        let Ended { report, error, .. } = &self;
        assert_eq!(report.header.exit_code, exit_code, "{error:?} {:?} {:?}", report.notes, report.failures);
        self
    }

    /// Counts the requests for a list.
    fn requests(&self, path: &str) -> usize {
        self.log.iter().filter(|entry| entry.path == path).count()
    }

    fn count(&self, stream: &str, of: fn(&studysync::load::RowCounts) -> u64) -> u64 {
        self.report.streams.get(stream).map_or(0, |stream| of(&stream.counts))
    }
}

/// The creation time of a record, in epoch milliseconds.
fn created_ms(record: &Value) -> i64 {
    let text = record["createdAt"].as_str().unwrap();
    chrono::DateTime::parse_from_rfc3339(text).unwrap().timestamp_millis()
}

/// A creation time in the middle, with only one record and no other record near it.
fn lonely_ms(records: &[Value]) -> i64 {
    let mut seconds: BTreeMap<i64, u32> = BTreeMap::new();
    let mut times: Vec<i64> = records.iter().map(created_ms).collect();
    times.sort_unstable();
    times.iter().for_each(|at_ms| *seconds.entry(at_ms / 2000).or_default() += 1);
    *times[times.len() / 2..].iter().find(|at_ms| seconds[&(*at_ms / 2000)] == 1 && *at_ms % 1000 > 1).unwrap()
}
