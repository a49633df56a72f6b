//! The code that tests of the whole program share: a service (the sandbox, in this process), a place (a temporary
//! folder with flags and environment), runs of the real binary, and the tables that the runs write.
//!
//! Nothing here relies on the program's own output: tables are read with the engine, by the contracts in `schemas/`.

#![allow(dead_code, unused_imports, reason = "every subject uses its own part")]

mod catalogs;
mod compare;
mod empty_warehouse;
pub mod expected;
mod in_process;
mod object_server;
mod tables;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

use serde_json::Value;
use studysync::model::WarehouseKind;
use studysync_sandbox::{
    ChangeRequest, ChangeSummary, Control, Faults, ListName, LogEntry, Running, Sandbox, Settings,
};
use tempfile::TempDir;
use tokio::runtime::Runtime;

pub use catalogs::{Catalog, CatalogKind, variable};
pub use compare::{
    assert_covers_every_case, assert_each_warehouse_equals, assert_equal, assert_equal_in, assert_equal_without,
    assert_rows_equal, assert_warehouses_equal, content_columns,
};
pub use empty_warehouse::put_empty_warehouse;
pub use in_process::copy_folder;
pub use object_server::{Meets, ObjectServer, Snapshot};
pub use tables::{
    Cell, Contract, Row, Tables, WarehousePlace, all_contracts, connect, contract, different_rows, key_text,
};

/// 2026-01-31T08:00:00Z: the time of the test services' clock.
pub const NOW_MS: i64 = 1_769_846_400_000;
pub const DAY_MS: i64 = 86_400_000;
/// The API key of the runs. No other text of the tests contains it.
pub const KEY: &str = "k3y-0f-the-tests-5ecret";
/// The environment variable of the key.
pub const KEY_VARIABLE: &str = "STUDYSYNC_API_KEY";
/// A configuration in which each stream requests everything that the service has.
pub const ALL_FLAGS: &str = "[streams.responses]\n\
    flags = [\"with_snapshots\", \"with_urls\", \"with_meta\", \"with_custom_metadata\", \"with_deleted_responses\"]\n";

/// A small service with every question type and a frozen clock.
pub fn small(responses: u64, days: u32) -> Settings {
    Settings { now_ms: NOW_MS, frozen_clock: true, responses, days, api_key: KEY.into(), ..Settings::default() }
}

/// A sandbox that runs in this process, on its own threads.
pub struct Service {
    running: Option<Running>,
    runtime: Runtime,
}

impl Service {
    pub fn start(settings: Settings) -> Service {
        // reqwest is built without a default provider; a second installation changes nothing.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let running = runtime.block_on(Sandbox::start(settings, ([127, 0, 0, 1], 0).into())).unwrap();
        Service { running: Some(running), runtime }
    }

    fn running(&self) -> &Running {
        self.running.as_ref().expect("only `stop` takes it, and consumes the service")
    }

    pub fn base_url(&self) -> String {
        self.running().base_url()
    }

    pub fn control(&self) -> &Control {
        self.running().control()
    }

    pub fn set_faults(&self, faults: Faults) {
        self.control().set_faults(faults).unwrap();
    }

    pub fn advance_days(&self, days: u64) {
        self.control().advance_clock(days * DAY_MS as u64);
    }

    pub fn change(&self, request: &ChangeRequest) -> ChangeSummary {
        self.control().apply_changes(request)
    }

    /// Returns the exact text of each record in the service.
    pub fn truth(&self, list: ListName) -> Vec<String> {
        let mut records = Vec::new();
        self.control().truth(list, |record| records.push(record.to_owned()));
        records
    }

    /// Returns the requests since the log was last cleared.
    pub fn log(&self) -> Vec<LogEntry> {
        self.control().log_since(0)
    }

    pub fn clear_log(&self) {
        self.control().clear_log();
    }

    /// Stops listening; from now on, connections are refused.
    pub fn stop(mut self) {
        if let Some(running) = self.running.take() {
            self.runtime.block_on(running.shutdown());
        }
    }
}

/// A folder with a warehouse, and the flags and environment of its runs.
pub struct Place {
    folder: TempDir,
    base_url: String,
    has_duckdb: bool,
    has_parquet: bool,
    /// The folder, or the address of a bucket.
    parquet: OsString,
    /// The flag and the address of a warehouse in a catalog.
    catalog: Option<(String, String)>,
    archive: OsString,
    has_config: bool,
    environment: Vec<(String, String)>,
}

impl Place {
    /// DuckDB, Parquet and an archive; requests every optional part of the answers.
    pub fn new(service: &Service) -> Place {
        Place::at(service.base_url())
    }

    /// The same, for any address.
    pub fn at(base_url: impl Into<String>) -> Place {
        let folder = tempfile::Builder::new().prefix("studysync-test-").tempdir().unwrap();
        let archive = folder.path().join("archive").into_os_string();
        let parquet = folder.path().join("parquet").into_os_string();
        let place = Place {
            folder,
            base_url: base_url.into(),
            has_duckdb: true,
            has_parquet: true,
            parquet,
            catalog: None,
            archive,
            has_config: false,
            environment: vec![(KEY_VARIABLE.into(), KEY.into()), ("TZ".into(), "UTC".into())],
        };
        place.with_config(ALL_FLAGS)
    }

    pub fn without_duckdb(mut self) -> Place {
        self.has_duckdb = false;
        self
    }

    pub fn without_parquet(mut self) -> Place {
        self.has_parquet = false;
        self
    }

    pub fn with_parquet(mut self) -> Place {
        self.has_parquet = true;
        self
    }

    /// Puts the warehouse into a catalog, without a DuckDB file and Parquet files.
    pub fn in_catalog(mut self, flag: &str, address: &str) -> Place {
        (self.has_duckdb, self.has_parquet) = (false, false);
        self.catalog = Some((flag.to_owned(), address.to_owned()));
        self
    }

    /// Puts the Parquet warehouse into a bucket of the server, without a DuckDB file.
    pub fn in_bucket(mut self, server: &ObjectServer, address: &str) -> Place {
        (self.has_duckdb, self.parquet) = (false, address.into());
        server.environment().iter().fold(self, |place, (name, value)| place.with_env(name, value))
    }

    /// Puts the Parquet warehouse and the archive into buckets that the environment of the tests leads to.
    pub fn with_addresses(mut self, parquet: &str, archive: &str) -> Place {
        (self.has_duckdb, self.parquet, self.archive) = (false, parquet.into(), archive.into());
        self
    }

    /// Puts the archive into a bucket of the server.
    pub fn archive_in_bucket(mut self, server: &ObjectServer, address: &str) -> Place {
        self.archive = address.into();
        server.environment().iter().fold(self, |place, (name, value)| place.with_env(name, value))
    }

    pub fn without_archive(mut self) -> Place {
        self.archive = "none".into();
        self
    }

    /// Sets the text of the configuration file instead of [`ALL_FLAGS`]. Flags still name the warehouses.
    pub fn with_config(mut self, toml: &str) -> Place {
        std::fs::write(self.path("studysync.toml"), toml).unwrap();
        self.has_config = true;
        self
    }

    /// Removes the configuration file, so that the program uses its own defaults.
    pub fn without_config(mut self) -> Place {
        let _ = std::fs::remove_file(self.path("studysync.toml"));
        self.has_config = false;
        self
    }

    /// Sets a variable of the runs' environment.
    pub fn with_env(mut self, name: &str, value: &str) -> Place {
        self.environment.retain(|(known, _)| known != name);
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Sets the address of later runs.
    pub fn set_base_url(&mut self, base_url: impl Into<String>) {
        self.base_url = base_url.into();
    }

    pub fn root(&self) -> &Path {
        self.folder.path()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn duckdb(&self) -> PathBuf {
        self.path("warehouse.duckdb")
    }

    pub fn parquet(&self) -> PathBuf {
        self.path("parquet")
    }

    pub fn state(&self) -> PathBuf {
        self.path("state/checkpoints.sqlite")
    }

    /// Returns a command in this place's folder and environment, with these arguments only.
    pub fn bare(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_studysync"));
        command.current_dir(self.root()).args(arguments).stdin(Stdio::null());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("STUDYSYNC_") {
                command.env_remove(name);
            }
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Returns a command with the flags that name the place's files.
    pub fn command(&self, arguments: &[&str]) -> Command {
        self.command_on(arguments, self.has_duckdb, self.has_parquet)
    }

    fn command_on(&self, arguments: &[&str], has_duckdb: bool, has_parquet: bool) -> Command {
        let mut command = self.bare(arguments);
        command.args(["--base-url", &self.base_url]);
        command.arg("--state").arg(self.state()).arg("--archive").arg(&self.archive);
        if has_duckdb {
            command.arg("--duckdb").arg(self.duckdb());
        }
        if has_parquet {
            command.arg("--parquet").arg(&self.parquet);
        }
        if let Some((flag, address)) = &self.catalog {
            command.args([flag, address]);
        }
        command
    }

    /// Runs a command to its end. The first run that writes rows finds an empty DuckDB file, as a killed first run
    /// leaves it, because creating tables and views takes longer than most tests.
    pub fn run(&self, arguments: &[&str]) -> Done {
        let loads = matches!(arguments.first(), Some(&("sync" | "backfill")));
        if loads && self.has_duckdb {
            put_empty_warehouse(&self.duckdb());
        }
        Done::from(self.command(arguments).output().unwrap())
    }

    /// Runs a command with the Parquet folder and without the DuckDB file.
    pub fn run_on_parquet(&self, arguments: &[&str]) -> Done {
        Done::from(self.command_on(arguments, false, true).output().unwrap())
    }

    /// Starts a command with piped output.
    pub fn spawn(&self, arguments: &[&str]) -> Child {
        self.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Runs `sync` or `backfill` with `--json`, which must end with this exit code. Returns the run's report, validated
    /// by its schema.
    pub fn report(&self, arguments: &[&str], exit_code: i32) -> Value {
        let done = self.run(&[arguments, &["--json"]].concat());
        assert_eq!(done.code, exit_code, "{arguments:?}\n{}", done.stderr);
        let report = done.json();
        // The schema describes runs; the JSON of `verify`, `replay` and `users push` has another form.
        if ["sync", "backfill", "users pull"].iter().any(|command| report["command"] == *command) {
            crate::book::run_json::assert_valid(&report);
        }
        report
    }

    /// The tables of the DuckDB file.
    pub fn duckdb_tables(&self) -> Tables {
        Tables::duckdb(&self.duckdb())
    }

    /// The tables of the Parquet folder.
    pub fn parquet_tables(&self) -> Tables {
        Tables::parquet(&self.parquet())
    }

    /// Returns the tables of each warehouse of this place, with a name for messages.
    pub fn warehouses(&self) -> Vec<(&'static str, Tables)> {
        let tables = |kind| match kind {
            WarehouseKind::DuckDb => self.has_duckdb.then(|| ("DuckDB", self.duckdb_tables())),
            WarehouseKind::Parquet => self.has_parquet.then(|| ("Parquet", self.parquet_tables())),
            // `make lakes` tests catalogs, which need servers and extensions.
            WarehouseKind::DuckLake | WarehouseKind::Postgres | WarehouseKind::Iceberg => None,
        };
        WarehouseKind::ALL.into_iter().filter_map(tables).collect()
    }

    /// Returns every file below a folder of this place, in order.
    pub fn files(&self, below: &str) -> Vec<PathBuf> {
        let mut files = Vec::new();
        let mut folders = vec![self.path(below)];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() { folders.push(path) } else { files.push(path) }
            }
        }
        files.sort();
        files
    }
}

/// The result of a run of the program.
#[derive(Debug)]
pub struct Done {
    /// The exit code; -1 if a signal ended the run.
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Done {
    fn from(output: Output) -> Done {
        Done {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).expect("stdout is UTF-8"),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Done {
    /// Standard output as one JSON value.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: stdout {:?}, stderr {}", self.stdout, self.stderr))
    }

    /// Standard output with one blank between words, because long lines are wrapped.
    pub fn words(&self) -> String {
        self.stdout.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Asserts the exit code.
    pub fn expect(self, code: i32) -> Done {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }
}

/// The notes of a report, without the note that the clock of the sandbox is months behind.
pub fn notes(report: &Value) -> Vec<&str> {
    let notes = report["notes"].as_array().into_iter().flatten().filter_map(Value::as_str);
    notes.filter(|note| !note.starts_with("this machine's clock says ")).collect()
}

/// Returns the value of a metric in Prometheus text, by its name and its own labels (`run_windows{stream="themes"}`).
/// Asserts that every series has the labels of the installation.
pub fn sample(text: &str, name: &str) -> Option<f64> {
    let installation = "environment=\"[^\"]*\",service_host=\"[^\"]+\"";
    let series = regex::escape(name);
    let series = match series.strip_suffix("\\}") {
        Some(labels) => format!("{labels},{installation}\\}}"),
        None => format!("{series}\\{{{installation}\\}}"),
    };
    let line = regex::Regex::new(&format!("(?m)^studysync_{series} (.+)$")).unwrap();
    Some(line.captures(text)?[1].parse().unwrap())
}

/// Returns the time this many days before the service's clock, in a form that the program parses.
pub fn days_ago(days: i64) -> String {
    (NOW_MS - days * DAY_MS).to_string()
}
