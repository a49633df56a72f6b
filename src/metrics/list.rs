//! Every metric with its name, kind, labels and meaning; the values of one output, and those of the status of the
//! syncs; their text in the Prometheus exposition format 0.0.4; and the file that node_exporter's textfile collector
//! reads.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io::{self, Write as _},
    path::Path,
};

use serde_json::Value;

use crate::{
    files::{Access, Output},
    model::is_in_future,
    sync_status::{Health, Status, reason_codes},
};

/// One metric. The full name of every metric begins with `studysync_`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    pub name: &'static str,
    pub labels: &'static [&'static str],
    /// True if the metric is only at `/metrics` of `serve`, and neither in the textfile nor sent by OTLP.
    pub is_serve_only: bool,
    pub help: &'static str,
}

impl Metric {
    /// Returns the Prometheus type: a counter only grows until the process restarts, and its name ends with `_total`.
    pub fn kind(&self) -> &'static str {
        if self.name.ends_with("_total") { "counter" } else { "gauge" }
    }
}

const fn shared(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, labels, is_serve_only: false, help }
}

const fn of_serve(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, labels, is_serve_only: true, help }
}

/// Every metric, in the order of the output.
pub const ALL: &[Metric] = &[
    shared("build_info", &["version"], "The version of studysync; always 1."),
    shared("healthy", &[], "1 while /healthz answers 200; 0 while something is wrong."),
    shared(
        "health_reason",
        &["reason"],
        "1 for each current health reason, failing or only informing; 0 for all others.",
    ),
    shared(
        "last_success_timestamp_seconds",
        &["command"],
        "When the last successful run of the command ended: everything due is in the warehouse (exit code 0 or 3).",
    ),
    shared("last_run_timestamp_seconds", &[], "When the last sync, backfill or users pull ended, however it ended."),
    shared("last_run_exit_code", &[], "The exit code of the last sync, backfill or users pull."),
    shared(
        "failed_runs_in_a_row",
        &[],
        "Failed runs of sync, backfill and users pull that no later successful run resolved.",
    ),
    shared("lag_seconds", &["stream"], "Seconds since the end of the newest complete window of a stream."),
    shared(
        "rate_limited_until_timestamp_seconds",
        &[],
        "No command sends a request before this time (Retry-After of the service); 0: not limited.",
    ),
    shared(
        "learned_requests_per_second",
        &[],
        "The learned rate limit of the service; absent until a run has learned one.",
    ),
    shared(
        "catalog_snapshots",
        &[],
        "Snapshots of the ledger in a DuckLake or Iceberg at the end of the last run; absent otherwise.",
    ),
    shared("maintenance_due", &[], "1 if the oldest of catalog_snapshots is older than 14 days; else 0."),
    shared("pending_deliveries", &[], "Webhook deliveries that no warehouse has yet."),
    shared("run_duration_seconds", &[], "How long the last sync, backfill or users pull took."),
    shared(
        "run_seconds",
        &["part"],
        "The duration of the last run by part: network, parse, write, wait, idle. The sum is run_duration_seconds.",
    ),
    shared(
        "run_wait_seconds",
        &["reason"],
        "Waiting time of the last run: retry_after as the service asked, own_pace for backoff and the learned limit.",
    ),
    shared(
        "run_requests",
        &["status"],
        "Requests of the last run by HTTP status; status 0 counts requests without an answer.",
    ),
    shared("run_rows", &["stream", "fate"], "Rows of the last run by what happened to them."),
    shared("run_windows", &["stream"], "Windows, or batches of users, that the last run committed."),
    shared("run_peak_memory_bytes", &[], "Peak memory of the last run."),
    of_serve("deliveries_stored_total", &["kind"], "Stored deliveries."),
    of_serve("deliveries_repeated_total", &[], "Deliveries that were stored before."),
    of_serve("deliveries_unauthorised_total", &[], "Posts without the correct secret."),
    of_serve("deliveries_too_large_total", &[], "Posts whose body exceeded the size limit."),
    of_serve("deliveries_too_slow_total", &[], "Posts whose body did not arrive in time."),
    of_serve(
        "deliveries_overloaded_total",
        &[],
        "Posts and connections refused with 503 because too much was waiting.",
    ),
    of_serve("deliveries_not_stored_total", &[], "Posts that could not be written to the inbox."),
    of_serve("connections_total", &[], "Accepted connections."),
    of_serve("connections_evicted_total", &[], "Idle connections closed in favour of new ones."),
    of_serve("events_flushed_total", &[], "Events written to the warehouses between runs."),
    of_serve("runs_total", &[], "Started runs."),
    of_serve("runs_failed_total", &[], "Runs that failed, stopped early or were skipped."),
    of_serve("inbox_deliveries", &[], "The same as pending_deliveries."),
    of_serve("inbox_bytes", &[], "Bytes of the pending deliveries."),
    of_serve("running", &[], "1 while a run or a flush is running."),
    of_serve("next_run_ms", &[], "When the next scheduled run starts, epoch milliseconds; 0: no schedule."),
    of_serve("last_run_ms", &[], "When the last scheduled run ended, epoch milliseconds; 0: none yet."),
    of_serve("storing", &[], "1 while deliveries can be stored."),
    of_serve(
        "rate_limited_until_ms",
        &[],
        "End of a Retry-After that is longer than a run waits, epoch milliseconds; 0: none.",
    ),
];

/// The labels of every series. Without them, two installations on one machine would write equal series, of which a
/// collector drops one.
pub const INSTALLATION_LABELS: [&str; 2] = ["environment", "service_host"];

/// Values of metrics, collected for one output.
#[derive(Clone, Debug)]
pub struct MetricValues {
    /// The values of [`INSTALLATION_LABELS`].
    installation: [String; 2],
    /// For each index into [`ALL`]: pairs of label values and the metric's value.
    values: BTreeMap<usize, Vec<(Vec<String>, f64)>>,
}

impl MetricValues {
    /// Creates an empty collection for the installation that copies this environment of the service on this host.
    pub fn new(environment: &str, service_host: &str) -> MetricValues {
        MetricValues { installation: [environment.to_owned(), service_host.to_owned()], values: BTreeMap::new() }
    }

    /// Adds a value of the metric `name`, with one label value for each label of the metric. An unknown name or a wrong
    /// number of labels is ignored; debug builds panic.
    pub fn set(&mut self, name: &str, labels: &[&str], value: f64) {
        let index = ALL.iter().position(|metric| metric.name == name && metric.labels.len() == labels.len());
        debug_assert!(index.is_some(), "{name} with {} labels is not in the list of metrics", labels.len());
        if let Some(index) = index {
            let labels = labels.iter().map(|label| (*label).to_owned()).collect();
            self.values.entry(index).or_default().push((labels, value));
        }
    }

    /// Adds an integer value.
    pub fn set_count(&mut self, name: &str, labels: &[&str], value: u64) {
        self.set(name, labels, value as f64);
    }

    /// Adds a time, given in epoch milliseconds, as epoch seconds; 0 for `None`.
    pub fn set_time(&mut self, name: &str, labels: &[&str], at_ms: Option<i64>) {
        self.set(name, labels, at_ms.unwrap_or(0) as f64 / 1000.0);
    }

    /// Returns every value with the metric's full name and its labels.
    pub fn values(&self) -> impl Iterator<Item = (String, Vec<(&'static str, &str)>, f64)> {
        self.values.iter().flat_map(move |(index, values)| {
            let metric = &ALL[*index];
            let series = values.iter().map(move |(labels, value)| (self.labels(metric, labels), *value));
            series.map(|(labels, value)| (format!("studysync_{}", metric.name), labels, value))
        })
    }

    fn labels<'a>(&'a self, metric: &Metric, labels: &'a [String]) -> Vec<(&'static str, &'a str)> {
        let of_metric = metric.labels.iter().copied().zip(labels.iter().map(String::as_str));
        of_metric.chain(INSTALLATION_LABELS.into_iter().zip(self.installation.iter().map(String::as_str))).collect()
    }

    /// Returns the text that Prometheus reads.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (index, values) in &self.values {
            let metric = &ALL[*index];
            // Writing to a String cannot fail.
            let _ = writeln!(text, "# HELP studysync_{} {}", metric.name, escaped(metric.help, false));
            let _ = writeln!(text, "# TYPE studysync_{} {}", metric.name, metric.kind());
            for (labels, value) in values {
                let labels = self.labels(metric, labels).into_iter();
                let labels = labels.map(|(name, value)| format!("{name}=\"{}\"", escaped(value, true)));
                let labels = labels.collect::<Vec<_>>().join(",");
                let _ = writeln!(text, "studysync_{}{{{labels}}} {value}", metric.name);
            }
        }
        text
    }
}

/// Escapes a help text or, if `is_label`, a label value for the exposition format.
fn escaped(text: &str, is_label: bool) -> String {
    let text = text.replace('\\', "\\\\").replace('\n', "\\n");
    if is_label { text.replace('"', "\\\"") } else { text }
}

/// Replaces the file by a file with these metrics. The collector reads only `*.prom`, so it ignores the temporary file.
///
/// # Errors
/// The folder is missing, or cannot be written.
pub fn write_textfile(path: &Path, values: &MetricValues) -> io::Result<()> {
    let suffix = format!(".{}.part", std::process::id());
    let mut output = Output::begin(path, &suffix, Access::Everybody)?;
    output.write_all(values.text().as_bytes())?;
    output.finish()
}

/// The keys of a stream in a run's JSON that do not count rows.
const NOT_ROW_COUNTS: [&str; 3] = ["windows", "pages", "reached"];

/// Adds the metrics that `/metrics`, the textfile and OTLP share.
pub fn add_sync_status(values: &mut MetricValues, status: &Status, health: &Health) {
    values.set("build_info", &[env!("CARGO_PKG_VERSION")], 1.0);
    values.set("healthy", &[], f64::from(u8::from(health.is_healthy())));
    for code in reason_codes() {
        values.set("health_reason", &[code], f64::from(u8::from(health.has(code))));
    }
    for (command, at_ms) in &status.last_success_ms {
        values.set_time("last_success_timestamp_seconds", &[command], Some(*at_ms));
    }
    if let Some(last) = &status.last_ended {
        let ended_ms = Some(last.ended_ms()).filter(|ended_ms| !is_in_future(*ended_ms, status.now_ms));
        values.set_time("last_run_timestamp_seconds", &[], ended_ms);
        if let Some(exit_code) = last.exit_code {
            values.set("last_run_exit_code", &[], exit_code as f64);
        }
    }
    values.set_count("failed_runs_in_a_row", &[], u64::from(status.failures_in_a_row));
    for lag in &status.stream_lags {
        if let Some(secs) = lag.lag_secs {
            values.set("lag_seconds", &[lag.stream], secs as f64);
        }
    }
    values.set_time("rate_limited_until_timestamp_seconds", &[], status.rate_limited_until_ms);
    if let Some(rate) = status.learned_requests_per_sec {
        values.set("learned_requests_per_second", &[], rate);
    }
    if let Some(maintenance) = &status.maintenance {
        values.set("catalog_snapshots", &[], maintenance.snapshots as f64);
        values.set("maintenance_due", &[], f64::from(u8::from(maintenance.is_due)));
    }
    if let Some(report) = &status.last_report {
        add_run(values, report);
    }
}

/// Adds the numbers of the last run from its JSON. A missing number counts as 0.
fn add_run(values: &mut MetricValues, report: &Value) {
    let secs = |part: &str| report["time_ms"][part].as_f64().unwrap_or(0.0) / 1000.0;
    values.set("run_duration_seconds", &[], secs("wall"));
    for part in ["network", "parse", "write", "idle"] {
        values.set("run_seconds", &[part], secs(part));
    }
    values.set("run_seconds", &["wait"], secs("told_to_wait") + secs("chose_to_wait"));
    values.set("run_wait_seconds", &["retry_after"], secs("told_to_wait"));
    values.set("run_wait_seconds", &["own_pace"], secs("chose_to_wait"));
    for (status, count) in report["requests"]["by_status"].as_object().into_iter().flatten() {
        values.set("run_requests", &[status], count.as_f64().unwrap_or(0.0));
    }
    for (stream, figures) in report["streams"].as_object().into_iter().flatten() {
        let counts = figures.as_object().into_iter().flatten();
        for (fate, count) in counts.filter(|(fate, _)| !NOT_ROW_COUNTS.contains(&fate.as_str())) {
            values.set("run_rows", &[stream, fate], count.as_f64().unwrap_or(0.0));
        }
        values.set("run_windows", &[stream], figures["windows"].as_f64().unwrap_or(0.0));
    }
    values.set("run_peak_memory_bytes", &[], report["peak_rss_bytes"].as_f64().unwrap_or(0.0));
}
